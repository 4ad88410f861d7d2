"""Bytes become beats of elements: hardware, golden function and cycle model, under stalls on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.engines.unpack import UnpackConfig
from nnhw.hdl.unpack import Unpacker
from tests.hdl.streams import check, run_stream

LANES = (1, 2, 3, 5, 7, 8, 14, 49)
BEATS = 5
FRAMES = 3


def words_of(config: UnpackConfig, frames: np.ndarray) -> list[int]:
    """Return the beats of frames uint8 [N, bytes] as integers."""
    beats = np.concatenate([config.golden(frame) for frame in frames])
    return [int("".join(map(str, beat[::-1])), 2) for beat in beats]


def run_model(config: UnpackConfig, stalls: np.ndarray) -> tuple[int, int]:
    """Step the model with all bytes of the frames there; return (bytes taken, beats given)."""
    model, taken, given = config.model(), 0, 0
    for o_ready in stalls:
        i_valid = taken < FRAMES * config.i_beats
        taken += i_valid and model.ready(bool(o_ready))
        given += model.o_valid and bool(o_ready)
        model.step(i_valid, bool(o_ready))
    return taken, given


@pytest.mark.parametrize("bits", range(1, 9))
def test_unpack_model_gives_every_beat_of_every_frame(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for lanes in range(1, 50):
        config = UnpackConfig(lanes * bits, BEATS)
        enough = FRAMES * (config.i_beats + config.o_beats) + 2
        assert run_model(config, np.ones(enough)) == (FRAMES * config.i_beats, FRAMES * BEATS)
        assert run_model(config, rng.random(4 * enough) < 0.5) == (FRAMES * config.i_beats, FRAMES * BEATS)


@pytest.mark.parametrize("bits", range(1, 9))
def test_unpack_takes_a_byte_or_gives_a_beat_in_every_cycle(bits: int) -> None:
    for lanes in range(1, 50):
        config = UnpackConfig(lanes * bits, 8)
        busiest = max(config.i_beats, config.o_beats)
        assert run_model(config, np.ones(FRAMES * busiest + config.o_bits // 8 + 2))[1] == FRAMES * 8


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "bursts")], ids="-".join)
@pytest.mark.parametrize("bits", range(1, 9))
def test_unpacker_equals_golden_and_cycle_model(bits: int, pattern: tuple[str, str]) -> None:
    rng = np.random.default_rng(bits)
    for lanes in LANES:
        config = UnpackConfig(lanes * bits, BEATS)
        frames = rng.integers(0, 256, (FRAMES, config.i_beats), dtype=np.uint8)
        expected = words_of(config, frames)
        result = run_stream(Unpacker(config), frames.reshape(-1).tolist(), len(expected), pattern, config.model())
        check(result, expected)
