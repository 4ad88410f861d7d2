"""The state of a recurrent layer: what a time step leaves to the next one, and what a sequence begins with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

HEAD, NEXT = 0, 1
"""Numbers of the inputs: the heads, which begin a step or a whole sequence, and the next states."""


@dataclass(frozen=True)
class StateConfig(EngineConfig):
    """Parameters of the memory of a state.

    The state leaves at the beginning of a time step, and the next state comes back from the layers behind. After a
    reset the memory counts as full. In the first step of a sequence a state is read as in any other, but the start
    leaves in its place: so a step takes the same cycles whether or not it begins a sequence.

    Parameters
    ----------
    start: int64 [elements], the state with which a sequence begins, in stream order.
    element: type of the state's elements.
    lanes: elements of one beat.
    sequences: how many sequences take turns: the memory holds a state of each, and steps of them come in this order.
    steps: 0: a frame is one step. Else the steps of a frame, which is a whole sequence.

    Timing: one beat a cycle; a beat of the next state leaves two cycles after it came in, at the earliest. A frame
    begins when its head is there, a beat that is taken with the last beat of the frame's first state. Where a frame is
    one step, the head's lowest bit is 1 in the first step of a sequence; else it may be anything. The states of further
    steps leave as soon as they are there.

    Raises
    ------
    MappingError: the start does not fit the lanes or the type, or there is no sequence, or several of several steps.
    """

    start: np.ndarray
    element: IntType
    lanes: int
    sequences: int = 1
    steps: int = 0

    def __post_init__(self) -> None:
        if self.start.ndim != 1 or not len(self.start) or len(self.start) % self.lanes:
            raise MappingError(f"a state of {self.start.shape} elements does not come {self.lanes} at once")
        if self.sequences < 1:
            raise MappingError(f"a memory holds the states of one sequence or more, not of {self.sequences}")
        if self.steps and self.sequences > 1:
            raise MappingError(f"frames of {self.steps} steps are whole sequences, and {self.sequences} take no turns")
        if not self.element.holds(self.start):
            raise MappingError(f"a state of {self.element} cannot begin as {self.start.min()} to {self.start.max()}")

    @property
    def chunks(self) -> int:
        """Beats of the state."""
        return len(self.start) // self.lanes

    @property
    def i_beats(self) -> tuple[int, int]:
        """Input beats of one frame: one head, and the next states."""
        return 1, self.o_beats

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.chunks * max(1, self.steps)

    @property
    def late_inputs(self) -> tuple[int, ...]:
        """The input of the next state, which a later stage feeds."""
        return (NEXT,)

    @property
    def memory(self) -> FifoConfig:
        """The FIFO that holds the states, with room for one more: the next state may come while one still leaves."""
        # One more than the beats that are to be in its memory: that is how depths of FIFOs count.
        return FifoConfig((self.sequences + 1) * self.chunks + 1, self.lanes, self.element.bits, self.chunks)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the beats [o_beats, lanes] that leave.

        Parameters
        ----------
        beats: the head, and the state that the step before has left; or the next states of all steps of the frame.
        """
        head, kept = (np.asarray(x) for x in beats)
        if self.steps:
            # What the last step leaves is for no step.
            states = kept.reshape(self.steps, -1)[:-1]
            return np.concatenate([self.start[None], states]).reshape(-1, self.lanes)
        return self.start.reshape(-1, self.lanes) if int(head.flat[0]) & 1 else kept.reshape(-1, self.lanes)

    def model(self) -> StateModel:
        """Return the cycle model."""
        return StateModel(self)


class StateModel:
    """Cycle model: a FIFO with a state of each sequence after a reset; a head is there while a frame begins."""

    late_inputs = (NEXT,)  # read by `nnhw.engines.timing.late_inputs`

    def __init__(self, config: StateConfig) -> None:
        self.chunks, self.beats, self.words = config.chunks, config.o_beats, config.memory.words
        # Nobody has written these states. They are read all the same, and the start leaves in their place.
        self.level = config.sequences * config.chunks
        self.beat = 0
        self.o_valids = [False]

    def _reads(self, head: bool, o_ready: bool) -> bool:
        """Return whether a beat of the state is read in this cycle."""
        return (head or self.beat >= self.chunks) and self.level > 0 and (o_ready or not self.o_valids[0])

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return whether the head is taken with the last beat, and whether the memory has room."""
        last = self.beat == self.chunks - 1
        # The head stays to the last beat, so that one beat serves the whole step without a register.
        return [last and self._reads(i_valids[HEAD], o_readies[0]), self.level < self.words]

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Pass one clock edge: write a beat of the next state, read one of the state."""
        before, read = self.o_valids[0], self._reads(i_valids[HEAD], o_readies[0])
        write = i_valids[NEXT] and self.level < self.words
        if o_readies[0] or not before:
            self.o_valids = [read]
        self.level += write - read
        self.beat = (self.beat + read) % self.beats
        return write or read or before != self.o_valids[0]

    def state(self) -> Hashable:
        """Return the beat that is read next, the beats in the FIFO, and whether a beat waits to leave."""
        return self.beat, self.level, self.o_valids[0]
