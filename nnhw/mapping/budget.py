"""What a board leaves to the engines, and what to say where that is not enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.resources import Cost


@dataclass(frozen=True)
class Budget:
    """What the engines of an accelerator may take, the link already subtracted."""

    lc: float
    ebr: int
    dsp: int = 0
    spram: int = 0

    def excess(self, taken: Cost) -> str:
        """Say by how much a mapping is too large; nothing where it fits."""
        parts = []
        if taken.cells > self.lc:
            parts.append(f"{taken.cells - self.lc:.0f} logic cells too many")
        if taken.ebr > self.ebr:
            parts.append(f"{taken.ebr - self.ebr} block RAMs too many")
        if taken.dsp > self.dsp:
            parts.append(f"{taken.dsp - self.dsp} DSP blocks too many")
        if taken.spram > self.spram:
            parts.append(f"{taken.spram - self.spram} large RAMs too many")
        return " and ".join(parts)


def does_not_fit(layers: Sequence[Layer], interval: int, taken: Cost, budget: Budget) -> str:
    """Say that a network does not fit, what is missing and what would fit."""
    return (
        f"the network does not fit: its smallest mapping at {interval} cycles a frame takes "
        f"{taken.cells:.0f} logic cells and {taken.ebr} block RAMs, "
        f"but the board leaves {budget.lc:.0f} and {budget.ebr} to the engines "
        f"({budget.excess(taken)}); {_remedy(layers, taken, budget)}"
    )


def _remedy(layers: Sequence[Layer], taken: Cost, budget: Budget) -> str:
    """Say what would fit: the share that the largest layer must shrink by, or a board."""
    matrices = [layer for layer in layers if isinstance(layer, MatrixLayer)]
    share = min(1.0, budget.lc / taken.cells if taken.cells else 1.0, budget.ebr / taken.ebr if taken.ebr else 1.0)
    advice = (
        f"about {share:.0%} of the network's present size would fit: use fewer channels or fewer bits, a slower "
        "--target-fps, or a board with more resources ('nnhw boards')"
    )
    if not matrices:
        return advice
    largest = max(matrices, key=lambda layer: layer.weights.size * layer.weight.bits)
    bits = largest.weights.size * largest.weight.bits
    return f"the largest layer is {largest.where} with {bits} weight bits; {advice}"
