"""Hardware of padding."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.pad import PadConfig


class PadEngine(wiring.Component):
    """Counts the beats that leave: within the border it gives the constant, elsewhere a beat of the input.

    Timing: one beat a cycle; a beat leaves one cycle after it came in.
    """

    def __init__(self, config: PadConfig) -> None:
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(unsigned(config.i_bits), config.lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(unsigned(config.bits), config.lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        (top, left), chunks = config.before, config.chunks
        move, give = Signal(), Signal()
        in_columns, row_end = self._span(
            m, "column", give, left * chunks, config.width * chunks, config.o_width * chunks
        )
        in_rows, frame_end = self._span(m, "row", give & row_end, top, config.height, config.o_height)
        # `start` makes the first beat of a frame's border wait for the frame, as the cycle model does.
        inside, start = Signal(), Signal(init=1)
        m.d.comb += [
            move.eq(~self.o.valid | self.o.ready),
            inside.eq(in_rows & in_columns),
            give.eq(move & (self.i.valid | ~(inside | start))),
            self.i.ready.eq(move & inside),
        ]
        border = Const(config.pattern, config.bits).replicate(config.lanes)
        with m.If(give):
            m.d.sync += start.eq(row_end & frame_end)
        with m.If(move):
            m.d.sync += self.o.valid.eq(give)
            m.d.sync += self.o.payload.eq(Mux(inside, self._elements(), border))
        return m

    def _elements(self) -> Value:
        """Return the elements of an input beat as they leave: bipolar bits as numbers of two bits."""
        if not self.config.bipolar:
            return self.i.payload.as_value()
        # 01 is +1 and 11 is -1: the low bit is always set.
        return Cat(*(Cat(Const(1, 1), ~self.i.payload[lane]) for lane in range(self.config.lanes)))

    def _span(self, m: Module, name: str, advance: Value, before: int, size: int, total: int) -> tuple[Value, Value]:
        """Count the cycles with `advance`, modulo `total`.

        Returns
        -------
        (the count is in before..before + size - 1, the count is total - 1), both registers.
        """
        count, last = Signal(range(total), name=name), Signal(name=f"{name}_last", init=total == 1)
        inside = Signal(name=f"in_{name}", init=before == 0)
        if total > 1:
            following = Signal.like(count, name=f"next_{name}")
            m.d.comb += following.eq(Mux(last, 0, count + 1))
            with m.If(advance):
                m.d.sync += [count.eq(following), last.eq(~last & (count == total - 2))]
                m.d.sync += inside.eq((following >= before) & (following < before + size))
        return inside, last
