"""Floorplan: places of the block RAMs and DSP blocks of the arrays of a large design.

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

Where nearly all DSP blocks are taken, the placer finds places for the last of them wherever one is left: of a
ResNet-8 of 8 bits, 153 of 156, some were 80 columns from the sums that they go to. They get places, too, array after
array along the device. An array with many of them has its block RAMs between the rows of its DSP blocks; the other
arrays, which are of logic, have theirs in the rows beyond, as wide as they have cells. This ResNet-8 had 620,000 tiles
of wire when its cells had been spread, with block RAMs side by side alone, about 770,000 with no places at all, and
566,000 with these. With windows and FIFOs beside their arrays, too, it was 572,000: they are left to the placer.

Data flow: netlist, names in the order of the engines -> engines with their block RAMs and DSP blocks -> columns of the
device for each -> attribute BEL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from nnhw.families.tools import Columns, Sites
from nnhw.flow.implementation.cells import Cell, Module
from nnhw.hdl.names import WeightBlock, parse_weight_block

SITE = "BEL"
"""Attribute of a cell with its place, which nextpnr obeys."""
CROWDED = 0.9
"""Share of the DSP blocks above which they are given places."""
MANY = 0.1
"""Share of the DSP blocks in use from which on an engine's block RAMs stand between them."""
_CELL = re.compile(r"^\s*cell \S+ \\(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Floorplan:
    """The result of floorplanning.

    Parameters
    ----------
    block_rams, multipliers: numbers of block RAMs and of DSP blocks that were given a place.
    reason: why no block RAM was, in words.
    """

    block_rams: int
    multipliers: int = 0
    reason: str = ""


@dataclass
class _Engine:
    """An engine of a design.

    Parameters
    ----------
    weights: its block RAMs with weights, in the order of its cells.
    multipliers: its DSP blocks, in the order of their names.
    cells: number of all its cells.
    """

    weights: list[Cell] = field(default_factory=list)
    multipliers: list[Cell] = field(default_factory=list)
    cells: int = 0


def engine_order(rtlil: str) -> dict[str, int]:
    """Return the place of each name of an instance in a design, which has engines in the order of the stream."""
    order: dict[str, int] = {}
    for name in _CELL.findall(rtlil):
        order.setdefault(name, len(order))
    return order


def arrange(module: Module, sites: Sites, order: Mapping[str, int] | None = None) -> Floorplan:
    """Give block RAMs with weights, and DSP blocks where they are crowded, places by engines.

    Other memories take what is left; with crowded DSP blocks, those of the link stand with the first array. Nothing is
    arranged where there is one array, whose cells have nothing to be kept apart from, or where block RAMs do not
    suffice for arrays that have columns to themselves.

    Parameters
    ----------
    order: see `engine_order`; engines that are not in it follow by their names.
    """
    engines, of_link = _engines(module, sites, order or {})
    arrays = [engine for engine in engines if engine.weights]
    if len(arrays) < 2:
        had = ("no array has", "a single array has")[len(arrays)]
        return Floorplan(0, 0, f"{had} weights in block RAM, and what has to be kept apart is two or more")
    sizes = [len(array.weights) for array in arrays]
    multipliers = [cell for engine in engines for cell in engine.multipliers]
    places = [site for column in sites.multipliers for site in column]
    if CROWDED * len(places) < len(multipliers) <= len(places):
        # The link stands beside the first engine with an array, of whose handshake it hears within a cycle.
        first = next(index for index, engine in enumerate(engines) if engine.weights or engine.multipliers)
        with_link = replace(engines[first], weights=[*of_link, *engines[first].weights])
        engines[first : first + 1] = [with_link]
        parts = _beside_multipliers(engines, sites)
        if parts is not None:
            for index, cell in enumerate(multipliers):
                cell["attributes"][SITE] = places[index * len(places) // len(multipliers)]
            return Floorplan(_place(engines, parts), len(multipliers))
    side_by_side = _divide(sites.block_rams, sizes, sizes)
    if side_by_side is None:
        listed = " + ".join(map(str, sizes))
        return Floorplan(0, 0, f"{len(arrays)} arrays take {listed} block RAMs, too many for columns to themselves")
    return Floorplan(_place(arrays, side_by_side))


def _engines(module: Module, sites: Sites, order: Mapping[str, int]) -> tuple[list[_Engine], list[Cell]]:
    """Return the engines of a module, in the order of the stream, and the block RAMs beside all of them.

    There are none if no array has weights in block RAM.
    """
    cells: dict[str, Cell] = module["cells"]
    blocks = {name: block for name in cells if (block := parse_weight_block(name))}
    if not blocks:
        return [], []
    # An array is a part of its engine; all engines are parts of one module.
    array = next(iter(blocks.values())).array.split(".")
    depth = max(0, len(array) - 2)
    found, others = dict[str, _Engine](), list[Cell]()
    for name in sorted(cells, key=lambda name: (_place_of(blocks.get(name)), _numbers(name))):
        path = name.split(".")
        if len(path) > depth + 1 and path[:depth] == array[:depth]:
            engine = found.setdefault(path[depth], _Engine())
            engine.cells += 1
            if name in blocks:
                engine.weights.append(cells[name])
            elif cells[name]["type"] == sites.multiplier:
                engine.multipliers.append(cells[name])
        elif cells[name]["type"] == sites.block_ram:
            others.append(cells[name])
    last = len(order)
    names = sorted(found, key=lambda name: (order.get(name, last), _numbers(name)))
    return [found[name] for name in names], others


def _place_of(block: WeightBlock | None) -> tuple[int, ...]:
    """Return a key that sorts an array's block RAMs in the order of its cells."""
    return () if block is None else (block.group, *block.piece)


def _numbers(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts 'x_9' in front of 'x_12'."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _beside_multipliers(engines: Sequence[_Engine], sites: Sites) -> list[Columns] | None:
    """Return columns for the block RAMs of each engine, whose DSP blocks follow one another; None if there are too few.

    Engines with many DSP blocks have the rows between these, near their own; all others share the rows beyond, and the
    columns of these by their cells.
    """
    columns, total = sites.block_rams, sum(len(engine.multipliers) for engine in engines)
    between = [column[: sites.between] for column in columns]
    beyond = [column[sites.between :] for column in columns]
    ends = [len(columns) * count // total for count in accumulate((len(e.multipliers) for e in engines), initial=0)]
    is_wide = [len(engine.multipliers) >= MANY * total for engine in engines]
    others = [engine for engine, wide in zip(engines, is_wide, strict=True) if not wide]
    shares = _divide(beyond, [len(other.weights) for other in others], [other.cells for other in others])
    if shares is None:
        return None
    rest = iter(shares)
    parts = [
        between[start:end] if wide else next(rest) for wide, (start, end) in zip(is_wide, pairwise(ends), strict=True)
    ]
    rooms = (sum(map(len, part)) for part in parts)
    return parts if all(len(e.weights) <= room for e, room in zip(engines, rooms, strict=True)) else None


def _divide(columns: Columns, sizes: Sequence[int], shares: Sequence[int]) -> list[Columns] | None:
    """Divide the columns among engines; None where there are too few columns.

    Parameters
    ----------
    sizes: number of block RAMs of each engine, for which it gets columns in any case.
    shares: in whose proportion the columns are divided that are left.
    """
    rows = len(columns[0]) if columns else 1
    least = [-(-size // rows) for size in sizes]
    spare, total = len(columns) - sum(least), max(1, sum(shares))
    if spare < 0:
        return None
    widths = zip(accumulate(least, initial=0), accumulate(shares, initial=0), strict=True)
    ends = [needed + spare * share // total for needed, share in widths]
    return [columns[start:end] for start, end in pairwise(ends)]


def _place(engines: Sequence[_Engine], parts: Sequence[Columns]) -> int:
    """Give the block RAMs of each engine that are to be arranged places in its part; return how many got one."""
    count = 0
    for engine, part in zip(engines, parts, strict=True):
        if engine.weights:
            for cell, site in zip(engine.weights, _row_by_row(part, len(engine.weights)), strict=True):
                cell["attributes"][SITE] = site
                count += 1
    return count


def _row_by_row(columns: Columns, count: int) -> list[str]:
    """Return `count` of the places, row after row, with equal shares of the rows, spread evenly along each."""
    rows = list(zip(*columns, strict=True))
    shares = [count * (row + 1) // len(rows) - count * row // len(rows) for row in range(len(rows))]
    return [row[index * len(row) // share] for row, share in zip(rows, shares, strict=True) for index in range(share)]
