"""Hardware of the fork."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.fork import ForkConfig


class Fork(wiring.Component):
    """A register of one beat, with a valid bit for each output that has not yet handed over its copy.

    Members
    -------
    i, o0, o1, ...: streams.

    Timing: one beat a cycle, which leaves one cycle after it came in. `i.ready` is 1 once all copies have left, or
    leave in this cycle.
    """

    def __init__(self, config: ForkConfig) -> None:
        self.config = config
        beat = stream.Signature(data.ArrayLayout(unsigned(config.bits), config.lanes))
        super().__init__({"i": In(beat), **{f"o{index}": Out(beat) for index in range(config.outputs)}})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        outputs = [getattr(self, f"o{index}") for index in range(self.config.outputs)]
        beat = Signal(len(self.i.payload.as_value()), reset_less=True)
        # Outputs may take their copies in different cycles; the next beat waits for the last of them.
        left = Cat(*(o.valid & ~o.ready for o in outputs))
        m.d.comb += self.i.ready.eq(~left.any())
        with m.If(self.i.ready):
            m.d.sync += beat.eq(self.i.payload.as_value())
        for o, pending in zip(outputs, left, strict=True):
            m.d.comb += o.payload.as_value().eq(beat)
            m.d.sync += o.valid.eq(pending | (self.i.ready & self.i.valid))
        return m
