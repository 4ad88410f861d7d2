"""What requantizers cost; their constants exactly, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as iterate
from typing import Any

import numpy as np

from nnhw.engines.encoding import bits_for_range
from nnhw.engines.requantize import (
    DSP_PIECE_BITS,
    HIGH_SHIFT,
    DoubleScaler,
    Product,
    Requantizer,
    Scaler,
    Table,
    Thresholds,
    ThresholdSearch,
    lower_bits,
    pieces,
)
from nnhw.families import ICE40, Cost, Family
from nnhw.ir.types import IntType
from nnhw.mapping.cost.constants import Rom, double_roms, scaler_roms, search_roms, table_roms, threshold_roms
from nnhw.mapping.cost.partial_products import Operand, piece_bits, tree
from nnhw.mapping.cost.requantizer_flip_flops import double_flip_flops, scaler_flip_flops, search_flip_flops
from nnhw.mapping.resources import adder_lc, counter_bits, counter_lc, register_lc

COMPARE = 1.7
"""Logic cells of a bit of a comparison: its carry, and the LUT that inverts a bit of a constant."""
CLAMP = 1.5
"""Logic cells of a bit of the comparisons with both ends of the codes."""
ECP5_CLAMP = 1.0
"""The same on ECP5."""
TABLE_LOGIC = 0.5
"""Share of the logic of a ROM of random words that a table of a smooth function takes."""


def requantizer_cost(
    requantizer: Requantizer | None,
    raw: IntType | None,
    lanes: int,
    logic_thresholds: bool = True,
    family: Family = ICE40,
) -> Cost:
    """Return the cost of a requantizer.

    Parameters
    ----------
    raw: range of the raw sums; None: what the requantizer says, or for thresholds where they lie.
    lanes: sums of one move.
    logic_thresholds: the steps of comparators are constants in logic.
    """
    if requantizer is None:
        return Cost()
    if isinstance(requantizer, Thresholds):
        return _thresholds_cost(requantizer, raw, lanes, logic_thresholds, family)
    span: IntType = getattr(requantizer, "raw") if raw is None else raw  # noqa: B009
    return _COSTS[type(requantizer)](requantizer, lanes, (span.low, span.high), family)


def _constants(roms: list[Rom], family: Family) -> Cost:
    return sum((rom.cost(family) for rom in roms), Cost())


def _compare_lc(bits: int, family: Family, constant: bool = False) -> float:
    """Return the logic cells of a comparison: a carry chain and its end; of two bits, a LUT.

    Parameters
    ----------
    constant: with a single number; synthesis keeps the carry chain all the same.
    """
    if bits <= 2:
        return 1.0
    if family.logic.flip_flop_packs:
        return bits * COMPARE + 1
    return 1.0 if constant and bits <= len(family.logic.small_adders) else adder_lc(bits, family) - 2 * (bits <= 4)


def _thresholds_cost(thresholds: Thresholds, raw: IntType | None, lanes: int, in_logic: bool, family: Family) -> Cost:
    """Return the cost of comparators: a carry chain each with its end, the count of those that are reached."""
    levels, depth = thresholds.steps.shape[1], thresholds.outputs // lanes
    low, high = (int(thresholds.steps.min()), int(thresholds.steps.max())) if raw is None else (raw.low, raw.high)
    bits = bits_for_range(low, max(low, high))[0]
    turned = thresholds.code.bits if thresholds.descending.any() else 0
    own = lanes * (levels * _compare_lc(bits, family, depth == 1) + (levels - 1) * 1.5 + turned)
    own += counter_lc(depth, family) + 2 if depth > 1 else 0
    ff = counter_bits(depth) + (depth > 1)
    return Cost(own, ff=ff) + _constants(threshold_roms(thresholds, (low, high), lanes, in_logic), family)


def _search_cost(search: ThresholdSearch, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    """Return the cost of a search: in each level the sum and the position are delayed, and compared with a step."""
    depth, bits = search.outputs // lanes, search.raw.bits
    position = counter_bits(depth)
    moves = search.level_moves
    own = counter_lc(depth, family) + register_lc((search.levels * moves + 1) * position + search.latency, family)
    own += lanes * sum(
        register_lc(moves * (bits + level) + 1, family) + _compare_lc(bits, family) for level in range(search.levels)
    )
    own += lanes * search.levels
    return Cost(own, ff=search_flip_flops(search, lanes, raw)) + _constants(search_roms(search, raw, lanes), family)


def _product_cost(product: Product, lanes: int, depth: int, family: Family) -> Cost:
    """Return the cost of a multiply-add without its constants: partial products, their tree, the addend.

    Parameters
    ----------
    depth: words of the constants; of a single one, half of the partial products are nothing but another's bits.
    """
    raw, bits, moves = product.raw.bits, product.bits, product.moves
    if product.fused:
        own = register_lc(2 * counter_bits(depth), family)
        return Cost(own + lanes * raw * (1 + product.is_magnitude), 0, lanes)
    address = register_lc(counter_bits(depth) * (1 + product.dsp + sum(product.level_moves)), family)
    if product.dsp:
        products, blocks = _dsp_products(product, family)
        factors = product.raw_bits + _factors_outside(product, depth)
        # Where no addend has a bit, nothing is added, and what is below the shift is left out.
        addend = _adder_lc(bits - _zeros(product.addend), moves, family)
        own = register_lc(factors, family) + products + addend
        return Cost(address + lanes * own, 0, lanes * blocks)
    used = np.flatnonzero(product.digits.any(axis=(0, 1))).tolist() or [0]
    partial = len(used) * (raw + 1) if depth > 1 else min(len(used), 2) * raw
    tree = _tree_lc(product, [(2 * digit, raw + 1) for digit in used], family)
    return Cost(address + lanes * (register_lc(raw, family) + partial + tree + _adder_lc(bits, moves, family)))


def _factors_outside(product: Product, depth: int) -> int:
    """Return the bits of the factors' registers that yosys leaves outside the blocks.

    Measured: it brings one in only where it fills its port, so not where a zero stands above its bits.
    """
    if product.multiplier_bits <= DSP_PIECE_BITS:
        return product.raw_bits + min(product.multiplier_bits, (1 << min(depth, 12)) - 2)
    return DSP_PIECE_BITS * (pieces(product.multiplier_bits) + pieces(product.raw_bits) - 2)


def _dsp_products(product: Product, family: Family) -> tuple[float, int]:
    """Return the logic cells of one lane's products of pieces and of their tree, and the DSP blocks."""
    lefts, rights = piece_bits(product.raw_bits), piece_bits(product.multiplier_bits)
    operands, own, blocks = [], 0.0, 0
    for (i, left), (j, right) in iterate(enumerate(lefts), enumerate(rights)):
        width = left + right
        operands.append(((i + j) * DSP_PIECE_BITS, width))
        in_block = width >= family.dsp.least_bits
        blocks += in_block
        own += 0 if in_block else left * right
        if len(rights) > 1 and j == len(rights) - 1:  # the register of the narrowest one stays outside
            own += register_lc(width - 1, family)
    return own + _tree_lc(product, sorted(operands), family), blocks


def _zeros(values: np.ndarray) -> int:
    """Return how many of the lowest bits are 0 in all values."""
    bits = int(np.bitwise_or.reduce(values, axis=None))
    return (bits & -bits).bit_length() - 1 if bits else 0


def _tree_lc(product: Product, operands: list[Operand], family: Family) -> float:
    """Return the logic cells of the tree that adds partial products."""
    return sum(
        register_lc(bits * moves, family) if passed is None else _adder_lc(bits, moves, family, passed)
        for bits, moves, passed in tree(product, operands)
    )


def _adder_lc(bits: int, moves: int, family: Family, passed: int = 0) -> float:
    """Return the logic cells of an adder; in two moves, the upper half of both operands waits for the lower half.

    Parameters
    ----------
    passed: the lowest bits, of which one operand has none: they pass by the carry chain.
    """
    if moves == 1:
        return register_lc(passed, family) + adder_lc(bits - passed, family)
    low = lower_bits(bits)
    chains = adder_lc(low + 1 - passed, family) + adder_lc(bits - low, family)
    return chains + register_lc(passed + low + 2 * (bits - low), family)


def _scaler_cost(scaler: Scaler, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    depth, bits, inner = scaler.outputs // lanes, scaler.raw.bits, scaler.segments - 1
    total = _product_cost(scaler.product, lanes, depth * scaler.segments, family)
    total += Cost(ff=scaler_flip_flops(scaler, lanes))
    total += _constants(scaler_roms(scaler, raw, lanes), family)
    if inner:
        total += Cost(lanes * (inner * _compare_lc(bits, family) + 2) + register_lc(2 * lanes * bits, family))
        total += Cost(register_lc(2 * counter_bits(depth), family))
    number = scaler.product.bits - scaler.shift
    if scaler.even:
        total += Cost(lanes * (register_lc(number, family) + adder_lc(number, family) + scaler.shift / 3 + 2))
    return total + Cost(lanes * _clamp_lc(scaler.code.bits, number, family)) + _walk_cost(scaler, depth, family)


def _clamp_lc(code: int, number: int, family: Family) -> float:
    """Return the logic cells of a clamp: comparisons with both ends, registers of the number and of the code."""
    return code + register_lc(code, family) + number * (CLAMP if family.logic.flip_flop_packs else ECP5_CLAMP) + 2


def _walk_cost(requantizer: Scaler | DoubleScaler, depth: int, family: Family) -> Cost:
    """Return the cost of the walk over the channels, and of the delay of `valid`."""
    return Cost(register_lc(requantizer.latency, family) + counter_lc(depth, family))


def _double_cost(scaler: DoubleScaler, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    depth = scaler.outputs // lanes
    high = bits_for_range(*scaler.high_range)[0] + 2
    total = _product_cost(scaler.product, lanes, depth, family)
    total += Cost(ff=double_flip_flops(scaler, lanes))
    total += _constants(double_roms(scaler, raw, lanes), family)
    own = adder_lc(high, family) + high * scaler.spread_bits + _clamp_lc(scaler.code.bits, 0, family) + 4
    own -= register_lc(HIGH_SHIFT, family)  # of the bits below the high part, nothing but the carry is kept
    return total + Cost(lanes * own) + _walk_cost(scaler, depth, family)


def _table_cost(table: Table, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    depth, low, span = table.outputs // lanes, table.raw.low, table.raw.high - table.raw.low + 1
    by_channel = depth > 1 and not table.shared
    words = span * (depth if by_channel else 1)
    constants = _constants(table_roms(table, lanes), family)
    bits = counter_bits(words)
    if family.logic.flip_flop_packs:
        own = lanes * bits + (3.0 * bits if by_channel else 0) + 3
    else:
        # The lowest bits of a sum that nothing is added to pass by.
        added = bits - _zeros(np.array([low, span] if by_channel else [low or 1 << bits]))
        own = lanes * adder_lc(added, family) + (adder_lc(added, family) + bits if by_channel else 0) + 3.0
    ff = lanes * bits + (bits if by_channel else 0) + table.latency + constants.ff
    return Cost(own + TABLE_LOGIC * constants.lc, constants.ebr, ff=ff)


_COSTS: dict[type, Callable[[Any, int, tuple[int, int], Family], Cost]] = {
    DoubleScaler: _double_cost,
    Scaler: _scaler_cost,
    Table: _table_cost,
    ThresholdSearch: _search_cost,
}
