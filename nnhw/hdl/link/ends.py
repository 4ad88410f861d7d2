"""Counters whose ends depend on the clock: the ends lie in lookup tables, so that the layout serves other clocks, too.

Where a family has no such cells (`nnhw.hdl.cells`), this is a comparison with constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value

from nnhw.hdl.cells import cells_of

_INPUTS = 4


def is_at_end(
    m: Module, platform: object, counter: Signal, ends: Sequence[int], which: Value | None = None, name: str = "end"
) -> Value:
    """Return whether a counter is at its end, in the same cycle.

    Each lookup table sees some bits of the counter, and which end is meant; all tables must agree. So it takes as many
    cells as a comparison with one constant does, or one or two more.

    Parameters
    ----------
    ends: that it may have, 1, 2 or 4 of them.
    which: number of the end that is meant; None: the only one.
    name: of the cells, without their number.
    """
    choice = which if which is not None and len(ends) > 1 else Const(0, 0)
    assert len(ends) == 1 << len(choice), "an end for each choice"
    cells, step = cells_of(platform), _INPUTS - len(choice)
    agree = []
    for low in range(0, len(counter), step):
        bits = counter[low : low + step]
        index = Cat(bits, Const(0, step - len(bits)), choice)
        content = sum(_agrees(place, low, step, ends) << place for place in range(1 << _INPUTS))
        agree.append(cells.lookup_table(m, f"{name}_{low}", content, index))
    return Cat(agree).all()


def _agrees(place: int, low: int, step: int, ends: Sequence[int]) -> bool:
    """Return whether the bits of the counter in a place of a table, those from `low` on, are those of the end there."""
    mask = (1 << step) - 1
    return place & mask == ends[place >> step] >> low & mask
