"""The tree that adds the partial products of a requantizer's multiplication, as the cost model counts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnhw.engines.requantize import DSP_PIECE_BITS, ConstantProduct, pieces

Operand = tuple[int, int]
"""(shift to the left, bits) of a partial product."""


def piece_bits(bits: int) -> list[int]:
    """Return the bits of the pieces, as signed numbers, into which DSP blocks cut a factor."""
    last = (pieces(bits) - 1) * DSP_PIECE_BITS
    return [DSP_PIECE_BITS + 1] * (pieces(bits) - 1) + [bits - last]


def tree(product: ConstantProduct, operands: Sequence[Operand]) -> Iterator[tuple[int, int, int | None]]:
    """Yield (bits, moves, passed) for each result of the tree, level by level.

    Parameters
    ----------
    operands: the partial products, by ascending shift.

    Yields
    ------
    Bits of the result; moves (registers in a row) of its level; the number of its lowest bits that only one operand
    has, or None if the result is no sum, but an operand without a partner.
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
