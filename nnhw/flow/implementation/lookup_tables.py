"""Lookup tables of a placed design: their places, and their contents in any order of their inputs.

Place and route may connect the inputs of a table in another order than the netlist has; the bits of its content are
then in another order, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

Position = tuple[int, int]
"""Column and row of a tile."""
Table = tuple[int, int, int]
"""Column and row of a tile, and the number of a cell in it."""
ORDERS = tuple(
    tuple(sum((index >> pin & 1) << number for number, pin in enumerate(pins)) for index in range(16))
    for pins in permutations(range(4))
)
"""For each order of the four inputs of a table: the place to which each of its 16 bits goes."""


def reorder(content: int, order: tuple[int, ...]) -> int:
    """Return the content of a table whose inputs are connected in another order; see `ORDERS`."""
    return sum((content >> bit & 1) << place for place, bit in enumerate(order))


def canonical(content: int) -> int:
    """Return a number that is the same for all tables that differ in the order of their inputs alone."""
    return min(reorder(content, order) for order in ORDERS)


def is_distinct(content: int) -> bool:
    """Return whether a table's content shows in which order its inputs are connected."""
    return len({reorder(content, order) for order in ORDERS}) == len(ORDERS)


def find_tables(tables: Mapping[Table, int], marks: Mapping[str, int]) -> Iterator[tuple[str, Table, tuple[int, ...]]]:
    """Yield the lookup tables of a layout that hold marks: (name, place, order of its bits).

    Parameters
    ----------
    tables: contents of all lookup tables of the layout, by place.
    marks: contents by name, each distinct from the others whatever the order of their inputs.
    """
    known = {reorder(mark, order): (name, order) for name, mark in marks.items() for order in ORDERS}
    for place, content in tables.items():
        if content in known:
            name, order = known[content]
            yield name, place, order
