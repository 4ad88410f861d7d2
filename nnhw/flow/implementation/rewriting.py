"""Rewriting a netlist between synthesis and place and route, so that fewer, faster or nearer cells do the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from nnhw.boards import Board
from nnhw.errors import BuildError
from nnhw.families import FAMILIES
from nnhw.flow.implementation.carries import shorten_chains
from nnhw.flow.implementation.cells import Module, undriven
from nnhw.flow.implementation.floorplan import arrange
from nnhw.flow.implementation.output_registers import absorb_registers
from nnhw.flow.implementation.resets import copy_resets

REWRITES: dict[str, tuple[Callable[[Module], int], ...]] = {
    # Its carry is a part of each logic cell, and its block RAMs have no output registers.
    "ice40": (),
    "ecp5": (shorten_chains, absorb_registers),
}
"""Functions that rewrite a module of a netlist, one row for each family; each returns how much it changed."""

LARGE_REWRITES: dict[str, tuple[Callable[[Module], int], ...]] = {"ecp5": (copy_resets,)}
"""Those of large devices besides, on which wires are long, where `ROOMY` says that there is room for them."""
ROOMY = 0.7
"""Share of a device's flip-flops up to which a reset may have copies: a tile has room for two resets.

With three quarters taken, of an ECP5-25F, and a copy for each part, cells found no place; with 62 % of an 85F they did.
"""

LARGE_LC = 30_000
"""Number of logic cells above which block RAMs, and crowded DSP blocks, get places before nextpnr's placer runs.

Of the two designs beside which it was set, one of 35,500 cells was routed at a higher clock with places, and one of
27,700 did not come to an end: see `floorplan`.
"""


def rewrite(netlist: Path, board: Board, order: Mapping[str, int] | None = None) -> list[str]:
    """Rewrite a netlist in yosys's JSON; the file is not touched where there is nothing to change.

    Parameters
    ----------
    order: places of engines in the stream, see `nnhw.flow.implementation.floorplan.engine_order`.

    Returns
    -------
    Lines for the user about it.

    Raises
    ------
    BuildError: a net has lost what drives it, which place and route would not say.
    """
    design = json.loads(netlist.read_text(encoding="utf-8"))
    notes: list[str] = []
    changed = [_rewrite(module, board, order or {}, notes) for module in design["modules"].values()]
    if any(changed):
        netlist.write_text(json.dumps(design), encoding="utf-8")
    return notes


def _rewrite(module: Module, board: Board, order: Mapping[str, int], notes: list[str]) -> bool:
    """Rewrite a module; return whether anything changed, and append lines for the user to `notes`."""
    # A net may have been without a driver before; only what a step has lost is its mistake.
    before = undriven(module)
    family = FAMILIES[board.family]
    changed: list[int] = [step(module) for step in REWRITES[family.name]]
    if family.is_large(board.device) and family.kinds.ff(_kinds(module)) <= ROOMY * board.resources.ff:
        changed += [step(module) for step in LARGE_REWRITES.get(family.name, ())]
    sites = family.tools.sites(board.device)
    if sites.block_rams and _is_large(module, board):
        plan = arrange(module, sites, order)
        changed += [plan.block_rams, plan.multipliers]
        if plan.reason:
            notes.append(f"the netlist is large, but its block RAMs get no places of their own: {plan.reason}")
    lost = undriven(module).keys() - before.keys()
    if lost:
        cell, port = undriven(module)[min(lost, key=str)]
        raise BuildError(
            f"the netlist has lost what drives {len(lost)} nets, one at '{port}' of cell '{cell}'; this is a mistake "
            "of nnhw, please report the model"
        )
    return any(changed)


def _is_large(module: Module, board: Board) -> bool:
    """Return whether a module has so many cells that place and route needs help."""
    return FAMILIES[board.family].kinds.lc(_kinds(module)) > LARGE_LC


def _kinds(module: Module) -> Counter[str]:
    """Return how many cells of each type a module has."""
    return Counter(cell["type"] for cell in module.get("cells", {}).values())
