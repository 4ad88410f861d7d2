"""Cycles of a program. The schedule of a record does not depend on data, so they are a sum over its records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.shared.array import ArrayConfig, Requantizing
from nnhw.engines.shared.records import Compute, Emit, Fill, Record, descriptor_words, fetched_words

if TYPE_CHECKING:
    from nnhw.engines.shared.program import SharedConfig

FETCH_LATENCY = 2
"""Cycles from the read of a word to its arrival."""
POINT_CYCLES = 2
"""Cycles to compute the first address of a record's work; as many for the address of the next record."""
STEP_LATENCY = 4
"""Cycles from the schedule's step to the lanes: its address, the address's step, memory, word."""


LOOKUP_CYCLES = 11
"""Cycles from the code of a line to that of common steps: address, ranks and their register, steps in the word, rank,
the step's place and its register, comparison, count, code and its register."""


def lane_latency(array: ArrayConfig) -> int:
    """Return the cycles from a word to the sums of its products: registers of factors, products, adders."""
    arithmetic = LaneArithmetic(array.activation, array.weight)
    return arithmetic.dsp_levels(array.simd) if array.dsp else 1 + arithmetic.tree_levels(array.simd)


def factor_levels(array: ArrayConfig) -> int:
    """Return the levels of adders that join the products of the digits."""
    return (array.digits - 1).bit_length()


def requantizer_latency(array: ArrayConfig) -> int:
    """Return the cycles from a sum to its code: digits' products, levels, addend, shift, tie, clamp, common steps."""
    if array.requantizing == Requantizing.STEPS:
        return 2
    lookup = 0 if array.step_memory is None else LOOKUP_CYCLES
    # In DSP blocks, whose registers are part of the eight, there is no tree of digits.
    return lookup + (factor_levels(array) + 6 if array.requantizing == Requantizing.LOGIC else 8)


def finish_latency(array: ArrayConfig) -> int:
    """Return the cycles from the last step of a position to its sums in the drain."""
    return STEP_LATENCY + lane_latency(array) + 2


def tail_cycles(array: ArrayConfig) -> int:
    """Return the cycles from the last step of a record to its last write.

    Codes leave the drain, are collected, and go to the register in front of the memory.
    """
    return finish_latency(array) + array.drain_cycles - 1 + requantizer_latency(array) + 1 + array.parts


@lru_cache(maxsize=1 << 14)
def fixed_cycles(array: ArrayConfig) -> int:
    """Return the cycles of a `Compute` beyond those of its words and positions, which are latencies.

    If its positions have no gap, it has one more idle cycle.
    """
    # The latency of the last word that is fetched; the first address of this record and that of the next; the way of
    # the last sum.
    return FETCH_LATENCY + 1 + 2 * POINT_CYCLES + tail_cycles(array)


@dataclass(frozen=True)
class RecordCycles:
    """Cycles of one record, without waiting for input or output.

    Parameters
    ----------
    fetch: cycles in which descriptor, constants and weights are fetched.
    busy: cycles in which the array multiplies.
    other: cycles of gaps, latencies, and beats of transfers.
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
        fetch = descriptor_words(array) + FETCH_LATENCY + 1
        return RecordCycles(fetch, 0, transfer_cycles(record, array) + 1 + 2 * POINT_CYCLES)
    fetch = fetched_words(record, array) + FETCH_LATENCY + 1
    busy = record.positions * record.words * record.steps
    lead = int(record.gap == 0)  # the first position has one idle cycle in front at least
    idle = record.positions * (record.gap + position_cycles(record, array)) - busy
    other = idle + lead + 2 * POINT_CYCLES + tail_cycles(array)
    return RecordCycles(fetch, busy, other + raw_cycles(record, array))


def position_cycles(record: Compute, array: ArrayConfig) -> int:
    """Return the cycles of one position of a record, behind its gap."""
    if record.streamed:
        return stream_cycles(record.words, record.steps, array)
    return record.words * record.steps


def stream_cycles(words: int, steps: int, array: ArrayConfig) -> int:
    """Return the cycles of a position whose weights are streamed, from the read of their first word to the last step.

    The memory reads a word of weights in each cycle, except where it reads a word of activations, which it does
    `stream_lead` cycles after the first step of each word.

    Parameters
    ----------
    words, steps: words of activations, and steps that the array makes with each.
    """
    # With fewer reads for a word than the lead, the weights of `lead` words are read before the activations of these.
    reads, lead = steps * array.row_words, stream_lead(array)
    if reads < lead:
        return words + (words - 1) // lead * lead
    return words * reads + words - ((steps - 1) * array.row_words < lead)


def stream_lead(array: ArrayConfig) -> int:
    """Return the cycles from a row's last word to the activations that it is multiplied with, at the memory's port.

    Lanes in logic take weights a cycle later than activations.
    """
    return 2 if array.dsp else 1


def transfer_cycles(record: Fill | Emit, array: ArrayConfig) -> int:
    """Return the cycles of a transfer if the other side of the stream is always ready."""
    if isinstance(record, Fill):
        return record.pixels * record.elements // array.i_lanes
    return record.pixels * (record.elements + 2 * array.chunks(record.elements))


def raw_cycles(record: Compute, array: ArrayConfig) -> int:
    """Return the cycles that a record with raw results waits for them to leave, if the output is always ready.

    A position begins when the results of the one before have left, after one idle cycle at least; so does the next
    record.
    """
    if not record.raw:
        return 0
    sent = finish_latency(array) + record.channels[1] * record.raw
    gap = max(record.gap, 1)
    waits = (record.positions - 1) * max(0, sent - gap)
    return (record.positions - 1) * (gap - record.gap) + waits + max(0, sent - tail_cycles(array))


def needed_gap(words: int, steps: int, window: int, array: ArrayConfig) -> int:
    """Return the idle cycles that a position needs so that nothing overflows behind the array.

    Parameters
    ----------
    words, steps: words that are read for one position, and cycles spent on each.
    window: positions that are joined in one stored pixel.
    """
    # The drain must be empty before the next sums come; the port needs free cycles to write a pixel's words; and a
    # position takes two cycles at least, as the outer loops of the schedule hear of its end a cycle late.
    drain = array.drain_cycles - words * steps
    free = -(-array.parts // window) - words * (steps - 1)
    return max(0, drain, free, 2 - words * steps)


def load_cycles(config: SharedConfig) -> int:
    """Return the cycles in which a program loads its step functions, once, before its first record."""
    array = config.array
    each = descriptor_words(array) + FETCH_LATENCY + 1 + 1 + 2 * POINT_CYCLES
    return sum(each + array.entry_words * len(load.entries) for load in config.loads)


def program_cycles(config: SharedConfig) -> tuple[RecordCycles, ...]:
    """Return the cycles of each record of a program."""
    return tuple(record_cycles(record, config.array) for record in config.records)
