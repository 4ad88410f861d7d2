"""The rank of a number among steps, from a word of ranks; see `nnhw.engines.requantize.RankedSteps`."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Value


def place_in_word(bits: Value, above: Sequence[Value], cell: Value) -> tuple[Value, Value]:
    """Return how many steps of a word lie below a cell, and whether the cell has a step.

    Parameters
    ----------
    bits: of the word, one for each cell: it has a step.
    above: whether the cell is above the first one, the second one, .., all but the last.
    """
    inside = sum((bits[k] & above[k] for k in range(1, len(above))), bits[0] & above[0])
    return Value.cast(inside), bits.bit_select(cell, 1)
