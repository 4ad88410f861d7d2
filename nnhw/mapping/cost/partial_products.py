"""The tree that adds the partial products of a requantizer's multiplication, for those who count what it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnhw.engines.requantize import DSP_PIECE_BITS, Product, pieces

Operand = tuple[int, int]
"""(shift, bits) of a partial product."""


def piece_bits(bits: int) -> list[int]:
    """Return the widths of a factor's pieces as signed numbers."""
    last = (pieces(bits) - 1) * DSP_PIECE_BITS
    return [DSP_PIECE_BITS + 1] * (pieces(bits) - 1) + [bits - last]


def tree(product: Product, operands: Sequence[Operand]) -> Iterator[tuple[int, int, int | None]]:
    """Yield (bits, moves, passed) of each result of the tree, level after level.

    Parameters
    ----------
    operands: partial products, by ascending shift.

    Yields
    ------
    Bits, the moves that a level takes, and the lowest bits, of which one operand has none; None: no sum, but an operand
    that waits for the next level.
    """
    for moves in product.level_moves:
        results = list[Operand]()
        for number in range(0, len(operands), 2):
            (shift, bits), *high = operands[number : number + 2]
            passed = high[0][0] - shift if high else None
            if passed is not None:
                bits = min(max(bits, high[0][1] + passed) + 1, product.bits - shift)
            yield bits, moves, passed
            results.append((shift, bits))
        operands = results
