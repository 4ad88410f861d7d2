"""Registers behind block RAMs of ECP5: moved into them where both are alike, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import load_board
from nnhw.flow.implementation.output_registers import absorb_registers
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.hdl.memory import block_ram
from tests.flow.designs import top_of

BOARD = load_board("ulx3s_25f")
CLOCK, ENABLE, WORDS, LATE = 2, 3, 100, 200
Change = Callable[[dict[str, Any]], None]


def register(bit: int) -> dict[str, Any]:
    """Return a register behind a bit of a memory."""
    return {
        "type": "TRELLIS_FF",
        "parameters": {"CEMUX": "CE", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"},
        "port_directions": {"CE": "input", "CLK": "input", "DI": "input", "LSR": "input", "Q": "output"},
        "connections": {"CE": [ENABLE], "CLK": [CLOCK], "DI": [WORDS + bit], "LSR": ["0"], "Q": [LATE + bit]},
    }


def module_of(bits: int, width: int) -> dict[str, Any]:
    """Return a module with a memory of words of so many bits, a register behind each, and the port `o`."""
    outputs = [f"DO{letter}{bit}" for letter in ("BA" if width == 36 else "B") for bit in range(18)]
    memory = {
        "type": "DP16KD",
        "parameters": {
            **{"DATA_WIDTH_A": f"{width:032b}", "DATA_WIDTH_B": f"{width:032b}"},
            **{"CLKAMUX": "CLKA", "CLKBMUX": "CLKB", "REGMODE_A": "NOREG", "REGMODE_B": "NOREG"},
        },
        "port_directions": dict.fromkeys(("CLKA", "CLKB", "CEB", "OCEA", "OCEB", "RSTB", "WEA", "WEB"), "input")
        | dict.fromkeys(outputs, "output"),
        "connections": {
            **{"CLKA": [CLOCK], "CLKB": [CLOCK], "CEB": [ENABLE], "OCEA": ["0"], "OCEB": ["1"]},
            "RSTB": ["0"],
            **{"WEA": [4], "WEB": ["0"]},
            **{name: [WORDS + bit] if bit < bits else [] for bit, name in enumerate(outputs)},
        },
    }
    ports = {
        "clk": {"direction": "input", "bits": [CLOCK, ENABLE, 4]},
        "o": {"direction": "output", "bits": [LATE + bit for bit in range(bits)]},
    }
    return {"ports": ports, "cells": {"memory": memory} | {f"late_{bit}": register(bit) for bit in range(bits)}}


@pytest.mark.parametrize(("bits", "width"), [(18, 18), (5, 18), (36, 36), (20, 36), (1, 1)])
def test_registers_move_into_their_block_ram(bits: int, width: int) -> None:
    module = module_of(bits, width)
    assert absorb_registers(module) == bits
    (memory,) = module["cells"].values()
    modes = memory["parameters"]
    assert modes["REGMODE_B"] == "OUTREG"
    assert modes["REGMODE_A"] == ("OUTREG" if width == 36 else "NOREG")
    wires = memory["connections"]
    assert (wires["OCEB"], wires["OCEA"]) == ([ENABLE], [ENABLE] if width == 36 else ["0"])
    assert wires["CLKA"] == wires["CLKB"] == [CLOCK]
    assert memory["connections"]["DOB0"] == [LATE]
    given = [bit for name, wires in memory["connections"].items() if name.startswith("DO") for bit in wires]
    assert sorted(given) == module["ports"]["o"]["bits"]


def test_registers_without_an_enable_move_in_every_cycle() -> None:
    module = module_of(2, 18)
    for bit in range(2):
        late = module["cells"][f"late_{bit}"]
        late["parameters"]["CEMUX"] = "1 "
        del late["connections"]["CE"]
    assert absorb_registers(module) == 2
    assert module["cells"]["memory"]["connections"]["OCEB"] == ["1"]


def connect(cell: str, port: str, *bits: int | str) -> Change:
    """Return the change of one connection."""
    return lambda module: module["cells"][cell]["connections"].update({port: list(bits)})


def configure(cell: str, **values: str) -> Change:
    """Return the change of parameters."""
    return lambda module: module["cells"][cell]["parameters"].update(values)


KEPT: dict[str, Change] = {
    "a_second_reader": lambda module: module["ports"]["o"]["bits"].append(WORDS),
    "another_reader": lambda module: module["cells"].update(copy=register(0)),
    "no_register": lambda module: module["cells"].pop("late_1") and module["ports"]["o"]["bits"].append(WORDS + 1),
    "a_word_that_enables": connect("late_1", "CE", WORDS),
    "another_enable": connect("late_1", "CE", 5),
    "another_clock": connect("late_1", "CLK", 5),
    "a_reset": connect("late_1", "LSR", 5),
    "set_at_the_start": configure("late_1", REGSET="SET"),
    "inverted_enable": configure("late_1", CEMUX="INV"),
    "inverted_clock": configure("late_1", CLKMUX="INV"),
    "inverted_clock_of_the_memory": configure("memory", CLKBMUX="INV"),
    "a_reset_of_the_memory": connect("memory", "RSTB", 5),
    "a_port_that_writes": connect("memory", "WEB", 5),
}


def test_registers_behind_constants_of_36_bits_get_a_clock_for_both_halves() -> None:
    module = module_of(36, 36)
    connect("memory", "CLKA", "0")(module)
    assert absorb_registers(module) == 36
    assert module["cells"]["memory"]["connections"]["CLKA"] == [CLOCK]


def test_registers_of_36_bits_stay_where_another_clock_writes() -> None:
    module = module_of(36, 36)
    connect("memory", "CLKA", 5)(module)
    assert absorb_registers(module) == 0


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_registers_stay_where_they_are(change: Change) -> None:
    module = module_of(2, 18)
    change(module)
    before = dict(module["cells"])
    assert absorb_registers(module) == 0
    assert module["cells"] == before
    assert module["cells"]["memory"]["parameters"]["REGMODE_B"] == "NOREG"


class LateMemory(wiring.Component):
    """Sends the parity of words that have waited in a register behind their memory."""

    def __init__(self, depth: int, bits: int) -> None:
        self.depth, self.bits = depth, bits
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        content = Random(1)
        init = [content.getrandbits(self.bits) for _ in range(self.depth)]
        m.submodules.memory = memory = block_ram(self.depth, self.bits, init)
        reader = memory.read_port(domain="sync")
        late, enable = Signal(self.bits, reset_less=True), Signal()
        m.d.sync += [reader.addr.eq(Cat(self.rx, reader.addr)), enable.eq(self.rx)]
        m.d.comb += reader.en.eq(enable)
        with m.If(enable):
            m.d.sync += late.eq(reader.data)
        m.d.sync += self.tx.eq(late.xor())
        return m


@pytest.mark.parametrize(("depth", "bits", "moves"), [(512, 72, True), (1024, 18, True), (3000, 27, False)])
def test_synthesis_leaves_no_register_behind_a_block_ram(depth: int, bits: int, moves: bool, tmp_path: Path) -> None:
    netlist = synthesize(top_of(LateMemory(depth, bits), BOARD).rtlil, BOARD, tmp_path)
    others = 16 + 1 + 1 + 20  # address, enable, output, reset
    assert (netlist.cells["TRELLIS_FF"] < others) == moves
