"""Changing a finished layout to another clock: only the settings of its PLL change, nothing is placed or routed.

Which bits of a layout set a PLL is taken from place and route itself: the PLL alone, with the pin that feeds it, is
laid out as it was set and as it is to be set, which takes a second. Where these two layouts differ, the finished one
must be as the first, and becomes as the second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnhw.boards import Board
from nnhw.errors import BuildError
from nnhw.families import FAMILIES, Family
from nnhw.flow.implementation.cells import Module
from nnhw.flow.implementation.layouts import format_of
from nnhw.flow.implementation.place import lay_out

Parameters = Mapping[str, str]
"""Parameters of a cell by name, as in yosys's JSON."""
_SETTING = re.compile(r"^ +parameter \\(\w+) (.*)\n", re.MULTILINE)


def without_pll(rtlil: str, family: Family) -> str:
    """Return a design without the settings of its PLLs."""
    return _pll_cells(family).sub(lambda cell: _SETTING.sub("", cell[0]), rtlil)


def pll_parameters(rtlil: str, family: Family) -> dict[str, str]:
    """Return the settings of a design's PLL; empty where it has none."""
    return {
        name: _json_value(value)
        for cell in _pll_cells(family).finditer(rtlil)
        for name, value in _SETTING.findall(cell[0])
    }


def _pll_cells(family: Family) -> re.Pattern[str]:
    """Return the pattern of a PLL in RTLIL: its cell up to the first line that is no parameter."""
    kinds = "|".join(map(re.escape, family.models.plls))
    return re.compile(rf"^ +cell \\(?:{kinds}) .*\n(?: +parameter .*\n)*", re.MULTILINE)


def _json_value(value: str) -> str:
    """Return a parameter's value in RTLIL as yosys's JSON has it."""
    if value.startswith('"'):
        return value.strip('"')
    # A plain integer has 32 bits in yosys.
    return value.partition("'")[2] or f"{int(value):032b}"


def retune(
    module: Module, layout: str, change: tuple[Parameters, Parameters], constraints: str, board: Board, scratch: Path
) -> str:
    """Change the settings of the PLL in module `top` of a netlist, in place, and in its layout, which is returned.

    Parameters
    ----------
    change: old and new settings of the PLL.
    constraints: those of the design.
    scratch: folder for the layouts of the PLL alone.

    Raises
    ------
    ToolError: nextpnr is missing, or failed.
    BuildError: netlist or layout do not have the old settings.
    """
    (pll,) = (name for name, cell in module["cells"].items() if cell["type"] in FAMILIES[board.family].models.plls)
    parameters = module["cells"][pll]["parameters"]
    if not change[0].items() <= parameters.items():
        raise BuildError(_mistake("the PLL of the netlist is not set as that of the design"))
    alone = pll_alone(module, pll)
    others = module["ports"].keys() - alone["ports"].keys()
    lines = [line for line in constraints.splitlines() if others.isdisjoint(re.findall(r"\w+", line))]
    designs = {}
    for number, settings in enumerate(change):
        cell = {**alone["cells"][pll], "parameters": {**parameters, **settings}}
        designs[scratch / f"pll{number}"] = {"modules": {"top": {**alone, "cells": {**alone["cells"], pll: cell}}}}
    layouts = lay_out(designs, "\n".join(lines), board)
    parameters.update(change[1])
    try:
        return format_of(FAMILIES[board.family]).transfer(layout, *layouts)
    except ValueError as error:
        raise BuildError(_mistake(str(error))) from None


def _mistake(what: str) -> str:
    return f"the clock of the finished layout cannot be changed: {what}; this is a mistake of nnhw, please report it"


def pll_alone(module: Module, pll: str) -> Module:
    """Return a module that has only the PLL of `module`, the cells that drive it, and their ports."""
    drivers = {
        bit: name
        for name, cell in module["cells"].items()
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] != "input"
        for bit in bits
        if isinstance(bit, int)
    }
    cells, waiting = dict[str, Any](), [pll]
    while waiting:
        name = waiting.pop()
        cells[name] = cell = dict(module["cells"][name])
        read = {
            bit
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input"
            for bit in bits
        }
        waiting += {drivers[bit] for bit in read if bit in drivers} - cells.keys()
    known = {bit for cell in cells.values() for bits in cell["connections"].values() for bit in bits}
    ports = {name: port for name, port in module["ports"].items() if known & set(port["bits"])}
    nets = {name: net for name, net in module["netnames"].items() if set(net["bits"]) <= known}
    return {"attributes": module["attributes"], "ports": ports, "cells": cells, "netnames": nets}
