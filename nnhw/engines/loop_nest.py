"""A nest of counted loops that makes a sequence of addresses, for engines that read a memory in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoopNest:
    """Loops, innermost first, each with its count and its address stride.

    Parameters
    ----------
    counts: iterations of each loop, each at least 1.
    strides: how far the address goes, in words, from one iteration of each loop to the next.
    address_bits: addresses are modulo 2**address_bits (a circular memory).
    outer_advance: how far the address goes from the start of one whole walk to that of the next; 0: the same walk.
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
        """Return how far the address goes when loop k advances and all loops inside it restart, modulo the memory.

        One entry for each loop, and a last one for the step from one whole walk to the next.
        """
        # How far all loops inside have gone when they are in their last iteration: their restart takes that back.
        back = 0
        jumps = []
        for count, stride in zip(self.counts, self.strides, strict=True):
            jumps.append((stride - back) % (1 << self.address_bits))
            back += (count - 1) * stride
        jumps.append((self.outer_advance - back) % (1 << self.address_bits))
        return tuple(jumps)

    def addresses(self, start: int = 0) -> list[int]:
        """Return every address of one walk from `start` on, in order: the golden output of the hardware."""
        offsets = [start]
        # From the outermost loop inwards, each offset becomes one for each iteration.
        for count, stride in zip(reversed(self.counts), reversed(self.strides), strict=True):
            offsets = [offset + index * stride for offset in offsets for index in range(count)]
        return [offset % (1 << self.address_bits) for offset in offsets]
