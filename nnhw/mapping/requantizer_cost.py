"""What requantizers cost; their constants exactly, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnhw.engines.encoding import bits_for_range
from nnhw.engines.requantize import (
    ADDER_BITS,
    DSP_PIECE_BITS,
    DoubleScaler,
    Product,
    Requantizer,
    Scaler,
    Table,
    Thresholds,
    ThresholdSearch,
)
from nnhw.ir.types import IntType
from nnhw.mapping.constants import Rom, lut_rom_lc, product_roms, scaler_roms, search_roms, table_roms, threshold_roms
from nnhw.mapping.family import ICE40, Family
from nnhw.mapping.resources import Cost, counter_bits, counter_lc

COMPARE = 1.7
"""Logic cells of a bit of a comparison: its carry, and the LUT that inverts a bit of a constant."""
CLAMP = 1.5
"""Logic cells of a bit of the comparisons with both ends of the codes."""
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


def _compare_lc(bits: int) -> float:
    """Return the logic cells of a comparison: a carry chain and its end; of two bits, a LUT."""
    return 1.0 if bits <= 2 else bits * COMPARE + 1


def _thresholds_cost(thresholds: Thresholds, raw: IntType | None, lanes: int, in_logic: bool, family: Family) -> Cost:
    """Return the cost of comparators: a carry chain each with its end, the count of those that are reached."""
    levels, depth = thresholds.steps.shape[1], thresholds.outputs // lanes
    low, high = (int(thresholds.steps.min()), int(thresholds.steps.max())) if raw is None else (raw.low, raw.high)
    bits = bits_for_range(low, max(low, high))[0]
    turned = thresholds.code.bits if thresholds.descending.any() else 0
    own = lanes * (levels * _compare_lc(bits) + (levels - 1) * 1.5 + turned) + (
        counter_lc(depth) + 2 if depth > 1 else 0
    )
    return Cost(own) + _constants(threshold_roms(thresholds, (low, high), lanes, in_logic), family)


def _search_cost(search: ThresholdSearch, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    """Return the cost of a search: in each level the sum and the position are delayed, and compared with a step."""
    depth, bits = search.outputs // lanes, search.raw.bits
    position = counter_bits(depth)
    own = counter_lc(depth) + (search.levels + 1) * position + search.latency
    own += lanes * sum(bits * (1 + COMPARE) + level + 2 for level in range(search.levels)) + lanes * search.levels
    return Cost(own) + _constants(search_roms(search, raw, lanes), family)


def _product_cost(product: Product, lanes: int, depth: int, family: Family) -> Cost:
    """Return the cost of a multiply-add without its constants: partial products, their tree, the addend.

    Parameters
    ----------
    depth: words of the constants; of a single one, half of the partial products are nothing but another's bits.
    """
    raw, bits = product.raw.bits, product.bits
    address = counter_bits(depth) * (1 + product.dsp + sum(product.level_moves))
    if product.dsp:
        # Measured: yosys brings the factors' registers into the blocks only where a factor fills its port.
        outside = product.raw_bits + min(product.multiplier_bits, (1 << min(depth, 12)) - 2)
        factors = product.raw_bits + (0 if product.multiplier_bits > DSP_PIECE_BITS else outside)
        between = (product.operands - 1) * _adder_lc(bits, product.moves)
        # Where no addend has a bit, nothing is added, and what is below the shift is left out.
        own = factors + between + _adder_lc(bits - _zeros(product.addend), product.moves)
        return Cost(address + lanes * own, 0, lanes * product.operands)
    used = np.flatnonzero(product.digits.any(axis=(0, 1))).tolist() or [0]
    partial = len(used) * (raw + 1) if depth > 1 else min(len(used), 2) * raw
    tree = _tree_lc(product, [(2 * digit, raw + 1) for digit in used])
    return Cost(address + lanes * (raw + partial + tree + _adder_lc(bits, product.moves)))


def _zeros(values: np.ndarray) -> int:
    """Return how many of the lowest bits are 0 in all values."""
    bits = int(np.bitwise_or.reduce(values, axis=None))
    return (bits & -bits).bit_length() - 1 if bits else 0


def _tree_lc(product: Product, operands: list[tuple[int, int]]) -> float:
    """Return the logic cells of the tree that adds partial products, each (shift, bits)."""
    total = 0.0
    for moves in product.level_moves:
        results = []
        for number in range(0, len(operands), 2):
            (shift, bits), *high = operands[number : number + 2]
            if high:
                bits = min(max(bits, high[0][1] + high[0][0] - shift) + 1, product.bits - shift)
                total += _adder_lc(bits, moves)
            else:
                total += bits * moves
            results.append((shift, bits))
        operands = results
    return total


def _adder_lc(bits: int, moves: int) -> float:
    """Return the logic cells of an adder; in two moves, the upper half of both operands waits for the lower half."""
    if moves == 1:
        return bits
    low = min(bits, ADDER_BITS)
    return 2 * low + 1 + 3 * (bits - low)


def _scaler_cost(scaler: Scaler, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    depth, bits, inner = scaler.outputs // lanes, scaler.raw.bits, scaler.segments - 1
    total = _product_cost(scaler.product, lanes, depth * scaler.segments, family)
    total += _constants(scaler_roms(scaler, raw, lanes), family)
    if inner:
        total += Cost(lanes * (inner * _compare_lc(bits) + 2 * bits + 2) + 2 * counter_bits(depth))
    number = scaler.product.bits - scaler.shift
    if scaler.even:
        total += Cost(lanes * (2 * number + scaler.shift / 3 + 2))
    return total + Cost(lanes * (2 * scaler.code.bits + number * CLAMP + 2) + scaler.latency + counter_lc(depth))


def _double_cost(scaler: DoubleScaler, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    depth = scaler.outputs // lanes
    high = bits_for_range(*scaler.high_range)[0] + 2
    total = _product_cost(scaler.product, lanes, depth, family)
    total += _constants(product_roms(scaler.product, raw, lanes, scaler.logic), family)
    if depth > 1:
        width = lanes * (high + scaler.spread_bits)
        total += (
            Cost(width * lut_rom_lc(depth, family))
            if scaler.logic
            else Cost(0, family.block_rams(depth, width, rom=True))
        )
    own = lanes * (high * (1 + scaler.spread_bits) + 2 * scaler.code.bits + 6)
    return total + Cost(own + scaler.latency + counter_lc(depth))


def _table_cost(table: Table, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    depth = table.outputs // lanes
    words = (table.raw.high - table.raw.low + 1) * (1 if table.shared else depth)
    base = 0.0 if table.shared or depth == 1 else 3.0 * counter_bits(words)
    constants = _constants(table_roms(table, lanes), family)
    return Cost(lanes * counter_bits(words) + base + 3 + TABLE_LOGIC * constants.lc, constants.ebr)


_COSTS: dict[type, Callable[[Any, int, tuple[int, int], Family], Cost]] = {
    DoubleScaler: _double_cost,
    Scaler: _scaler_cost,
    Table: _table_cost,
    ThresholdSearch: _search_cost,
}
