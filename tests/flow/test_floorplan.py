"""Floorplan: each array's block RAMs in a part of the device of its own, at places that the device has."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nnhw.boards import load_board
from nnhw.flow.family import ECP5
from nnhw.flow.floorplan import SITE, arrange_block_rams
from nnhw.flow.processes import run
from nnhw.flow.toolchain import find_tool, prepare

COLUMNS = [[f"{column}/{row}" for row in range(4)] for column in range(8)]


def block_ram() -> dict[str, Any]:
    """Return a block RAM of which nothing is used."""
    return {"type": "DP16KD", "attributes": {}, "parameters": {}, "port_directions": {}, "connections": {}}


def module_of(*names: str) -> dict[str, Any]:
    """Return a module of block RAMs."""
    return {"attributes": {"top": 1}, "ports": {}, "netnames": {}, "cells": {name: block_ram() for name in names}}


def array(name: str, *groups: int) -> list[str]:
    """Return the names of an array's block RAMs, so many of each group of cells, in the order of the alphabet."""
    return sorted(f"{name}.weights_{group}_block.0.{piece}" for group, n in enumerate(groups) for piece in range(n))


def sites_of(module: dict[str, Any], names: list[str]) -> list[tuple[int, int]]:
    """Return column and row of block RAMs."""
    places = [module["cells"][name]["attributes"][SITE].split("/") for name in names]
    return [(int(column), int(row)) for column, row in places]


def test_arrays_stand_side_by_side_in_the_order_of_their_layers() -> None:
    near, far = array("9_matmul.array", 3, 2), array("12_matmul.array", 2, 2, 2)
    module = module_of(*far, *near, "9_window.memory_0.0.0")
    assert arrange_block_rams(module, COLUMNS) == 11
    assert {column for column, _ in sites_of(module, near)} <= {0, 1, 2}
    assert {column for column, _ in sites_of(module, far)} <= {3, 4, 5, 6, 7}
    assert len({*sites_of(module, near), *sites_of(module, far)}) == 11
    assert SITE not in module["cells"]["9_window.memory_0.0.0"]["attributes"]


def test_groups_of_cells_go_from_the_top_down_and_pieces_along_the_row() -> None:
    module = module_of(*array("a.array", 12, 4), *array("b.array", 1))
    assert arrange_block_rams(module, COLUMNS) == 17
    order = [f"a.array.weights_0_block.0.{piece}" for piece in range(12)]
    order += [f"a.array.weights_1_block.0.{piece}" for piece in range(4)]
    assert [row for _, row in sites_of(module, order)] == [row for row in range(4) for _ in range(4)]
    for row in range(4):
        columns = [column for column, _ in sites_of(module, order[4 * row : 4 * row + 4])]
        assert columns == sorted(set(columns))


@pytest.mark.parametrize("sizes", [(16, 16), (31, 1), (17, 4, 3), (1, 1, 1), (20, 1, 7)])
def test_arrays_that_fit_have_a_place_for_each_block_ram(sizes: tuple[int, ...]) -> None:
    arrays = [array(f"{index}.array", size) for index, size in enumerate(sizes)]
    module = module_of(*(name for names in arrays for name in names))
    fits = sum(-(-size // 4) for size in sizes) <= len(COLUMNS)
    assert arrange_block_rams(module, COLUMNS) == (sum(sizes) if fits else 0)
    if fits:
        places = [sites_of(module, names) for names in arrays]
        assert len({site for part in places for site in part}) == sum(sizes)
        assert all(
            max(column for column, _ in left) < min(column for column, _ in right) for left, right in pairwise(places)
        )


@pytest.mark.parametrize(
    "names", [array("a.array", 8), [*array("a.array", 17), *array("b.array", 13)], ["a.memory_0.0.0"], []]
)
def test_nothing_is_arranged_that_needs_no_order_or_has_no_room(names: list[str]) -> None:
    module = module_of(*names)
    assert arrange_block_rams(module, COLUMNS) == 0
    assert arrange_block_rams(module_of(*array("a.array", 1), *array("b.array", 1)), ()) == 0
    assert not any(cell["attributes"] for cell in module["cells"].values())


def test_places_of_the_85f_are_those_of_the_device(tmp_path: Path) -> None:
    board = load_board("ulx3s_85f")
    sites = [site for column in ECP5.block_ram_columns(board) for site in column]
    assert len(set(sites)) == board.resources.ebr
    module = module_of(*map(str, range(len(sites))))
    for cell, site in zip(module["cells"].values(), sites, strict=True):
        cell["attributes"][SITE] = site
    (tmp_path / "design.json").write_text(json.dumps({"creator": "", "modules": {"top": module}}))
    tool = find_tool(ECP5.place_tool)
    prepare(tool, lambda _: None)
    options = [*ECP5.device_options(board), "--json", "design.json", "--no-route", "--write", "placed.json"]
    run(tool.command(options, tmp_path, "place.log"))
    placed = json.loads((tmp_path / "placed.json").read_text())["modules"]["top"]["cells"]
    assert {cell["attributes"]["NEXTPNR_BEL"] for cell in placed.values()} == set(sites)
