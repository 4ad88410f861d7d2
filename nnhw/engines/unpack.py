"""Unpacking: bytes that hold elements bit by bit become beats of elements."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class UnpackConfig:
    """Bits of a frame that follow one another, in bytes, become beats; what is left of the last byte is dropped.

    Parameters
    ----------
    o_bits: of a beat that leaves.
    o_beats: of one frame.
    i_bits: of a beat that comes in: a byte.

    Timing: a beat a cycle on the side that has more of them; a beat leaves one cycle after its last bit came in.
    """

    o_bits: int
    o_beats: int
    i_bits: int = 8

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return math.ceil(self.o_bits * self.o_beats / self.i_bits)

    @property
    def pads(self) -> bool:
        """Whether something is left of the last byte of a frame."""
        return self.i_bits * self.i_beats != self.o_bits * self.o_beats

    @property
    def step(self) -> int:
        """All beats begin at multiples of so many bits."""
        return math.gcd(self.i_bits, self.o_bits)

    @property
    def i_steps(self) -> int:
        """Steps of a beat that comes in."""
        return self.i_bits // self.step

    @property
    def o_steps(self) -> int:
        """Steps of a beat that leaves."""
        return self.o_bits // self.step

    @property
    def steps(self) -> int:
        """Steps that it holds: one less than a beat of each side."""
        return self.i_steps + self.o_steps - 1

    def golden(self, beats: np.ndarray) -> np.ndarray:
        """Return the output beats uint8 [o_beats, o_bits], bit by bit, of the bytes of one frame."""
        bits = np.unpackbits(np.asarray(beats, dtype=np.uint8), bitorder="little")
        return bits[: self.o_bits * self.o_beats].reshape(self.o_beats, self.o_bits)

    def model(self) -> UnpackModel:
        """Return the cycle model."""
        return UnpackModel(self)


class UnpackModel:
    """Cycle model: bytes come in at the top as long as no whole beat is there, or while the only one leaves."""

    def __init__(self, config: UnpackConfig) -> None:
        self.config = config
        self.base = config.steps  # where the next beat begins
        self.beat = 0
        self.o_valid = False

    @property
    def _last(self) -> bool:
        return self.beat == self.config.o_beats - 1

    def ready(self, o_ready: bool) -> bool:
        """Return whether there is room for a byte."""
        leaves = self.base + self.config.o_steps >= self.config.i_steps or self._last
        return not self.o_valid or (o_ready and leaves)

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge."""
        take, give = i_valid and self.ready(o_ready), self.o_valid and o_ready
        if give:
            self.base = self.config.steps if self._last else self.base + self.config.o_steps
            self.beat = 0 if self._last else self.beat + 1
        self.base -= take * self.config.i_steps
        self.o_valid = self.base < self.config.i_steps
        return take or give

    def state(self) -> Hashable:
        """Return where it is in what it holds, and in the frame."""
        return self.base, self.beat
