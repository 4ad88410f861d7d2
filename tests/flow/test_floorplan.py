"""Floorplan: each array's block RAMs in a part of the device of its own, at places that the device has."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib import wiring

from nnhw.boards import load_board
from nnhw.families import ECP5
from nnhw.families.tools import Sites
from nnhw.flow.implementation.carries import shorten_chains
from nnhw.flow.implementation.floorplan import SITE, Floorplan, arrange, engine_order
from nnhw.flow.implementation.rewriting import REWRITES, rewrite
from nnhw.flow.implementation.unneeded import declared_memories
from nnhw.flow.tools.processes import run
from nnhw.flow.tools.toolchain import find_tool, prepare
from nnhw.hdl.names import BLOCK, WeightBlock, parse_weight_block, weights_name
from nnhw.hdl.systolic_array import SystolicArray
from sim.cases import INT8, matmul

COLUMNS = [[f"{column}/{row}" for row in range(4)] for column in range(8)]
SITES = Sites("DP16KD", COLUMNS)


def block_ram() -> dict[str, Any]:
    """Return a block RAM of which nothing is used."""
    return {"type": "DP16KD", "attributes": {}, "parameters": {}, "port_directions": {}, "connections": {}}


def module_of(*names: str) -> dict[str, Any]:
    """Return a module of block RAMs."""
    return {"attributes": {"top": 1}, "ports": {}, "netnames": {}, "cells": {name: block_ram() for name in names}}


def array(name: str, *groups: int) -> list[str]:
    """Return the names of an array's block RAMs, so many of each group of cells, in the order of the alphabet."""
    return sorted(
        f"{name}.{weights_name(group, BLOCK)}.0.{piece}" for group, n in enumerate(groups) for piece in range(n)
    )


def sites_of(module: dict[str, Any], names: list[str]) -> list[tuple[int, int]]:
    """Return column and row of block RAMs."""
    places = [module["cells"][name]["attributes"][SITE].split("/") for name in names]
    return [(int(column), int(row)) for column, row in places]


def test_arrays_stand_side_by_side_in_the_order_of_their_layers() -> None:
    near, far = array("9_matmul.array", 3, 2), array("12_matmul.array", 2, 2, 2)
    module = module_of(*far, *near, "9_window.memory_0.0.0")
    assert arrange(module, SITES) == Floorplan(11)
    assert {column for column, _ in sites_of(module, near)} <= {0, 1, 2}
    assert {column for column, _ in sites_of(module, far)} <= {3, 4, 5, 6, 7}
    assert len({*sites_of(module, near), *sites_of(module, far)}) == 11
    assert SITE not in module["cells"]["9_window.memory_0.0.0"]["attributes"]


def test_groups_of_cells_go_from_the_top_down_and_pieces_along_the_row() -> None:
    module = module_of(*array("a.array", 12, 4), *array("b.array", 1))
    assert arrange(module, SITES) == Floorplan(17)
    order = [f"a.array.{weights_name(0, BLOCK)}.0.{piece}" for piece in range(12)]
    order += [f"a.array.{weights_name(1, BLOCK)}.0.{piece}" for piece in range(4)]
    assert [row for _, row in sites_of(module, order)] == [row for row in range(4) for _ in range(4)]
    for row in range(4):
        columns = [column for column, _ in sites_of(module, order[4 * row : 4 * row + 4])]
        assert columns == sorted(set(columns))


@pytest.mark.parametrize("sizes", [(16, 16), (31, 1), (17, 4, 3), (1, 1, 1), (20, 1, 7)])
def test_arrays_that_fit_have_a_place_for_each_block_ram(sizes: tuple[int, ...]) -> None:
    arrays = [array(f"{index}.array", size) for index, size in enumerate(sizes)]
    module = module_of(*(name for names in arrays for name in names))
    fits = sum(-(-size // 4) for size in sizes) <= len(COLUMNS)
    assert arrange(module, SITES).block_rams == (sum(sizes) if fits else 0)
    if fits:
        places = [sites_of(module, names) for names in arrays]
        assert len({site for part in places for site in part}) == sum(sizes)
        assert all(
            max(column for column, _ in left) < min(column for column, _ in right) for left, right in pairwise(places)
        )


ONE_OR_NONE = "weights in block RAM, and what has to be kept apart is two or more"


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (array("a.array", 8), f"a single array has {ONE_OR_NONE}"),
        (
            [*array("a.array", 17), *array("b.array", 13)],
            "2 arrays take 17 + 13 block RAMs, too many for columns to themselves",
        ),
        (["a.memory_0.0.0"], f"no array has {ONE_OR_NONE}"),
        ([], f"no array has {ONE_OR_NONE}"),
    ],
)
def test_nothing_is_arranged_that_needs_no_order_or_has_no_room(names: list[str], reason: str) -> None:
    module = module_of(*names)
    assert arrange(module, SITES) == Floorplan(0, 0, reason)
    assert not any(cell["attributes"] for cell in module["cells"].values())


def test_rewrite_says_that_nothing_is_arranged_in_a_large_netlist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnhw.flow.implementation.rewriting.LARGE_LC", -1)
    monkeypatch.setitem(REWRITES, "ecp5", (shorten_chains,))
    netlist = tmp_path / "design.json"

    def notes(*names: str, board: str = "ulx3s_85f") -> list[str]:
        netlist.write_text(json.dumps({"modules": {"top": module_of(*names)}}), encoding="utf-8")
        return rewrite(netlist, load_board(board))

    why = "the netlist is large, but its block RAMs get no places of their own: no array has"
    assert notes("a.memory_0.0.0") == [f"{why} {ONE_OR_NONE}"]
    assert notes(*array("a.array", 1), *array("b.array", 1)) == []
    assert notes("a.memory_0.0.0", board="ulx3s_25f") == []  # nothing is arranged there


PRODUCTS = [[f"{column}/{row}p" for row in range(3)] for column in range(8)]
CROWDED = Sites("DP16KD", COLUMNS, "MULT18X18D", PRODUCTS, between=2)


def crowded(multipliers: dict[str, int], weights: dict[str, int], luts: dict[str, int]) -> dict[str, Any]:
    """Return a module of engines with so many DSP blocks, block RAMs with weights, and other cells."""
    module = module_of(*(name for engine, count in weights.items() for name in array(f"{engine}.array", count)))
    for kind, numbers in (("MULT18X18D", multipliers), ("LUT4", luts)):
        names = [f"{engine}.{kind}_{index}" for engine, count in numbers.items() for index in range(count)]
        module["cells"] |= {name: block_ram() | {"type": kind, "attributes": {}} for name in names}
    return module


def test_crowded_dsp_blocks_follow_one_another_in_the_order_of_the_stream() -> None:
    # By its name `b` comes behind `a`, in the stream in front of it.
    module = crowded({"a": 12, "b": 11}, {"a": 5, "b": 3, "logic": 4}, {"logic": 100})
    order = engine_order("cell \\top.b \\b\nend\n  cell \\top.logic \\logic\n  cell \\top.a \\a\n")
    assert arrange(module, CROWDED, order) == Floorplan(12, 23)
    sites = {name: cell["attributes"].get(SITE) for name, cell in module["cells"].items()}
    products = [sites[f"{engine}.MULT18X18D_{index}"] for engine, n in (("b", 11), ("a", 12)) for index in range(n)]
    every = [site for column in PRODUCTS for site in column]
    assert [every.index(site) for site in products] == sorted({every.index(site) for site in products})
    # The block RAMs of engines with many are between their rows and near them; those of others are beyond.
    near = {engine: sites_of(module, array(f"{engine}.array", n)) for engine, n in (("a", 5), ("b", 3), ("logic", 4))}
    assert {row for engine in "ab" for _, row in near[engine]} == {0, 1}
    assert max(column for column, _ in near["b"]) < min(column for column, _ in near["a"])
    assert {row for _, row in near["logic"]} == {2, 3}
    assert not any(site for name, site in sites.items() if "LUT4" in name)


def test_link_stands_beside_the_first_array() -> None:
    module = crowded({"a": 12, "b": 11}, {"a": 3, "b": 3}, {})
    others = ["link.memory.0.0", "engines.window.memory.0.0"]
    module["cells"] = {f"engines.{name}": cell for name, cell in module["cells"].items()}
    module["cells"] |= {name: block_ram() for name in others}
    assert arrange(module, CROWDED, {"window": 0, "b": 1, "a": 2}) == Floorplan(7, 23)
    b, a = (sites_of(module, array(f"engines.{name}.array", 3)) for name in "ba")
    assert max(column for column, _ in [*sites_of(module, others[:1]), *b]) < min(column for column, _ in a)
    assert SITE not in module["cells"]["engines.window.memory.0.0"]["attributes"]


def test_dsp_blocks_get_no_places_where_some_are_left_or_block_rams_do_not_suffice() -> None:
    few = crowded({"a": 12, "b": 9}, {"a": 5, "b": 3}, {})
    assert arrange(few, CROWDED) == Floorplan(8)
    assert not any(SITE in few["cells"][f"a.MULT18X18D_{index}"]["attributes"] for index in range(12))
    # Between the rows there are 16 places, of which `a` would get 8.
    assert arrange(crowded({"a": 12, "b": 11}, {"a": 9, "b": 3}, {}), CROWDED) == Floorplan(12)
    # Beyond them there are 16.
    assert arrange(crowded({"a": 12, "b": 11}, {"a": 2, "logic": 17}, {}), CROWDED) == Floorplan(19)


class TwoArrays(wiring.Component):
    """Two systolic arrays of two groups of cells, whose weights are read from block RAM.

    Parameters
    ----------
    options: of the arrays' configuration.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in ("near", "far"):
            config = matmul(8, 64, 4, 2, (INT8, INT8), hop=2, **self.options)
            m.submodules[name] = SystolicArray(config)
        return m


@pytest.mark.parametrize("options", [{}, {"tail_words": 3}, {"registered": True}, {"logic_pe": 2}], ids=str)
def test_memories_of_arrays_have_the_names_that_are_looked_for(options: dict[str, Any]) -> None:
    memories = declared_memories(rtlil.convert(TwoArrays(**options), name="top", ports=[]))
    # yosys calls block RAMs like their memory, with row and column behind it.
    names = [f"{name}.{row}.0" for name, memory in memories.items() if memory.block for row in range(2)]
    groups = range(1 if "logic_pe" in options else 2)
    found = {block for name in names if (block := parse_weight_block(name))}
    assert found == {WeightBlock(a, g, (row, 0)) for a in ("near", "far") for g in groups for row in range(2)}
    assert arrange(module_of(*names), SITES).block_rams == len(names) == len(found)


def test_places_of_the_85f_are_those_of_the_device(tmp_path: Path) -> None:
    board = load_board("ulx3s_85f")
    places = ECP5.tools.sites(board.device)
    rams, multipliers = (
        [site for column in columns for site in column] for columns in (places.block_rams, places.multipliers)
    )
    assert (len(set(rams)), len(set(multipliers))) == (board.resources.ebr, board.resources.dsp)
    assert len(places.block_rams) == len(places.multipliers)
    module = module_of(*map(str, range(len(rams) + len(multipliers))))
    for cell, site in zip(module["cells"].values(), [*rams, *multipliers], strict=True):
        cell["attributes"][SITE] = site
        if site in multipliers:
            cell["type"] = places.multiplier
    (tmp_path / "design.json").write_text(json.dumps({"creator": "", "modules": {"top": module}}))
    tool = find_tool(ECP5.tools.place.name)
    prepare(tool, lambda _: None)
    device = ECP5.tools.device_options(board.device, board.package, board.speed)
    options = [*device, "--json", "design.json", "--no-route", "--write", "placed.json"]
    run(tool.command(options, tmp_path, "place.log"))
    placed = json.loads((tmp_path / "placed.json").read_text())["modules"]["top"]["cells"]
    assert {cell["attributes"]["NEXTPNR_BEL"] for cell in placed.values()} == {*rams, *multipliers}
