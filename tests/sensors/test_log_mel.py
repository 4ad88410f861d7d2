"""Log-mel features: the definition's parts one by one, and the engine against it."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from nnhw.hdl.sensors import LogMelEngine
from nnhw.sensors import LogMelConfig
from nnhw.sensors.log_mel import COSINE_ONE
from sim.simulator import Simulator

SMALL = LogMelConfig(window=64, hop=16, bands=3, steps=2, lowest_hz=150, highest_hz=1900)


def obvious_features(config: LogMelConfig, samples: np.ndarray) -> list[list[int]]:
    """Return the features as the docstring of `LogMelConfig` says, in whole numbers of Python, loop by loop."""
    size, found = config.window, []
    cosine = [round(COSINE_ONE * math.cos(2 * math.pi * i / size)) for i in range(size)]
    given = [0] * (size - config.hop) + [int(sample) for sample in samples]
    for start in range(0, len(samples) // config.hop * config.hop, config.hop):
        window = [(given[start + n] * (COSINE_ONE - cosine[n])) >> 15 for n in range(size)]
        energies = [0] * (config.bands + 2)
        band = 0
        for k, weight, ends in zip(config.bins, *config.filters, strict=True):
            real = sum(window[n] * cosine[n * k % size] for n in range(size)) >> 21
            imaginary = sum(window[n] * cosine[(n * k - size // 4) % size] for n in range(size)) >> 21
            power = real**2 + imaginary**2
            energies[band] += power * (16 - int(weight))
            energies[band + 1] += power * int(weight)
            band += int(ends)
        found.append([_code(config, energy) for energy in energies[1:-1]])
    return found


def _code(config: LogMelConfig, energy: int) -> int:
    if not energy:
        return max(-128, -config.offset)
    exponent = energy.bit_length() - 1
    mantissa = int(Fraction(energy, 1 << exponent) * 32) - 32
    log = 8 * exponent + round(8 * math.log2(1 + (mantissa + 0.5) / 32))
    return max(-128, min(127, log - config.offset))


def sound(config: LogMelConfig, steps: int) -> np.ndarray:
    """Return samples from full scale to silence, a loudness for each step."""
    rng = np.random.default_rng(1)
    samples = rng.integers(-(1 << 15), 1 << 15, steps * config.hop)
    samples[: config.hop] = np.where(samples[: config.hop] < 0, -(1 << 15), (1 << 15) - 1)
    return samples >> np.repeat(np.arange(steps) * 16 // max(1, steps - 1), config.hop)


@pytest.mark.parametrize("offset", [0, 128, 300])
def test_features_are_what_the_docstring_says(offset: int) -> None:
    config = LogMelConfig(window=64, hop=16, bands=3, steps=2, lowest_hz=150, highest_hz=1900, offset=offset)
    samples = sound(config, 9)
    assert config.features(samples[None])[0].tolist() == obvious_features(config, samples)


def test_features_of_default_parameters_stay_in_their_bits() -> None:
    config = LogMelConfig()
    hz = 8000 * np.array(config.bins)[::16, None] / 256
    loudest = 32767 * np.sign(np.sin(2 * np.pi * hz * np.arange(256) / 8000 + 0.1))
    powers = config.spectrum(loudest)
    assert powers.max() < 1 << 32
    assert config.energies(powers).max() < 1 << config.energy_bits
    assert config.features(loudest).max() == 127


def test_frames_hold_the_last_steps_behind_silence() -> None:
    features = np.arange(9).reshape(1, 3, 3)
    frames = SMALL.frames(features)
    assert frames.shape == (1, 3, 1, 2, 3)
    assert frames[0, 0, 0].tolist() == [[-128] * 3, [0, 1, 2]]
    assert frames[0, 2, 0].tolist() == [[3, 4, 5], [6, 7, 8]]


def test_log_mel_engine_equals_the_definition_sample_for_sample() -> None:
    steps, period = 5, -(-SMALL.step_cycles // SMALL.hop)
    samples, engine = sound(SMALL, steps), LogMelEngine(SMALL)
    assert period > SMALL.window + 14, "samples must not come faster than a window is copied"
    codes: list[int] = []
    ends: list[int] = []

    async def bench(ctx: Any) -> None:
        for cycle in range((len(samples) + SMALL.hop) * period):
            takes = cycle % period == 0 and cycle // period < len(samples)
            ctx.set(engine.take, takes)
            ctx.set(engine.sample, int(samples[cycle // period]) if takes else 0x55)
            if ctx.get(engine.write):
                codes.append(ctx.get(engine.code))
            if ctx.get(engine.done):
                ends.append(cycle)
            await ctx.tick()

    simulator = Simulator(engine)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert codes == SMALL.features(samples[None]).reshape(-1).tolist()
    last = (np.arange(1, steps + 1) * SMALL.hop - 1) * period
    assert ((np.array(ends) - last) <= SMALL.step_cycles).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"window": 100}, "window is one of 64, 128, 256 samples, given 100"),
        ({"hop": 257}, "hop is 1 to 256 samples, the window, given 257"),
        ({"highest_hz": 4000.0}, "bands lie between 0 Hz and 4000 Hz, half of rate_hz; given lowest_hz=100, "),
        ({"bands": 60}, "60 bands from 100 to 3800 Hz are narrower than a bin of 31.25 Hz; use fewer bands"),
        ({"gain_log2": 9}, "gain_log2 is 0 to 8, given 9"),
        ({"steps": 400}, "a frame has 1 to 4096 elements, given 400 steps of 16 bands"),
        ({"offset": 512}, "offset is 0 to 511, given 512"),
    ],
)
def test_log_mel_rejects_parameters_out_of_range(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        LogMelConfig(**parameters)


def test_log_mel_says_which_clock_it_needs() -> None:
    config = LogMelConfig()
    assert config.problems(5e6) == []
    (wrong,) = config.problems(1e6)
    assert "need a clock of 4.08 MHz or more, given 1 MHz; use a faster --clock" in wrong
