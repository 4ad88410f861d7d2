"""Lines that are equal to a step function: the slopes and addends that there are, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.ir.types import IntType
from nnhw.mapping.fit import Channel, Point, cut, fit_scaler, occurring_steps

LARGEST = 40
"""Slopes that are tried one by one."""


class AllPoints(Channel):
    """The same conditions without leaving out any that follows from others."""

    def _corners(self) -> tuple[list[Point], list[Point]]:
        steps = list(enumerate(self.steps, 1))
        return (
            [(max(step, self.low), k) for k, step in steps if step <= self.high],
            [(min(step, self.high + 1) - 1, k) for k, step in steps if step > self.low],
        )


def drawn(rng: np.random.Generator) -> tuple[tuple[int, ...], int, int]:
    """Return steps and range: near a line or anywhere, some outside of the range, some at the same place."""
    low = int(rng.integers(-60, 1))
    high, count = low + int(rng.integers(1, 120)), int(rng.integers(0, 12))
    if rng.random() < 0.7:
        steps = np.ceil(np.arange(count) * rng.uniform(0.3, 12) + rng.uniform(low, high)) + (rng.random(count) < 0.1)
    else:
        steps = rng.integers(low - 20, high + 20, count)
    return tuple(sorted(int(step) for step in steps)), low, high


def serves(channel: Channel, slope: int, shift: int) -> bool:
    """Return whether there is an addend with which a slope is equal at every place, tried by the definition."""
    x = np.arange(channel.low, channel.high + 1)
    index = np.searchsorted(channel.steps, x, side="right")
    least = [(k << shift) - slope * place for k, place in zip(index.tolist(), x.tolist(), strict=True) if k > 0]
    most = [
        (k + 1 << shift) - 1 - slope * place
        for k, place in zip(index.tolist(), x.tolist(), strict=True)
        if k < len(channel.steps)
    ]
    return not least or not most or max(least) <= min(most)


@pytest.mark.parametrize("seed", range(60))
def test_slopes_are_those_that_serve_at_every_place(seed: int) -> None:
    steps, low, high = drawn(np.random.default_rng([31, seed]))
    channel = Channel(steps, low, high, None)
    for shift in (0, 2, 4):
        found = channel.slopes(shift)
        least, most = (1, 0) if found is None else found
        for slope in range(-LARGEST, LARGEST + 1):
            assert serves(channel, slope, shift) == (least <= slope <= most)


@pytest.mark.parametrize("seed", range(60))
def test_corners_bind_as_all_points_do(seed: int) -> None:
    rng = np.random.default_rng([32, seed])
    steps, low, high = drawn(rng)
    parity = (None, 0, 1)[seed % 3]
    ties = (int(rng.integers(1, 6)), int(rng.integers(-2, len(steps) + 2))) if seed % 6 == 0 else (0, 0)
    some, every = Channel(steps, low, high, parity, *ties), AllPoints(steps, low, high, parity, *ties)
    for shift in (0, 1, 5, 12, 40):
        assert some.slopes(shift) == every.slopes(shift)
        slope = some.slope(shift)
        if slope is not None:
            assert some.addends(slope, shift) == every.addends(slope, shift)


def indices(steps: np.ndarray, falls: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return the index int64 [channels, sums] that each sum has in each channel, by the definition."""
    reached = np.array([np.searchsorted(row, sums, side="right") for row in steps])
    return np.where(falls[:, None], steps.shape[1] - reached, reached)


@pytest.mark.parametrize("seed", range(20))
def test_occurring_steps_are_those_between_the_indices_of_the_range(seed: int) -> None:
    rng = np.random.default_rng([33, seed])
    raw = IntType(-3, 9)
    # Steps at both ends of the range, and outside of it.
    steps = np.sort(rng.choice([-9, -4, -3, -2, 0, 5, 8, 9, 10, 20], (3, 5)), axis=1)
    falls, sums = rng.random(3) < 0.5, np.arange(raw.low, raw.high + 1)
    found, lowest, highest = occurring_steps(steps, falls, raw)
    wanted = indices(steps, falls, sums)
    assert (lowest, highest) == (wanted.min(), wanted.max())
    assert (lowest + indices(found, falls, sums) == wanted).all()


@pytest.mark.parametrize("falls", [False, True])
@pytest.mark.parametrize("step", [-3, -2, 8, 9])
def test_scaler_has_a_step_at_either_end_of_the_range(step: int, falls: bool) -> None:
    raw, sums = IntType(-3, 9), np.arange(-3, 10)
    steps, descending = np.array([[step]]), np.array([falls])
    scaler = fit_scaler(steps, descending, IntType(0, 1), raw)
    assert scaler is not None
    assert (scaler.golden(sums[:, None])[:, 0] == indices(steps, descending, sums)[0]).all()


@pytest.mark.parametrize("seed", range(12))
def test_function_is_cut_into_as_few_pieces_as_have_lines(seed: int) -> None:
    rng = np.random.default_rng([34, seed])
    raw, falls, shift = IntType(0, 10), bool(seed % 2), seed % 3
    steps = sorted(rng.choice([-1, 0, 1, 3, 4, 5, 8, 9, 10, 11], 6).tolist())
    rising = [1 - step for step in reversed(steps)] if falls else steps
    low, high = (-raw.high, -raw.low) if falls else (raw.low, raw.high)
    # The least pieces up to each place, by trying every last piece.
    least = {low - 1: 0}
    for end in range(low, high + 1):
        starts = [one for one in least if Channel(tuple(rising), one + 1, end, None).slope(shift) is not None]
        least[end] = 1 + min(least[start] for start in starts)
    pieces = cut(steps, falls, raw, least[high], None, shift)
    assert pieces is not None
    assert len(pieces.channels) == least[high]
    assert [one.high for one in pieces.channels[:: -1 if falls else 1]][-1] == high
    assert least[high] == 1 or cut(steps, falls, raw, least[high] - 1, None, shift) is None


def test_corners_of_wide_sums_do_not_overflow() -> None:
    steps = (0, *[1 << 56] * 1500, *[1 << 57] * 500)
    some, every = (kind(steps, -1, (1 << 57) + 1, None) for kind in (Channel, AllPoints))
    assert some.hulls(0)[0] == [(0, 1), (1 << 56, 1501), (1 << 57, 2001)]
    assert some.slopes(60) == every.slopes(60)


def test_channels_are_kept_in_a_bounded_number() -> None:
    assert None not in (Channel.hulls.cache_info().maxsize, Channel.slopes.cache_info().maxsize)
