"""Comparisons of counters with ends that depend on the clock, in lookup tables whose content can be replaced.

So one placed layout serves several clocks. In simulators, which have no such cells (`Cells.lookup_table`), they are
comparisons with constants.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value

from nnhw.hdl.cells import cells_of

_INPUTS = 4
"""Inputs of a lookup table."""


def is_at_end(
    m: Module, platform: object, counter: Signal, ends: Sequence[int], which: Value | None = None, name: str = "end"
) -> Value:
    """Return whether a counter is at its end, in the same cycle.

    Each lookup table sees some bits of the counter, and `which`; the counter is at its end where all tables agree. This
    takes as many cells as a comparison with one constant, or one or two more.

    Parameters
    ----------
    ends: values at which the counter may end: 1, 2 or 4 of them.
    which: index of the end that counts now, 1 or 2 bits; None: there is only one.
    name: prefix of the cells' names.
    """
    choice = which if which is not None and len(ends) > 1 else Const(0, 0)
    assert len(ends) == 1 << len(choice), "an end for each choice"
    cells, step = cells_of(platform), _INPUTS - len(choice)
    agree = []
    for low in range(0, len(counter), step):
        bits = counter[low : low + step]
        index = [*bits, *[None] * (step - len(bits)), *choice]
        content = sum(_agrees(place, low, step, ends) << place for place in range(1 << _INPUTS))
        agree.append(cells.lookup_table(m, f"{name}_{low}", content, index, [*counter[:low], *counter[low + step :]]))
    return Cat(agree).all()


def _agrees(place: int, low: int, step: int, ends: Sequence[int]) -> bool:
    """Return the entry of a table at index `place`: whether its counter bits, from bit `low` on, are those of the end.

    The lowest `step` bits of the index are bits of the counter, those above choose the end.
    """
    mask = (1 << step) - 1
    return place & mask == ends[place >> step] >> low & mask
