"""Flip-flops of requantizers, register by register; see `nnhw.mapping.cost.flip_flops`."""

from __future__ import annotations

from itertools import product as iterate

import numpy as np

from nnhw.engines.encoding import bits_for_range
from nnhw.engines.requantize import (
    DSP_PIECE_BITS,
    HIGH_SHIFT,
    DoubleScaler,
    Product,
    Scaler,
    ThresholdSearch,
    lower_bits,
)
from nnhw.mapping.cost.partial_products import piece_bits, tree
from nnhw.mapping.resources import counter_bits


def search_flip_flops(search: ThresholdSearch, lanes: int, raw: tuple[int, int]) -> int:
    """Return the flip-flops of a search: positions, sums and indices on their way through its levels.

    Steps from logic that wait in registers are among them, steps from block RAM are in its output register.
    """
    levels, moves, position = search.levels, search.level_moves, counter_bits(search.outputs // lanes)
    positions = position * (levels * moves + 2 * (search.table is not None))
    own = moves * (levels * bits_for_range(*raw)[0] + sum(range(levels))) + levels
    words = [search.outputs // lanes << level for level in range(levels)]
    waiting = sum(1 < count <= search.logic_words for count in words) * (moves - 1)
    own += waiting * (bits_for_range(*raw)[0] + bool(search.descending.any()))
    return positions + lanes * own + search.latency


def scaler_flip_flops(scaler: Scaler, lanes: int) -> int:
    """Return the flip-flops of a multiply-add-shift: those of its product, and rounding and clamp."""
    product, depth, raw = scaler.product, scaler.outputs // lanes, scaler.raw.bits
    address, each = counter_bits(depth), 0
    shared = address
    if scaler.segments > 1:
        each = 2 * raw + counter_bits(scaler.segments)
        shared += 2 * address
    number = product.bits - scaler.shift
    low, high = product.range
    ends = (low >> scaler.shift) - scaler.even, high >> scaler.shift
    index = max(scaler.span.bit_length(), 1)
    each += 2 * index + (ends[0] < 0) + (ends[1] > scaler.span) + scaler.even * (2 * number + 1)
    lost = 0 if scaler.even else scaler.shift
    product_own, addresses = product_flip_flops(product, depth, lost)
    addresses += counter_bits(scaler.segments) * lanes * _address_moves(product) if scaler.segments > 1 else 0
    return shared + lanes * (each + product_own) + addresses + scaler.latency


def double_flip_flops(scaler: DoubleScaler, lanes: int) -> int:
    """Return the flip-flops of a multiply-add with two roundings."""
    product, depth = scaler.product, scaler.outputs // lanes
    position, spread = counter_bits(depth), scaler.spread_bits
    high = bits_for_range(*scaler.high_range)[0] + 2
    index = scaler.code.bits
    each = high * (1 + spread) + sum(range(spread + 1)) + 2 * index + 2
    product_own, addresses = product_flip_flops(product, depth, HIGH_SHIFT)
    # What the address of the addend waits, it waits for the rounding, too.
    return position * 2 + lanes * (each + product_own) + addresses + scaler.latency


def product_flip_flops(product: Product, depth: int, lost: int) -> tuple[int, int]:
    """Return the flip-flops of a lane's multiply-add, and those of the address of its addends.

    Parameters
    ----------
    lost: bits of the result that nothing reads.
    """
    raw, bits = product.raw.bits, product.bits
    if product.dsp:
        lefts, rights = piece_bits(product.raw_bits), piece_bits(product.multiplier_bits)
        own = product.raw_bits + sum(lefts) - len(lefts) + 1 + sum(rights) - len(rights) + 1
        operands = sorted(
            ((i + j) * DSP_PIECE_BITS, left + right)
            for (i, left), (j, right) in iterate(enumerate(lefts), enumerate(rights))
        )
        own += sum(width for _, width in operands)
    else:
        used = np.flatnonzero(product.digits.any(axis=(0, 1))).tolist() or [0]
        operands = [(2 * digit, raw + 1) for digit in used]
        own = raw + sum(width for _, width in operands)
    for width, moves, passed in tree(product, operands):
        own += width * moves if passed is None else _adder_flip_flops(width, moves)
    own += _adder_flip_flops(bits, product.moves, lost)
    addresses = counter_bits(depth) * _address_moves(product) if depth > 1 else 0
    return own, addresses


def _address_moves(product: Product) -> int:
    """Return how many moves the address of the addends waits."""
    return 1 + product.dsp + sum(product.level_moves)


def _adder_flip_flops(bits: int, moves: int, lost: int = 0) -> int:
    """Return the flip-flops of an adder; in two moves, the upper half of both operands waits for the lower half."""
    if moves == 1:
        return bits - min(lost, bits)
    low = lower_bits(bits)
    return low - min(lost, low) + 1 + max(0, low - lost) + 3 * (bits - low)
