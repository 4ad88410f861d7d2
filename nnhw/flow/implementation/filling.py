"""Putting contents into a placed design: markers tell where they belong, in the netlist and in the layout.

Source of the way: Project IceStorm, `icebram`, which finds the block RAMs of a memory by random words in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.errors import BuildError
from nnhw.families import FAMILIES
from nnhw.flow.implementation.block_rams import BITS, RamPiece, find_pieces, read_init, write_init
from nnhw.flow.implementation.cells import Cell, Module
from nnhw.flow.implementation.contents import TABLE_BITS, Parted
from nnhw.flow.implementation.layouts import Layout
from nnhw.flow.implementation.lookup_tables import Position, Table, canonical, find_tables, is_distinct, reorder

CONTENTS = "contents.json"
"""File of a build with the places of contents in its layout."""
_FORMAT = 1
_INITS = {family.tools.table: family.models.init for family in FAMILIES.values()}
"""Parameter with the content, by the type of a cell that is a lookup table."""


@dataclass(frozen=True)
class MarkedNetlist:
    """A netlist whose block RAMs and tables have marks by which they are found in the layout.

    Parameters
    ----------
    pieces: of the memories.
    tables: marks of the lookup tables by name.
    """

    pieces: tuple[RamPiece, ...]
    tables: Mapping[str, int]


@dataclass(frozen=True)
class Ram:
    """A block RAM of a layout, and what it holds."""

    piece: RamPiece
    position: Position


@dataclass(frozen=True)
class Lut:
    """A lookup table of a layout.

    Parameters
    ----------
    cell: its name in the netlist, and of its content.
    place: in the layout.
    order: which bit of its content is at which place; see `nnhw.flow.implementation.lookup_tables.ORDERS`.
    """

    cell: str
    place: Table
    order: tuple[int, ...]


@dataclass(frozen=True)
class Slots:
    """The places of contents in a layout and in its netlist.

    Parameters
    ----------
    rams, luts: the block RAMs and lookup tables.
    kept: memories whose contents are part of the design, so that they cannot be exchanged.
    """

    rams: tuple[Ram, ...]
    luts: tuple[Lut, ...]
    kept: tuple[str, ...] = ()

    def fill(self, layout: Layout, module: Module, parted: Parted) -> None:
        """Put contents into a layout and into module `top` of its netlist."""
        for ram in self.rams:
            bits = ram.piece.fill(parted.memories[ram.piece.memory])
            layout.set_ram(ram.position, bits)
            write_init(module["cells"][ram.piece.cell]["parameters"], bits)
        for lut in self.luts:
            content = parted.tables[lut.cell]
            layout.set_table(lut.place, reorder(_number(content), lut.order))
            _set_table(module["cells"][lut.cell], _number(content))

    def hold(self, layout: Layout, module: Module, parted: Parted) -> bool:
        """Return whether a layout and its netlist hold these contents.

        Raises
        ------
        KeyError: a memory, a cell or a place does not exist.
        """
        rams = all(
            np.array_equal(bits := ram.piece.fill(parted.memories[ram.piece.memory]), layout.ram(ram.position))
            and np.array_equal(bits, read_init(module["cells"][ram.piece.cell]["parameters"]))
            for ram in self.rams
        )
        luts = all(
            layout.table(lut.place) == reorder(content := _number(parted.tables[lut.cell]), lut.order)
            and _table(module["cells"][lut.cell]) == content
            for lut in self.luts
        )
        return rams and luts

    def document(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of `contents.json`.

        Parameters
        ----------
        made: what else the layout depends on; see `nnhw.flow.implementation.patching`.
        """
        return {
            "format": _FORMAT,
            "made": made,
            "kept": list(self.kept),
            "block_rams": [{**dataclasses.asdict(ram.piece), "position": ram.position} for ram in self.rams],
            "tables": [dataclasses.asdict(lut) for lut in self.luts],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Slots:
        """Return the slots of a `contents.json`.

        Raises
        ------
        ValueError, KeyError, TypeError: it is none.
        """
        if document["format"] != _FORMAT:
            raise ValueError(f"it has format {document['format']!r}")
        rams = [
            Ram(
                RamPiece(
                    str(ram["cell"]),
                    str(ram["memory"]),
                    tuple(None if source is None else _whole(source, 2) for source in ram["columns"]),
                ),
                _whole(ram["position"], 2),
            )
            for ram in document["block_rams"]
        ]
        luts = [
            Lut(str(lut["cell"]), _whole(lut["place"], 3), _whole(lut["order"], TABLE_BITS))
            for lut in document["tables"]
        ]
        return cls(tuple(rams), tuple(luts), tuple(map(str, document["kept"])))


def _whole(numbers: Any, count: int) -> Any:
    """Return a list of `count` whole numbers as a tuple. Raises ValueError: it is something else."""
    if not isinstance(numbers, list) or len(numbers) != count or not all(type(number) is int for number in numbers):
        raise ValueError(f"{numbers!r} are not {count} whole numbers")
    return tuple(numbers)


def _number(bits: np.ndarray) -> int:
    """Return the number of the bits, the lowest one first."""
    return sum(int(bit) << place for place, bit in enumerate(bits.ravel()))


def mark(netlist: Path, parted: Parted) -> tuple[MarkedNetlist, list[str]]:
    """Find the memories of a netlist by their markers, and give each block RAM and table a mark of its own instead.

    A mark fills all of a block RAM, so that small pieces of memories are told apart, too.

    Parameters
    ----------
    netlist: of `parted.skeleton`, in yosys's JSON.

    Returns
    -------
    (the marked netlist; memories that are not found, which must keep their contents: then no mark is set).
    """
    design = json.loads(netlist.read_text(encoding="utf-8"))
    module = design["modules"]["top"]
    cells = module["cells"]
    pieces, unknown = find_pieces(module, {path: words.shape for path, words in parted.memories.items()})
    if unknown:
        return MarkedNetlist((), {}), unknown
    for piece in pieces:
        write_init(cells[piece.cell]["parameters"], block_ram_mark(piece))
    # A mark must be no content that another table has, or that table would be found for it.
    others = {content for cell in cells.values() for content in _contents(cell)}
    tables = table_marks([name for name in parted.tables if name in cells], others)
    for name, content in tables.items():
        _set_table(cells[name], content)
    netlist.write_text(json.dumps(design), encoding="utf-8")
    return MarkedNetlist(tuple(pieces), tables), []


def _contents(cell: Cell) -> Iterator[int]:
    """Yield what may stand in a lookup table of the layout: of a cell that is one, and of a carry cell that has two."""
    for value in cell["parameters"].values():
        if len(value) == TABLE_BITS and set(value) <= set("01x"):
            yield int(value.replace("x", "0"), 2)


def _table(cell: Cell) -> int:
    """Return the content of a lookup table of a netlist."""
    return int(cell["parameters"][_INITS[cell["type"]]], 2)


def _set_table(cell: Cell, content: int) -> None:
    cell["parameters"][_INITS[cell["type"]]] = f"{content:0{TABLE_BITS}b}"


def block_ram_mark(piece: RamPiece) -> np.ndarray:
    """Return the bits [4096] by which a block RAM is found in a layout."""
    digest = hashlib.shake_256(f"block RAM {piece.cell}".encode()).digest(BITS // 8)
    return np.unpackbits(np.frombuffer(digest, np.uint8))


def table_marks(names: list[str], others: set[int]) -> dict[str, int]:
    """Return contents by which lookup tables are found, whatever order place and route gives their inputs.

    Parameters
    ----------
    others: contents of the other tables.
    """
    taken = {canonical(content) for content in others}
    marks: dict[str, int] = {}
    candidates = _candidates()
    for name in names:
        content = next(found for found in candidates if is_distinct(found) and canonical(found) not in taken)
        taken.add(canonical(content))
        marks[name] = content
    return marks


def _candidates() -> Iterator[int]:
    """Yield pseudo-random contents, always the same."""
    digest = hashlib.shake_256(b"lookup table").digest(1 << 14)
    yield from (int.from_bytes(digest[at : at + 2], "little") for at in range(0, len(digest), 2))


def locate(layout: Layout, plan: MarkedNetlist, kept: tuple[str, ...] = ()) -> Slots:
    """Find the marked block RAMs and tables of a netlist in its layout.

    Raises
    ------
    BuildError: a mark is missing, or is there more than once.
    """
    marks = {block_ram_mark(piece).tobytes(): piece for piece in plan.pieces}
    rams: dict[str, list[Ram]] = defaultdict(list)
    for position, bits in layout.rams.items():
        piece = marks.get(bits.tobytes())
        if piece is not None:
            rams[piece.cell].append(Ram(piece, position))
    luts: dict[str, list[Lut]] = defaultdict(list)
    for name, place, order in find_tables(layout.tables, plan.tables):
        luts[name].append(Lut(name, place, order))
    wanted = [*(piece.cell for piece in plan.pieces), *plan.tables]
    wrong = [name for name in wanted if len(rams.get(name) or luts.get(name) or ()) != 1]
    if wrong:
        raise BuildError(
            f"the layout should have each of {len(wanted)} marked cells once, but {len(wrong)} are not there or more "
            f"than once, such as '{wrong[0]}'; this is a mistake of nnhw: please report it with the version of nextpnr"
        )
    return Slots(
        tuple(rams[piece.cell][0] for piece in plan.pieces), tuple(luts[name][0] for name in plan.tables), kept
    )
