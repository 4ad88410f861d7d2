"""Counters of each record of a program, for simulators: a device has none of them."""

from __future__ import annotations

from dataclasses import fields

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.counters import COUNTER_BITS, COUNTER_WORDS, RecordCount

START_CYCLES = 2
"""First of all, the program is found ready, and the sequencer leaves its first state: no record takes these."""
_PORTS = {"busy": "busy", "input_wait": "input_waits", "output_wait": "output_waits"}
"""Fields of a `RecordCount`, behind its first one --> ports of a `SharedEngine` that are high in the cycles counted."""


class RecordCounters(wiring.Component):
    """Counts the cycles that each record takes, and shows the counts when the next record begins.

    Parameters
    ----------
    load_cycles: before the first record, in which step functions are loaded; no record takes them.

    Members
    -------
    record, busy, input_waits, output_waits: in, the ports of a `SharedEngine`.
    valid: out, strobe: a record has ended.
    payload: out, with it: its index and the fields of a `nnhw.engines.shared.counters.RecordCount`, the index lowest.
    """

    COUNTED = tuple(_PORTS[field.name] for field in fields(RecordCount) if field.name != "cycles")
    BITS = COUNTER_WORDS * COUNTER_BITS

    def __init__(self, load_cycles: int = 0) -> None:
        self.load_cycles = load_cycles
        events = {name: In(1) for name in self.COUNTED}
        super().__init__({"record": In(16), **events, "valid": Out(1), "payload": Out(self.BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        start = START_CYCLES + self.load_cycles
        before, cycles = Signal(COUNTER_BITS), Signal(COUNTER_BITS, init=-start % (1 << COUNTER_BITS))
        counts = [cycles, *(Signal(COUNTER_BITS, name=f"{name}_count") for name in self.COUNTED)]
        events = [1, *(getattr(self, name) for name in self.COUNTED)]
        m.d.comb += [self.valid.eq(before != self.record), self.payload.eq(Cat(before, *counts))]
        m.d.sync += before.eq(self.record)
        m.d.sync += [count.eq(Mux(self.valid, 0, count) + event) for count, event in zip(counts, events, strict=True)]
        return m
