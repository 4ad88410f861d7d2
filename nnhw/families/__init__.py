"""Device families: one object each, which says all that nnhw has to know of a family.

Plain data and small functions. Whoever maps, elaborates or builds reads it; nobody else compares names of families.
What a family must give is `base.Family`; `docs/new-family.md` lists the files of a new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnhw.families.base import Family
from nnhw.families.cost import Cost
from nnhw.families.ecp5 import ECP5
from nnhw.families.ice40 import ICE40

__all__ = ["ECP5", "FAMILIES", "ICE40", "Cost", "Family"]

FAMILIES: Mapping[str, Family] = {family.name: family for family in (ICE40, ECP5)}
"""By the name that a board's field `family` has."""
