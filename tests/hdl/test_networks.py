"""A residual network of engines in Amaranth's simulator: results, and the cycles that `run_network` predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import encode, pack_words
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import SumConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.timing import run_network
from nnhw.engines.window import WindowConfig
from nnhw.hdl.engine import HARDWARE
from nnhw.ir.types import IntType
from sim.cases import UINT4
from tests.hdl.ports import run_ports

FRAMES, SIZE, CHANNELS = 3, 5, 4
BEATS = SIZE * SIZE * CHANNELS // 2
FORK = ForkConfig(2, 2, 4, BEATS)
PAD = PadConfig(SIZE, SIZE, 2, 2, 4, (1, 1), (1, 1), 0)
WINDOW = WindowConfig(SIZE + 2, SIZE + 2, CHANNELS, (3, 3), (1, 1), (1, 1), 2, 3, 1, 4, 6)
WEIGHTS = np.random.default_rng(3).integers(-8, 8, (CHANNELS, 3, 3))
CONVOLUTION = ChannelwiseConfig(
    taps=9,
    chunks=2,
    lanes=2,
    op="dot",
    activation=UINT4,
    windows=SIZE * SIZE,
    row_lanes=3,
    weights=WEIGHTS.reshape(CHANNELS, 9)[:, WINDOW.tap_order()],
    weight=IntType(-8, 7),
)
SUM = SumConfig((UINT4, CONVOLUTION.raw), (5, 1), 2, 2, SIZE * SIZE)


def stages(depth: int) -> list[tuple[Any, list[tuple[int, int]]]]:
    """Return the engines and where their inputs come from: x * 5 + depthwise(x)."""
    fifo = FifoConfig(depth, 2, 4, BEATS)
    return [
        (FORK, [(-1, 0)]),
        (PAD, [(0, 0)]),
        (WINDOW, [(1, 0)]),
        (CONVOLUTION, [(2, 0)]),
        (fifo, [(0, 1)]),
        (SUM, [(4, 0), (3, 0)]),
    ]


class Network(wiring.Component):
    """The engines of a table, connected."""

    def __init__(self, table: list[tuple[Any, list[tuple[int, int]]]]) -> None:
        self.table = table
        self.parts: list[Any] = [HARDWARE[type(config)](config) for config, _ in table]
        super().__init__({"i": In(self.parts[0].i.signature.flip()), "o": Out(self.parts[-1].o.signature)})

    def _port(self, index: int, name: str, port: int) -> Any:
        part = self.parts[index]
        return getattr(part, name) if hasattr(part, name) else getattr(part, f"{name}{port}")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        links = [
            (self.i if source[0] < 0 else self._port(source[0], "o", source[1]), self._port(index, "i", port))
            for index, (_, sources) in enumerate(self.table)
            for port, source in enumerate(sources)
        ]
        for index, part in enumerate(self.parts):
            m.submodules[f"part_{index}"] = part
        for source, sink in [*links, (self._port(len(self.parts) - 1, "o", 0), self.o)]:
            m.d.comb += [
                Value.cast(sink.payload).eq(Value.cast(source.payload)),
                sink.valid.eq(source.valid),
                source.ready.eq(sink.ready),
            ]
        return m


def golden(frame: np.ndarray) -> np.ndarray:
    """Return x * 5 + the padded depthwise convolution of a frame [height, width, channels], straight from the sums."""
    padded = np.pad(frame, ((1, 1), (1, 1), (0, 0)))
    total = frame * 5
    for y in range(3):
        for x in range(3):
            total = total + padded[y : y + SIZE, x : x + SIZE] * WEIGHTS[:, y, x]
    return total.reshape(BEATS, 2)


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "random"), ("bursts", "alternating")], ids="-".join)
@pytest.mark.parametrize("depth", [21, 40])
def test_residual_network_equals_golden_and_prediction(depth: int, pattern: tuple[str, str]) -> None:
    table, rng = stages(depth), np.random.default_rng(8)
    frames = rng.integers(0, 16, (FRAMES, SIZE, SIZE, CHANNELS))
    inputs = pack_words(frames.reshape(-1, 2), 4)
    expected = [word for frame in frames for word in pack_words(encode(golden(frame), SUM.raw), SUM.raw.bits)]
    (source,), (sink,) = run_ports(Network(table), ["i"], ["o"], [inputs], [expected], pattern)
    if pattern == ("none", "none"):
        models = [config.model() for config, _ in table]
        start, ends = run_network(models, [sources for _, sources in table], BEATS, BEATS, FRAMES, 10_000)
        assert (source.cycles[0], sink.cycles[BEATS - 1 :: BEATS]) == (start, ends)
