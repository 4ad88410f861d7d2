"""Hardware that unpacks bytes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.unpack import UnpackConfig


class Unpacker(wiring.Component):
    """A register into which bytes are shifted from the top; the beat that leaves begins at one of few places.

    Members
    -------
    i: stream of bytes. o: stream of beats of `config.o_bits` bits.

    Timing: see `UnpackConfig`.
    """

    def __init__(self, config: UnpackConfig) -> None:
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(config.i_bits))),
                "o": Out(stream.Signature(unsigned(config.o_bits))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        # `base` is where the next beat begins, in steps; its bits end at the top. At `config.steps` there are none, and
        # below `i_steps` a whole beat is there.
        word = Signal(config.steps * config.step, reset_less=True)
        base = Signal(range(config.steps + 1), init=config.steps)
        take, give = self.i.valid & self.i.ready, self.o.valid & self.o.ready
        last = self._last(m, give)
        # No whole beat remains when this one has left, so a byte has room; of a frame's last beat the rest is dropped.
        leaves = (base + config.o_steps >= config.i_steps) | last
        following = Mux(give, Mux(last, config.steps, base + config.o_steps), base) - Mux(take, config.i_steps, 0)
        m.d.comb += [
            self.o.valid.eq(base < config.i_steps),
            self.i.ready.eq(~self.o.valid | (self.o.ready & leaves)),
        ]
        m.d.sync += base.eq(following)
        with m.If(take):
            m.d.sync += word.eq(Cat(word, self.i.payload)[config.i_bits :])
        # A choice among the few places where a beat can begin, instead of a shift by any number of bits.
        with m.Switch(base):
            for place in range(config.i_steps):
                with m.Case(place):
                    first = place * config.step
                    m.d.comb += self.o.payload.eq(word[first : first + config.o_bits])
        return m

    def _last(self, m: Module, give: Value) -> Value:
        """Return whether the next beat to leave is the last one of a frame, if bits behind it have to be dropped."""
        if not self.config.pads:
            return Const(0)
        beat = Signal(range(self.config.o_beats))
        last = beat == self.config.o_beats - 1
        with m.If(give):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
        return last
