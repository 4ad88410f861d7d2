"""The parts of requantizers; those of their constants are exact, bit by bit."""

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
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    adder,
    clamp,
    comparison,
    constant_comparison,
    counter,
    counter_bits,
    counting,
    dsp_blocks,
    gates,
    listed,
    luts,
    register,
    registered_sum,
    state,
    wide_product,
)
from nnhw.ir.types import IntType
from nnhw.mapping.cost.constants import (
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


def requantizer_cost(
    requantizer: Requantizer | None,
    raw: IntType | None,
    lanes: int,
    logic_thresholds: bool = True,
    family: Family = ICE40,
) -> Cost:
    """Return the cost of a requantizer; see `requantizer_parts`."""
    return family.price(requantizer_parts(requantizer, raw, lanes, logic_thresholds))


@lru_cache(maxsize=MOST_KNOWN)
def requantizer_parts(
    requantizer: Requantizer | None, raw: IntType | None, lanes: int, logic_thresholds: bool = True
) -> Inventory:
    """List the parts of a requantizer.

    Parameters
    ----------
    raw: range of the raw sums; None: the requantizer's own, or that of the thresholds.
    lanes: sums that are requantized in a cycle.
    logic_thresholds: whether the thresholds of comparators are constants in logic.
    """
    if requantizer is None:
        return NOTHING
    if isinstance(requantizer, Thresholds):
        return _thresholds(requantizer, raw, lanes, logic_thresholds)
    # The protocol has no `raw`: comparators, which were dealt with above, do not know it.
    span: IntType = getattr(requantizer, "raw") if raw is None else raw  # noqa: B009
    return _PARTS[type(requantizer)](requantizer, lanes, (span.low, span.high))


def _thresholds(thresholds: Thresholds, raw: IntType | None, lanes: int, in_logic: bool) -> Inventory:
    """List comparators: a carry chain for each, and the count of thresholds that are reached."""
    levels, depth = thresholds.steps.shape[1], thresholds.outputs // lanes
    low, high = (int(thresholds.steps.min()), int(thresholds.steps.max())) if raw is None else (raw.low, raw.high)
    bits = bits_for_range(low, max(low, high))[0]
    turned = thresholds.code.bits if thresholds.descending.any() else 0
    # A lane with a single channel compares with constants.
    compared = constant_comparison(bits) if depth == 1 else comparison(bits)
    own = lanes * (levels * compared + luts((levels - 1) * 1.5) + luts(turned))
    own += counter(depth) + luts(2) + state(1) if depth > 1 else NOTHING
    return own + threshold_roms(thresholds, (low, high), lanes, in_logic)


def _search(search: ThresholdSearch, lanes: int, raw: tuple[int, int]) -> Inventory:
    """List a binary search: each level delays sum and position, and compares the sum with a step.

    Steps from ROMs in logic take registers; steps from block RAM are in its output register.
    """
    depth, bits = search.outputs // lanes, search.raw.bits
    position, levels, moves = counter_bits(depth), search.levels, search.level_moves
    own = counting(depth) + gates((levels * moves + 1) * position + search.latency)
    own += lanes * listed(gates(moves * (bits + level) + 1) + comparison(bits) for level in range(levels))
    own += luts(lanes * levels)
    positions = position * (levels * moves + 2 * (search.table is not None))
    sums = moves * (levels * bits_for_range(*raw)[0] + sum(range(levels))) + levels
    words = [depth << level for level in range(levels)]
    # Steps from logic have no output register of a block RAM, so they wait in flip-flops.
    waiting = sum(1 < count <= search.logic_words for count in words) * (moves - 1)
    steps = waiting * (bits_for_range(*raw)[0] + bool(search.descending.any()))
    own += state(positions + lanes * (sums + steps) + search.latency)
    return own + search_roms(search, raw, lanes)


def _product(product: ConstantProduct, lanes: int, depth: int, segments: int, lost: int) -> Inventory:
    """List a multiply-add without its constants: partial products, their tree, the addend.

    Parameters
    ----------
    depth: number of channels whose constants follow one another in a lane.
    segments: pieces of each channel's function, each with its own constants.
    lost: number of lowest bits of the result that nothing reads.
    """
    words = depth * segments
    if product.is_addition:
        return lanes * _adder(product.bits, product.moves, lost=lost)
    if product.fused:
        own = luts(lanes * product.raw.bits * (1 + product.is_magnitude))
        return gates(2 * counter_bits(words)) + own + dsp_blocks(lanes)
    # The address of the addend is delayed by as many moves (pipeline registers) as the product takes.
    moves = 1 + product.dsp + sum(product.level_moves)
    address = gates(counter_bits(words) * moves)
    address += state((counter_bits(depth) + lanes * counter_bits(segments)) * moves)
    return address + lanes * (_dsp_lane if product.dsp else _logic_lane)(product, words, lost)


def _dsp_lane(product: ConstantProduct, words: int, lost: int) -> Inventory:
    """List one lane's multiply-add with DSP blocks."""
    lefts, rights = piece_bits(product.raw_bits), piece_bits(product.multiplier_bits)
    factors = gates(product.raw_bits + _factors_outside(product, words))
    factors += state(product.raw_bits + sum(lefts) - len(lefts) + 1 + sum(rights) - len(rights) + 1)
    # The lowest bits that are 0 in all addends need no adder.
    addend = _adding(product.bits - _zeros(product.addend), product.moves)
    kept = state(_adder_state(product.bits, product.moves, lost))
    return factors + _dsp_products(product) + addend + kept


def _logic_lane(product: ConstantProduct, words: int, lost: int) -> Inventory:
    """List one lane's multiply-add in logic.

    Parameters
    ----------
    words: number of different constants; with a single one, synthesis simplifies the partial products.
    """
    raw = product.raw.bits
    used = np.flatnonzero(product.digits.any(axis=(0, 1))).tolist() or [0]
    partial = len(used) * (raw + 1) if words > 1 else min(len(used), 2) * raw
    own = register(raw) + luts(partial) + state(len(used) * (raw + 1))
    own += _tree(product, [(2 * digit, raw + 1) for digit in used])
    return own + _adder(product.bits, product.moves, lost=lost)


def _factors_outside(product: ConstantProduct, depth: int) -> int:
    """Return the bits of the factors' registers that yosys leaves outside of the DSP blocks.

    Measured: it moves a register into a block only if the register fills the port, with no constant 0 above it.
    """
    if product.multiplier_bits <= DSP_PIECE_BITS:
        return product.raw_bits + min(product.multiplier_bits, (1 << min(depth, 12)) - 2)
    return DSP_PIECE_BITS * (pieces(product.multiplier_bits) + pieces(product.raw_bits) - 2)


def _dsp_products(product: ConstantProduct) -> Inventory:
    """List one lane's products of pieces, and their tree."""
    lefts, rights = piece_bits(product.raw_bits), piece_bits(product.multiplier_bits)
    operands, own = [], list[Inventory]()
    for (i, left), (j, right) in iterate(enumerate(lefts), enumerate(rights)):
        width = left + right
        operands.append(((i + j) * DSP_PIECE_BITS, width))
        unsigned = j == len(rights) - 1 and bool(product.multiplier.min() >= 0)
        own += [wide_product(left, right, unsigned), state(width)]
        if len(rights) > 1 and j == len(rights) - 1:
            # The register of the narrowest product stays outside of the block.
            own.append(gates(width - 1))
    return listed(own) + _tree(product, sorted(operands))


def _zeros(values: np.ndarray) -> int:
    """Return the number of lowest bits that are 0 in all values."""
    bits = int(np.bitwise_or.reduce(values, axis=None))
    return (bits & -bits).bit_length() - 1 if bits else 0


def _tree(product: ConstantProduct, operands: list[Operand]) -> Inventory:
    """List the tree that adds partial products."""
    return listed(
        register(bits * moves) if passed is None else _adder(bits, moves, passed)
        for bits, moves, passed in tree(product, operands)
    )


def _adder(bits: int, moves: int, passed: int = 0, lost: int = 0) -> Inventory:
    """List an adder with its registers; in two moves, the upper half waits for the lower half's carry.

    Parameters
    ----------
    bits: of the sum. moves: cycles that it takes, 1 or 2.
    passed: number of lowest bits that only one operand has: they need no adder.
    lost: number of lowest bits of the result that nothing reads.
    """
    return _adding(bits, moves, passed) + state(_adder_state(bits, moves, lost))


def _adding(bits: int, moves: int, passed: int = 0) -> Inventory:
    """List an adder without the flip-flops of its registers; see `_adder`."""
    if moves == 1:
        return gates(passed) + adder(bits - passed)
    low = lower_bits(bits)
    return adder(low + 1 - passed) + adder(bits - low) + gates(passed + low + 2 * (bits - low))


def _adder_state(bits: int, moves: int, lost: int) -> int:
    """Return the flip-flops of an adder; see `_adder`."""
    if moves == 1:
        return bits - min(lost, bits)
    low = lower_bits(bits)
    return low - min(lost, low) + 1 + max(0, low - lost) + 3 * (bits - low)


def _scaler(scaler: Scaler, lanes: int, raw: tuple[int, int]) -> Inventory:
    """List a multiply-add-shift: product, choice of the segment, rounding and clamp."""
    depth, bits, inner = scaler.outputs // lanes, scaler.raw.bits, scaler.segments - 1
    # Rounding half to even looks at all bits of the fraction; else nothing reads them.
    lost = 0 if scaler.even else scaler.shift
    total = _product(scaler.product, lanes, depth, scaler.segments, lost) + scaler_roms(scaler, raw, lanes)
    if inner:
        total += lanes * (inner * comparison(bits) + luts(2)) + gates(2 * lanes * bits)
        total += register(2 * counter_bits(depth))
        total += state(lanes * (2 * bits + counter_bits(scaler.segments)))
    number = scaler.product.bits - scaler.shift
    if scaler.even:
        rounded = gates(number) + adder(number) + luts(scaler.shift / 3) + luts(2)
        total += lanes * rounded + state(lanes * (2 * number + 1))
    low, high = scaler.product.range
    # A tie may take one off the lowest number.
    ends = (low >> scaler.shift) - scaler.even, high >> scaler.shift
    index = max(scaler.span.bit_length(), 1)
    total += state(lanes * (2 * index + (ends[0] < 0) + (ends[1] > scaler.span)))
    compared = number
    if scaler.product.is_addition and scaler.span & (scaler.span + 1) == 0:
        # A sum has few bits above those of the codes, and whether one of them differs from the sign is all to compare.
        compared = max(0, number - index)
    return total + lanes * _clamp(scaler.code.bits, compared) + _walk(scaler, depth)


def _clamp(code: int, number: int) -> Inventory:
    """List a clamp: comparisons with both ends of the codes, registers of the number and of the code."""
    return luts(code) + gates(code) + clamp(number) + luts(2)


def _walk(requantizer: CommonSteps | Scaler | DoubleScaler, depth: int) -> Inventory:
    """List the counter of channels, and the shift register that delays `valid`."""
    return register(requantizer.latency) + counter(depth)


def _common(common: CommonSteps, lanes: int, raw: tuple[int, int]) -> Inventory:
    """List common steps: a multiply-add, the clamp to an address, the rank there, one comparison."""
    depth = common.outputs // lanes
    total = _product(common.product, lanes, depth, 1, common.drop) + common_roms(common, raw, lanes)
    wait, cells, words = 1 + common.registered, 1 << common.cells_log2, common.words.bit_length() - 1
    rank, cell, place = common.ranked.rank_bits, common.cells_log2, common.cell_bits
    # Bits above those that address a word: whether all of them are equal decides the clamp.
    outside = common.product.bits - common.drop - place - cell - words
    own = luts(words + outside / 3) + state(words)
    # Bits of the number, and the rank, are delayed while the clamp and the two memories work.
    waiting = cell * (1 + wait) + place * (2 + 2 * wait) + rank * (wait + 1) + wait
    waiting += (wait - 1) * sum(
        bits
        for count, bits in ((common.words, rank + cells), (len(common.steps) + 1, place))
        if count <= common.logic_words
    )
    own += register(waiting) + comparison(place) + luts(3.5 * (cells - 1)) + luts(cells)
    own += 2 * adder(rank) + state((cells - 1) * wait + 2 * rank + 2)
    if common.turn is not None:
        code = common.code.bits
        own += constant_comparison(rank) + gates(code) + registered_sum(code)
    return total + lanes * own + _walk(common, depth)


def _double(scaler: DoubleScaler, lanes: int, raw: tuple[int, int]) -> Inventory:
    """List a multiply-add with two roundings."""
    depth, spread = scaler.outputs // lanes, scaler.spread_bits
    high = bits_for_range(*scaler.high_range)[0] + 2
    total = _product(scaler.product, lanes, depth, 1, HIGH_SHIFT) + double_roms(scaler, raw, lanes)
    own = adder(high) + luts(high * spread) + _clamp(scaler.code.bits, 0) + luts(4)
    # Of the bits below the high part, only the carry is kept.
    own += -1 * gates(HIGH_SHIFT)
    own += state(high * (1 + spread) + sum(range(spread + 1)) + 2 * scaler.code.bits + 2)
    # The address of the addend is delayed once more, for the constants of the rounding.
    total += state(counter_bits(depth))
    return total + lanes * own + _walk(scaler, depth)


def _table(table: Table, lanes: int, raw: tuple[int, int]) -> Inventory:
    """List a table: its ROM, and the address, to which each channel adds the start of its own table."""
    depth, low, span = table.outputs // lanes, table.raw.low, table.raw.high - table.raw.low + 1
    by_channel = depth > 1 and not table.shared
    bits = counter_bits(span * (depth if by_channel else 1))
    # The lowest bits of an address to which only zeros are added need no adder.
    zeros = min(bits, _zeros(np.array([low, span] if by_channel else [low or 1 << bits])))
    added = adder(bits - zeros) + gates(zeros)
    address = lanes * added + luts(3) + state(lanes * bits + table.latency)
    if by_channel:
        address += added + luts(bits) + gates(bits) + state(bits)
    return address + table_roms(table, lanes).reduced(TABLE_LOGIC)


_PARTS: dict[type, Callable[[Any, int, tuple[int, int]], Inventory]] = {
    CommonSteps: _common,
    DoubleScaler: _double,
    Scaler: _scaler,
    Table: _table,
    ThresholdSearch: _search,
}
"""What lists the parts of each requantizer, for a number of lanes and a range of raw sums."""
