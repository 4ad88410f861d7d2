"""Every engine in Amaranth's simulator: results, stream rules and cycles, under stalls on both sides."""

from __future__ import annotations

import pytest

from nnhw.hdl.engine import HARDWARE
from sim.cases import CASES, make_frames
from tests.hdl.streams import check, run_stream

STALLS = [
    ("none", "none"),
    ("none", "alternating"),
    ("alternating", "none"),
    ("random", "random"),
    ("bursts", "bursts"),
]


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("name", CASES)
def test_engine_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config = CASES[name]()
    frames = make_frames(config, count=3)
    component = HARDWARE[type(config)](config)
    result = run_stream(component, frames.inputs, len(frames.outputs), pattern, config.model())
    check(result, frames.outputs)
