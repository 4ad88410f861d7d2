"""Costs: how much of each resource of a device something takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Numbers of resources, in the units in which a board file counts those of its device.

    Parameters
    ----------
    lc: logic cells: places for a LUT that are taken by one, or that nothing else can use any more.
    ebr, dsp, spram: block RAMs, DSP blocks, large RAMs.
    ff: flip-flops that are counted apart from `lc`; 0 in a family whose flip-flops are parts of its logic cells.
    """

    lc: float = 0
    ebr: int = 0
    dsp: int = 0
    spram: int = 0
    ff: float = 0

    def __rmul__(self, count: float) -> Cost:
        """Return the cost of `count` of them. Numbers of block RAMs, DSP blocks and large RAMs are rounded."""
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

    def __str__(self) -> str:
        taken = {"LC": self.lc, "FF": self.ff, "EBR": self.ebr, "DSP": self.dsp, "SPRAM": self.spram}
        return ", ".join(f"{round(count, 1):,g} {name}" for name, count in taken.items() if count) or "nothing"
