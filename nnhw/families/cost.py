"""What something takes of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Resources, each as the device of a board counts what it has.

    Parameters
    ----------
    lc: logic cells: places for a LUT that are taken, by a LUT or by what keeps one from being put there.
    ebr, dsp, spram: block RAMs, DSP blocks, large RAMs.
    ff: flip-flops that are counted apart from `lc`; 0 in a family whose flip-flops are parts of its logic cells.
    """

    lc: float = 0
    ebr: int = 0
    dsp: int = 0
    spram: int = 0
    ff: float = 0

    def __rmul__(self, count: float) -> Cost:
        """Return what so many take. Block RAMs, DSP blocks and large RAMs of a fraction are not meant."""
        ebr, dsp, spram = (round(count * one) for one in (self.ebr, self.dsp, self.spram))
        return Cost(count * self.lc, ebr, dsp, spram, count * self.ff)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.lc + other.lc,
            self.ebr + other.ebr,
            self.dsp + other.dsp,
            self.spram + other.spram,
            self.ff + other.ff,
        )
