"""Constants of the ways to requantize: each says what multiplier, addend, shift, rounding and clamp say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.engines.shared import ArrayConfig, Compute
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.shared.records import descriptor_words, encode_record, requantize
from nnhw.errors import MappingError
from tests.engines.shared.programs import ARRAY, convolution

SHAPE = {"activation_bits": 2, "weight_bits": 2, "simd": 1, "word_bits": 64}
STEPS = replace(ARRAY, **SHAPE, sum_bits=7, factor_bits=8, addend_bits=12, requantizing=Requantizing.STEPS)
BLOCK = replace(ARRAY, sum_bits=12, factor_bits=16, addend_bits=24, requantizing=Requantizing.DSP)


def record_of(array: ArrayConfig, factor: list[int], addend: list[int], **others: object) -> Compute:
    """Return a record with constants for the first lanes."""
    constants = {
        name: np.array([*own, *[0] * (array.lanes - len(own))])
        for name, own in (("factor", factor), ("addend", addend))
    }
    shape = convolution(np.zeros((8, 1, 1, 1), np.int64), 3, pad=0)
    return replace(shape, **{"weights": np.zeros((1, 8, array.simd), np.int64), "border": 0, **constants, **others})


def constants_of(record: Compute, array: ArrayConfig) -> list[int]:
    """Return the constants of each lane as they are stored."""
    words, bits = encode_record(record, False, array).words[descriptor_words(array) :], array.constant_bits
    each, count = array.constant_words, array.constant_lanes
    found = []
    for lane in range(array.lanes):
        first = lane // count * each
        number = sum(word << (array.word_bits * index) for index, word in enumerate(words[first : first + each]))
        found.append(number >> (lane % count * bits) & ((1 << bits) - 1))
    return found


@pytest.mark.parametrize(("low", "high"), [(-2, 1), (-1, 1), (0, 0), (-2, -2)])
@pytest.mark.parametrize("even", [False, True])
def test_totals_below_zero_count_the_steps(even: bool, low: int, high: int) -> None:
    factors, addends = [1, -1, 0, 127, -128, 2, -4, 0], [0, 3, 900, -17, 5, -40, 2, -900]
    record = record_of(STEPS, factors, addends, even=even, parity=int(even), shift=1, low=low, high=high)
    sums = np.arange(-64, 64)[:, None].repeat(8, axis=1)
    codes = requantize(sums, record, STEPS)
    for lane, number in enumerate(constants_of(record, STEPS)):
        pieces = [number >> (8 * index) & 0xFF for index in range(3)]
        counted = sum(((sums[:, lane] + piece) & 0x80) >> 7 for piece in pieces)
        assert (counted - 2 == codes[:, lane]).all()


def test_a_factor_as_sign_and_magnitude_gives_the_same_number() -> None:
    array = replace(BLOCK, factor_bits=17)
    factors, addends = [65535, -65535, -1, 0], [-7, 1 << 20, 5, 3]
    for factor, addend, number in zip(
        factors, addends, constants_of(record_of(array, factors, addends), array), strict=False
    ):
        stored, sign, magnitude = number & 0xFFFFFF, number >> 40, number >> 24 & 0xFFFF
        for value in (-2048, -1, 0, 2047):
            total = (~value if sign else value) * magnitude + stored
            assert (total - (value * factor + addend)) % (1 << 24) == 0


def test_the_lowest_number_is_no_magnitude() -> None:
    with pytest.raises(MappingError, match="needs more than the 17 bits"):
        encode_record(record_of(replace(BLOCK, factor_bits=17), [-65536], [0]), False, replace(BLOCK, factor_bits=17))
    assert constants_of(record_of(BLOCK, [-32768], [0]), BLOCK)[0] >> 24 == 0x8000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requantizing": Requantizing.STEPS}, "make codes of up to 2 bits"),
        ({"sum_bits": 17}, "take sums of 16 bits"),
        ({"factor_bits": 18}, "factors of 17"),
        ({"addend_bits": 33}, "results of 32"),
    ],
)
def test_arrays_that_cannot_requantize_so_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(MappingError, match=message):
        replace(BLOCK, **changes)
