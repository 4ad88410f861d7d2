"""Device families: one object each, with all that nnhw has to know of a family.

They are plain data and small functions, which mapping, hardware and flow read; nothing outside compares names of
families. `base.Family` says what a family must give, and `docs/new-family.md` lists the files of a new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnhw.families.base import Family
from nnhw.families.cost import Cost
from nnhw.families.ecp5 import ECP5
from nnhw.families.ice40 import ICE40

__all__ = ["ECP5", "FAMILIES", "ICE40", "Cost", "Family"]

FAMILIES: Mapping[str, Family] = {family.name: family for family in (ICE40, ECP5)}
"""The families by name, that of the field `family` of a board file."""
