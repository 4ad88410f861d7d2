"""Every engine in Amaranth's simulator: results, stream rules and cycles, under stalls on both sides."""

from __future__ import annotations

import functools

import pytest

from nnhw.hdl.engine import HARDWARE
from sim.cases import CASES, make_frames
from tests.hdl.streams import StreamBench, check

STALLS = [
    ("none", "none"),
    ("none", "alternating"),
    ("alternating", "none"),
    ("random", "random"),
    ("bursts", "bursts"),
]


@functools.lru_cache(maxsize=1)
def bench_of(name: str) -> StreamBench:
    """Return the engine of a case in a simulator, the same for all patterns, which come one after the other."""
    config = CASES[name]()
    return StreamBench(HARDWARE[type(config)](config))


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("name", CASES)
def test_engine_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config = CASES[name]()
    frames = make_frames(config, count=3)
    result = bench_of(name).run(frames.inputs, len(frames.outputs), pattern, config.model())
    check(result, frames.outputs)
