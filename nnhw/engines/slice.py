"""Slices: of each turn of a stream some consecutive beats leave; the others are dropped."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.errors import MappingError


@dataclass(frozen=True)
class SliceConfig(EngineConfig):
    """Parameters of a slice of a stream along one of its loops.

    Parameters
    ----------
    lanes: elements of one beat.
    bits: bits of an element.
    turns: turns of one frame: a turn is a pixel if channels are sliced, a row if columns are, else the whole frame.
    period: beats of a turn.
    first, count: the beats first..first + count - 1 of each turn leave.

    Timing: one beat a cycle, which leaves one cycle after it came in; a beat to be dropped is taken at once.

    Raises
    ------
    MappingError: these beats are not within a turn.
    """

    lanes: int
    bits: int
    turns: int
    period: int
    first: int
    count: int

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.first <= self.period - self.count:
            raise MappingError(
                f"a slice needs beats within a turn of {self.period}, given {self.count} from {self.first} on"
            )

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.turns * self.period

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.turns * self.count

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats [o_beats, lanes] of the input beats [i_beats, lanes]."""
        turns = np.asarray(beats[0]).reshape(self.turns, self.period, self.lanes)
        return turns[:, self.first : self.first + self.count].reshape(-1, self.lanes)

    def model(self) -> SliceModel:
        """Return the cycle model."""
        return SliceModel(self)


class SliceModel:
    """Cycle model: a register for the beats that stay."""

    def __init__(self, config: SliceConfig) -> None:
        self.period, self.first, self.end = config.period, config.first, config.first + config.count
        self.beat = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the register takes the next beat, or drops it."""
        # Beats to be dropped never wait: whoever is behind may wait for another branch of the same stream.
        return o_ready or not self.o_valid or not self.first <= self.beat < self.end

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge: keep a beat or drop one."""
        # A beat that is dropped changes the place in the turn, even while the register is full.
        before, taken = self.o_valid, i_valid and self.ready(o_ready)
        if o_ready or not before:
            self.o_valid = taken and self.first <= self.beat < self.end
        if taken:
            self.beat = (self.beat + 1) % self.period
        return taken or (before and o_ready)

    def state(self) -> Hashable:
        """Return the beat of the turn that comes next, and whether the register is full."""
        return self.beat, self.o_valid
