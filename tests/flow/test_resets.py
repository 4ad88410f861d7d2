"""Copies of a reset register: each stands for a part of the design, and no register is without its reset."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnhw.boards import load_board
from nnhw.flow.implementation.cells import Cell, loads_of, undriven
from nnhw.flow.implementation.resets import SHARE, SPREAD, copy_resets
from nnhw.flow.implementation.rewriting import rewrite

CLOCK, RESET, REQUEST, EARLIER = 2, 3, 4, 5


def register(reset: int | str, output: int, data: int | str = "0") -> Cell:
    connections: dict[str, Any] = {"CLK": [CLOCK], "LSR": [reset], "DI": [data], "Q": [output]}
    directions = {port: "output" if port == "Q" else "input" for port in connections}
    return {"type": "TRELLIS_FF", "parameters": {"REGSET": "SET"}, "port_directions": directions} | {
        "connections": connections
    }


def design(parts: dict[str, int]) -> dict[str, Any]:
    """Return a module with the reset's register and registers that it resets: so many in each instance."""
    names = [f"{part}.r_{index}" if part else f"r_{index}" for part, number in parts.items() for index in range(number)]
    cells = {name: register(RESET, 10 + index) for index, name in enumerate(names)}
    cells["top.earlier_reg"] = register("0", EARLIER, REQUEST)
    cells["top.reset_reg"] = register("0", RESET, EARLIER)
    ports = {"request": {"direction": "input", "bits": [REQUEST]}, "clock": {"direction": "input", "bits": [CLOCK]}}
    return {"cells": cells, "ports": ports, "netnames": {}}


@pytest.mark.parametrize("number", [SPREAD, SPREAD + 1])
def test_a_reset_that_goes_all_over_a_device_has_a_copy_for_each_part(number: int) -> None:
    part, rest = SHARE, number - 3 * SHARE
    parts = {"top.engine.a": part, "top.engine.b.x": part, "top.engine.b.y": part - 1, "": rest, "top.link": 1}
    module = design(parts)
    copies = copy_resets(module)
    assert copies == (4 if number > SPREAD else 0)
    cells = module["cells"]
    assert not undriven(module)
    drivers = {cell["connections"]["Q"][0]: cell for cell in cells.values()}
    loads: Counter[tuple[str, int]] = Counter()
    for name, cell in cells.items():
        (reset,) = cell["connections"]["LSR"]
        if reset != "0":
            assert drivers[reset]["parameters"] == {"REGSET": "SET"}
            (earlier,) = drivers[reset]["connections"]["DI"]
            assert drivers[earlier]["connections"] == cells["top.earlier_reg"]["connections"] | {"Q": [earlier]}
            assert drivers[reset]["connections"] == register("0", reset, earlier)["connections"]
            assert (earlier == EARLIER) == (reset == RESET)
            loads[name.rpartition(".")[0], reset] += 1
    assert sum(loads.values()) == number
    if number > SPREAD:
        assert len({reset for _, reset in loads}) == len(loads) == len(parts)
        assert len(loads_of(module)[RESET]) == rest
        assert loads["", RESET] == rest


def test_other_readers_of_a_reset_stay_with_its_register() -> None:
    module = design(dict.fromkeys(("top.a", "top.b", "top.c", "top.d"), SHARE))
    module["cells"]["top.a.gate"] = register("0", 7, data=RESET)
    assert copy_resets(module) > 0
    assert loads_of(module)[RESET] == [("top.a.gate", "DI")]


def test_a_register_in_front_that_something_else_reads_is_not_copied() -> None:
    module = design(dict.fromkeys(("top.a", "top.b", "top.c", "top.d"), SHARE))
    module["cells"]["top.gate"] = register("0", 7, data=EARLIER)
    assert copy_resets(module) == 4
    assert [name for name in module["cells"] if "earlier_reg_copy" in name] == []
    assert len(loads_of(module)[EARLIER]) == 4 + len(["reset_reg", "gate"])


@pytest.mark.parametrize(
    ("name", "share", "copies"), [("ulx3s_85f", 0.69, 4), ("ulx3s_85f", 0.71, 0), ("ulx3s_25f", 0.69, 0)]
)
def test_only_large_devices_with_room_have_copies(name: str, share: float, copies: int, tmp_path: Path) -> None:
    netlist, board = tmp_path / "design.json", load_board(name)
    module = design(dict.fromkeys(("top.a", "top.b", "top.c", "top.d"), SHARE))
    count = len(module["cells"])
    board = replace(board, resources=replace(board.resources, ff=round(count / share)))
    netlist.write_text(json.dumps({"modules": {"top": module}}), encoding="utf-8")
    rewrite(netlist, board)
    cells = json.loads(netlist.read_text(encoding="utf-8"))["modules"]["top"]["cells"]
    assert sum("top.reset_reg_copy" in cell for cell in cells) == copies
