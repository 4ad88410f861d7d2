"""Cycle counts of the records of a program, as simulated hardware counts them and as the schedule predicts them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.cycles import finish_latency, program_cycles, record_cycles, tail_cycles
from nnhw.engines.shared.program import SharedConfig
from nnhw.engines.shared.records import Compute, Fill, Record


@dataclass(frozen=True)
class RecordCount:
    """Cycles that a record took, or several records together.

    Parameters
    ----------
    cycles: from the first cycle of the descriptor's fetch to the last one before that of the next record.
    busy: those of them in which the array multiplied.
    input_wait, output_wait: those of them in which the record waited for a beat; for room for a byte.
    """

    cycles: int = 0
    busy: int = 0
    input_wait: int = 0
    output_wait: int = 0

    def __add__(self, other: RecordCount) -> RecordCount:
        return RecordCount(
            self.cycles + other.cycles,
            self.busy + other.busy,
            self.input_wait + other.input_wait,
            self.output_wait + other.output_wait,
        )


COUNTER_BITS = 32
"""Bits of each number in which simulated hardware gives the counts of a record."""
COUNTER_WORDS = 1 + len(fields(RecordCount))
"""How many there are: the record's index, then the fields of its `RecordCount` in their order."""


@dataclass(frozen=True)
class CountedPart:
    """Records of a program that belong together.

    Parameters
    ----------
    kind: 'input', 'layer' or 'output'.
    name: name of the model's layer, or of the IR value that comes in or goes out.
    records: indices of the records.
    cycles: cycles that they take if input and output are always ready.
    busy: those of them in which the array multiplies.
    """

    kind: str
    name: str
    records: tuple[int, ...]
    cycles: int
    busy: int


def program_parts(config: SharedConfig) -> tuple[CountedPart, ...]:
    """Return the parts of a program, in the order in which they begin; each record is in exactly one of them."""
    found = dict[tuple[str, str], list[int]]()
    for index, record in enumerate(config.records):
        if isinstance(record, Compute):
            # Records of a layer need not follow one another, such as where layers take turns.
            key = ("layer", record.layer)
        else:
            key = ("input" if isinstance(record, Fill) else "output", record.node)
        found.setdefault(key, []).append(index)
    cycles = program_cycles(config)
    return tuple(
        CountedPart(
            kind,
            name,
            tuple(indices),
            sum(cycles[index].total for index in indices),
            sum(cycles[index].busy for index in indices),
        )
        for (kind, name), indices in found.items()
    )


def as_predicted(record: Record, count: RecordCount, array: ArrayConfig) -> bool:
    """Return whether a record took as many cycles as the schedule says, plus those in which it had to wait."""
    predicted = record_cycles(record, array)
    most = predicted.total + count.input_wait + count.output_wait
    # Some of the waiting for output may have been in cycles that are idle anyway.
    least = most - min(count.output_wait, _hidden_wait(record, array))
    return count.busy == predicted.busy and least <= count.cycles <= most


def least_cycles(config: SharedConfig) -> int:
    """Return the fewest cycles of a frame besides those of waiting, of which as many as possible are idle anyway."""
    hidden = sum(_hidden_wait(record, config.array) for record in config.records)
    return sum(part.cycles for part in program_parts(config)) - hidden


def _hidden_wait(record: Record, array: ArrayConfig) -> int:
    """Return how many cycles of waiting for output can cost nothing: raw sums leave in cycles that are idle anyway."""
    if not isinstance(record, Compute) or not record.raw:
        return 0
    sent = finish_latency(array) + record.channels[1] * record.raw
    return (record.positions - 1) * max(0, record.gap - sent) + max(0, tail_cycles(array) - sent)
