"""A nest of counted loops that walks an address: the sequencer of every engine that reads a memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoopNest:
    """Loops, innermost first, each with its count and its address stride.

    Parameters
    ----------
    counts: iterations of each loop, each at least 1.
    strides: address change of one iteration of each loop, all inner loops at their start.
    address_bits: addresses are taken modulo 2**address_bits (a circular memory).
    outer_advance: address change from one whole walk to the next (0: the same walk again).
    """

    counts: tuple[int, ...]
    strides: tuple[int, ...]
    address_bits: int
    outer_advance: int = 0

    @property
    def length(self) -> int:
        """Steps of one whole walk."""
        product = 1
        for count in self.counts:
            product *= count
        return product

    def jumps(self) -> tuple[int, ...]:
        """Return the address change when loop k advances and all loops inside it restart, modulo the memory.

        One entry per loop, and a last one for the wrap of the outermost loop.
        """
        back = 0
        jumps = []
        for count, stride in zip(self.counts, self.strides, strict=True):
            jumps.append((stride - back) % (1 << self.address_bits))
            back += (count - 1) * stride
        jumps.append((self.outer_advance - back) % (1 << self.address_bits))
        return tuple(jumps)

    def addresses(self, start: int = 0) -> list[int]:
        """Return every address of one walk, in order: the golden output of the hardware."""
        offsets = [start]
        for count, stride in zip(reversed(self.counts), reversed(self.strides), strict=True):
            offsets = [offset + index * stride for offset in offsets for index in range(count)]
        return [offset % (1 << self.address_bits) for offset in offsets]
