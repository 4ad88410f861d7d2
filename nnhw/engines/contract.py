"""What every engine says of itself: the one thing that mapping, hardware, reports and benches ask it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnhw.engines.timing import CycleModel, NetworkModel
from nnhw.ir.types import IntType

if TYPE_CHECKING:
    from nnhw.engines.fifo import FifoConfig
    from nnhw.engines.requantize import Requantizer
    from nnhw.engines.shared.program import SharedConfig


@dataclass(frozen=True)
class ProductArray:
    """The part of an engine that multiplies.

    Parameters
    ----------
    pe: cells, each with a result of its own.
    simd: lanes of a cell: products that it makes in a cycle.
    weight_bits: bits of all weights.
    """

    pe: int
    simd: int
    weight_bits: int


class EngineConfig(ABC):
    """The parameters of one engine: a frozen dataclass that validates itself.

    Each says what a frame is (beats that come in and leave), when they pass (`model`), and what they mean (`golden`).
    The rest has an answer here that fits most engines. What leaves, element type and lanes, stands beside the
    parameters, in `nnhw.accelerator.Stage.output`.
    """

    @property
    @abstractmethod
    def i_beats(self) -> int | tuple[int, ...]:
        """Beats of one frame at each input; a number if it is the same for all."""

    @property
    @abstractmethod
    def o_beats(self) -> int:
        """Beats of one frame at each output."""

    @abstractmethod
    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats [o_beats, lanes] of the beats [i_beats, lanes] of every input, as values."""

    @abstractmethod
    def model(self) -> CycleModel | NetworkModel:
        """Return the cycle model: in which cycle what is taken and given."""

    @property
    def kind(self) -> str:
        """Name of the engine in reports and pictures."""
        return type(self).__name__.removesuffix("Config").lower()

    @property
    def o_ports(self) -> int:
        """Output streams; the same passes on each."""
        return 1

    @property
    def late_inputs(self) -> tuple[int, ...]:
        """Input ports that a later stage feeds, as a state of a loop: their valid and ready pass registers."""
        return ()

    @property
    def most_i_beats(self) -> int:
        """Beats of one frame at the busiest input."""
        return max(self.i_beats, default=0) if isinstance(self.i_beats, tuple) else self.i_beats

    @property
    def cycles(self) -> int:
        """Cycles of a frame in which it takes or gives a beat, or has no port for either."""
        return max(self.most_i_beats, self.o_beats)

    @property
    def cycle_bound(self) -> int:
        """Cycles that it surely needs no more than, for one frame alone."""
        i_beats = sum(self.i_beats) if isinstance(self.i_beats, tuple) else self.i_beats
        # Where there is a pipeline, its latency is a parameter of some engines and a property of others.
        return i_beats + self.o_beats + int(getattr(self, "latency", 0))

    @property
    def bursts(self) -> tuple[int, int]:
        """How many results it has at once, one a cycle, and how often in a frame."""
        return 1, self.o_beats

    @property
    def requantizing(self) -> Requantizer | None:
        """What makes codes of its sums; None: there are none, or they leave raw."""
        return None

    @property
    def product_array(self) -> ProductArray | None:
        """The part that multiplies; None: it has none, or one that a program uses in many ways."""
        return None

    @property
    def only_converts(self) -> bool:
        """Whether it changes nothing but the lanes of a stream."""
        return False

    @property
    def fifo(self) -> FifoConfig | None:
        """Itself if it is a FIFO, whose depth and place the mapper chooses."""
        return None

    @property
    def program(self) -> SharedConfig | None:
        """Itself if it runs a program: then it has records, and is loaded."""
        return None

    def golden_elements(self, inputs: Sequence[np.ndarray], output: IntType) -> np.ndarray:
        """Return the elements int64 [elements] that leave, in stream order.

        Parameters
        ----------
        inputs: of each input, the elements int64 [elements] of one frame, in stream order.
        output: type of the elements that leave.
        """
        counts = self.i_beats if isinstance(self.i_beats, tuple) else (self.i_beats,) * len(inputs)
        beats = [elements.reshape(count, -1) for elements, count in zip(inputs, counts, strict=True)]
        return np.asarray(self.golden(*beats)).reshape(-1)
