"""What a board leaves to the engines, and what to say where that is not enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.resources import Cost


@dataclass(frozen=True)
class Budget:
    """What the engines of an accelerator may take, the link already subtracted.

    Parameters
    ----------
    ff: flip-flops, where they are counted apart from logic cells; else there is no bound.
    """

    lc: float
    ebr: int
    dsp: int = 0
    spram: int = 0
    ff: float = inf

    def excess(self, taken: Cost) -> str:
        """Say by how much a mapping is too large; nothing where it fits."""
        parts = []
        if taken.lc > self.lc:
            parts.append(f"{taken.lc - self.lc:.0f} logic cells too many")
        if taken.ff > self.ff:
            parts.append(f"{taken.ff - self.ff:.0f} flip-flops too many")
        if taken.ebr > self.ebr:
            parts.append(f"{taken.ebr - self.ebr} block RAMs too many")
        if taken.dsp > self.dsp:
            parts.append(f"{taken.dsp - self.dsp} DSP blocks too many")
        if taken.spram > self.spram:
            parts.append(f"{taken.spram - self.spram} large RAMs too many")
        return " and ".join(parts)

    def has_logic(self, taken: Cost) -> bool:
        """Return whether there are as many logic cells and flip-flops."""
        return taken.lc <= self.lc and taken.ff <= self.ff

    def without(self, taken: Cost) -> Budget:
        """Return what is left."""
        return Budget(
            self.lc - taken.lc, self.ebr - taken.ebr, self.dsp - taken.dsp, self.spram - taken.spram, self.ff - taken.ff
        )


def does_not_fit(layers: Sequence[Layer], interval: int, taken: Cost, budget: Budget) -> str:
    """Say that a network does not fit, what is missing and what would fit."""
    return (
        f"the network does not fit: its smallest mapping at {interval} cycles a frame takes "
        f"{taken.lc:.0f} logic cells and {taken.ebr} block RAMs, "
        f"but the board leaves {budget.lc:.0f} and {budget.ebr} to the engines "
        f"({budget.excess(taken)}); {_remedy(layers, taken, budget)}"
    )


def _remedy(layers: Sequence[Layer], taken: Cost, budget: Budget) -> str:
    """Say what would fit: the share that the largest layer must shrink by, or a board."""
    matrices = [layer for layer in layers if isinstance(layer, MatrixLayer)]
    pairs = ((budget.lc, taken.lc), (budget.ff, taken.ff), (budget.ebr, taken.ebr))
    share = min(1.0, *(left / some for left, some in pairs if some))
    advice = (
        f"about {share:.0%} of the network's present size would fit: use fewer channels or fewer bits, a slower "
        "--target-fps, or a board with more resources ('nnhw boards')"
    )
    if not matrices:
        return advice
    largest = max(matrices, key=lambda layer: layer.weights.size * layer.weight.bits)
    bits = largest.weights.size * largest.weight.bits
    return f"the largest layer is {largest.where} with {bits} weight bits; {advice}"
