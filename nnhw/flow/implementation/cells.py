"""Cells and nets of a netlist in yosys's JSON."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Bit = int | str
"""A net by its number, or a constant: '0', '1', 'x' or 'z'."""
Cell = dict[str, Any]
Module = dict[str, Any]
NETLIST = "design.json"
"""File of a synthesized design."""


def loads_of(module: Module) -> dict[Bit, list[tuple[str, str]]]:
    """Return the readers of each net: (cell, port), and ('', port) for a port of the module."""
    loads: dict[Bit, list[tuple[str, str]]] = defaultdict(list)
    for name, cell in module.get("cells", {}).items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                for bit in bits:
                    if isinstance(bit, int):
                        loads[bit].append((name, port))
    for port, entry in module["ports"].items():
        for bit in entry["bits"]:
            if isinstance(bit, int):
                loads[bit].append(("", port))
    return loads


def undriven(module: Module) -> dict[Bit, tuple[str, str]]:
    """Return the nets that something reads and nothing drives, with one of their readers: (cell, port)."""
    drivers = {bit for entry in module["ports"].values() if entry["direction"] != "output" for bit in entry["bits"]}
    for cell in module.get("cells", {}).values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "input":
                drivers.update(bits)
    return {bit: readers[0] for bit, readers in loads_of(module).items() if bit not in drivers}
