"""The schedule of a `Compute`: which step of which word of which position is made in a cycle."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.records import LOOPS
from nnhw.hdl.shared.address import ENTRIES, entry_of_level
from nnhw.hdl.shared.descriptor import field_shapes

_TAPS, _WINDOW = LOOPS[:3], LOOPS[3:5]


class Schedule(wiring.Component):
    """The loops of a `Compute` with the gap in front of each position.

    Members
    -------
    run: in, the record runs; while it does not, the loops start anew. hold: in, no position ends.
    <loop>_count, steps, gap: in, fields of the descriptor.
    step: out, the array makes a step in this cycle.
    fresh: out, it is the first of its word. entry: out, what leads to the next word's address.
    tap: out, it is the last of all words of a tap.
    position: out, it is the last of a position. store: out, and of all that are joined.
    done: out, and of all.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        shapes = field_shapes(array)
        names = (*(f"{name}_count" for name in LOOPS), "steps", "gap")
        outputs = {name: Out(1) for name in ("step", "fresh", "tap", "position", "store", "done")}
        super().__init__(
            {"run": In(1), "hold": In(1), **{name: In(shapes[name]) for name in names}, **outputs}
            | {"entry": Out(range(ENTRIES))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lasts = Signal(len(LOOPS))
        word_end = self._counter(m, "steps", self.steps, self.step)
        ends: Value = self.step & word_end
        for level, name in enumerate(LOOPS):
            m.d.comb += lasts[level].eq(self._counter(m, name, getattr(self, f"{name}_count"), ends))
            ends = ends & lasts[level]
        m.d.comb += [
            self.entry.eq(entry_of_level(lasts)),
            self.tap.eq(word_end & lasts[0]),
            self.position.eq(word_end & lasts[: len(_TAPS)].all()),
            self.store.eq(lasts[len(_TAPS) : len(_TAPS + _WINDOW)].all()),
            self.done.eq(lasts[len(_TAPS) :].all()),
        ]
        with m.If(~self.run):
            m.d.sync += self.fresh.eq(1)
        with m.Elif(self.step):
            m.d.sync += self.fresh.eq(word_end)
        self._idle(m)
        return m

    def _counter(self, m: Module, name: str, limit: Value, advance: Value) -> Signal:
        """Count iterations, `limit` of them behind the first; return the registered flag "last iteration"."""
        count, last = Signal(len(limit), name=f"count_{name}", init=1), Signal(name=f"last_{name}")
        anew = ~self.run | (advance & last)
        with m.If(anew):
            m.d.sync += [count.eq(1), last.eq(limit == 0)]
        with m.Elif(advance):
            m.d.sync += [count.eq(count + 1), last.eq(count == limit)]
        return last

    def _idle(self, m: Module) -> None:
        """Add the gap in front of each position."""
        count, idle = Signal.like(self.gap, init=1), Signal()
        m.d.comb += self.step.eq(self.run & ~idle & ~(self.hold & self.position))
        with m.If(~self.run | (self.step & self.position)):
            m.d.sync += [count.eq(1), idle.eq(self.gap != 0)]
        with m.Elif(idle):
            m.d.sync += [count.eq(count + 1), idle.eq(count != self.gap)]
