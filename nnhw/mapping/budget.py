"""The resources that a board leaves to the engines, and messages for networks that need more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from nnhw.accelerator import Accelerator, Stage
from nnhw.families import Cost
from nnhw.mapping.layers import Layer, MatrixLayer

SMALL_FIFO_BITS = 4096
"""FIFOs of up to so many bits, one block RAM of the iCE40, are not named in a message that a network does not fit."""
REMEDY = "use fewer channels or fewer bits, or a board with more resources ('nnhw boards')"
"""What helps where the smallest mapping does not fit at any rate."""


@dataclass(frozen=True)
class Budget:
    """The resources that the engines of an accelerator may take; those of the link are subtracted.

    Parameters
    ----------
    lc: logic cells. ebr: block RAMs. dsp: DSP blocks. spram: large RAMs.
    ff: flip-flops, if the family counts them apart from logic cells; else infinite.
    large_device: whether one clock cycle does not suffice from one end of the device to the other.
    """

    lc: float
    ebr: int
    dsp: int = 0
    spram: int = 0
    ff: float = inf
    large_device: bool = False

    def excess(self, taken: Cost) -> str:
        """Return by how much a cost exceeds the budget, as part of a message; empty if it fits."""
        parts = []
        if taken.lc > self.lc:
            parts.append(f"{_more(taken.lc, self.lc)} logic cells too many")
        if taken.ff > self.ff:
            parts.append(f"{_more(taken.ff, self.ff)} flip-flops too many")
        if taken.ebr > self.ebr:
            parts.append(f"{taken.ebr - self.ebr} block RAMs too many")
        if taken.dsp > self.dsp:
            parts.append(f"{taken.dsp - self.dsp} DSP blocks too many")
        if taken.spram > self.spram:
            parts.append(f"{taken.spram - self.spram} large RAMs too many")
        return " and ".join(parts)

    def has_logic(self, taken: Cost) -> bool:
        """Return whether the logic cells and flip-flops of a cost fit."""
        return taken.lc <= self.lc and taken.ff <= self.ff

    def without(self, taken: Cost) -> Budget:
        """Return the budget that is left behind a cost."""
        return replace(
            self,
            lc=self.lc - taken.lc,
            ebr=self.ebr - taken.ebr,
            dsp=self.dsp - taken.dsp,
            spram=self.spram - taken.spram,
            ff=self.ff - taken.ff,
        )


def does_not_fit(
    layers: Sequence[Layer], interval: int, taken: Cost, budget: Budget, ram_bits: int, count: int | None = None
) -> tuple[str, str]:
    """Return the cause that a network does not fit (what is scarce and what is missing), and what would fit.

    Weights that are too many for all block RAMs are named as what is scarce: the smallest mapping has them in logic
    then, so that it takes few block RAMs, or none, and logic cells beyond all measure.

    Parameters
    ----------
    interval: cycles from frame to frame of the smallest mapping. taken: its cost.
    ram_bits: bits of a block RAM.
    count: layers of the network, of which the given ones are the first; None: they are all.
    """
    whose = "its" if count is None else f"the first {len(layers)} of {count} layers'"
    weights, held = sum(_weight_bits(layer) for layer in layers), budget.ebr * ram_bits
    if held < weights and not budget.has_logic(taken):
        scarce = (
            f"{whose} weights are {weights:,} bits, but the {budget.ebr} block RAMs that the board leaves to the "
            f"engines hold {held:,}; with weights in logic as well, the smallest mapping takes {taken.lc:,.0f} "
            f"of {budget.lc:,.0f} logic cells"
        )
    else:
        scarce = (
            f"{whose} smallest mapping at {interval} cycles a frame takes {taken.lc:.0f} logic cells and {taken.ebr} "
            f"block RAMs, but the board leaves {budget.lc:.0f} and {budget.ebr} to the engines "
            f"({budget.excess(taken)})"
        )
    cause = f"the network does not fit: {scarce}"
    if min(budget.lc, budget.ff, budget.ebr) < 0:
        return cause, (
            "what stands beside the engines, such as the link, takes more than there is: use another link (--link), or "
            "a board with more resources ('nnhw boards')"
        )
    return f"{cause}; {_shares(layers, taken, budget, count)}", REMEDY


def fifos_do_not_fit(accelerator: Accelerator, excess: str) -> str:
    """Return the cause that a network's engines fit, but not the FIFOs between them; it names the largest FIFO.

    Parameters
    ----------
    excess: from `Budget.excess`.
    """
    fifos = [stage for stage in accelerator.stages if stage.config.fifo is not None]
    # The largest one is where a change of the model helps most.
    largest = max(fifos, key=_held_bits, default=None)
    why = ""
    if largest is not None and _held_bits(largest) > SMALL_FIFO_BITS:
        why = (
            f"; in front of '{largest.layer}' a branch waits for another in a FIFO of {_held_bits(largest)} bits: "
            "branches of similar length, smaller maps, and joins along the channels need less"
        )
    return f"the network does not fit: with the FIFOs between its engines there are {excess}{why}"


def _more(taken: float, given: float) -> int:
    """Return by how many cells an estimate exceeds what there is; a part of a cell counts as one."""
    return max(1, round(taken - given))


def _weight_bits(layer: Layer) -> int:
    """Return the bits of a layer's weights; 0 for one without."""
    return layer.weights.size * layer.weight.bits if isinstance(layer, MatrixLayer) else 0


def _held_bits(stage: Stage) -> int:
    """Return the bits that a stage holds if it is a FIFO, else 0."""
    fifo = stage.config.fifo
    return 0 if fifo is None else fifo.depth * fifo.width


def _shares(layers: Sequence[Layer], taken: Cost, budget: Budget, count: int | None) -> str:
    """Return what share of the network's size would fit, and its largest layer."""
    matrices = [layer for layer in layers if isinstance(layer, MatrixLayer)]
    pairs = ((budget.lc, taken.lc), (budget.ff, taken.ff), (budget.ebr, taken.ebr))
    # As if all resources shrank with the network: the scarcest one decides.
    share = min(1.0, *(left / some for left, some in pairs if some))
    about = "about" if count is None else "less than"
    advice = f"{about} {share:.0%} of the network's present size would fit"
    if not matrices:
        return advice
    largest = max(matrices, key=_weight_bits)
    which = "layer" if count is None else "of these"
    return f"the largest {which} is {largest.where} with {_weight_bits(largest):,} weight bits; {advice}"
