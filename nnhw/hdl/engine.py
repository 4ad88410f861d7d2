"""Composition: the stages of an accelerator between an input and an output byte stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from amaranth.hdl import Module, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.accelerator import INPUT, Accelerator
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.window import WindowConfig
from nnhw.hdl.channelwise import ChannelwiseEngine
from nnhw.hdl.convert import Converter
from nnhw.hdl.fifo import Fifo
from nnhw.hdl.fork import Fork
from nnhw.hdl.join import Concatenation, WeightedSum
from nnhw.hdl.matmul import MatmulEngine
from nnhw.hdl.pad import Padding
from nnhw.hdl.pool import MaxPool
from nnhw.hdl.window import SlidingWindow

HARDWARE: dict[type, Callable[[Any], wiring.Component]] = {
    ChannelwiseConfig: ChannelwiseEngine,
    ConcatConfig: Concatenation,
    ConvertConfig: Converter,
    FifoConfig: Fifo,
    ForkConfig: Fork,
    MatmulConfig: MatmulEngine,
    PadConfig: Padding,
    PoolConfig: MaxPool,
    SumConfig: WeightedSum,
    WindowConfig: SlidingWindow,
}


class Engine(wiring.Component):
    """All stages of an accelerator and the streams between them.

    Parameters
    ----------
    accelerator: what to build.
    taps: add outputs that show every value of the IR as it passes.

    Members
    -------
    i: stream of bytes, `input_format.frame_bytes` a frame, frames back to back.
    o: stream of bytes, `output_format.frame_bytes` a frame.
    tap_<k>_valid, tap_<k>_payload: with `taps`, for boundary k of `accelerator.boundaries`: a beat passes in this
        cycle, and its bits.
    """

    def __init__(self, accelerator: Accelerator, taps: bool = False) -> None:
        self.accelerator = accelerator
        self.taps = taps
        self.stages = [HARDWARE[type(stage.config)](stage.config) for stage in accelerator.stages]
        members: dict[str, Any] = {
            "i": In(stream.Signature(unsigned(8))),
            "o": Out(stream.Signature(unsigned(8))),
        }
        if taps:
            for number, (index, _) in enumerate(accelerator.boundaries):
                members[f"tap_{number}_valid"] = Out(1)
                members[f"tap_{number}_payload"] = Out(len(self.stages[index].o.payload.as_value()))  # type: ignore[attr-defined]
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for stage, hardware in zip(self.accelerator.stages, self.stages, strict=True):
            m.submodules[re.sub(r"\W", "_", stage.name)] = hardware
            for port, source in enumerate(stage.sources):
                self._connect(m, self._output(source), _port(hardware, "i", port))
        self._connect(m, self._output((len(self.stages) - 1, 0)), self.o)
        if self.taps:
            for number, (index, _) in enumerate(self.accelerator.boundaries):
                o = self._output((index, 0))
                m.d.comb += [
                    getattr(self, f"tap_{number}_valid").eq(o.valid & o.ready),
                    getattr(self, f"tap_{number}_payload").eq(o.payload.as_value()),
                ]
        return m

    def _output(self, source: tuple[int, int]) -> Any:
        """Return the stream that leaves a stage, or enters the accelerator."""
        index, port = source
        return self.i if source == INPUT else _port(self.stages[index], "o", port)

    def _connect(self, m: Module, source: Any, sink: Any) -> None:
        """Join two streams; at the ends of the chain a payload may have fewer bits than a whole number of bytes."""
        m.d.comb += [
            Value.cast(sink.payload).eq(self._fit(source.payload, Value.cast(sink.payload))),
            sink.valid.eq(source.valid),
            source.ready.eq(sink.ready),
        ]

    def _fit(self, payload: Any, sink: Value) -> Value:
        """Return the bits of a payload, a signed element sign-extended to the sink."""
        value = Value.cast(payload)
        element = self.accelerator.output_format.element
        if len(value) < len(sink) and element.signed and not element.bipolar:
            return value.as_signed()
        return value.as_unsigned()


def _port(hardware: wiring.Component, name: str, port: int) -> Any:
    """Return a stream of an engine: `i`, or `i0`, `i1`, .. where it has several."""
    return getattr(hardware, name) if hasattr(hardware, name) else getattr(hardware, f"{name}{port}")
