"""The contents of the memories of constants, and their cost: synthesis leaves out bits that are equal in all words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.encoding import bits_for_range, encode
from nnhw.engines.matmul import LOGIC_ROM_WORDS
from nnhw.engines.requantize import (
    CommonSteps,
    ConstantProduct,
    DoubleScaler,
    Scaler,
    Table,
    Thresholds,
    ThresholdSearch,
)
from nnhw.families import Cost, Family

MOST_TOGETHER, PART_LC = 512, 3.3
"""A ROM in logic with more words than the first number takes so many logic cells more for each bit and part (of
`LOGIC_ROM_WORDS` words), to choose among the parts. Measured on ECP5 with 1,280 words of 4 bits."""


@dataclass(frozen=True)
class Rom:
    """A memory that is never written.

    Parameters
    ----------
    words: bit patterns, int64 [depth, parts], not negative; the parts of a word lie side by side.
    logic: whether it is in LUTs; else it is in block RAM.
    """

    words: np.ndarray
    logic: bool

    def cost(self, family: Family) -> Cost:
        """Return its cost; a single word is a constant, and so is a bit that is the same in all words."""
        depth = len(self.words)
        columns = varying_columns(self.words) if depth > 1 else 0
        if not columns:
            return Cost()
        if not self.logic:
            return Cost(columns * bank_mux_lc(depth, columns, family), family.block_rams(depth, columns, rom=True))
        if depth <= family.logic.rom_words:
            # A ROM of so few words is one LUT for each bit, and bits with equal contents share their LUT.
            distinct = distinct_columns(self.words)
            return Cost(distinct) + family.logic.state(distinct)
        return Cost(columns * lut_rom_lc(depth, family)) + family.logic.state(columns)


def bank_mux_lc(depth: int, bits: int, family: Family) -> float:
    """Return the logic cells, for each bit, of the multiplexer among the block RAMs (banks) of a deep ROM.

    Measured on ECP5: 2 for 3 banks, 3 for 5, 11 for 9; on iCE40: 2 for 3, 3 for 5, 5 for 7, 8 for 9.
    """
    banks = family.rom_banks(depth, bits)
    if family.logic.wide_luts < 2:
        return banks - 1.0 if banks < 4 else 1.2 * banks - 3
    return max(0, min(banks - 1, 3)) if banks <= family.logic.wide_luts else 1.2 * banks


def lut_rom_lc(depth: int, family: Family) -> float:
    """Return the LUTs of one bit of a ROM of `depth` words.

    A multiplexer that takes a LUT has a free input, in which the last words fit if they are few.
    """
    full, rest = divmod(depth, family.logic.rom_words)
    small = full > 0 and 0 < rest <= family.logic.rom_rest_words
    tables = full + (rest > 0 and not small)
    if tables <= family.logic.wide_luts:
        return (1 << (tables - 1).bit_length()) + small * family.logic.mux_lc
    apart = depth // LOGIC_ROM_WORDS if depth > MOST_TOGETHER else 0
    return tables + (tables - 1 + small) * family.logic.mux_lc + apart * PART_LC


def varying_columns(words: np.ndarray) -> int:
    """Return the number of bits that are not the same in all words of patterns [depth, parts]."""
    changed = np.bitwise_or.reduce(words, axis=0) ^ np.bitwise_and.reduce(words, axis=0)
    return sum(int(value).bit_count() for value in np.ravel(changed))


def distinct_columns(words: np.ndarray) -> int:
    """Return the number of different bit columns of at most 16 patterns [depth, parts], constant ones not counted."""
    width = max(1, int(words.max()).bit_length())
    columns = (words[:, :, None] >> np.arange(width) & 1).reshape(len(words), -1)
    # Each column of bits as a number, with a bit for each word.
    numbers = np.unique((1 << np.arange(len(words))) @ columns)
    return int(((numbers != 0) & (numbers != (1 << len(words)) - 1)).sum())


def threshold_roms(thresholds: Thresholds, raw: tuple[int, int], lanes: int, logic: bool) -> list[Rom]:
    """Return the memory of thresholds that comparators read, with `lanes` channels in a word.

    Parameters
    ----------
    raw: least and greatest raw sum. lanes: sums a cycle. logic: whether it is in LUTs.
    """
    steps = np.clip(thresholds.steps, raw[0], raw[1] + 1)
    bits = max(bits_for_range(*raw)[0], bits_for_range(min(int(steps.min()), raw[0]), int(steps.max()))[0])
    parts = [steps & ((1 << bits) - 1)]
    if thresholds.descending.any():
        parts.append(thresholds.descending[:, None].astype(np.int64))
    return [Rom(np.concatenate(parts, axis=1).reshape(thresholds.outputs // lanes, -1), logic)]


def search_roms(search: ThresholdSearch, raw: tuple[int, int], lanes: int) -> list[Rom]:
    """Return the memories of a binary search: for each level and lane, and those of its table of codes."""
    low, high = raw
    steps = np.clip(search.steps, low, high + 1)
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
    words = [row[lane::lanes].reshape(-1, 1) for row in rows for lane in range(lanes)]
    return [Rom(word, len(word) <= search.logic_words) for word in words]


def table_roms(table: Table, lanes: int) -> list[Rom]:
    """Return the memories of a lookup table, one for each lane."""
    codes = encode(table.codes, table.code)
    return [Rom((codes if table.shared else codes[lane::lanes]).reshape(-1, 1), table.logic) for lane in range(lanes)]


def scaler_roms(scaler: Scaler, raw: tuple[int, int], lanes: int) -> list[Rom]:
    """Return the memories of a multiply-add-shift: borders, multipliers and addends."""
    product = scaler.product
    found = []
    if scaler.segments > 1:
        borders = np.clip(scaler.borders, raw[0], raw[1] + 1)
        bits = bits_for_range(raw[0], int(max(raw[1], borders.max())))[0]
        found += _roms(borders & ((1 << bits) - 1), lanes, scaler.logic)
        product = replace(product, multiplier=_padded(product.multiplier), addend=_padded(product.addend))
    return found + product_roms(product, raw, lanes, scaler.logic)


def common_roms(common: CommonSteps, raw: tuple[int, int], lanes: int) -> list[Rom]:
    """Return the memories of multipliers and addends, and for each lane those of ranks, places and codes."""
    own = [common.ranked.ranks(common.words), common.ranked.places()]
    if not common.counts_up:
        own.append(encode(common.codes, common.code))
    roms = [Rom(words.reshape(-1, 1), len(words) <= common.logic_words) for words in own for _ in range(lanes)]
    return product_roms(common.product, raw, lanes, common.logic) + roms


def double_roms(scaler: DoubleScaler, raw: tuple[int, int], lanes: int) -> list[Rom]:
    """Return the memories of double rounding: multipliers and addends, numbers that are added to round, and shifts."""
    offset, shift = scaler.offset - scaler.code.low, scaler.shift
    adds = np.maximum((1 << shift >> 1) - 1, 0) + (offset << shift)
    low, high = scaler.high_range
    least, most = int(adds.min()), int(adds.max())
    bits = bits_for_range(min(low + least, low, least, -1), max(high + most + 1, high, most))[0]
    rounding = (adds & ((1 << bits) - 1)) << 1 | (shift > 0)
    found = product_roms(scaler.product, raw, lanes, scaler.logic)
    return [*found, *(rom for rows in (rounding, shift - shift.min()) for rom in _roms(rows, lanes, scaler.logic))]


def product_roms(product: ConstantProduct, raw: tuple[int, int], lanes: int, logic: bool) -> list[Rom]:
    """Return the memories of multipliers (in logic: their signed digits) and addends, both [outputs, segments]."""
    addend = product.addend
    if product.dsp:
        rows, addend = product.constants
    else:
        digits = product.digits
        used = np.flatnonzero(digits.any(axis=(0, 1))).tolist() or [0]
        rows = ((digits[..., used] & 3) << 2 * np.arange(len(used))).sum(axis=-1)
        bits, is_signed = bits_for_range(*raw)
        # A digit of -1 adds the complement of the sum, and of a signed sum the sign bit is added inverted: the addend
        # takes back what both add too much.
        negative = ((digits == -1) * 4 ** np.arange(digits.shape[-1])).sum(axis=-1)
        addend = addend + negative * (1 - (1 << bits + 1)) - (is_signed << bits - 1) * product.multiplier
    return [*_segmented(rows, lanes, logic), *_segmented(addend & ((1 << product.bits) - 1), lanes, logic)]


def _segmented(rows: np.ndarray, lanes: int, logic: bool) -> list[Rom]:
    """Return the memories of constants [outputs, segments]; with several segments, each lane has a memory of its own.

    Lanes may be in different segments in one cycle, so they cannot share a word.
    """
    if rows.shape[1] == 1 or (rows == rows[0, 0]).all():
        return _roms(rows, lanes, logic)
    return [Rom(rows[lane::lanes].reshape(-1, 1), logic) for lane in range(lanes)]


def _roms(rows: np.ndarray, lanes: int, logic: bool) -> list[Rom]:
    """Return the memory of constants [outputs, parts], with all lanes in a word; none if all outputs have the same."""
    return [] if (rows == rows[0]).all() else [Rom(rows.reshape(len(rows) // lanes, -1), logic)]


def _padded(values: np.ndarray) -> np.ndarray:
    """Return constants [outputs, segments] with the last segment repeated up to a power of two."""
    missing = (1 << (values.shape[1] - 1).bit_length()) - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing)), mode="edge")
