"""Engines with several streams in Amaranth's simulator: results, stream rules and cycles, under stalls on all sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnhw.engines.encoding import encode, pack_words
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.requantize import Thresholds, ThresholdSearch
from nnhw.hdl.engine import HARDWARE
from nnhw.ir.types import BIPOLAR, BIT, IntType
from sim.cases import INT4, INT8, UINT2, UINT4, random_values
from tests.hdl.ports import run_ports

STALLS = [
    ("none", "none"),
    ("none", "alternating"),
    ("alternating", "none"),
    ("random", "random"),
    ("bursts", "bursts"),
]
FRAMES = 3
THREE_STEPS = Thresholds(np.sort(np.arange(18).reshape(6, 3) * 7 % 40 - 15, axis=1), np.arange(6) % 2 == 1, UINT2)
WIDE_STEPS = np.linspace(-8.8e10, 8.8e10, 15).astype(np.int64) + np.arange(2)[:, np.newaxis]
WIDE = ThresholdSearch(WIDE_STEPS, np.array([False, True]), INT4, IntType(-88852326784, 88852325293))

SUMS: dict[str, Callable[[], SumConfig]] = {
    "sum_plain": lambda: SumConfig((UINT4, UINT4), (1, 1), 2, 3, 4),
    "sum_requantized": lambda: SumConfig((INT4, UINT4), (3, -2), 2, 3, 4, THREE_STEPS),
    "sum_bipolar": lambda: SumConfig((BIPOLAR, BIPOLAR), (1, -1), 3, 1, 5),
    "sum_of_three": lambda: SumConfig((INT8, UINT4, BIT), (5, -7, 100), 1, 2, 6),
    "sum_negative": lambda: SumConfig((UINT4, INT4), (-3, -5), 2, 1, 6),
    "sum_of_one": lambda: SumConfig((INT4,), (-1,), 2, 1, 6),
    "sum_of_odd_range": lambda: SumConfig((IntType(-5, 2), IntType(3, 9)), (37, 91), 1, 1, 20),
    "sum_of_38_bits": lambda: SumConfig((IntType(-(2**28), 2**28), INT8), (331, 1491), 1, 2, 8, WIDE),
}

CONCATS: dict[str, Callable[[], ConcatConfig]] = {
    "concat_two": lambda: ConcatConfig(2, (1, 1), 3, 5),
    "concat_uneven": lambda: ConcatConfig(1, (3, 1), 4, 4),
    "concat_three": lambda: ConcatConfig(2, (1, 4, 2), 2, 3),
    "concat_constant": lambda: ConcatConfig(2, (2, 3), 2, 2, constants=1),
    "concat_constants": lambda: ConcatConfig(1, (1, 2, 2, 1), 3, 3, constants=2),
    "concat_one": lambda: ConcatConfig(2, (2,), 2, 3),
}

FORKS: dict[str, Callable[[], ForkConfig]] = {
    "fork_one": lambda: ForkConfig(1, 2, 3, 9),
    "fork_two": lambda: ForkConfig(2, 2, 3, 9),
    "fork_three": lambda: ForkConfig(3, 1, 5, 9),
}


def words(values: np.ndarray, dtype: IntType) -> list[int]:
    """Return the words of beats [beats, lanes]."""
    return pack_words(encode(values, dtype), dtype.bits)


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("name", SUMS)
def test_sum_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config, rng = SUMS[name](), np.random.default_rng(5)
    inputs: list[list[int]] = [[] for _ in config.inputs]
    expected: list[int] = []
    for _ in range(FRAMES):
        beats = [random_values(rng, dtype, (config.i_beats, config.lanes)) for dtype in config.inputs]
        for stream, values, dtype in zip(inputs, beats, config.inputs, strict=True):
            stream += words(values, dtype)
        expected += words(config.golden(*beats), config.element)
    names = [f"i{index}" for index in range(len(inputs))]
    run_ports(HARDWARE[SumConfig](config), names, ["o"], inputs, [expected], pattern, config.model())


def test_sum_has_the_bits_of_its_range() -> None:
    config = SUMS["sum_of_odd_range"]()
    assert config.raw == IntType(-5 * 37 + 3 * 91, 2 * 37 + 9 * 91)
    assert not config.raw.signed


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("name", CONCATS)
def test_concatenation_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config, rng = CONCATS[name](), np.random.default_rng(6)
    element = IntType(0, (1 << config.bits) - 1)
    inputs: list[list[int]] = [[] for _ in config.chunks]
    expected: list[int] = []
    for _ in range(FRAMES):
        beats = [random_values(rng, element, (count, config.lanes)) for count in config.i_beats]
        for stream, values in zip(inputs, beats, strict=True):
            stream += words(values, element)
        expected += words(config.golden(*beats), element)
    names = [f"i{index}" for index in range(len(inputs))]
    run_ports(HARDWARE[ConcatConfig](config), names, ["o"], inputs, [expected], pattern, config.model())


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("name", FORKS)
def test_fork_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config, rng = FORKS[name](), np.random.default_rng(7)
    element = IntType(0, (1 << config.bits) - 1)
    beats = random_values(rng, element, (FRAMES * config.i_beats, config.lanes))
    expected = [words(config.golden(beats), element)] * config.o_ports
    names = [f"o{index}" for index in range(config.outputs)]
    run_ports(HARDWARE[ForkConfig](config), ["i"], names, [words(beats, element)], expected, pattern, config.model())
