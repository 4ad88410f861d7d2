"""Every engine in Amaranth's simulator: results, stream rules and cycles, under stalls on both sides."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator

import pytest

from nnhw.hdl.engine import HARDWARE
from sim.cases import CASES, make_frames
from tests.hdl.streams import StreamBench, check

STALLS = [("none", "none"), ("random", "random"), ("bursts", "bursts")]
ONE_SIDED = [("none", "alternating"), ("alternating", "none")]
"""Of three engines of a kind, one has the first and one has the second; random stalls hold short stops of one side."""


def each_row() -> Iterator[object]:
    """Yield cases with patterns, all those of a case in a row."""
    of_kind: defaultdict[str, int] = defaultdict(int)
    for name in CASES:
        kind = name.partition("_")[0]
        kept = ONE_SIDED[of_kind[kind] % 3 : of_kind[kind] % 3 + 1]
        of_kind[kind] += 1
        for pattern in STALLS + ONE_SIDED:
            marks = () if pattern in STALLS + kept else pytest.mark.long
            yield pytest.param(name, pattern, id=f"{name}-{'-'.join(pattern)}", marks=marks)


@functools.lru_cache(maxsize=1)
def bench_of(name: str) -> StreamBench:
    """Return the engine of a case in a simulator, the same for all patterns, which come one after the other."""
    config = CASES[name]()
    return StreamBench(HARDWARE[type(config)](config))


@pytest.mark.parametrize(("name", "pattern"), list(each_row()))
def test_engine_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config = CASES[name]()
    frames = make_frames(config, count=3)
    result = bench_of(name).run(frames.inputs, len(frames.outputs), pattern, config.model())
    check(result, frames.outputs)
