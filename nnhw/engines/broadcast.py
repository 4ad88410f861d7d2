"""Constants that stream: the same beats for each frame, from a memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.matmul import LOGIC_ROM_WORDS
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True)
class BroadcastConfig(EngineConfig):
    """Parameters of a source of constants, which reads nothing.

    Parameters
    ----------
    values: of a frame, int64 [elements], in stream order.
    element: their type.
    lanes: elements of a beat; divides the elements.

    Timing: a beat a cycle, the first one `start` cycles after the reset; whoever takes beats says when a frame is.
    """

    values: np.ndarray = field(repr=False)
    element: IntType
    lanes: int

    def __post_init__(self) -> None:
        if not len(self.values) or len(self.values) % self.lanes:
            raise MappingError(f"a source of {len(self.values)} constants needs lanes that divide them, {self.lanes}")

    @property
    def i_beats(self) -> tuple[int, ...]:
        """It has no input."""
        return ()

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return len(self.values) // self.lanes

    @property
    def in_logic(self) -> bool:
        """Whether the values are constants in logic; else in block RAM."""
        return self.o_beats <= LOGIC_ROM_WORDS

    @property
    def start(self) -> int:
        """Cycles until the first beat is there: the memory is read, and a word of block RAM waits in a register."""
        # A register behind the block RAM keeps a word while nobody takes it.
        return 1 if self.in_logic else 2

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats [o_beats, lanes]; there are no input beats."""
        return self.values.reshape(-1, self.lanes)

    def model(self) -> BroadcastModel:
        """Return the cycle model."""
        return BroadcastModel(self.o_beats, self.start)


class BroadcastModel:
    """Cycle model: there always is a beat, once the first one is there."""

    def __init__(self, beats: int, start: int) -> None:
        self.beats, self.start = beats, start
        self.beat = 0
        self.started = 0
        self.o_valids = [False]

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """It has no input."""
        return []

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Go on to the next beat, if this one is taken."""
        if self.started < self.start:
            self.started += 1
            self.o_valids = [self.started == self.start]
            # The memory is still on its way, which counts as a change, so that no one takes the network for still.
            return True
        self.beat = (self.beat + o_readies[0]) % self.beats
        return o_readies[0]

    def state(self) -> Hashable:
        """Return its beat, and how far it is from the reset."""
        return self.beat, self.started
