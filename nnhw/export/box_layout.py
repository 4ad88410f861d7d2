"""Layout of a graph's boxes in rows from top to bottom, with edges around boxes and few crossings.

A box stands one row below the lowest box that it reads. An edge takes a slot in each row that it passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Point = tuple[float, float]
_SWEEPS = 8
"""Passes over the rows, down and up in turn, that sort boxes to have fewer crossings."""
_STRAIGHTENING = 24
"""Passes that move boxes towards those that they are connected with."""
_SLOT_WIDTH = 24.0
"""Width that an edge takes in a row that it passes, in pixels."""


@dataclass(frozen=True)
class Box:
    """The box of one node.

    Parameters
    ----------
    width, height: in pixels.
    """

    width: float
    height: float


@dataclass(frozen=True)
class Drawing:
    """The positions of all boxes and lines, in pixels from the upper left corner of the picture.

    Parameters
    ----------
    width, height: of the picture.
    corners: upper left corner of each box, by name.
    edges: points of each line by (from, to), from the bottom of one box to the top of the other.
    """

    width: float
    height: float
    corners: Mapping[str, Point]
    edges: Mapping[tuple[str, str], tuple[Point, ...]]


@dataclass(frozen=True)
class _Slot:
    """A place in a row: a box, or an edge that passes the row."""

    name: str
    edge: tuple[str, str] | None
    row: int


class _Rows:
    """The slots of each row, in order, and which slots of neighbouring rows are connected."""

    def __init__(self, boxes: Mapping[str, Box], edges: Sequence[tuple[str, str]]) -> None:
        self.row_of = _rows(boxes, edges)
        self.rows: list[list[_Slot]] = [[] for _ in range(max(self.row_of.values(), default=0) + 1)]
        self.slots = {name: _Slot(name, None, row) for name, row in self.row_of.items()}
        for slot in self.slots.values():
            self.rows[slot.row].append(slot)
        self.above: dict[_Slot, list[_Slot]] = defaultdict(list)
        self.below: dict[_Slot, list[_Slot]] = defaultdict(list)
        self.paths: dict[tuple[str, str], list[_Slot]] = {}
        for edge in edges:
            self._connect(edge)
        self._order()

    def _connect(self, edge: tuple[str, str]) -> None:
        start, end = self.slots[edge[0]], self.slots[edge[1]]
        passed = [_Slot(f"{edge[0]} > {edge[1]}", edge, row) for row in range(start.row + 1, end.row)]
        for slot in passed:
            self.rows[slot.row].append(slot)
        self.paths[edge] = [start, *passed, end]
        for upper, lower in zip(self.paths[edge], self.paths[edge][1:], strict=False):
            self.below[upper].append(lower)
            self.above[lower].append(upper)

    def _order(self) -> None:
        """Sort each row by the mean place of the slots that it is connected to, with sweeps down and up in turn."""
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                self._sort(row, self.above if down else self.below)

    def _sort(self, row: list[_Slot], neighbours: Mapping[_Slot, Sequence[_Slot]]) -> None:
        place = {slot: index for line in self.rows for index, slot in enumerate(line)}

        def middle(slot: _Slot) -> float:
            found = [place[other] for other in neighbours[slot]]
            return sum(found) / len(found) if found else float(place[slot])

        row.sort(key=middle)


def lay_out(
    boxes: Mapping[str, Box], edges: Sequence[tuple[str, str]], gap: Point = (36.0, 44.0), margin: float = 24.0
) -> Drawing:
    """Return the positions of boxes and edges.

    Parameters
    ----------
    boxes: by name; each box stands behind all that it reads.
    edges: (from, to), each once.
    gap: pixels between neighbouring boxes, and between rows.
    margin: pixels around the picture.
    """
    rows = _Rows(boxes, edges)
    middles = _middles(rows, boxes, gap[0])
    left = min((middles[slot] - _width(slot, boxes) / 2 for row in rows.rows for slot in row), default=0.0)
    tops, heights, y = [], [], margin
    for row in rows.rows:
        heights.append(max((boxes[slot.name].height for slot in row if slot.edge is None), default=0.0))
        tops.append(y)
        y += heights[-1] + gap[1]

    def x(slot: _Slot) -> float:
        return middles[slot] - left + margin

    corners = {name: (x(slot) - boxes[name].width / 2, tops[slot.row]) for name, slot in rows.slots.items()}
    lines: dict[tuple[str, str], tuple[Point, ...]] = {}
    for edge, path in rows.paths.items():
        start, *passed, end = path
        points = [(x(start), tops[start.row] + boxes[start.name].height)]
        for slot in passed:
            points += [(x(slot), tops[slot.row]), (x(slot), tops[slot.row] + heights[slot.row])]
        lines[edge] = (*points, (x(end), tops[end.row]))
    right = max((x(slot) + _width(slot, boxes) / 2 for row in rows.rows for slot in row), default=0.0)
    return Drawing(right + margin, y - gap[1] + margin, corners, lines)


def _rows(boxes: Mapping[str, Box], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the row of each box, one below the lowest box that it reads."""
    read: dict[str, list[str]] = defaultdict(list)
    for start, end in edges:
        read[end].append(start)
    found: dict[str, int] = {}
    for name in boxes:
        # Boxes are in the order of the graph, so that what a box reads has its row.
        found[name] = max((found[other] + 1 for other in read[name]), default=0)
    return found


def _middles(rows: _Rows, boxes: Mapping[str, Box], gap: float) -> dict[_Slot, float]:
    """Return the x of each slot's middle: near the mean of those it is connected to, without touching neighbours."""
    middles: dict[_Slot, float] = {}
    for row in rows.rows:
        width = sum(_width(slot, boxes) + gap for slot in row)
        place = -width / 2
        for slot in row:
            middles[slot] = place + (_width(slot, boxes) + gap) / 2
            place += _width(slot, boxes) + gap
    for turn in range(_STRAIGHTENING):
        for row in rows.rows if turn % 2 == 0 else reversed(rows.rows):
            wanted = [_wanted(slot, rows, middles) for slot in row]
            for slot, place in zip(row, _apart(row, wanted, boxes, gap), strict=True):
                middles[slot] = place
    return middles


def _wanted(slot: _Slot, rows: _Rows, middles: Mapping[_Slot, float]) -> float:
    near = [middles[other] for other in (*rows.above[slot], *rows.below[slot])]
    return sum(near) / len(near) if near else middles[slot]


def _apart(row: Sequence[_Slot], wanted: Sequence[float], boxes: Mapping[str, Box], gap: float) -> list[float]:
    """Return places near the wanted ones that keep order and distances; slots that would touch become one block."""
    blocks: list[tuple[list[float], list[float]]] = []  # offsets of the slots from the block's first, places wanted
    for index, place in enumerate(wanted):
        blocks.append(([0.0], [place]))
        step = (_width(row[index - 1], boxes) + _width(row[index], boxes)) / 2 + gap if index else 0.0
        # A joined block moves to the mean of its slots' wishes, where it may touch the block before it.
        while len(blocks) > 1 and _start(blocks[-2]) + blocks[-2][0][-1] + step > _start(blocks[-1]):
            offsets, places = blocks.pop()
            before, earlier = blocks.pop()
            shift = before[-1] + step
            blocks.append((before + [shift + offset for offset in offsets], earlier + places))
            first = len(row[: index + 1]) - len(blocks[-1][0])
            step = (_width(row[first - 1], boxes) + _width(row[first], boxes)) / 2 + gap if first > 0 else 0.0
    return [_start(block) + offset for block in blocks for offset in block[0]]


def _start(block: tuple[list[float], list[float]]) -> float:
    """Return the start of a block for which its slots are, on average, at their wanted places."""
    offsets, places = block
    return sum(place - offset for offset, place in zip(offsets, places, strict=True)) / len(offsets)


def _width(slot: _Slot, boxes: Mapping[str, Box]) -> float:
    return _SLOT_WIDTH if slot.edge is not None else boxes[slot.name].width
