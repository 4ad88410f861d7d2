"""Padding: a border of one constant around a feature map."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.encoding import decode, encode
from nnhw.errors import MappingError
from nnhw.ir.types import BIPOLAR, IntType


@dataclass(frozen=True)
class PadConfig(EngineConfig):
    """Parameters of a border around a feature map that streams row by row, channels innermost.

    Parameters
    ----------
    height, width: pixels of the feature map that comes in.
    chunks: beats of one pixel.
    lanes: elements of one beat.
    bits: bits of an element that leaves.
    before, after: (rows, columns) of border above and left of the map, and below and right of it.
    pattern: the bit pattern of a border element.
    bipolar: elements come in as one bit, -1 or +1, and leave as numbers of two bits, so that the border can be 0.

    Timing: one beat a cycle, which leaves one cycle after it came in. The border in front of a frame is given only when
    the frame's first beat waits.

    Raises
    ------
    MappingError: parameters do not go together.
    """

    height: int
    width: int
    chunks: int
    lanes: int
    bits: int
    before: tuple[int, int]
    after: tuple[int, int]
    pattern: int
    bipolar: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.pattern < 1 << self.bits:
            raise MappingError(f"padding needs a pattern of {self.bits} bits, given {self.pattern:#x}")
        if min(*self.before, *self.after) < 0:
            raise MappingError(f"padding needs widths of at least 0, given {self.before} and {self.after}")
        if self.bipolar and self.bits != 2:
            raise MappingError(f"padding of bipolar elements gives numbers of 2 bits, given {self.bits}")

    @property
    def i_bits(self) -> int:
        """Bits of an element that comes in."""
        return 1 if self.bipolar else self.bits

    @property
    def o_height(self) -> int:
        """Rows of the feature map that leaves."""
        return self.before[0] + self.height + self.after[0]

    @property
    def o_width(self) -> int:
        """Columns of the feature map that leaves."""
        return self.before[1] + self.width + self.after[1]

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.height * self.width * self.chunks

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.o_height * self.o_width * self.chunks

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats [o_beats, lanes] of the input beats [i_beats, lanes], both bit patterns."""
        pixels = np.asarray(beats[0]).reshape(self.height, self.width, -1)
        # -1 and +1 leave as two's complement of two bits, so that 0 is a number between them.
        if self.bipolar:
            pixels = np.where(pixels > 0, 1, 3)  # 01 is +1, 11 is -1
        widths = ((self.before[0], self.after[0]), (self.before[1], self.after[1]), (0, 0))
        return np.pad(pixels, widths, constant_values=self.pattern).reshape(-1, self.lanes)

    def golden_elements(self, inputs: Sequence[np.ndarray], output: IntType) -> np.ndarray:
        """Return the elements that leave, in stream order; the value of a border element follows from their type."""
        patterns = encode(inputs[0], BIPOLAR if self.bipolar else output).reshape(self.i_beats, -1)
        return decode(self.golden(patterns), output).reshape(-1)

    def model(self) -> PadModel:
        """Return the cycle model."""
        return PadModel(self)


class PadModel:
    """Cycle model: each output beat is an input beat or border; the first one of a frame waits for the input."""

    def __init__(self, config: PadConfig) -> None:
        inside = np.zeros((config.o_height, config.o_width, config.chunks), dtype=bool)
        (top, left), (height, width) = config.before, (config.height, config.width)
        inside[top : top + height, left : left + width] = True
        self.inside: list[bool] = inside.reshape(-1).tolist()
        self.beat = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the output register takes a beat of the input."""
        # While border leaves, the input waits.
        return (o_ready or not self.o_valid) and self.inside[self.beat]

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge: give the next beat, if there is one."""
        before = self.o_valid
        if before and not o_ready:
            return False
        # Border needs no input, but for the first beat of a frame, which waits until the frame is there.
        waits = self.beat == 0 or self.inside[self.beat]
        self.o_valid = i_valid or not waits
        if self.o_valid:
            self.beat = (self.beat + 1) % len(self.inside)
        return before or self.o_valid

    def state(self) -> Hashable:
        """Return the beat of the frame that leaves next, and whether the register is full."""
        return self.beat, self.o_valid
