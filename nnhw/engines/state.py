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
"""Numbers of the inputs: the heads, which tell whether a step is the first one of its sequence, and the next states."""


@dataclass(frozen=True)
class StateConfig(EngineConfig):
    """Parameters of the memory of a state.

    A frame is one time step: the state leaves at its beginning, and the next state comes back from the layers behind.
    After a reset the memory counts as full. In the first step of a sequence a state is read as in any other, but the
    start leaves in its place: so a step takes the same cycles whether or not it begins a sequence.

    Parameters
    ----------
    start: int64 [elements], the state with which a sequence begins, in stream order.
    element: type of the state's elements.
    lanes: elements of one beat.
    sequences: how many sequences take turns: the memory holds a state of each, and steps of them come in this order.

    Timing: one beat a cycle; a beat of the next state leaves two cycles after it came in, at the earliest. A step
    begins when its head is there (one beat, whose lowest bit is 1 in the first step of a sequence); the head is taken
    with the last beat of the state.

    Raises
    ------
    MappingError: the start does not fit the lanes or the type, or there is no sequence.
    """

    start: np.ndarray
    element: IntType
    lanes: int
    sequences: int = 1

    def __post_init__(self) -> None:
        if self.start.ndim != 1 or not len(self.start) or len(self.start) % self.lanes:
            raise MappingError(f"a state of {self.start.shape} elements does not come {self.lanes} at once")
        if self.sequences < 1:
            raise MappingError(f"a memory holds the states of one sequence or more, not of {self.sequences}")
        if not self.element.holds(self.start):
            raise MappingError(f"a state of {self.element} cannot begin as {self.start.min()} to {self.start.max()}")

    @property
    def chunks(self) -> int:
        """Beats of the state."""
        return len(self.start) // self.lanes

    @property
    def i_beats(self) -> tuple[int, int]:
        """Input beats of one step: one head, and the next state."""
        return 1, self.chunks

    @property
    def o_beats(self) -> int:
        """Output beats of one step."""
        return self.chunks

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
        """Return the beats [o_beats, lanes] that leave, from the head and the state that the step before has left."""
        head, kept = (np.asarray(x) for x in beats)
        return self.start.reshape(-1, self.lanes) if int(head.flat[0]) & 1 else kept.reshape(-1, self.lanes)

    def model(self) -> StateModel:
        """Return the cycle model."""
        return StateModel(self)


class StateModel:
    """Cycle model: a FIFO with a state of each sequence after a reset, which is read while a head is there."""

    late_inputs = (NEXT,)  # read by `nnhw.engines.timing.late_inputs`

    def __init__(self, config: StateConfig) -> None:
        self.chunks, self.words = config.chunks, config.memory.words
        # Nobody has written these states. They are read all the same, and the start leaves in their place.
        self.level = config.sequences * config.chunks
        self.beat = 0
        self.o_valids = [False]

    def _reads(self, head: bool, o_ready: bool) -> bool:
        """Return whether a beat of the state is read in this cycle."""
        return head and self.level > 0 and (o_ready or not self.o_valids[0])

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return whether the head is taken with the last beat, and whether the memory has room."""
        last = self.beat == self.chunks - 1
        # The head stays with the last beat, so that one beat serves the whole step without a register.
        return [last and self._reads(i_valids[HEAD], o_readies[0]), self.level < self.words]

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Pass one clock edge: write a beat of the next state, read one of the state."""
        before, read = self.o_valids[0], self._reads(i_valids[HEAD], o_readies[0])
        write = i_valids[NEXT] and self.level < self.words
        if o_readies[0] or not before:
            self.o_valids = [read]
        self.level += write - read
        self.beat = (self.beat + read) % self.chunks
        return write or read or before != self.o_valids[0]

    def state(self) -> Hashable:
        """Return the beat that is read next, the beats in the FIFO, and whether a beat waits to leave."""
        return self.beat, self.level, self.o_valids[0]
