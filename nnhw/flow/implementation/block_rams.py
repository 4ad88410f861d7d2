"""Which bits of a memory each block RAM of an iCE40 holds, found by marker words in the memories of the netlist."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnhw.flow.implementation.cells import Module
from nnhw.flow.implementation.contents import marker

BITS = 4096
_ROWS = 16
"""Parameters of a block RAM, INIT_0 to INIT_F, of 256 bits each."""
_TYPE = "SB_RAM40_4K"
# A mode of 0, 1, 2, 3 has words of 16, 8, 4, 2 bits. yosys puts bit b of word w, that is bit w * width + b, to the
# place whose number has the lowest four bits in reverse order: so that all modes have the same bits at the same pins.
# Source: yosys, techlibs/ice40/brams_map.v; Lattice FPGA-TN-02002, memory usage guide for iCE40 devices.
_PLACES = np.array([(bit & ~15) | int(f"{bit & 15:04b}"[::-1], 2) for bit in range(BITS)])


Source = tuple[int, int]
"""The first of consecutive words of a memory, and a bit of these words."""


@dataclasses.dataclass(frozen=True)
class RamPiece:
    """A block RAM that holds a part of a memory.

    Parameters
    ----------
    cell: name of the block RAM in the netlist.
    memory: path of the memory.
    columns: for each bit of the block RAM's words: the memory's word that is its word 0, and the bit of the memory's
        words; None: the bit is not used.
    """

    cell: str
    memory: str
    columns: tuple[Source | None, ...]

    def fill(self, words: np.ndarray) -> np.ndarray:
        """Return the block RAM's bits [4096], in the order of INIT_0 to INIT_F, lowest first.

        Parameters
        ----------
        words: bits of the memory [words, bits]. What lies beyond its end is 0.
        """
        depth, width = BITS // len(self.columns), len(self.columns)
        table = np.zeros((depth, width), np.uint8)
        for bit, source in enumerate(self.columns):
            if source is not None:
                held = words[source[0] : source[0] + depth, source[1]]
                table[: len(held), bit] = held
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


def find_pieces(module: Module, memories: Mapping[str, Sequence[int]]) -> tuple[list[RamPiece], list[str]]:
    """Return the block RAMs that hold the memories of a netlist, whose contents are markers.

    Parameters
    ----------
    memories: (words, bits of a word) by path.

    Returns
    -------
    (pieces; memories that cannot be told apart, as they are too small, or are not where yosys usually puts them).
    """
    cells: dict[str, list[str]] = defaultdict(list)
    for name, cell in module["cells"].items():
        path, *place = name.rsplit(".", 2)
        if cell["type"].startswith(_TYPE) and len(place) == 2 and all(part.isdecimal() for part in place):
            cells[path].append(name)
    found, unknown = [], []
    for path, shape in memories.items():
        pieces = _pieces_of(module["cells"], path, marker(path, *shape), cells[path])
        if pieces is None:
            unknown.append(path)
        else:
            found += pieces
    return found, unknown


def _pieces_of(cells: Mapping[str, Any], path: str, words: np.ndarray, names: Sequence[str]) -> list[RamPiece] | None:
    """Return the pieces of one memory in the block RAMs `names`; None where they are ambiguous."""
    pieces = []
    known: dict[int, dict[bytes, list[Source]]] = {}
    for name in names:
        parameters = cells[name]["parameters"]
        width = 16 >> int(parameters["READ_MODE"], 2)
        if width not in known:
            known[width] = _sources(words, BITS // width)
        columns = read_init(parameters)[_PLACES].reshape(-1, width).T
        # No column of a marker is zero, so a column of zeros holds no bit of this memory.
        found = [known[width].get(column.tobytes(), []) if column.any() else [None] for column in columns]
        if any(len(candidates) != 1 for candidates in found):
            return None
        pieces.append(RamPiece(name, path, tuple(candidates[0] for candidates in found)))
    # Nothing is taken for granted: markers that go through these pieces are what the netlist has.
    if all(np.array_equal(piece.fill(words), read_init(cells[piece.cell]["parameters"])) for piece in pieces):
        return pieces
    return None


def _sources(words: np.ndarray, depth: int) -> dict[bytes, list[Source]]:
    """Return the columns of a memory, each `depth` bits that a block RAM can hold, with the places of each."""
    found: dict[bytes, list[Source]] = defaultdict(list)
    for start in range(0, len(words), depth):
        held = np.zeros((words.shape[1], depth), np.uint8)
        part = words[start : start + depth]
        held[:, : len(part)] = part.T
        for bit, column in enumerate(held):
            found[column.tobytes()].append((start, bit))
    return found
