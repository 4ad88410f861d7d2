"""Which bit of which memory an iCE40's block RAM holds, found out by the markers that synthesis has put there."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nnhw.flow.cells import Module
from nnhw.flow.contents import marker

BITS = 4096
_ROWS = 16
"""Parameters of a block RAM, INIT_0 to INIT_F, of 256 bits each."""
_TYPE = "SB_RAM40_4K"
# A mode of 0, 1, 2, 3 has words of 16, 8, 4, 2 bits. yosys puts bit b of word w, that is bit w * width + b, to the
# place whose number has the lowest four bits in reverse order: so that all modes have the same bits at the same pins.
# Source: yosys, techlibs/ice40/brams_map.v; Lattice FPGA-TN-02002, memory usage guide for iCE40 devices.
_PLACES = np.array([(bit & ~15) | int(f"{bit & 15:04b}"[::-1], 2) for bit in range(BITS)])


@dataclasses.dataclass(frozen=True)
class Piece:
    """A block RAM that holds a part of a memory.

    Parameters
    ----------
    cell: its name in the netlist.
    memory: path of the memory.
    start: the memory's word that is its first one.
    columns: for each bit of its words, which bit of the memory's words it is; None: nobody reads it.
    """

    cell: str
    memory: str
    start: int
    columns: tuple[int | None, ...]

    def fill(self, words: np.ndarray) -> np.ndarray:
        """Return the block RAM's bits [4096], in the order of INIT_0 to INIT_F, lowest first.

        Parameters
        ----------
        words: bits of the memory [words, bits]. What lies beyond its end is 0.
        """
        width = len(self.columns)
        held = words[self.start : self.start + BITS // width]
        table = np.zeros((BITS // width, width), np.uint8)
        for bit, column in enumerate(self.columns):
            if column is not None:
                table[: len(held), bit] = held[:, column]
        bits = np.zeros(BITS, np.uint8)
        bits[_PLACES] = table.ravel()
        return bits


def read_init(parameters: Mapping[str, str]) -> np.ndarray:
    """Return the bits [4096] of a block RAM's parameters; undefined ones are 0."""
    text = "".join(parameters[f"INIT_{row:X}"] for row in reversed(range(_ROWS)))
    return np.frombuffer(text.encode(), np.uint8)[::-1] == ord("1")


def write_init(parameters: dict[str, str], bits: np.ndarray) -> None:
    """Set the parameters of a block RAM: the inverse of `read_init`."""
    text = (bits.astype(np.uint8)[::-1] + np.uint8(ord("0"))).tobytes().decode()
    size = BITS // _ROWS
    parameters |= {f"INIT_{row:X}": text[(_ROWS - 1 - row) * size :][:size] for row in range(_ROWS)}


def find_pieces(module: Module, memories: Mapping[str, Sequence[int]]) -> tuple[list[Piece], list[str]]:
    """Return where the memories of a netlist are, which has their markers in it.

    Parameters
    ----------
    memories: (words, bits of a word) by path.

    Returns
    -------
    (pieces; memories of which it cannot be told, for they are too small, or elsewhere than yosys puts them).
    """
    cells: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    for name, cell in module["cells"].items():
        path, *place = name.rsplit(".", 2)
        if cell["type"].startswith(_TYPE) and len(place) == 2 and all(part.isdecimal() for part in place):
            cells[path][int(place[0]), int(place[1])] = name
    found, unknown = [], []
    for path, shape in memories.items():
        pieces = _pieces_of(module["cells"], path, marker(path, *shape), cells[path])
        if pieces is None:
            unknown.append(path)
        else:
            found += pieces
    return found, unknown


def _pieces_of(
    cells: Mapping[str, Any], path: str, words: np.ndarray, names: Mapping[tuple[int, int], str]
) -> list[Piece] | None:
    """Return the pieces of one memory, by name for each row and column of block RAMs; None where they are not clear."""
    where = {words[:, column].tobytes(): column for column in range(words.shape[1])}
    if len(where) < words.shape[1]:
        return None
    pieces = []
    for across in sorted({column for _, column in names}):
        stack = [names[place] for place in sorted(names) if place[1] == across]
        widths = {16 >> int(cells[name]["parameters"]["READ_MODE"], 2) for name in stack}
        if len(widths) > 1:
            return None
        width = widths.pop()
        bits = np.concatenate([read_init(cells[name]["parameters"])[_PLACES].reshape(-1, width) for name in stack])
        held = np.zeros((len(words), width), np.uint8)
        held[: len(bits)] = bits[: len(words)]
        columns = tuple(where.get(held[:, bit].tobytes()) for bit in range(width))
        pieces += [
            Piece(name, path, number * (BITS // width), columns) for number, name in enumerate(stack)
        ]
    # Nothing is taken for granted: markers that go through these pieces are what the netlist has.
    if all(np.array_equal(piece.fill(words), read_init(cells[piece.cell]["parameters"])) for piece in pieces):
        return pieces
    return None


def document(pieces: Sequence[Piece]) -> Iterator[dict[str, Any]]:
    """Yield the JSON form of pieces."""
    yield from (dataclasses.asdict(piece) | {"columns": list(piece.columns)} for piece in pieces)
