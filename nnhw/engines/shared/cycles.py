"""Cycles of a program: the schedule is fixed, so they are a sum over its records."""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.program import SharedConfig
from nnhw.engines.shared.records import Compute, Record, descriptor_words, encode_record

FETCH_LATENCY = 3
"""Cycles of a record beside the words that it reads from memory, before it starts to work."""
START_LATENCY = 2
"""Cycles from the end of the fetch to the first step of a position."""
PIPELINE_LATENCY = 12
"""Cycles from the last step of a record to the next record, the drain and what it stores apart."""


@dataclass(frozen=True)
class RecordCycles:
    """Cycles of one record, without waiting for input or output.

    Parameters
    ----------
    fetch: descriptor, constants, weights.
    busy: in which the array multiplies.
    other: gaps, latencies, and beats of transfers.
    """

    fetch: int
    busy: int
    other: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.fetch + self.busy + self.other


def record_cycles(record: Record, array: ArrayConfig) -> RecordCycles:
    """Return the cycles of a record."""
    if not isinstance(record, Compute):
        return RecordCycles(descriptor_words(array) + FETCH_LATENCY, 0, transfer_cycles(record, array))
    fetch = len(encode_record(record, False, array)) + FETCH_LATENCY
    busy = record.positions * record.words * record.steps
    tail = START_LATENCY + PIPELINE_LATENCY + array.drain_cycles
    return RecordCycles(fetch, busy, record.positions * record.gap + tail)


def transfer_cycles(record: Record, array: ArrayConfig) -> int:
    """Return the cycles of a transfer whose other side never waits."""
    raise NotImplementedError


def needed_gap(words: int, steps: int, window: int, array: ArrayConfig) -> int:
    """Return the idle cycles that a position needs so that nothing overflows behind the array.

    Parameters
    ----------
    words, steps: read for one position, and cycles spent on each.
    window: positions of one stored pixel.
    """
    drain = array.drain_cycles - words * steps
    free = -(-array.parts // window) - words * (steps - 1)
    return max(0, drain, free)


def program_cycles(config: SharedConfig) -> tuple[RecordCycles, ...]:
    """Return the cycles of each record of a program."""
    return tuple(record_cycles(record, config.array) for record in config.records)
