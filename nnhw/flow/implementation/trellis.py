"""The layout of an ECP5 as nextpnr writes it (`.config`): contents of its lookup tables, settings of its tiles.

Source: Project Trellis, documentation of the textual configuration: a section `.tile NAME:KIND` has a line for each
connection (`arc:`), number (`word:`) and choice (`enum:`) of a tile. A tile of kind PLC2 has the slices A to D with two
tables of 16 bits each, `word: SLICEA.K0.INIT`, the highest bit first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import numpy as np

from nnhw.flow.implementation.lookup_tables import Position, Table

_SLICES = "ABCD"
_SECTION = re.compile(r"^\.(tile(?:_group)? [^\n]+)\n((?:[^.\n][^\n]*\n)*)", re.MULTILINE)
_LOGIC_TILE = re.compile(r"tile R(\d+)C(\d+):PLC2")
_INIT = re.compile(r"^word: SLICE([A-D])\.K([01])\.INIT ([01]{16})$", re.MULTILINE)


class TrellisLayout:
    """A layout whose lookup tables can be read and replaced.

    Block RAMs are left as they are: `nnhw.families.tools.Tools.fills_block_rams` of the ECP5.

    Parameters
    ----------
    text: content of the file.
    """

    def __init__(self, text: str) -> None:
        self._text = bytearray(text.encode("ascii"))
        self._places = {
            (int(tile[2]), int(tile[1]), 2 * _SLICES.index(found[1]) + int(found[2])): section.start(2) + found.start(3)
            for section in _SECTION.finditer(text)
            if (tile := _LOGIC_TILE.fullmatch(section[1]))
            for found in _INIT.finditer(section[2])
        }

    @property
    def text(self) -> str:
        """The file as it is now."""
        return self._text.decode("ascii")

    @property
    def rams(self) -> dict[Position, np.ndarray]:
        """The block RAMs that can be filled: none."""
        return {}

    def ram(self, position: Position) -> np.ndarray:
        """Raise KeyError: no block RAM can be filled."""
        raise KeyError(position)

    def set_ram(self, position: Position, bits: np.ndarray) -> None:
        """Raise KeyError: no block RAM can be filled."""
        raise KeyError(position)

    @property
    def tables(self) -> dict[Table, int]:
        """The contents of all lookup tables that are not empty."""
        return {place: self.table(place) for place in self._places}

    def table(self, place: Table) -> int:
        """Return the content of a lookup table, 16 bits. Raises KeyError: there is none, or it is empty."""
        start = self._places[place]
        return int(self._text[start : start + 16], 2)

    def set_table(self, place: Table, content: int) -> None:
        """Replace the content of a lookup table. Raises KeyError: there is none, or it was empty."""
        start = self._places[place]
        self._text[start : start + 16] = f"{content:016b}".encode("ascii")


def transfer(text: str, old: str, new: str) -> str:
    """Return a layout with the settings changed in which two other layouts of the same device differ.

    Parameters
    ----------
    text: the layout.
    old, new: the other layouts, before and after the change; only numbers and choices of tiles may differ.

    Raises
    ------
    ValueError: where `old` and `new` differ, the layout does not have the lines of `old`; or these two differ in
        connections.
    """
    layout, before, after = (_sections(one) for one in (text, old, new))
    if before.keys() != after.keys() or any(len(before[name]) != len(after[name]) for name in before):
        raise ValueError("the two layouts of the PLL have other tiles")
    for name, lines in before.items():
        change = {was: becomes for was, becomes in zip(lines, after[name], strict=True) if was != becomes}
        if not change:
            continue
        if any(line.startswith("arc:") for line in (*change, *change.values())):
            raise ValueError(f"the two layouts of the PLL have other connections in '{name}'")
        there = Counter(layout.get(name, ()))
        if any(there[was] != 1 for was in change):
            raise ValueError(f"'{name}' has other settings than the PLL of the design")
        changed = [change.get(line, line) for line in layout[name]]
        text = text.replace(_section(name, layout[name]), _section(name, changed))
    return text


def _sections(text: str) -> Mapping[str, list[str]]:
    """Return the lines of each tile, and of each group of tiles, by the line with its name."""
    return {section[1]: section[2].splitlines() for section in _SECTION.finditer(text)}


def _section(name: str, lines: list[str]) -> str:
    return "\n".join((f".{name}", *lines, ""))
