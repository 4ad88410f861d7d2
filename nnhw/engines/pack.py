"""Packing: elements that come in whole bytes leave as a string of bits, in as few bytes as possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

BYTE_BITS = 8
"""Bits of what comes in and leaves at once."""


@dataclass(frozen=True)
class PackConfig:
    """Parameters of packing: the bits of a frame's elements follow one another; zeros fill up the last byte.

    Parameters
    ----------
    bits: bits of an element, which comes in as few whole bytes as hold it, the lowest first.
    elements: elements of one frame.

    Timing: a byte comes in each cycle; one leaves one cycle after its last bit came in. The end of a frame may take one
    cycle more, where its last input byte completes two output bytes.
    """

    bits: int
    elements: int

    @property
    def element_bytes(self) -> int:
        """Bytes in which an element comes in."""
        return math.ceil(self.bits / BYTE_BITS)

    @property
    def top_bits(self) -> int:
        """Bits of an element in the last of its bytes."""
        return self.bits - BYTE_BITS * (self.element_bytes - 1)

    @property
    def i_beats(self) -> int:
        """Input bytes of one frame."""
        return self.elements * self.element_bytes

    @property
    def o_beats(self) -> int:
        """Output bytes of one frame."""
        return math.ceil(self.elements * self.bits / BYTE_BITS)

    @property
    def pad_bits(self) -> int:
        """Zero bits that fill up the last byte of a frame."""
        return BYTE_BITS * self.o_beats - self.bits * self.elements

    def golden(self, beats: np.ndarray) -> np.ndarray:
        """Return the output bytes uint8 [o_beats] of the input bytes of one frame, uint8 [i_beats]."""
        bits = np.unpackbits(np.asarray(beats, dtype=np.uint8), bitorder="little").reshape(self.elements, -1)
        return np.packbits(bits[:, : self.bits].reshape(-1), bitorder="little")
