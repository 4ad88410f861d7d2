"""The memories of constants, from their contents: synthesis leaves out bits that are equal in all words."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from nnhw.engines.encoding import bits_for_range, encode
from nnhw.engines.requantize import (
    CommonSteps,
    ConstantProduct,
    DoubleScaler,
    Scaler,
    Table,
    Thresholds,
    ThresholdSearch,
)
from nnhw.families.parts import NOTHING, SHARED_COLUMNS_WORDS, Inventory, listed, logic_rom, rom


def rom_parts(words: np.ndarray, logic: bool) -> Inventory:
    """List a memory that is never written; a single word is a constant, and so is a bit that is the same in all words.

    Parameters
    ----------
    words: bit patterns, int64 [depth, parts], not negative; the parts of a word lie side by side.
    logic: whether it is in LUTs; else it is in block RAM.
    """
    depth = len(words)
    columns = varying_columns(words) if depth > 1 else 0
    if not columns:
        return NOTHING
    if not logic:
        return rom(depth, columns)
    return logic_rom(depth, columns, distinct_columns(words) if depth <= SHARED_COLUMNS_WORDS else columns)


def varying_columns(words: np.ndarray) -> int:
    """Return the number of bits that are not the same in all words of patterns [depth, parts]."""
    changed = np.bitwise_or.reduce(words, axis=0) ^ np.bitwise_and.reduce(words, axis=0)
    return sum(int(value).bit_count() for value in np.ravel(changed))


def distinct_columns(words: np.ndarray) -> int:
    """Return the number of different bit columns of at most 16 patterns [depth, parts], constant ones not counted."""
    width = max(1, int(words.max()).bit_length())
    columns = (words[:, :, None] >> np.arange(width) & 1).reshape(len(words), -1)
    # Each column of bits as a number, with a bit for each word.
    numbers = set(((1 << np.arange(len(words))) @ columns).tolist())
    return len(numbers - {0, (1 << len(words)) - 1})


def threshold_roms(thresholds: Thresholds, raw: tuple[int, int], lanes: int, logic: bool) -> Inventory:
    """List the memory of thresholds that comparators read, with `lanes` channels in a word.

    Parameters
    ----------
    raw: least and greatest raw sum. lanes: sums a cycle. logic: whether it is in LUTs.
    """
    # A step that is never, or always, reached may be any such number: the nearest ones take the fewest bits.
    steps = np.clip(thresholds.steps, raw[0], raw[1] + 1)
    bits = max(bits_for_range(*raw)[0], bits_for_range(min(int(steps.min()), raw[0]), int(steps.max()))[0])
    parts = [steps & ((1 << bits) - 1)]
    if thresholds.descending.any():
        parts.append(thresholds.descending[:, None].astype(np.int64))
    return rom_parts(np.concatenate(parts, axis=1).reshape(thresholds.outputs // lanes, -1), logic)


def search_roms(search: ThresholdSearch, raw: tuple[int, int], lanes: int) -> Inventory:
    """List the memories of a binary search: for each level and lane, and those of its table of codes."""
    low, high = raw
    steps = np.clip(search.steps, low, high + 1)
    # The search goes the same way in all channels, so falling ones have their steps in reverse, and a bit that turns
    # the comparison.
    steps = np.where(search.descending[:, None], steps[:, ::-1], steps)
    # Filled up to 2**levels - 1 steps, so that each search takes the same way through all levels.
    never = np.where(search.descending, low, high + 1)[:, None]
    steps = np.concatenate([steps, never.repeat((1 << search.levels) - 1 - steps.shape[1], axis=1)], axis=1)
    bits = bits_for_range(low, high + 1 if steps.max() > high else high)[0]
    turn = search.descending[:, None].astype(np.int64) << bits
    rows = []
    for level in range(search.levels):
        # A level compares with the steps in the middle of what is left of the search: every second step of twice the
        # distance.
        half = 1 << (search.levels - 1 - level)
        rows.append(steps[:, half - 1 :: 2 * half] & ((1 << bits) - 1) | turn)
    if search.table is not None:
        codes = encode(search.table, search.code)
        rows.append(np.pad(codes, ((0, 0), (0, (1 << search.levels) - codes.shape[1]))))
    # Channel `lane` of each word of channels goes to that lane: [outputs, parts] --> [lanes, words of a lane].
    memories = [row.reshape(-1, lanes, row.shape[1]).swapaxes(0, 1).reshape(lanes, -1) for row in rows]
    return listed(_lane_roms(words, words.shape[1] <= search.logic_words) for words in memories)


def _lane_roms(words: np.ndarray, logic: bool) -> Inventory:
    """List a memory for each lane, all of the same depth; see `rom_parts`.

    Parameters
    ----------
    words: bit patterns [lanes, depth].
    """
    depth = words.shape[1]
    if depth == 1:
        return NOTHING
    if logic and depth <= SHARED_COLUMNS_WORDS:
        return listed(rom_parts(lane[:, None], True) for lane in words)
    changed = np.bitwise_or.reduce(words, axis=1) ^ np.bitwise_and.reduce(words, axis=1)
    # Lanes whose memories are equally wide are counted together.
    widths = Counter(int(value).bit_count() for value in changed)
    return listed(
        count * (logic_rom(depth, width, width) if logic else rom(depth, width))
        for width, count in sorted(widths.items())
        if width
    )


def table_roms(table: Table, lanes: int) -> Inventory:
    """List the memories of a lookup table, one for each lane."""
    codes = encode(table.codes, table.code)
    if table.shared:
        return lanes * rom_parts(codes.reshape(-1, 1), table.logic)
    return listed(rom_parts(codes[lane::lanes].reshape(-1, 1), table.logic) for lane in range(lanes))


def scaler_roms(scaler: Scaler, raw: tuple[int, int], lanes: int) -> Inventory:
    """List the memories of a multiply-add-shift: borders, multipliers and addends."""
    product = scaler.product
    found = NOTHING
    if scaler.segments > 1:
        borders = np.clip(scaler.borders, raw[0], raw[1] + 1)
        bits = bits_for_range(raw[0], int(max(raw[1], borders.max())))[0]
        found += _roms(borders & ((1 << bits) - 1), lanes, scaler.logic)
        product = replace(product, multiplier=_padded(product.multiplier), addend=_padded(product.addend))
    return found + product_roms(product, raw, lanes, scaler.logic)


def common_roms(common: CommonSteps, raw: tuple[int, int], lanes: int) -> Inventory:
    """List the memories of multipliers and addends, and for each lane those of ranks, places and codes."""
    own = [common.ranked.ranks(common.words), common.ranked.places()]
    if not common.counts_up and common.turn is None:
        own.append(encode(common.codes, common.code))
    roms = listed(lanes * rom_parts(words.reshape(-1, 1), len(words) <= common.logic_words) for words in own)
    return product_roms(common.product, raw, lanes, common.logic) + roms


def double_roms(scaler: DoubleScaler, raw: tuple[int, int], lanes: int) -> Inventory:
    """List the memories of double rounding: multipliers and addends, numbers that are added to round, and shifts."""
    offset, shift = scaler.offset - scaler.code.low, scaler.shift
    adds = np.maximum((1 << shift >> 1) - 1, 0) + (offset << shift)
    low, high = scaler.high_range
    least, most = int(adds.min()), int(adds.max())
    bits = bits_for_range(min(low + least, low, least, -1), max(high + most + 1, high, most))[0]
    rounding = (adds & ((1 << bits) - 1)) << 1 | (shift > 0)
    found = product_roms(scaler.product, raw, lanes, scaler.logic)
    return found + listed(_roms(rows, lanes, scaler.logic) for rows in (rounding, shift - shift.min()))


def product_roms(product: ConstantProduct, raw: tuple[int, int], lanes: int, logic: bool) -> Inventory:
    """List the memories of multipliers (in logic: their signed digits) and addends, both [outputs, segments]."""
    addend = product.addend
    if product.dsp:
        rows, addend = product.constants
    else:
        digits = product.digits
        used = np.flatnonzero(digits.any(axis=(0, 1))).tolist() or [0]
        # Two bits for each digit that is used in any channel: -1 is 3.
        rows = ((digits[..., used] & 3) << 2 * np.arange(len(used))).sum(axis=-1)
        bits, is_signed = bits_for_range(*raw)
        # A digit of -1 adds the complement of the sum, and of a signed sum the sign bit is added inverted: the addend
        # takes back what both add too much.
        negative = ((digits == -1) * 4 ** np.arange(digits.shape[-1])).sum(axis=-1)
        addend = addend + negative * (1 - (1 << bits + 1)) - (is_signed << bits - 1) * product.multiplier
    return _segmented(rows, lanes, logic) + _segmented(addend & ((1 << product.bits) - 1), lanes, logic)


def _segmented(rows: np.ndarray, lanes: int, logic: bool) -> Inventory:
    """List the memories of constants [outputs, segments]; with several segments, each lane has a memory of its own.

    Lanes may be in different segments in one cycle, so they cannot share a word.
    """
    if rows.shape[1] == 1 or (rows == rows[0, 0]).all():
        return _roms(rows, lanes, logic)
    return listed(rom_parts(rows[lane::lanes].reshape(-1, 1), logic) for lane in range(lanes))


def _roms(rows: np.ndarray, lanes: int, logic: bool) -> Inventory:
    """List the memory of constants [outputs, parts], with all lanes in a word; none if all outputs have the same."""
    return NOTHING if (rows == rows[0]).all() else rom_parts(rows.reshape(len(rows) // lanes, -1), logic)


def _padded(values: np.ndarray) -> np.ndarray:
    """Return constants [outputs, segments] with the last segment repeated up to a power of two."""
    missing = (1 << (values.shape[1] - 1).bit_length()) - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing)), mode="edge")
