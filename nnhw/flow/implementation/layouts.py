"""Layouts of placed designs, as text in the format of a family, and what can be changed in them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnhw.families import Family
from nnhw.flow.implementation import asc, trellis
from nnhw.flow.implementation.lookup_tables import Position, Table


class Layout(Protocol):
    """A layout whose lookup tables, and block RAMs where a family fills them, can be read and replaced."""

    @property
    def text(self) -> str:
        """The file as it is now."""

    @property
    def rams(self) -> dict[Position, np.ndarray]:
        """The bits of all block RAMs that can be filled."""

    def ram(self, position: Position) -> np.ndarray:
        """Return the bits of a block RAM. Raises KeyError: there is none."""

    def set_ram(self, position: Position, bits: np.ndarray) -> None:
        """Replace the bits of a block RAM. Raises KeyError: there is none."""

    @property
    def tables(self) -> dict[Table, int]:
        """The contents of all lookup tables, 16 bits each."""

    def table(self, place: Table) -> int:
        """Return the content of a lookup table. Raises KeyError: there is none."""

    def set_table(self, place: Table, content: int) -> None:
        """Replace the content of a lookup table. Raises KeyError: there is none."""


@dataclass(frozen=True)
class LayoutFormat:
    """How the layouts of a family are read and changed.

    Parameters
    ----------
    read: returns the layout of a text. Raises ValueError: it is damaged.
    transfer: returns a layout with the settings changed in which two others differ, given the three texts (layout,
        before, after). Raises ValueError: the layout does not have the settings of the second one.
    """

    read: Callable[[str], Layout]
    transfer: Callable[[str, str, str], str]


_FORMATS: Mapping[str, LayoutFormat] = {
    "asc": LayoutFormat(asc.AscLayout, asc.transfer),
    "config": LayoutFormat(trellis.TrellisLayout, trellis.transfer),
}
"""By the suffix of the file, see `nnhw.families.tools.Tools.layout`."""


def format_of(family: Family) -> LayoutFormat:
    """Return the format of a family's layouts."""
    return _FORMATS[family.tools.layout[0]]
