"""The cost of requantizers; that of their constants is exact, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product as iterate
from typing import Any

import numpy as np

from nnhw.engines.encoding import bits_for_range
from nnhw.engines.requantize import (
    DSP_PIECE_BITS,
    HIGH_SHIFT,
    CommonSteps,
    ConstantProduct,
    DoubleScaler,
    Requantizer,
    Scaler,
    Table,
    Thresholds,
    ThresholdSearch,
    lower_bits,
    pieces,
)
from nnhw.families import ICE40, Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.ir.types import IntType
from nnhw.mapping.cost.constants import (
    Rom,
    common_roms,
    double_roms,
    scaler_roms,
    search_roms,
    table_roms,
    threshold_roms,
)
from nnhw.mapping.cost.partial_products import Operand, piece_bits, tree

MOST_KNOWN = 4096
"""Entries of the cache, whose keys hold requantizers by identity."""
TABLE_LOGIC = 0.5
"""Share of the logic of a ROM of random words that a table of a smooth function takes."""


@lru_cache(maxsize=MOST_KNOWN)
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
    raw: range of the raw sums; None: the requantizer's own, or that of the thresholds.
    lanes: sums that are requantized in a cycle.
    logic_thresholds: whether the thresholds of comparators are constants in logic.
    family: device family.
    """
    if requantizer is None:
        return Cost()
    if isinstance(requantizer, Thresholds):
        return _thresholds_cost(requantizer, raw, lanes, logic_thresholds, family)
    span: IntType = getattr(requantizer, "raw") if raw is None else raw  # noqa: B009
    return _COSTS[type(requantizer)](requantizer, lanes, (span.low, span.high), family)


def _constants(roms: list[Rom], family: Family) -> Cost:
    return sum((rom.cost(family) for rom in roms), Cost())


def _thresholds_cost(thresholds: Thresholds, raw: IntType | None, lanes: int, in_logic: bool, family: Family) -> Cost:
    """Return the cost of comparators: a carry chain for each, and the count of thresholds that are reached."""
    levels, depth, logic = thresholds.steps.shape[1], thresholds.outputs // lanes, family.logic
    low, high = (int(thresholds.steps.min()), int(thresholds.steps.max())) if raw is None else (raw.low, raw.high)
    bits = bits_for_range(low, max(low, high))[0]
    turned = thresholds.code.bits if thresholds.descending.any() else 0
    each = levels * logic.comparison(bits, depth == 1) + logic.luts((levels - 1) * 1.5) + logic.luts(turned)
    own = lanes * each
    own += logic.counter(depth) + logic.luts(2) + logic.state(1) if depth > 1 else Cost()
    return own + _constants(threshold_roms(thresholds, (low, high), lanes, in_logic), family)


def _search_cost(search: ThresholdSearch, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    """Return the cost of a binary search: each level delays sum and position, and compares the sum with a step.

    Steps from ROMs in logic take registers; steps from block RAM are in its output register.
    """
    depth, bits, logic = search.outputs // lanes, search.raw.bits, family.logic
    position, levels, moves = counter_bits(depth), search.levels, search.level_moves
    own = logic.luts(logic.counter(depth).lc) + logic.through((levels * moves + 1) * position + search.latency)
    compared = [logic.through(moves * (bits + level) + 1) + logic.comparison(bits) for level in range(levels)]
    own += lanes * sum(compared, Cost())
    own += lanes * logic.luts(levels)
    positions = position * (levels * moves + 2 * (search.table is not None))
    sums = moves * (levels * bits_for_range(*raw)[0] + sum(range(levels))) + levels
    words = [depth << level for level in range(levels)]
    waiting = sum(1 < count <= search.logic_words for count in words) * (moves - 1)
    steps = waiting * (bits_for_range(*raw)[0] + bool(search.descending.any()))
    own += logic.state(positions + lanes * (sums + steps) + search.latency)
    return own + _constants(search_roms(search, raw, lanes), family)


def _product_cost(product: ConstantProduct, lanes: int, depth: int, segments: int, lost: int, family: Family) -> Cost:
    """Return the cost of a multiply-add without its constants: partial products, their tree, the addend.

    Parameters
    ----------
    depth: number of channels whose constants follow one another in a lane.
    segments: pieces of each channel's function, each with its own constants.
    lost: number of lowest bits of the result that nothing reads.
    """
    logic, words = family.logic, depth * segments
    if product.is_addition:
        return lanes * _adder(product.bits, product.moves, logic, lost=lost)
    if product.fused:
        own = logic.luts(product.raw.bits * (1 + product.is_magnitude))
        return logic.through(2 * counter_bits(words)) + lanes * own + Cost(dsp=lanes)
    # The address of the addend is delayed by as many moves (pipeline registers) as the product takes.
    moves = 1 + product.dsp + sum(product.level_moves)
    address = logic.through(counter_bits(words) * moves)
    address += logic.state((counter_bits(depth) + lanes * counter_bits(segments)) * moves)
    if product.dsp:
        own, blocks = _dsp_lane(product, words, lost, family)
        return address + lanes * own + Cost(dsp=lanes * blocks)
    return address + lanes * _logic_lane(product, words, lost, logic)


def _dsp_lane(product: ConstantProduct, words: int, lost: int, family: Family) -> tuple[Cost, int]:
    """Return the cost of one lane's multiply-add with DSP blocks, without these, and the number of blocks."""
    logic = family.logic
    products, blocks = _dsp_products(product, family)
    lefts, rights = piece_bits(product.raw_bits), piece_bits(product.multiplier_bits)
    factors = logic.through(product.raw_bits + _factors_outside(product, words))
    factors += logic.state(product.raw_bits + sum(lefts) - len(lefts) + 1 + sum(rights) - len(rights) + 1)
    # The lowest bits that are 0 in all addends need no adder.
    addend = _adder(product.bits - _zeros(product.addend), product.moves, logic)
    kept = logic.state(_adder_state(product.bits, product.moves, lost))
    return factors + products + logic.luts(addend.lc) + kept, blocks


def _logic_lane(product: ConstantProduct, words: int, lost: int, logic: Logic) -> Cost:
    """Return the cost of one lane's multiply-add in logic.

    Parameters
    ----------
    words: number of different constants; with a single one, synthesis simplifies the partial products.
    """
    raw = product.raw.bits
    used = np.flatnonzero(product.digits.any(axis=(0, 1))).tolist() or [0]
    partial = len(used) * (raw + 1) if words > 1 else min(len(used), 2) * raw
    own = logic.register(raw) + logic.luts(partial) + logic.state(len(used) * (raw + 1))
    own += _tree(product, [(2 * digit, raw + 1) for digit in used], logic)
    return own + _adder(product.bits, product.moves, logic, lost=lost)


def _factors_outside(product: ConstantProduct, depth: int) -> int:
    """Return the bits of the factors' registers that yosys leaves outside of the DSP blocks.

    Measured: it moves a register into a block only if the register fills the port, with no constant 0 above it.
    """
    if product.multiplier_bits <= DSP_PIECE_BITS:
        return product.raw_bits + min(product.multiplier_bits, (1 << min(depth, 12)) - 2)
    return DSP_PIECE_BITS * (pieces(product.multiplier_bits) + pieces(product.raw_bits) - 2)


def _dsp_products(product: ConstantProduct, family: Family) -> tuple[Cost, int]:
    """Return the cost of one lane's products of pieces and of their tree, and the DSP blocks."""
    lefts, rights = piece_bits(product.raw_bits), piece_bits(product.multiplier_bits)
    operands, own, blocks, logic = [], Cost(), 0, family.logic
    for (i, left), (j, right) in iterate(enumerate(lefts), enumerate(rights)):
        width = left + right
        operands.append(((i + j) * DSP_PIECE_BITS, width))
        # Synthesis leaves out a sign bit that is always 0.
        unsigned = j == len(rights) - 1 and bool(product.multiplier.min() >= 0)
        in_block = width - unsigned >= family.dsp.least_bits
        blocks += in_block
        own += logic.luts(0 if in_block else left * right) + logic.state(width)
        if len(rights) > 1 and j == len(rights) - 1:
            # The register of the narrowest product stays outside of the block.
            own += logic.through(width - 1)
    return own + _tree(product, sorted(operands), logic), blocks


def _zeros(values: np.ndarray) -> int:
    """Return the number of lowest bits that are 0 in all values."""
    bits = int(np.bitwise_or.reduce(values, axis=None))
    return (bits & -bits).bit_length() - 1 if bits else 0


def _tree(product: ConstantProduct, operands: list[Operand], logic: Logic) -> Cost:
    """Return the cost of the tree that adds partial products."""
    return sum(
        (
            logic.register(bits * moves) if passed is None else _adder(bits, moves, logic, passed)
            for bits, moves, passed in tree(product, operands)
        ),
        Cost(),
    )


def _adder(bits: int, moves: int, logic: Logic, passed: int = 0, lost: int = 0) -> Cost:
    """Return the cost of an adder with its registers; in two moves, the upper half waits for the lower half's carry.

    Parameters
    ----------
    bits: of the sum. moves: cycles that it takes, 1 or 2.
    passed: number of lowest bits that only one operand has: they need no adder.
    lost: number of lowest bits of the result that nothing reads.
    """
    state = logic.state(_adder_state(bits, moves, lost))
    if moves == 1:
        return logic.through(passed) + logic.adder(bits - passed) + state
    low = lower_bits(bits)
    chains = logic.adder(low + 1 - passed) + logic.adder(bits - low)
    return chains + logic.through(passed + low + 2 * (bits - low)) + state


def _adder_state(bits: int, moves: int, lost: int) -> int:
    """Return the flip-flops of an adder; see `_adder`."""
    if moves == 1:
        return bits - min(lost, bits)
    low = lower_bits(bits)
    return low - min(lost, low) + 1 + max(0, low - lost) + 3 * (bits - low)


def _scaler_cost(scaler: Scaler, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    """Return the cost of a multiply-add-shift: product, choice of the segment, rounding and clamp."""
    depth, bits, inner, logic = scaler.outputs // lanes, scaler.raw.bits, scaler.segments - 1, family.logic
    lost = 0 if scaler.even else scaler.shift
    total = _product_cost(scaler.product, lanes, depth, scaler.segments, lost, family)
    total += _constants(scaler_roms(scaler, raw, lanes), family)
    if inner:
        total += lanes * (inner * logic.comparison(bits) + logic.luts(2)) + logic.through(2 * lanes * bits)
        total += logic.register(2 * counter_bits(depth))
        total += lanes * logic.state(2 * bits + counter_bits(scaler.segments))
    number = scaler.product.bits - scaler.shift
    if scaler.even:
        total += lanes * (logic.through(number) + logic.adder(number) + logic.luts(scaler.shift / 3) + logic.luts(2))
        total += lanes * logic.state(2 * number + 1)
    low, high = scaler.product.range
    ends = (low >> scaler.shift) - scaler.even, high >> scaler.shift
    index = max(scaler.span.bit_length(), 1)
    total += lanes * logic.state(2 * index + (ends[0] < 0) + (ends[1] > scaler.span))
    compared = number
    if scaler.product.is_addition and scaler.span & (scaler.span + 1) == 0:
        # A sum has few bits above those of the codes, and whether one of them differs from the sign is all to compare.
        compared = max(0, number - index)
    return total + lanes * _clamp(scaler.code.bits, compared, logic) + _walk(scaler, depth, logic)


def _clamp(code: int, number: int, logic: Logic) -> Cost:
    """Return the cost of a clamp: comparisons with both ends of the codes, registers of the number and of the code."""
    return logic.luts(code) + logic.through(code) + logic.luts(number * logic.clamped_lc) + logic.luts(2)


def _walk(requantizer: CommonSteps | Scaler | DoubleScaler, depth: int, logic: Logic) -> Cost:
    """Return the cost of the counter of channels, and of the shift register that delays `valid`."""
    return logic.register(requantizer.latency) + logic.counter(depth)


def _common_cost(common: CommonSteps, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    """Return the cost of common steps: a multiply-add, the clamp to an address, the rank there, one comparison."""
    depth, logic = common.outputs // lanes, family.logic
    total = _product_cost(common.product, lanes, depth, 1, common.drop, family)
    total += _constants(common_roms(common, raw, lanes), family)
    wait, cells, words = 1 + common.registered, 1 << common.cells_log2, common.words.bit_length() - 1
    rank, cell, place = common.ranked.rank_bits, common.cells_log2, common.cell_bits
    outside = common.product.bits - common.drop - place - cell - words
    own = logic.luts(words + outside / 3) + logic.state(words)
    # Bits of the number, and the rank, are delayed while the clamp and the two memories work.
    waiting = cell * (1 + wait) + place * (2 + 2 * wait) + rank * (wait + 1) + wait
    waiting += (wait - 1) * sum(
        bits
        for count, bits in ((common.words, rank + cells), (len(common.steps) + 1, place))
        if count <= common.logic_words
    )
    own += logic.register(waiting) + logic.comparison(place) + logic.luts(3.5 * (cells - 1)) + logic.luts(cells)
    own += 2 * logic.adder(rank) + logic.state((cells - 1) * wait + 2 * rank + 2)
    return total + lanes * own + _walk(common, depth, logic)


def _double_cost(scaler: DoubleScaler, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    """Return the cost of a multiply-add with two roundings."""
    depth, spread, logic = scaler.outputs // lanes, scaler.spread_bits, family.logic
    high = bits_for_range(*scaler.high_range)[0] + 2
    total = _product_cost(scaler.product, lanes, depth, 1, HIGH_SHIFT, family)
    total += _constants(double_roms(scaler, raw, lanes), family)
    own = logic.adder(high) + logic.luts(high * spread) + _clamp(scaler.code.bits, 0, logic) + logic.luts(4)
    # Of the bits below the high part, only the carry is kept.
    own += logic.through(-HIGH_SHIFT)
    own += logic.state(high * (1 + spread) + sum(range(spread + 1)) + 2 * scaler.code.bits + 2)
    # The address of the addend is delayed once more, for the constants of the rounding.
    total += logic.state(counter_bits(depth))
    return total + lanes * own + _walk(scaler, depth, logic)


def _table_cost(table: Table, lanes: int, raw: tuple[int, int], family: Family) -> Cost:
    """Return the cost of a table: its ROM, and the address, to which each channel adds the start of its own table."""
    depth, low, span = table.outputs // lanes, table.raw.low, table.raw.high - table.raw.low + 1
    by_channel, logic = depth > 1 and not table.shared, family.logic
    constants = _constants(table_roms(table, lanes), family)
    bits = counter_bits(span * (depth if by_channel else 1))
    if logic.flip_flop_packs:
        own = lanes * bits + (3.0 * bits if by_channel else 0) + 3
    else:
        # The lowest bits of an address to which only zeros are added need no adder.
        added = logic.adder(bits - _zeros(np.array([low, span] if by_channel else [low or 1 << bits]))).lc
        own = lanes * added + (added + bits if by_channel else 0) + 3.0
    address = logic.luts(own) + logic.state(lanes * bits + (bits if by_channel else 0) + table.latency)
    return address + Cost(TABLE_LOGIC * constants.lc, constants.ebr, ff=constants.ff)


_COSTS: dict[type, Callable[[Any, int, tuple[int, int], Family], Cost]] = {
    CommonSteps: _common_cost,
    DoubleScaler: _double_cost,
    Scaler: _scaler_cost,
    Table: _table_cost,
    ThresholdSearch: _search_cost,
}
