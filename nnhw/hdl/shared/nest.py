"""The schedule of a `Compute`: in which cycle the array makes which step of which word of which position."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.records import LOOPS
from nnhw.hdl.shared.address import ENTRIES
from nnhw.hdl.shared.descriptor import field_shapes
from nnhw.hdl.shared.iterations import iterations

_TAPS, _WINDOW = LOOPS[:3], LOOPS[3:5]
"""Loops over the words that a position takes in, and over the positions of a pixel that is pooled."""


class NestSchedule(wiring.Component):
    """The nested loops of a `Compute`, with idle cycles (the gap) in front of each position.

    Members
    -------
    run: in, the record runs; while it does not, the loops are at their start.
    active: out, a step is due. go: in, the step may be made. Both only with `ArrayConfig.weight_stream`.
    held: in, no position may begin. spaced: in, there is at least one idle cycle between positions.
    <loop>_count, <loop>_single, steps, steps_single, gap, gapless: in, fields of the descriptor.
    step: out, the array makes a step in this cycle.
    fresh: out, the step is the first one of its word.
    entry: out, a cycle later: the entry of `AddressWalker` that leads to the next word.
    tap: out, the step is the last one of a tap, with all its words.
    position: out, the step is the last one of a position. store: out, of the last position of a stored pixel.
    done: out, strobe, a cycle later: it was the last step of the record.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        shapes = field_shapes(array)
        counters = (*(f"{name}_{part}" for name in LOOPS for part in ("count", "single")), "steps", "steps_single")
        names = (*counters, "gap", "gapless")
        outputs = {name: Out(1) for name in ("step", "fresh", "tap", "position", "store", "done")}
        super().__init__(
            {"run": In(1), "spaced": In(1), "held": In(1), **{name: In(shapes[name]) for name in names}, **outputs}
            | ({"active": Out(1), "go": In(1)} if array.weight_stream else {})
            | {"entry": Out(range(ENTRIES))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        active, ended = Signal(), Signal()
        may_wait = self.array.weight_stream
        lasts, anew = Signal(len(LOOPS)), ~self.run
        word_end = iterations(m, "steps", self.steps, self.step, anew, self.steps_single)
        for level, name in enumerate(LOOPS):
            ends = self.step & Cat(word_end, lasts[:level]).all()
            if level >= len(_TAPS):
                # The outer loops hear of it one cycle late; a position takes two cycles or more.
                ends = Cat(ended, lasts[len(_TAPS) : level]).all()
            limit, single = (getattr(self, f"{name}_{part}") for part in ("count", "single"))
            wraps = level < len(LOOPS) - 1
            m.d.comb += lasts[level].eq(iterations(m, name, limit, ends, anew, single, wraps=wraps))
        everything = self.position & lasts[len(_TAPS) :].all()
        m.d.comb += [
            self.step.eq(active & self.go if may_wait else active),
            self.tap.eq(word_end & lasts[0]),
            self.position.eq(Cat(word_end, lasts[: len(_TAPS)]).all()),
            self.store.eq(lasts[len(_TAPS) : len(_TAPS + _WINDOW)].all()),
        ]
        m.d.sync += [ended.eq(self.step & self.position), self.done.eq(self.step & everything)]
        with m.If(anew):
            m.d.sync += self.fresh.eq(1)
        with m.Elif(self.step):
            m.d.sync += self.fresh.eq(word_end)
        self._entry(m, lasts)
        if may_wait:
            m.d.comb += self.active.eq(active)
        self._idle(m, active, self.position & self.step if may_wait else self.position, everything)
        return m

    def _entry(self, m: Module, lasts: Signal) -> None:
        """Drive `entry`: the innermost loop that is not in its last iteration, the outer ones found a cycle later."""
        count = len(_TAPS)
        inner, outer = Signal(range(ENTRIES)), Signal()
        m.d.sync += [inner.eq(_first(lasts[:count], 0)), outer.eq(lasts[:count].all())]
        m.d.comb += self.entry.eq(Mux(outer, _first(lasts[count:], count), inner))

    def _idle(self, m: Module, active: Signal, position: Value, everything: Value) -> None:
        """Drive `active`, which is 0 in the gap in front of each position, and for a cycle or more at the start."""
        count, gapless = Signal.like(self.gap, init=1), self.gapless
        reached, over = Signal(), Signal()
        # The counter needs no enable, as `reached` keeps that it has come to its end.
        m.d.comb += over.eq(reached | (count == self.gap))
        with m.If(active | ~self.run | self.done):
            m.d.sync += [count.eq(1), reached.eq(0)]
        with m.Else():
            m.d.sync += [count.eq(count + 1), reached.eq(over)]
        with m.If(~self.run | self.done):
            m.d.sync += active.eq(0)
        with m.Elif(~active):
            m.d.sync += active.eq((over | gapless) & ~self.held)
        with m.Elif(position):
            m.d.sync += active.eq(gapless & ~self.spaced & ~everything)


def _first(lasts: Value, number: int) -> Value:
    """Return the number of the first loop that is not in its last iteration, or of the last loop."""
    entry: Value = Const(number + len(lasts) - 1)
    for index in reversed(range(len(lasts) - 1)):
        entry = Mux(lasts[index], entry, number + index)
    return entry
