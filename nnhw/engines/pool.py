"""Max pooling of pixels that arrive window by window: a running maximum for each channel."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.ir.types import IntType


@dataclass(frozen=True)
class PoolConfig(EngineConfig):
    """Parameters of max pooling: the maximum over `taps` consecutive pixels, in each channel.

    Parameters
    ----------
    taps: pixels of one pooling window, which arrive one after the other.
    chunks: beats of one pixel.
    lanes: channels of one beat.
    element: the type of the elements.
    windows: pooling windows of one frame.

    Timing: one beat a cycle; the beats of the last tap leave, as maxima, one cycle after they came in.
    """

    taps: int
    chunks: int
    lanes: int
    element: IntType
    windows: int

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.windows * self.taps * self.chunks

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.windows * self.chunks

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats [o_beats, lanes] of the input beats [i_beats, lanes] (values, not bit patterns)."""
        shaped = np.asarray(beats[0]).reshape(self.windows, self.taps, self.chunks, self.lanes)
        return shaped.max(axis=1).reshape(-1, self.lanes)

    def model(self) -> PoolModel:
        """Return the cycle model."""
        return PoolModel(self)


class PoolModel:
    """Cycle model: every beat is taken, those of the last tap leave one cycle later."""

    def __init__(self, config: PoolConfig) -> None:
        self.period = config.taps * config.chunks
        self.silent = self.period - config.chunks
        self.beat = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the output register is free or freed in this cycle."""
        return o_ready or not self.o_valid

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge: take a beat."""
        before = self.o_valid
        if before and not o_ready:
            return False
        # Maxima of the first taps stay inside, in the ring.
        self.o_valid = i_valid and self.beat >= self.silent
        if i_valid:
            self.beat = (self.beat + 1) % self.period
        return before or i_valid

    def state(self) -> Hashable:
        """Return the beat of the window that comes next, and whether the register is full."""
        return self.beat, self.o_valid
