"""Packing: elements that come in whole bytes leave bit by bit, in as few bytes as there can be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

BYTE_BITS = 8


@dataclass(frozen=True)
class PackConfig:
    """The bits of a frame's elements follow one another in bytes; the last byte is filled up with zeros.

    Parameters
    ----------
    bits: of an element. It comes in as few whole bytes as hold it, the lowest first.
    elements: of one frame.

    Timing: a byte a cycle comes in; one leaves one cycle after its last bit came in. The end of a frame may take one
    cycle more.
    """

    bits: int
    elements: int

    @property
    def element_bytes(self) -> int:
        """Bytes in which an element comes in."""
        return math.ceil(self.bits / BYTE_BITS)

    @property
    def top_bits(self) -> int:
        """Bits of an element in the last of these."""
        return self.bits - BYTE_BITS * (self.element_bytes - 1)

    @property
    def i_beats(self) -> int:
        """Bytes that come in for one frame."""
        return self.elements * self.element_bytes

    @property
    def o_beats(self) -> int:
        """Bytes that leave."""
        return math.ceil(self.elements * self.bits / BYTE_BITS)

    @property
    def pad_bits(self) -> int:
        """Zeros at the end of a frame."""
        return BYTE_BITS * self.o_beats - self.bits * self.elements

    def golden(self, beats: np.ndarray) -> np.ndarray:
        """Return the bytes uint8 [o_beats] of the bytes of one frame, uint8 [i_beats]."""
        bits = np.unpackbits(np.asarray(beats, dtype=np.uint8), bitorder="little").reshape(self.elements, -1)
        return np.packbits(bits[:, : self.bits].reshape(-1), bitorder="little")
