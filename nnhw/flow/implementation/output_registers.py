"""Registers behind block RAMs of ECP5, moved into the block RAMs' own output registers.

A block RAM gives a word 5.8 ns after the clock, and with its output register 1.0 ns (speed grade 6), but yosys never
uses that register (`techlibs/lattice/brams_map_16kd.v`, yosys 0.70: REGMODE is always NOREG). So whoever needs a fast
word describes a register behind the memory, and gets it here.

Source of the times: Project Trellis, `timing/speed_6/cells.json`; yosys issue #5814 describes the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nnhw.families.ecp5 import BLOCK_RAM, REGISTER
from nnhw.flow.implementation.cells import Bit, Cell, Module, loads_of

WORD = 18
"""Bits of a port; both ports together are one of 36 bits, which is read by port B's clock."""


@dataclass(frozen=True)
class ReadPort:
    """A side of a block RAM from which words are read.

    Parameters
    ----------
    letter: of its clock, enables and address: 'A' or 'B'.
    outputs: names of its data.
    """

    letter: str
    outputs: tuple[str, ...]


def absorb_registers(module: Module) -> int:
    """Move registers into the block RAMs that they follow; return the number of registers moved.

    The registers of a port can be moved if every bit of its words that is read goes to one of them and nowhere else,
    and if they have the port's clock, one enable, no reset, and start at 0, like the block RAM's own.
    """
    cells = module["cells"]
    loads = loads_of(module)
    absorbed = 0
    for memory in [cell for cell in cells.values() if cell["type"] == BLOCK_RAM]:
        for port in ports_of(memory):
            registers = _registers(memory, port, cells, loads)
            if registers is None:
                continue
            # `loads` still has the registers that are gone, but only outputs of this port led to them.
            _absorb(memory, port, [(output, cells.pop(name)) for output, name in registers.items()])
            absorbed += len(registers)
    return absorbed


def ports_of(memory: Cell) -> Iterator[ReadPort]:
    """Yield the ports of a block RAM that never write."""
    both = {letter: tuple(f"DO{letter}{bit}" for bit in range(WORD)) for letter in "AB"}
    if int(memory["parameters"]["DATA_WIDTH_B"], 2) == 2 * WORD:
        yield ReadPort("B", both["A"] + both["B"])
        return
    for letter, outputs in both.items():
        if memory["connections"][f"WE{letter}"] == ["0"]:
            yield ReadPort(letter, outputs)


def _registers(
    memory: Cell, port: ReadPort, cells: Mapping[str, Cell], loads: Mapping[Bit, list[tuple[str, str]]]
) -> dict[str, str] | None:
    """Return the register of each output that anything reads, by name; None if the port cannot take them."""
    found: dict[str, str] = {}
    for output in port.outputs:
        readers = [load for bit in memory["connections"].get(output, []) for load in loads.get(bit, [])]
        if not readers:
            continue
        ((name, pin), *others) = readers
        if others or pin != "DI" or name not in cells or cells[name]["type"] != REGISTER:
            return None
        found[output] = name
    registers = [cells[name] for name in found.values()]
    clock = memory["connections"][f"CLK{port.letter}"]
    if not registers or memory["parameters"][f"CLK{port.letter}MUX"] != f"CLK{port.letter}":
        return None
    if len(port.outputs) > WORD and memory["connections"]["CLKA"] not in (clock, ["0"]):
        return None  # written by another clock
    # A port has one reset. Where the design gives it to the register of the memory, it would reset the other one, too.
    if memory["connections"].get(f"RST{port.letter}", ["0"]) != ["0"]:
        return None
    alike = all(_is_plain(one, clock) and _enable(one) == _enable(registers[0]) for one in registers)
    return found if alike else None


def _is_plain(register: Cell, clock: list[Bit]) -> bool:
    """Return whether a register behaves like the output registers of block RAMs."""
    parameters, wires = register["parameters"], register["connections"]
    return (
        wires["CLK"] == clock
        and parameters["CLKMUX"] == "CLK"
        and parameters["REGSET"] == "RESET"
        # In yosys's JSON a string that could be a number of bits ends with a blank: "1 ".
        and parameters["CEMUX"].strip() in ("CE", "1")
        and parameters["LSRMUX"] == "LSR"
        and wires.get("LSR", ["0"]) == ["0"]
    )


def _enable(register: Cell) -> list[Bit]:
    """Return the bit that lets a register move."""
    if register["parameters"]["CEMUX"].strip() == "1":
        return ["1"]
    enable: list[Bit] = register["connections"]["CE"]
    return enable


def _absorb(memory: Cell, port: ReadPort, registers: list[tuple[str, Cell]]) -> None:
    """Switch on a port's output register, and connect it in place of the registers."""
    wires: dict[str, Any] = memory["connections"]
    for output, register in registers:
        wires[output] = register["connections"]["Q"]
    wires[f"OCE{port.letter}"] = _enable(registers[0][1])
    memory["parameters"][f"REGMODE_{port.letter}"] = "OUTREG"
    if len(port.outputs) > WORD:
        # Half of a word of 36 bits leaves by port A. The vendor's cell has one clock and one enable for both halves,
        # and nextpnr wires port B's (`ecp5/pack.cc`); with port A's alike it does not matter which ones they heed.
        memory["parameters"]["REGMODE_A"] = "OUTREG"
        wires |= {"OCEA": wires["OCEB"], "CLKA": wires["CLKB"]}
