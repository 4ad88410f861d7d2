"""Floorplan: places of the block RAMs of the arrays of a large design.

nextpnr's placer lets everything fall to one point and spreads it from there. Several arrays of a large design lie
through one another then, and their wires are long: of three arrays of 64 x 64 on an ECP5-85F a placement had 469,000
tiles of wire. With block RAMs that stand, each array in a part of the device of its own and in the order of its cells,
as activations hop, it was 262,000, and nextpnr's first router came to its end in six minutes, at 127.7 MHz; of
placements without, it got ever slower.

CNV of 1 bit, whose netlist has 35,500 logic cells on an 85F, is routed at 89.8 MHz with it; an earlier netlist, without
output registers and shared tiles either, was at 83.3. A ResNet-8 of 8 bits, whose netlist has 27,700 and most of whose
products are made in DSP blocks, was ended by hand with it, on a busy machine: smaller designs are left to the placer.

On an HX8K with a single array wires became shorter by 28 % and the clock lower, 131 MHz instead of 147 (seed 1):
signals that all cells share had farther to go. So it is for several arrays.

Data flow: netlist -> block RAMs of weights, by array -> columns of the device for each array -> attribute BEL.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nnhw.families.tools import Columns
from nnhw.flow.implementation.cells import Cell, Module
from nnhw.hdl.names import parse_weight_block

SITE = "BEL"
"""Attribute of a cell with its place, which nextpnr obeys."""


@dataclass(frozen=True)
class Floorplan:
    """The result of floorplanning.

    Parameters
    ----------
    block_rams: number of block RAMs that were given a place.
    reason: why none was, in words.
    """

    block_rams: int
    reason: str = ""


def arrange_block_rams(module: Module, columns: Columns) -> Floorplan:
    """Give the block RAMs of each array's weights places side by side.

    Memories beside the arrays take what is left. Nothing is arranged where there is one array, whose cells have nothing
    to be kept apart from, or where block RAMs do not suffice for arrays that have columns to themselves.
    """
    arrays = _arrays(module)
    if len(arrays) < 2:
        had = ("no array has", "a single array has")[len(arrays)]
        return Floorplan(0, f"{had} weights in block RAM, and what has to be kept apart is two or more")
    parts = _divide(columns, sizes := [len(array) for array in arrays])
    if parts is None:
        listed = " + ".join(map(str, sizes))
        return Floorplan(0, f"{len(arrays)} arrays take {listed} block RAMs, too many for columns to themselves")
    for array, part in zip(arrays, parts, strict=True):
        for memory, site in zip(array, _row_by_row(part, len(array)), strict=True):
            memory["attributes"][SITE] = site
    return Floorplan(sum(sizes))


def _arrays(module: Module) -> list[list[Cell]]:
    """Return the block RAMs of weights of each array, both in the order of their names."""
    arrays: dict[str, list[tuple[list[int], Cell]]] = defaultdict(list)
    for name, cell in module["cells"].items():
        if found := parse_weight_block(name):
            arrays[found.array].append(([found.group, *found.piece], cell))
    return [
        [cell for _, cell in sorted(arrays[name], key=lambda entry: entry[0])] for name in sorted(arrays, key=_numbers)
    ]


def _numbers(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts 'x_9' in front of 'x_12'."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _divide(columns: Columns, sizes: Sequence[int]) -> list[Columns] | None:
    """Divide the columns among arrays, in proportion to their block RAMs; None where there are too few columns.

    Parameters
    ----------
    sizes: number of block RAMs of each array.
    """
    rows = len(columns[0]) if columns else 1
    least = [-(-size // rows) for size in sizes]
    spare, total = len(columns) - sum(least), sum(sizes)
    if spare < 0:
        return None
    ends, before, needed = [0], 0, 0
    for size, width in zip(sizes, least, strict=True):
        before, needed = before + size, needed + width
        ends.append(needed + spare * before // total)
    return [columns[start:end] for start, end in pairwise(ends)]


def _row_by_row(columns: Columns, count: int) -> list[str]:
    """Return `count` of the places, row after row, with equal shares of the rows, spread evenly along each."""
    rows = list(zip(*columns, strict=True))
    shares = [count * (row + 1) // len(rows) - count * row // len(rows) for row in range(len(rows))]
    return [row[index * len(row) // share] for row, share in zip(rows, shares, strict=True) for index in range(share)]
