"""Width converter: the same elements in more or fewer lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.timing import RegisterModel
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True)
class ConvertConfig(EngineConfig):
    """A stream of `i_lanes` elements a beat becomes one of `o_lanes`, in the same order.

    Parameters
    ----------
    i_lanes, o_lanes: elements of a beat at the input and at the output; one divides the other.
    bits: bits of an element.
    beats: beats of one frame at the input.

    Timing: see `nnhw.hdl.convert.Converter`.

    Raises
    ------
    MappingError: the lanes do not divide each other, or a frame is no whole number of output beats.
    """

    i_lanes: int
    o_lanes: int
    bits: int
    beats: int

    def __post_init__(self) -> None:
        if max(self.i_lanes, self.o_lanes) % min(self.i_lanes, self.o_lanes):
            raise MappingError(
                f"width converter needs lanes that divide each other, given {self.i_lanes} and {self.o_lanes}"
            )
        if self.beats * self.i_lanes % self.o_lanes:
            raise MappingError(
                f"width converter needs a frame of a multiple of {self.o_lanes} elements, "
                f"given {self.beats * self.i_lanes}"
            )

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.beats

    @property
    def o_beats(self) -> int:
        """Beats of one frame at the output."""
        return self.beats * self.i_lanes // self.o_lanes

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats [o_beats, o_lanes] of the input beats [beats, i_lanes]."""
        return np.asarray(beats[0]).reshape(-1, self.o_lanes)

    @property
    def only_converts(self) -> bool:
        """True."""
        return True

    def golden_elements(self, inputs: Sequence[np.ndarray], output: IntType) -> np.ndarray:
        """Return the elements that leave, in stream order: those that came in, or the parts of wider numbers."""
        (elements,) = inputs
        if len(elements) == self.i_beats * self.i_lanes:
            return super().golden_elements(inputs, output)
        # One wide number in each beat: it leaves in parts of `bits` bits, the lowest first.
        parts = elements[:, None] >> self.bits * np.arange(self.i_lanes)
        return (parts & ((1 << self.bits) - 1)).reshape(-1)

    def model(self) -> RegisterModel:
        """Return the cycle model: one register, ready again in the cycle in which it is emptied."""
        # Equal lanes are a register that takes one and gives one.
        if self.o_lanes >= self.i_lanes:
            return RegisterModel(take=self.o_lanes // self.i_lanes)
        return RegisterModel(give=self.i_lanes // self.o_lanes)
