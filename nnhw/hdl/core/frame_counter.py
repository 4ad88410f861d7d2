"""Counts beats to tell where the frames of a stream end."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class FrameCounter(wiring.Component):
    """Counts the beats of frames that follow one another.

    Parameters
    ----------
    beats: beats of a frame.

    Members
    -------
    passes: In(1), a beat passes in this cycle.
    last: Out(1), the beat that comes next, or that passes now, is the last one of its frame.
    """

    def __init__(self, beats: int) -> None:
        self.beats = beats
        super().__init__({"passes": In(1), "last": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(range(self.beats), init=self.beats - 1)
        m.d.comb += self.last.eq(left == 0)
        with m.If(self.passes):
            with m.If(self.last):
                m.d.sync += left.eq(self.beats - 1)
            with m.Else():
                m.d.sync += left.eq(left - 1)
        return m
