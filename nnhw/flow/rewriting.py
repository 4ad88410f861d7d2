"""What changes in a netlist between synthesis and place and route: fewer, faster or nearer cells do the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from nnhw.boards import Board
from nnhw.flow.carries import shorten_chains
from nnhw.flow.cells import Module
from nnhw.flow.family import LARGE_LC, family_of
from nnhw.flow.floorplan import arrange_block_rams
from nnhw.flow.output_registers import absorb_registers

VERSION = 6
"""Of what this makes of a netlist, for what is kept of earlier ones."""


def rewrite(netlist: Path, board: Board) -> None:
    """Change a netlist in yosys's JSON; one in which there is nothing to change stays as it is."""
    design = json.loads(netlist.read_text(encoding="utf-8"))
    modules, columns = design["modules"].values(), family_of(board).block_ram_columns(board)
    changed = [step(module) for module in modules for step in (shorten_chains, absorb_registers)]
    changed += [arrange_block_rams(module, columns) for module in modules if _is_large(module, board)]
    if any(changed):
        netlist.write_text(json.dumps(design), encoding="utf-8")


def _is_large(module: Module, board: Board) -> bool:
    """Return whether a module has so many cells that place and route needs help."""
    kinds = Counter(cell["type"] for cell in module.get("cells", {}).values())
    return family_of(board).cells_lc(kinds) > LARGE_LC
