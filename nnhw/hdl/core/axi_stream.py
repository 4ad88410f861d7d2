"""An accelerator between two AXI-Streams, as AMBA 4 AXI4-Stream (ARM IHI 0051A) has them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.accelerator import Accelerator
from nnhw.hdl.core.core_engine import CoreEngine
from nnhw.hdl.core.frame_counter import FrameCounter


class AxiStreamCore(wiring.Component):
    """An accelerator with ports as AXI-Stream names them.

    A transfer takes place in each cycle in which valid and ready are 1. Frames follow one another; the core counts
    them, and says with `tlast` where a result ends.

    Parameters
    ----------
    accelerator: what to build.

    Members
    -------
    aclk, aresetn: In(1). The reset is synchronous, active low, and empties the core.
    s_axis_tdata, s_axis_tvalid, s_axis_tready: the input, as many bytes at once as `CoreEngine.i_bytes`, the first in
        the lowest bits.
    s_axis_tlast: In(1), the last transfer of a frame, where the source knows it; it changes nothing but `misaligned`.
    m_axis_tdata, m_axis_tvalid, m_axis_tready, m_axis_tlast: the results, a byte at a time.
    misaligned: Out(1), since the reset `s_axis_tlast` came where no frame ended: source and core count frames
        differently, and results mean nothing until the next reset. A source without `tlast` ties it to 0.
    load_tdata, load_tvalid, load_tready: with a shared engine only, the bytes of its programs, to be sent once after
        each reset.
    program_ready, program_refused: Out(1), with a shared engine only: the program is loaded; the program is damaged
        or made for another engine.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.engine = CoreEngine(accelerator)
        members: dict[str, Any] = {
            "aclk": In(1),
            "aresetn": In(1),
            **_axis("s_axis", 8 * self.engine.i_bytes, In, Out),
            "s_axis_tlast": In(1),
            **_axis("m_axis", 8, Out, In),
            "m_axis_tlast": Out(1),
            "misaligned": Out(1),
        }
        if self.engine.has_program:
            members |= {**_axis("load", 8, In, Out), "program_ready": Out(1), "program_refused": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # A domain of its own, so that clock and reset are plain ports with the names that AXI gives them.
        m.domains.sync = ClockDomain()
        m.d.comb += [ClockSignal().eq(self.aclk), ResetSignal().eq(~self.aresetn)]
        m.submodules.engine = engine = self.engine
        m.d.comb += [
            engine.i.payload.eq(self.s_axis_tdata),
            engine.i.valid.eq(self.s_axis_tvalid),
            self.s_axis_tready.eq(engine.i.ready),
            self.m_axis_tdata.eq(engine.o.payload),
            self.m_axis_tvalid.eq(engine.o.valid),
            engine.o.ready.eq(self.m_axis_tready),
        ]
        o_last = self._last(m, "o_frame", engine.o, engine.o_beats)
        i_last = self._last(m, "i_frame", engine.i, engine.i_beats)
        # It stays until the reset: from the first wrong `tlast` on, no result is that of a frame of the source.
        misaligned = Signal()
        m.d.comb += [self.m_axis_tlast.eq(o_last), self.misaligned.eq(misaligned)]
        with m.If(engine.i.valid & engine.i.ready & self.s_axis_tlast & ~i_last):
            m.d.sync += misaligned.eq(1)
        if engine.has_program:
            m.d.comb += [
                engine.load.payload.eq(self.load_tdata),
                engine.load.valid.eq(self.load_tvalid),
                self.load_tready.eq(engine.load.ready),
                self.program_ready.eq(engine.program_ready),
                self.program_refused.eq(engine.program_refused),
            ]
        return m

    def _last(self, m: Module, name: str, stream: Any, beats: int) -> Value:
        """Return whether the beat that a stream shows is the last one of its frame."""
        m.submodules[name] = counter = FrameCounter(beats)
        m.d.comb += counter.passes.eq(stream.valid & stream.ready)
        return counter.last


def _axis(name: str, bits: int, data: Any, ready: Any) -> dict[str, Any]:
    """Return the ports of a stream without `tlast`; `data` and `ready` are `In` or `Out`."""
    return {f"{name}_tdata": data(bits), f"{name}_tvalid": data(1), f"{name}_tready": ready(1)}
