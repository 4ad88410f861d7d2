"""Engines for rows in Amaranth's simulator: rows at the ends of what constants are solved from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from nnhw.engines.encoding import encode, pack_words
from nnhw.engines.normalize import NormConfig
from nnhw.engines.rows import RowConfig
from nnhw.engines.softmax import PowersConfig, SharesConfig
from nnhw.errors import MappingError
from nnhw.hdl.engine import HARDWARE
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax
from nnhw.ir.types import IntType
from sim.cases import INT4, INT8, norm, powers, shares
from tests.hdl.streams import check, run_stream

UINT8 = IntType(0, 255)


def ends(config: RowConfig) -> np.ndarray:
    """Return rows [n, length] of the least and the greatest element, with one or half of them unlike, and of zeros."""
    low, high, length = config.source.low, config.source.high, config.length
    rows = [np.full(length, value) for value in (low, high, (low + high) // 2)]
    for one, other in ((low, high), (high, low), (high, high - 1), (low, low + 1)):
        for count in sorted({1, length // 2, length - 1}):
            rows.append(np.where(np.arange(length) < count, one, other))
            rows.append(rows[-1][::-1])
    return np.array(rows)


def run_rows(config: RowConfig, rows: np.ndarray) -> None:
    """Compare an engine with its golden function, for rows of one frame."""
    beats = rows.reshape(-1, config.lanes)
    inputs = pack_words(encode(beats, config.source), config.source.bits)
    expected = pack_words(encode(config.golden(beats), config.element), config.element.bits)
    check(run_stream(HARDWARE[type(config)](config), inputs, len(expected), model=config.model()), expected)


ENDS: dict[str, Callable[[int], RowConfig]] = {
    "norm": lambda rows: norm(INT8, 4, 4, rows, epsilon=0, fraction_bits=15),
    "norm_of_unsigned": lambda rows: norm(UINT8, 1, 12, rows, epsilon=1),
    "norm_of_large_epsilon": lambda rows: norm(INT8, 2, 4, rows, epsilon=(1 << 40) + 12345),
    "rms": lambda rows: norm(INT8, 2, 8, rows, epsilon=0, centered=False),
    "rms_of_unsigned": lambda rows: norm(UINT8, 3, 2, rows, epsilon=2, centered=False),
    "rms_of_three": lambda rows: norm(IntType(-32, 31), 1, 3, rows, epsilon=1, centered=False),
    "powers": lambda rows: powers(INT8, 2, 4, rows, scale=0.01),
}


@pytest.mark.parametrize("name", ENDS)
def test_rows_of_ends_equal_golden(name: str) -> None:
    rows = ends(ENDS[name](1))
    run_rows(ENDS[name](len(rows)), rows)


@pytest.mark.parametrize("centered", [True, False])
def test_norm_is_right_for_every_row_of_three_small_numbers(centered: bool) -> None:
    rows = np.array(list(product(range(-3, 3), repeat=3)))
    run_rows(NormConfig(IntType(-3, 2), 3, 1, len(rows), IntegerNorm(0, 0, 9, centered)), rows)


@pytest.mark.parametrize("high", [200, 255, 256])
def test_shares_of_ends_equal_golden(high: int) -> None:
    rows = np.array(
        [[65535, 0, 0, 0], [32768, 0, 0, 0], [65535] * 4, [32768] * 4, [65535, 65535, 1, 0], [1, 2, 3, 65535]]
    )
    run_rows(shares(2, 2, len(rows), 8, high), rows)


def test_softmax_of_both_engines_is_that_of_the_operator() -> None:
    op, rows = IntegerSoftmax(0, 10, 800), np.random.default_rng(0).integers(-8, 8, (20, 6))
    keep = np.random.default_rng(1).random((20, 6)) < 0.6
    keep[:, 2] = True
    table = np.round(65535 * np.exp(-0.4 * np.arange(16))).astype(np.int64)
    first = PowersConfig(INT4, 2, 3, 20, table, keep)
    second = SharesConfig(first.element, 2, 3, 20, op)
    made = second.golden(first.golden(rows.reshape(-1, 2)))
    np.testing.assert_array_equal(made.reshape(rows.shape), op.evaluate(rows, table, keep))
    assert (made.reshape(rows.shape)[~keep] == 0).all()


def test_powers_reject_flags_of_another_shape_and_rows_without_any() -> None:
    table = np.array([65535, 100])
    for keep in (np.ones((3, 4), dtype=bool), np.arange(12).reshape(2, 6) > 5):
        with pytest.raises(
            MappingError,
            match=r"a mask needs the shape \[rows, elements\], here .* and must keep an element of each row; given",
        ):
            PowersConfig(INT4, 2, 3, 2, table, keep)
