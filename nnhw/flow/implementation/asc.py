"""The layout of an iCE40 as nextpnr writes it (`.asc`): contents of its block RAMs and lookup tables.

Source: Project IceStorm, documentation of the logic tile and of the RAM tile: a section `.ram_data x y` has INIT_0 to
INIT_F of a block RAM, a line each; a section `.logic_tile x y` has 16 lines of 54 bits, of which those from 36 on, in
two lines for each of its eight cells, are the 20 bits of the cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from nnhw.flow.implementation.lookup_tables import Position, Table

_RAM_LINES, _RAM_DIGITS = 16, 64
_TILE_LINES, _TILE_BITS = 16, 54
_CELL_START, _CELL_BITS = 36, 10
CELLS = 8
_LUT_BITS = (4, 14, 15, 5, 6, 16, 17, 7, 3, 13, 12, 2, 1, 11, 10, 0)
"""The bit of a cell's 20 that holds each bit of its lookup table, from the lowest on."""


class AscLayout:
    """A layout whose block RAMs and lookup tables can be read and replaced.

    Parameters
    ----------
    text: content of the file.

    Raises
    ------
    ValueError: a section does not have the lines that it must have.
    """

    def __init__(self, text: str) -> None:
        self._text = bytearray(text.encode("ascii"))
        self._rams = dict(self._sections(text, "ram_data", rf"(?:[0-9a-f]{{{_RAM_DIGITS}}}\n){{{_RAM_LINES}}}"))
        self._tiles = dict(self._sections(text, "logic_tile", rf"(?:[01]{{{_TILE_BITS}}}\n){{{_TILE_LINES}}}"))

    @staticmethod
    def _sections(text: str, name: str, body: str) -> Iterator[tuple[Position, int]]:
        """Yield the sections of a name: (position of the tile, index of its first line in the text)."""
        lines = re.compile(body)
        for found in re.finditer(rf"^\.{name} (\d+) (\d+)\n", text, re.MULTILINE):
            if lines.match(text, found.end()) is None:
                raise ValueError(f"section '{found[0].strip()}' has not the lines that it should have")
            yield (int(found[1]), int(found[2])), found.end()

    @property
    def text(self) -> str:
        """The file as it is now."""
        return self._text.decode("ascii")

    @property
    def rams(self) -> dict[Position, np.ndarray]:
        """The bits [4096] of all block RAMs, those of INIT_0 first, lowest first."""
        return {position: self.ram(position) for position in self._rams}

    def ram(self, position: Position) -> np.ndarray:
        """Return the bits [4096] of a block RAM. Raises KeyError: there is none."""
        start = self._rams[position]
        digits = bytes(self._text[start : start + _RAM_LINES * (_RAM_DIGITS + 1)]).decode("ascii").split()
        # Each line has its highest digit first.
        rows = [np.frombuffer(bytes.fromhex(line), np.uint8)[::-1] for line in digits]
        return np.unpackbits(np.concatenate(rows), bitorder="little")

    def set_ram(self, position: Position, bits: np.ndarray) -> None:
        """Replace the bits [4096] of a block RAM. Raises KeyError: there is none."""
        start = self._rams[position]
        packed = np.packbits(bits.reshape(_RAM_LINES, -1), axis=1, bitorder="little")
        digits = "".join(row[::-1].tobytes().hex() + "\n" for row in packed)
        self._text[start : start + len(digits)] = digits.encode("ascii")

    @property
    def tables(self) -> dict[Table, int]:
        """The contents of all lookup tables."""
        return {(x, y, cell): self.table((x, y, cell)) for x, y in self._tiles for cell in range(CELLS)}

    def table(self, place: Table) -> int:
        """Return the content of a lookup table, 16 bits. Raises KeyError: there is none."""
        return sum((self._text[at] == ord("1")) << bit for bit, at in enumerate(self._bits_of(place)))

    def set_table(self, place: Table, content: int) -> None:
        """Replace the content of a lookup table. Raises KeyError: there is none."""
        for bit, at in enumerate(self._bits_of(place)):
            self._text[at] = ord("1") if content >> bit & 1 else ord("0")

    def _bits_of(self, place: Table) -> Iterator[int]:
        """Yield where the bits of a lookup table are in the text, from the lowest on."""
        x, y, cell = place
        start = self._tiles[x, y] + 2 * cell * (_TILE_BITS + 1) + _CELL_START
        for bit in _LUT_BITS:
            yield start + bit // _CELL_BITS * (_TILE_BITS + 1) + bit % _CELL_BITS


def transfer(text: str, old: str, new: str) -> str:
    """Return a layout with the bits changed in which two other layouts of the same device differ.

    Parameters
    ----------
    text: the layout.
    old, new: the other layouts, before and after the change; only bits of tiles may differ.

    Raises
    ------
    ValueError: where `old` and `new` differ, the layout does not have the bits of `old`; or they differ in more than
        bits.
    """
    # The bits that differ between `old` and `new` are the setting; all others, such as routes, stay those of `text`.
    layout, before, after = (_tiles(one) for one in (text, old, new))
    changed = [name for name in before if before[name] != after.get(name)]
    if before.keys() != after.keys() or any(len(before[name]) != len(after[name]) for name in changed):
        raise ValueError("the two layouts of the PLL have other tiles")
    for name in changed:
        bits = list(layout.get(name, ""))
        for at, (was, becomes) in enumerate(zip(before[name], after[name], strict=True)):
            if was != becomes:
                if bits[at : at + 1] != [was]:
                    raise ValueError(f"'{name}' has other bits than the PLL of the design")
                bits[at] = becomes
        text = text.replace(f".{name}\n{layout[name]}", f".{name}\n{''.join(bits)}")
    return text


def _tiles(text: str) -> dict[str, str]:
    """Return the lines of bits of each tile, by the line with its name."""
    return dict(re.findall(r"^\.(\w+_tile \d+ \d+)\n([01\n]*)", text, re.MULTILINE))
