"""A stream buffer of two beats that cuts every path between its two sides."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.names import KEPT_APART


class StreamBuffer(wiring.Component):
    """Holds two beats: `i.ready` and `o.valid` are registers, and still a beat can pass in every cycle.

    Timing: a beat leaves one cycle after it came in, at the earliest.

    Parameters
    ----------
    shape: of a beat's payload.
    copies: further registers that always equal `i.ready`. Where its loads are spread over a large device, each copy is
        placed near its own share of them, and `i.ready` near the handshake.

    Members
    -------
    ready_copies: these registers; not a port.
    """

    def __init__(self, shape: ShapeLike, copies: int = 0) -> None:
        self._copies = copies
        self.ready_copies = [self._ready(f"ready_{index}") for index in range(copies)]
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def _ready(self, name: str) -> Signal:
        """Return a register that says whether there is room.

        Synthesis would merge it with a copy. Copies need no reset, which would have to reach each of them: a cycle
        after the reset of `o.valid` they say by themselves that there is room.
        """
        apart = {KEPT_APART: 1} if self._copies else {}
        return Signal(name=name, init=1, attrs=apart, reset_less=bool(self._copies))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Not valid: empty. Valid and room: one beat, in `first`. Valid without room: two, the later one in `spare`.
        room, valid = self._ready("room"), Signal()
        spare = Signal.like(Value.cast(self.i.payload), reset_less=True)  # the second beat
        first = Signal.like(spare)
        push, pop = self.i.valid & room, valid & self.o.ready
        m.d.comb += [self.i.ready.eq(room), self.o.valid.eq(valid), self.o.payload.eq(first)]
        m.d.sync += [
            *(ready.eq(Mux(valid & room, ~(push & ~pop), ~valid | pop)) for ready in (room, *self.ready_copies)),
            valid.eq(Mux(valid & room, push | ~pop, valid | push)),
        ]
        # Both also load what nobody will use: so their enables take fewer signals.
        with m.If(push):
            m.d.sync += spare.eq(Value.cast(self.i.payload))
        with m.If(pop | ~valid):
            m.d.sync += first.eq(Mux(room, Value.cast(self.i.payload), spare))
        return m
