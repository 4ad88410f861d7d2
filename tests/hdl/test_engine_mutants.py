"""The harness must notice wrong hardware: each mutant breaks one thing, and the check has to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.matmul import MatmulConfig, Thresholds
from nnhw.hdl.engine import HARDWARE
from sim.cases import CASES, make_frames
from tests.hdl.streams import check, run_stream

CASE = "matmul_wide_drain"
FRAMES = 6
BEATS = FRAMES * CASES[CASE]().o_beats  # type: ignore[union-attr]

Rewire = Callable[[Module, Any, Any], None]


class Mutant(wiring.Component):
    """A component behind a wrapper that spoils its output stream."""

    def __init__(self, inner: Any, spoil: Rewire) -> None:
        self.inner, self.spoil = inner, spoil
        super().__init__({"i": In(inner.i.signature.flip()), "o": Out(inner.o.signature)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = self.inner
        wiring.connect(m, wiring.flipped(self.i), self.inner.i)
        m.d.comb += [
            Value.cast(self.o.payload).eq(Value.cast(self.inner.o.payload)),
            self.o.valid.eq(self.inner.o.valid),
            self.inner.o.ready.eq(self.o.ready),
        ]
        self.spoil(m, self.inner.o, self.o)
        return m


def _dead(m: Module, inner: Any, o: Any) -> None:
    m.d.comb += o.valid.eq(0)


def _inverted(m: Module, inner: Any, o: Any) -> None:
    m.d.comb += Value.cast(o.payload).eq(~Value.cast(inner.payload))


def _swapped_lanes(m: Module, inner: Any, o: Any) -> None:
    m.d.comb += [o.payload[0].eq(inner.payload[1]), o.payload[1].eq(inner.payload[0])]


def _drops_last_beat(m: Module, inner: Any, o: Any) -> None:
    count = Signal(32)
    with m.If(inner.valid & inner.ready):
        m.d.sync += count.eq(count + 1)
    with m.If(count == BEATS - 1):
        m.d.comb += [o.valid.eq(0), inner.ready.eq(1)]


def _repeats_last_beat(m: Module, inner: Any, o: Any) -> None:
    count = Signal(32)
    with m.If(o.valid & o.ready):
        m.d.sync += count.eq(count + 1)
    with m.If(count == BEATS):
        m.d.comb += o.valid.eq(1)


def _lets_go(m: Module, inner: Any, o: Any) -> None:
    waited = Signal()
    m.d.sync += waited.eq(o.valid & ~o.ready)
    with m.If(waited):
        m.d.comb += [o.valid.eq(0), inner.ready.eq(0)]


def _changes_while_waiting(m: Module, inner: Any, o: Any) -> None:
    with m.If(~o.ready):
        m.d.comb += Value.cast(o.payload).eq(~Value.cast(inner.payload))


SPOILS = [
    _dead,
    _inverted,
    _swapped_lanes,
    _drops_last_beat,
    _repeats_last_beat,
    _lets_go,
    _changes_while_waiting,
]


def _passes(component: Any, config: Any) -> bool:
    frames = make_frames(CASES[CASE](), FRAMES)
    result = run_stream(component, frames.inputs, len(frames.outputs), ("random", "random"), limit_cycles=4000)
    try:
        check(result, frames.outputs)
    except AssertionError:
        return False
    return True


def test_harness_accepts_the_engine_itself() -> None:
    config = CASES[CASE]()
    assert _passes(HARDWARE[type(config)](config), config)


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__.strip("_"))
def test_harness_catches_mutant(spoil: Rewire) -> None:
    config = CASES[CASE]()
    assert not _passes(Mutant(HARDWARE[type(config)](config), spoil), config)


def test_harness_catches_threshold_off_by_one() -> None:
    config = CASES[CASE]()
    assert isinstance(config, MatmulConfig)
    assert config.thresholds is not None
    fields = {name: getattr(config, name) for name in config.__dataclass_fields__}
    steps = config.thresholds.steps + np.eye(config.outputs, 1, -5, dtype=np.int64)  # output 5 only
    wrong = MatmulConfig(
        **fields | {"thresholds": Thresholds(steps, config.thresholds.descending, config.thresholds.code)}
    )
    assert not _passes(HARDWARE[MatmulConfig](wrong), config)


def test_harness_catches_one_wrong_weight() -> None:
    config = CASES[CASE]()
    assert isinstance(config, MatmulConfig)
    fields = {name: getattr(config, name) for name in config.__dataclass_fields__}
    weights = config.weights.copy()
    weights[7, 9] *= -1
    assert not _passes(HARDWARE[MatmulConfig](MatmulConfig(**fields | {"weights": weights})), config)


def test_harness_catches_a_late_model() -> None:
    config = CASES["pool_binary"]()
    frames = make_frames(config, count=3)
    late = CASES["convert_same"]()
    result = run_stream(HARDWARE[type(config)](config), frames.inputs, len(frames.outputs), model=late.model())
    assert result.problems
    assert "the model says" in result.problems[0]
