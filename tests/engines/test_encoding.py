"""Bit patterns in words."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.engines.encoding import pack_bytes, pack_words, unpack_words, words_of


@given(st.integers(1, 70), st.integers(0, 5), st.integers(0, 40), st.randoms(use_true_random=False))
def test_packed_words_hold_element_0_in_the_lowest_bits(bits: int, words: int, lanes: int, random: Random) -> None:
    rows = [[random.getrandbits(min(bits, 63)) for _ in range(lanes)] for _ in range(words)]
    patterns = np.array(rows, dtype=np.int64).reshape(words, lanes)
    expected = [sum(pattern << (lane * bits) for lane, pattern in enumerate(row)) for row in rows]
    packed = pack_words(patterns, bits)
    assert packed == expected
    if lanes and bits < 64:
        np.testing.assert_array_equal(unpack_words(packed, lanes, bits).reshape(words, lanes), patterns)


@pytest.mark.parametrize(("bits", "count"), [(1, 1), (3, 2), (8, 5), (16, 10)])
def test_packed_bytes_are_the_lowest_first(bits: int, count: int) -> None:
    rows = pack_bytes(np.ones((3, 5), dtype=np.int64), bits)
    assert rows.shape == (3, count)
    assert rows[0, 0] == sum(1 << bit for bit in range(0, min(8, 5 * bits), bits))
    assert words_of(rows) == pack_words(np.ones((3, 5), dtype=np.int64), bits)
