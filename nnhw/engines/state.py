"""The state of a recurrent layer: what a time step leaves to the next one, and what a sequence begins with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

HEAD = 0
"""Number of the input of heads, which tell whether a step is the first one of its sequence."""


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
    steps: of one frame, which is a whole sequence: its first step gets the start. 0: a frame is one step, and a head
        says whether it begins a sequence.

    Timing: one beat a cycle; a beat of the next state leaves two cycles after it came in, at the earliest. Where a
    frame is one step, it begins when its head is there (one beat, whose lowest bit is 1 in the first step of a
    sequence), which is taken with the last beat of the state. A whole sequence needs no head: the state of a step
    leaves as soon as it is there, the start behind that of the sequence before.

    Raises
    ------
    MappingError: the start does not fit the lanes or the type, or there is no sequence.
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
        if self.steps < 0 or (self.steps and self.sequences > 1):
            raise MappingError(f"frames of {self.steps} steps do not come from {self.sequences} sequences in turn")
        if not self.element.holds(self.start):
            raise MappingError(f"a state of {self.element} cannot begin as {self.start.min()} to {self.start.max()}")

    @property
    def chunks(self) -> int:
        """Beats of the state."""
        return len(self.start) // self.lanes

    @property
    def i_beats(self) -> tuple[int, ...]:
        """Input beats of one frame: one head if that is a step, and the next states."""
        return (self.steps * self.chunks,) if self.steps else (1, self.chunks)

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.chunks * max(1, self.steps)

    @property
    def following(self) -> int:
        """Number of the input of next states."""
        return 0 if self.steps else HEAD + 1

    @property
    def late_inputs(self) -> tuple[int, ...]:
        """The input of next states, which a later stage feeds."""
        return (self.following,)

    @property
    def memory(self) -> FifoConfig:
        """The FIFO that holds the states, with room for one more: the next state may come while one still leaves."""
        # One more than the beats that are to be in its memory: that is how depths of FIFOs count.
        return FifoConfig((self.sequences + 1) * self.chunks + 1, self.lanes, self.element.bits, self.chunks)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the beats [o_beats, lanes] that leave.

        Parameters
        ----------
        beats: the head, and the state that the step before has left; or the next states of all steps.
        """
        if self.steps:
            states = np.asarray(beats[0]).reshape(self.steps, -1)
            # What the last step leaves is for no step.
            return np.concatenate([self.start[None], states[:-1]]).reshape(-1, self.lanes)
        head, kept = (np.asarray(x) for x in beats)
        return self.start.reshape(-1, self.lanes) if int(head.flat[0]) & 1 else kept.reshape(-1, self.lanes)

    def model(self) -> StateModel:
        """Return the cycle model."""
        return StateModel(self)


class StateModel:
    """Cycle model: a FIFO with a state of each sequence after a reset, read while a head is there, if there are any."""

    def __init__(self, config: StateConfig) -> None:
        self.late_inputs = config.late_inputs  # read by `nnhw.engines.network.late_inputs`
        self.headed, self.following = not config.steps, config.following
        self.chunks, self.words = config.chunks, config.memory.words
        # Nobody has written these states. They are read all the same, and the start leaves in their place.
        self.level = config.sequences * config.chunks
        self.beat = 0
        self.o_valids = [False]

    def _reads(self, i_valids: Sequence[bool], o_ready: bool) -> bool:
        """Return whether a beat of the state is read in this cycle."""
        head = i_valids[HEAD] or not self.headed
        return head and self.level > 0 and (o_ready or not self.o_valids[0])

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return whether the head, if any, is taken with the last beat, and whether the memory has room."""
        room = self.level < self.words
        if not self.headed:
            return [room]
        last = self.beat == self.chunks - 1
        # The head stays with the last beat, so that one beat serves the whole step without a register.
        return [last and self._reads(i_valids, o_readies[0]), room]

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Pass one clock edge: write a beat of the next state, read one of the state."""
        before, read = self.o_valids[0], self._reads(i_valids, o_readies[0])
        write = i_valids[self.following] and self.level < self.words
        if o_readies[0] or not before:
            self.o_valids = [read]
        self.level += write - read
        if self.headed:
            self.beat = (self.beat + read) % self.chunks
        return write or read or before != self.o_valids[0]

    def state(self) -> Hashable:
        """Return the beat that is read next, the beats in the FIFO, and whether a beat waits to leave."""
        return self.beat, self.level, self.o_valids[0]
