"""Cycles of the layers of a shared engine's program: predicted, and counted by simulated hardware."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from nnhw.engines.shared import SharedConfig
from nnhw.engines.shared.counters import RecordCount, as_predicted, program_parts


@dataclass(frozen=True)
class Counted:
    """The cycles that the records of a program took in simulated hardware, with frames back to back.

    Parameters
    ----------
    config: the program.
    frames: number of frames.
    words: uint32 [frames * records, COUNTER_WORDS], in the order in which records ended: index, then the fields of
        `RecordCount`.
    came: number of records that ended; rows of `words` behind them mean nothing.
    """

    config: SharedConfig
    frames: int
    words: np.ndarray
    came: int

    @property
    def _frames(self) -> np.ndarray:
        """int64 [frames, records, COUNTER_WORDS]."""
        return self.words.astype(np.int64).reshape(self.frames, len(self.config.records), -1)

    @property
    def mismatches(self) -> int:
        """Number of frames in which a record did not take the cycles of the schedule plus its waits, or did not end."""
        return sum(not self._is_right(frame) for frame in range(self.frames)) + abs(self.came - len(self.words))

    def _is_right(self, frame: int) -> bool:
        records, rows = self.config.records, self._frames[frame]
        in_order = rows[:, 0].tolist() == list(range(len(records)))
        counts = [RecordCount(*row) for row in rows[:, 1:].tolist()]
        return in_order and all(map(as_predicted, records, counts, [self.config.array] * len(records)))

    @property
    def last(self) -> list[RecordCount]:
        """Cycles of each record in the last frame."""
        return [RecordCount(*row) for row in self._frames[-1, :, 1:].tolist()]


def program_rows(programs: Sequence[Counted | SharedConfig]) -> list[dict[str, Any]]:
    """Return the rows `program` of the report, see `docs/report-schema.md`.

    Parameters
    ----------
    programs: those of the shared engines in stream order; each as counted in simulation, or as mapped.
    """
    return [row for number, program in enumerate(programs, 1) for row in _rows(program, number)]


def _rows(program: Counted | SharedConfig, engine: int) -> Iterator[dict[str, Any]]:
    counts = program.last if isinstance(program, Counted) else None
    for part in program_parts(program.config if isinstance(program, Counted) else program):
        own = None if counts is None else reduce(add, [counts[index] for index in part.records])
        yield (
            {
                "engine": engine,
                "kind": part.kind,
                "name": part.name,
                "records": len(part.records),
                "cycles": {"predicted": part.cycles, "simulated": own.cycles if own else None},
                "busy": {"predicted": part.busy, "simulated": own.busy if own else None},
                "input_wait": own.input_wait if own else None,
                "output_wait": own.output_wait if own else None,
            }
        )
