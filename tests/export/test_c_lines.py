"""Lines through steps, and packed weights: exact at every sum, and refused where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.export.c import convolution_loop, words
from nnhw.export.c.products import pack_rows, weight_bits
from nnhw.export.c.wide_lines import fit_lines
from nnhw.ir.types import IntType
from nnhw.mapping.requantize import NormalSteps

RAW = IntType(-250_000, 240_000)


def function_of(codes: np.ndarray) -> NormalSteps:
    """Return the step function of codes [sums of RAW, channels]."""
    changes = [np.flatnonzero(np.diff(column)) for column in codes.T]
    most = max(map(len, changes))
    steps = np.full((codes.shape[1], most), RAW.high + 1)
    values = np.repeat(codes[-1][:, None], most + 1, axis=1)
    for channel, places in enumerate(changes):
        steps[channel, : len(places)] = places + RAW.low + 1
        values[channel, : len(places)] = codes[places, channel]
    return NormalSteps.of(steps, values, IntType(0, 255), RAW)


@pytest.mark.parametrize("seed", range(4))
def test_lines_count_the_steps_of_rounded_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums = np.arange(RAW.low, RAW.high + 1)
    numbers = sums[:, None] * rng.uniform(0.0004, 0.002, 6) + rng.uniform(-90, 250, 6)
    codes = np.clip(np.round(numbers), 0, 255).astype(np.int64)
    lines = fit_lines(function_of(codes))
    assert lines is not None
    counts = np.maximum(sums[:, None] * lines.multiplier + lines.addend, 0) >> lines.shift
    assert (codes[0] + np.minimum(counts, lines.most) == codes).all()


def test_lines_of_a_curve_are_none() -> None:
    sums = np.arange(RAW.low, RAW.high + 1)
    codes = np.round(255 / (1 + np.exp(-sums / 40_000))).astype(np.int64)
    assert fit_lines(function_of(codes[:, None])) is None


def test_lines_of_a_channel_without_steps_count_none() -> None:
    sums = np.arange(RAW.low, RAW.high + 1)
    codes = np.stack([np.full_like(sums, 7), (sums >= 12).astype(np.int64), np.clip(sums // 1000, 0, 255)], axis=1)
    lines = fit_lines(function_of(codes))
    assert lines is not None
    counts = np.maximum(sums[:, None] * lines.multiplier + lines.addend, 0) >> lines.shift
    assert (codes[0] + np.minimum(counts, lines.most) == codes).all()


@pytest.mark.parametrize(("low", "high", "bits"), [(-1, 1, 1), (-2, 1, 2), (-8, 7, 4), (-8, 8, 0)])
def test_packed_weights_come_out_of_their_bytes(low: int, high: int, bits: int) -> None:
    rows = np.random.default_rng(1).integers(low, high + 1, (5, 13))
    rows[0, :2] = low, high
    rows = np.where(rows >= 0, 1, -1) if bits == 1 else rows
    assert weight_bits(rows) == bits
    if bits:
        fields = pack_rows(rows, bits)[:, :, None] >> (bits * np.arange(8 // bits)) & ((1 << bits) - 1)
        codes = fields.reshape(5, -1)[:, :13]
        assert (rows == (2 * codes - 1 if bits == 1 else codes - (1 << (bits - 1)))).all()


def test_layouts_hold_every_weight_once() -> None:
    taps = np.arange(1, 1 + 17 * 2 * 6).reshape(17, 2, 6)
    laid = convolution_loop.layout(taps)
    assert laid.shape == (2, 2, 2, convolution_loop.BLOCK, convolution_loop.FACTORS)
    assert (laid.transpose(0, 3, 1, 2, 4).reshape(32, 2, 8)[:17, :, :6] == taps).all()
    assert np.count_nonzero(laid) == taps.size
    rows = np.arange(1, 1 + 9 * 11).reshape(9, 11)
    bits = words.layout(rows)
    assert (bits.transpose(0, 2, 1, 3).reshape(16, 16)[:9, :11] == rows).all()
    assert np.count_nonzero(bits) == rows.size
