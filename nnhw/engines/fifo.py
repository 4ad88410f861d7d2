"""FIFO: holds beats, to balance the delays of two branches of a network, or to smooth bursts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.large_ram import check_large
from nnhw.engines.network import CycleModel
from nnhw.engines.timing import PipelineModel, RegisterModel
from nnhw.errors import MappingError


@dataclass(frozen=True)
class FifoConfig(EngineConfig):
    """Parameters of a FIFO.

    Parameters
    ----------
    depth: beats that it holds; 1 is a register, 2 a buffer without a combinational path between its sides, more a
        memory with an output register.
    lanes: elements of one beat.
    bits: bits of an element.
    beats: beats of one frame.
    large: the memory is a large RAM.

    Timing: one beat a cycle; a beat leaves one cycle (depth 1, 2) or two cycles after it came in, at the earliest.
    A large RAM has one port: a beat comes in when none is read, and after each read the port pauses for a cycle, so
    that beats come in and leave in every other cycle.

    Raises
    ------
    MappingError: the depth is too small, or more than a large RAM has.
    """

    depth: int
    lanes: int
    bits: int
    beats: int
    large: bool = False

    def __post_init__(self) -> None:
        least = 3 if self.large else 1
        if self.depth < least:
            where = " in large RAM" if self.large else ""
            raise MappingError(f"a FIFO{where} needs a depth of at least {least}, given {self.depth}")
        if self.large:
            check_large("a FIFO", self.words)

    @property
    def width(self) -> int:
        """Bits of one beat."""
        return self.lanes * self.bits

    @property
    def words(self) -> int:
        """Words of its memory; the output register holds one more beat."""
        return self.depth - 1

    @property
    def in_block_ram(self) -> bool:
        """Whether its memory is in block RAM, which it is where registers would cost more.

        A block RAM of 16 bits a word is about as large a share of a small iCE40 as 128 registers with their
        multiplexers.
        """
        return not self.large and self.depth > 2 and self.words * min(self.width, 16) > 128

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.beats

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.beats

    @property
    def cycles(self) -> int:
        """Cycles in which a frame passes, if no other engine makes it wait."""
        # The one port writes each beat and reads it.
        return 2 * self.beats if self.large else self.beats

    @property
    def fifo(self) -> FifoConfig:
        """Itself."""
        return self

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the beats that leave: those that came in."""
        return np.asarray(beats[0])

    def model(self) -> CycleModel:
        """Return the cycle model."""
        if self.depth == 1:
            return RegisterModel()
        return PipelineModel(latency=1) if self.depth == 2 else FifoModel(self.depth, self.large)


class FifoModel:
    """Cycle model of a FIFO with a memory and an output register that is filled from it.

    Parameters
    ----------
    depth: beats that it holds, 3 or more; None: any number, to find out how deep it has to be.
    large: the memory has one port.

    Members
    -------
    high_water: the least depth with which nothing would have been delayed so far.
    was_full: whether a beat has ever found it full, so that it may have been delayed.
    unbounded: whether it holds any number of beats.
    """

    def __init__(self, depth: int | None, large: bool = False) -> None:
        self.large = large
        self.pause = False  # of the port of a large RAM: nothing is read
        self.unbounded = depth is None
        self.words = depth - 1 if depth else 1 << 62
        self.level = 0  # words in the memory
        # The least depth that has a memory; shallower FIFOs are other hardware.
        self.high_water = 3
        self.was_full = False
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the memory has room, and its port is free."""
        # A writer may have the port while the reader pauses, or has nothing to read.
        return self.level < self.words and (not self.large or self.pause or not self.level)

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Write a word, read a word."""
        if self.large:
            return self._step_large(i_valid, o_ready)
        # What is read follows from the level before: a word that comes in now can be read in the next cycle.
        level, before = self.level, self.o_valid
        write = i_valid and level < self.words
        # The words before, the one that comes in, and the output register.
        if write:
            self.high_water = max(self.high_water, level + 2)
        elif i_valid:
            self.was_full = True
        if o_ready or not before:
            self.o_valid = level > 0
            self.level = level + write - self.o_valid
            return write or before or self.o_valid
        self.level = level + write
        return write

    def _step_large(self, i_valid: bool, o_ready: bool) -> bool:
        """Write a word or read one: the reader has the port, but pauses after each word, and while nothing leaves."""
        before = (self.o_valid, self.pause)
        # What leaves the output register makes room for the word that is read in the same cycle.
        write, move = i_valid and self.ready(o_ready), o_ready or not self.o_valid
        read = move and self.level > 0 and not self.pause
        if move:
            self.o_valid = read
        self.pause = read or not move
        self.level += write - read
        return write or read or before != (self.o_valid, self.pause)

    def state(self) -> Hashable:
        """Return its level, whether a word waits in its register, and whether the port pauses."""
        return self.level, self.o_valid, self.pause
