"""Hardware that a device family builds from special cells: carry chains, DSP blocks, large RAMs, PLLs.

`cells_of(platform)` returns the family's object. The methods of `base.Cells` are the plain form of everything, which
simulators run; a family overrides those for which it has cells.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnhw.families import FAMILIES
from nnhw.hdl.cells.base import Cells
from nnhw.hdl.cells.ecp5 import Ecp5Cells
from nnhw.hdl.cells.ice40 import Ice40Cells

__all__ = ["CELLS", "PLAIN", "Cells", "cells_of"]

CELLS: Mapping[str, Cells] = {"ice40": Ice40Cells(), "ecp5": Ecp5Cells()}
"""The cells of each family, by the family's name."""

PLAIN = Cells()
"""The plain form, for simulators."""


def cells_of(platform: object) -> Cells:
    """Return the cells of an Amaranth platform's family; the plain form in simulation and for other families."""
    device = str(getattr(platform, "device", "")).lower()
    found = [CELLS[name] for name, family in FAMILIES.items() if device.startswith(family.platform)]
    return found[0] if found else PLAIN
