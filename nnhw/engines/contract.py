"""What every engine tells about itself: all that mapping, hardware, reports and test benches ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnhw.engines.network import CycleModel, NetworkModel
from nnhw.engines.requantize import Requantizer
from nnhw.ir.types import IntType

if TYPE_CHECKING:
    from nnhw.engines.fifo import FifoConfig
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
    """Base of the parameters of one engine: a frozen dataclass that validates itself.

    Each says how many beats of a frame come in and leave, in which cycles they pass (`model`), and what is computed
    (`golden`). All else has a default here that fits most engines. The type and the lanes of the output are not part of
    the parameters: see `nnhw.accelerator.Stage.output`.
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
        """Return a new cycle model, which says in which cycle a beat is taken, and one is given."""

    @property
    def kind(self) -> str:
        """Name of the engine in reports and pictures."""
        # So that engines of the user's own, too, have a name without saying one.
        return type(self).__name__.removesuffix("Config").lower()

    @property
    def o_ports(self) -> int:
        """Number of output streams; the same beats leave on each."""
        return 1

    @property
    def late_inputs(self) -> tuple[int, ...]:
        """Input ports that a later stage feeds, such as a loop's next state: valid and ready are registers there."""
        return ()

    @property
    def most_i_beats(self) -> int:
        """Beats of one frame at the busiest input."""
        return max(self.i_beats, default=0) if isinstance(self.i_beats, tuple) else self.i_beats

    @property
    def cycles(self) -> int:
        """Cycles for which a frame occupies the engine, if no other engine makes it wait."""
        return max(self.most_i_beats, self.o_beats)

    @property
    def cycle_bound(self) -> int:
        """An upper bound of the cycles for one frame by itself, if no other engine makes it wait."""
        i_beats = sum(self.i_beats) if isinstance(self.i_beats, tuple) else self.i_beats
        # Only engines with a pipeline have a latency: some as a parameter, others as a property.
        return i_beats + self.o_beats + int(getattr(self, "latency", 0))

    @property
    def bursts(self) -> tuple[int, int]:
        """(results in a row, one a cycle; how often in a frame): the shape of the bursts in which results leave."""
        return 1, self.o_beats

    @property
    def requantizing(self) -> Requantizer | None:
        """The requantizer that makes codes of its sums; None: it has no sums, or they leave raw."""
        return None

    @property
    def product_array(self) -> ProductArray | None:
        """The part that multiplies; None: there is none, or it is one that a program uses in many ways."""
        return None

    @property
    def only_converts(self) -> bool:
        """Whether it changes nothing but the lanes of a stream."""
        return False

    @property
    def fifo(self) -> FifoConfig | None:
        """Itself if it is a FIFO, whose depth and memory the mapper chooses; else None."""
        return None

    @property
    def program(self) -> SharedConfig | None:
        """Itself if it runs a program of records, which has to be loaded; else None."""
        return None

    def golden_elements(self, inputs: Sequence[np.ndarray], output: IntType) -> np.ndarray:
        """Return the elements of one frame that leave, int64 [elements], in stream order.

        Parameters
        ----------
        inputs: for each input the elements of the frame, int64 [elements], in stream order.
        output: type of the elements that leave.
        """
        counts = self.i_beats if isinstance(self.i_beats, tuple) else (self.i_beats,) * len(inputs)
        beats = [elements.reshape(count, -1) for elements, count in zip(inputs, counts, strict=True)]
        return np.asarray(self.golden(*beats)).reshape(-1)


class RequantizingConfig(EngineConfig):
    """Base of the parameters of an engine whose raw results may become codes on their way to the output buffer.

    Such an engine has the parameter `requantizer`; where it is None, raw results leave.
    """

    if TYPE_CHECKING:
        # No annotation while it runs: those of all bases are evaluated when an accelerator is loaded, and this type is
        # not imported here then.
        requantizer: Requantizer | None

    @property
    @abstractmethod
    def raw(self) -> IntType:
        """Type of a result in front of the requantizer."""

    @property
    @abstractmethod
    def raw_latency(self) -> int:
        """Moves from the last element that a result needs to the raw result."""

    @property
    def element(self) -> IntType:
        """Type of the elements that leave."""
        return self.raw if self.requantizer is None else self.requantizer.code

    @property
    def latency(self) -> int:
        """Cycles from the last element that a result needs to the result behind the output buffer, without stalls."""
        # The last one is the output buffer.
        return self.raw_latency + (self.requantizer.latency if self.requantizer else 0) + 1

    @property
    def requantizing(self) -> Requantizer | None:
        """The requantizer of its results."""
        return self.requantizer

    def requantized(self, raw: np.ndarray) -> np.ndarray:
        """Return what leaves for raw results int64 [.., channels of the requantizer]."""
        return raw if self.requantizer is None else self.requantizer.golden(raw)
