"""Unpacking: bytes that hold elements as a string of bits become beats of elements."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class UnpackConfig:
    """Parameters of unpacking: the bits of a frame, in bytes, are cut into beats; a rest of the last byte is dropped.

    Parameters
    ----------
    o_bits: bits of an output beat.
    o_beats: output beats of one frame.
    i_bits: bits of an input beat: a byte.

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
        """Whether bits of a frame's last byte are dropped."""
        return self.i_bits * self.i_beats != self.o_bits * self.o_beats

    @property
    def step(self) -> int:
        """Bits of a step: beats of both sides begin at multiples of it."""
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
        """Steps that the register holds: those of one beat of each side, less one."""
        # A byte comes in only while less than an output beat is there, or while the only one leaves.
        return self.i_steps + self.o_steps - 1

    def golden(self, beats: np.ndarray) -> np.ndarray:
        """Return the output beats uint8 [o_beats, o_bits], bit by bit, of the bytes of one frame."""
        bits = np.unpackbits(np.asarray(beats, dtype=np.uint8), bitorder="little")
        return bits[: self.o_bits * self.o_beats].reshape(self.o_beats, self.o_bits)

    def model(self) -> UnpackModel:
        """Return the cycle model."""
        return UnpackModel(self)


class UnpackModel:
    """Cycle model: a byte comes in while no whole beat is there, or while the only one leaves."""

    def __init__(self, config: UnpackConfig) -> None:
        self.config = config
        # The register is filled from the top, so an empty one has its next beat behind the top.
        self.base = config.steps  # where the next beat begins, in steps from the bottom of the register
        self.beat = 0
        self.o_valid = False

    @property
    def _last(self) -> bool:
        return self.beat == self.config.o_beats - 1

    def ready(self, o_ready: bool) -> bool:
        """Return whether there is room for a byte."""
        # A byte is shifted in from the top: the beat that leaves must make room for it, or end the frame, whose rest is
        # dropped.
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
        """Return where the next beat begins in the register, and its number in the frame."""
        return self.base, self.beat
