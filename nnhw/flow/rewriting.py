"""What changes in a netlist between synthesis and place and route: the same function in fewer, or faster, cells."""

from __future__ import annotations

import json
from pathlib import Path

from nnhw.flow.carries import shorten_chains
from nnhw.flow.output_registers import absorb_registers

VERSION = 5
"""Of what this makes of a netlist, for what is kept of earlier ones."""


def rewrite(netlist: Path) -> None:
    """Change a netlist in yosys's JSON; one in which there is nothing to change stays as it is."""
    design = json.loads(netlist.read_text(encoding="utf-8"))
    changed = [step(module) for module in design["modules"].values() for step in (shorten_chains, absorb_registers)]
    if any(changed):
        netlist.write_text(json.dumps(design), encoding="utf-8")
