"""The status counters of a device, made small: the wide ones share one adder of 8 bits."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

WIDE = 3
"""Wide counters: cycles, input waits, output waits."""
_BYTES = 4
"""Bytes of a wide counter."""
PERIOD = WIDE * _BYTES
"""Cycles in which the ring turns once: it has a byte for each."""


class StatusCounters(wiring.Component):
    """Three wide counters of 32 bits in a ring of bytes, two narrow ones beside it.

    The ring turns by one byte per cycle and passes an 8-bit adder. What a wide counter has to count until its turn
    comes waits in four bits. So the ring costs little more than its 96 registers, and it shows byte after byte by
    itself.

    Members
    -------
    input_waits, output_waits, result, bad_frame: In(1), count one in this cycle.
    clear: In(1), sets all counters but `bad_frames` to 0.
    ready: Out(1), three cycles from now `ring` shows the first byte, the lowest one of the cycles.
    ring: Out(8), the bytes of cycles, input waits and output waits, each lowest byte first, a byte per cycle.
    results: Out(16), bad_frames: Out(8), numbers of `result` and of `bad_frame`.

    Range
    -----
    A wide counter waits for its turn at most 12 cycles, in which its four bits count to 12 at most.

    Timing
    ------
    What `ring` shows is at most 24 cycles old; cycles are counted in steps of 12.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "input_waits": In(1),
                "output_waits": In(1),
                "result": In(1),
                "bad_frame": In(1),
                "clear": In(1),
                "ready": Out(1),
                "ring": Out(8),
                "results": Out(16),
                "bad_frames": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        byte, counter = Signal(2), Signal(2)
        with m.If(byte == _BYTES - 1):
            m.d.sync += counter.eq(Mux(counter == WIDE - 1, 0, counter + 1))
        m.d.sync += byte.eq(byte + 1)
        # What is added is chosen a cycle before: the byte that `ring` shows when byte == 1, counter == 0 is the first.
        m.d.comb += self.ready.eq((byte == _BYTES - 2) & (counter == WIDE - 1))
        addend, now = self._waiting(m, (byte == 0), counter)
        chosen, carry_in, first = Signal.like(addend), Signal(), Signal()
        m.d.sync += [chosen.eq(addend), carry_in.eq(now), first.eq(byte == 0)]
        self._turn(m, chosen, carry_in, first)
        with m.If(self.result):
            m.d.sync += self.results.eq(self.results + 1)
        with m.If(self.clear):
            m.d.sync += self.results.eq(0)
        with m.If(self.bad_frame):
            m.d.sync += self.bad_frames.eq(self.bad_frames + 1)
        return m

    def _waiting(self, m: Module, first: Signal, counter: Signal) -> tuple[Signal, Signal]:
        """Collect what the wide counters have to count; return what is due for the counter whose first byte passes.

        Returns
        -------
        (addend, one more event in this very cycle).
        """
        addend, now = Signal(4), Signal()
        for number, event in enumerate((None, self.input_waits, self.output_waits)):
            turn = Signal(name=f"turn_{number}")
            m.d.comb += turn.eq(first & (counter == number))
            if event is None:
                with m.If(turn):
                    m.d.comb += addend.eq(PERIOD)
                continue
            waiting = Signal(4, name=f"waiting_{number}")
            m.d.sync += waiting.eq(waiting + event)
            # An event in the cycle of the turn goes in as the adder's carry: `waiting` begins again from 0.
            with m.If(turn):
                m.d.comb += [addend.eq(waiting), now.eq(event)]
            with m.If(turn | self.clear):
                m.d.sync += waiting.eq(0)
        return addend, now

    def _turn(self, m: Module, addend: Signal, now: Signal, first: Signal) -> None:
        """Let the ring turn, with the byte that comes round passing the adder.

        Parameters
        ----------
        addend, now: to add to this byte, the latter as a carry.
        first: the byte is the first one of a counter; behind it the carry goes on to the next bytes.
        """
        ring = [Signal(8, name=f"ring_{number}") for number in range(PERIOD)]
        carry = Signal()
        m.d.comb += self.ring.eq(ring[-1])
        m.d.sync += Cat(ring[0], carry).eq(ring[-1] + addend + Mux(first, now, carry))
        for before, after in pairwise(ring):
            m.d.sync += after.eq(before)
        with m.If(self.clear):
            m.d.sync += [byte.eq(0) for byte in ring]
            m.d.sync += carry.eq(0)
