"""A link that harms what it carries: the answer is right, or there is an error; and it ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.driver import BatchError
from nnhw.errors import LinkError
from sim.noise import FrameNoise, Noise
from tests.driver.fakes import TappedLink, golden, make_accelerator, make_board, make_codes, open_toy


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    chance=st.sampled_from([0.0, 1e-4, 1e-3, 5e-3, 3e-2]),
    count=st.integers(1, 300),
    inputs=st.sampled_from([1, 12, 241, 700]),
    outputs=st.sampled_from([1, 5, 130]),
    kind=st.sampled_from([Noise, FrameNoise]),
)
def test_device_is_right_or_reports_an_error(
    seed: int, chance: float, count: int, inputs: int, outputs: int, kind: type[Noise]
) -> None:
    count = max(1, min(count, 20_000 // inputs, 20_000 // outputs))
    accelerator = make_accelerator(inputs, outputs)
    codes = make_codes(count, inputs, seed % 1000)
    expected = golden(codes, outputs)
    link = TappedLink(make_board(accelerator), kind(seed, chance), kind(seed + 1, chance))
    try:
        device = open_toy(link, accelerator)
    except LinkError:
        assert chance > 0
        return
    failure: BatchError | None = None
    try:
        results = device.infer_codes(codes)
    except BatchError as error:
        failure, results = error, error.results
    assert np.array_equal(results, expected[: len(results)])
    assert len(results) == (failure.finished if failure else count)
    assert chance > 0 or failure is None
    assert link.now() < 60


@pytest.mark.parametrize(("kind", "chance"), [(Noise, 2e-4), (FrameNoise, 3e-3)])
def test_device_gets_through_moderate_noise(kind: type[Noise], chance: float) -> None:
    """Proof that the retries work: faults there are, and all images come."""
    accelerator = make_accelerator()
    codes = make_codes(2000)
    outbound, inbound = kind(7, chance), kind(8, chance)
    device = open_toy(TappedLink(make_board(accelerator), outbound, inbound), accelerator)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
    assert outbound.count > 0
    assert inbound.count > 3


def test_device_counts_what_the_board_dropped() -> None:
    accelerator = make_accelerator()
    outbound = Noise(3, 0)
    device = open_toy(TappedLink(make_board(accelerator), outbound), accelerator)
    outbound._chance = 3e-4
    device.infer_codes(make_codes(1500))
    outbound._chance = 0
    assert outbound.count > 1
    assert device.status().bad_frames > 0
