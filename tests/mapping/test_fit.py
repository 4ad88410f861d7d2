"""Lines that are equal to a step function: the slopes and addends that there are, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.mapping.fit import Channel, Point

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


def test_corners_of_wide_sums_do_not_overflow() -> None:
    steps = (0, *[1 << 56] * 1500, *[1 << 57] * 500)
    some, every = (kind(steps, -1, (1 << 57) + 1, None) for kind in (Channel, AllPoints))
    assert some.hulls(0)[0] == [(0, 1), (1 << 56, 1501), (1 << 57, 2001)]
    assert some.slopes(60) == every.slopes(60)


def test_channels_are_kept_in_a_bounded_number() -> None:
    assert None not in (Channel.hulls.cache_info().maxsize, Channel.slopes.cache_info().maxsize)
