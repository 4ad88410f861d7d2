"""Hardware that each family has cells for: `cells_of(platform)` says which; simulators get the plain form.

What there is for every family are the methods of `base.Cells`; a family overrides those that it has cells for.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnhw.families import FAMILIES
from nnhw.hdl.cells.base import Cells
from nnhw.hdl.cells.ecp5 import Ecp5Cells
from nnhw.hdl.cells.ice40 import Ice40Cells

__all__ = ["CELLS", "PLAIN", "Cells", "cells_of"]

CELLS: Mapping[str, Cells] = {"ice40": Ice40Cells(), "ecp5": Ecp5Cells()}
"""One row for each family."""

PLAIN = Cells()
"""What simulators see."""


def cells_of(platform: object) -> Cells:
    """Return the cells of an Amaranth platform's family; the plain form in simulation and for other families."""
    device = str(getattr(platform, "device", "")).lower()
    found = [CELLS[name] for name, family in FAMILIES.items() if device.startswith(family.platform)]
    return found[0] if found else PLAIN
