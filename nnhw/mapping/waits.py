"""Engines that wait for line buffers, and larger ones for which they need not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

from nnhw.accelerator import Accelerator
from nnhw.errors import MappingError
from nnhw.families import Cost
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import accelerator_cost
from nnhw.mapping.design_space import DesignSpace
from nnhw.mapping.folding import Folding

MOST_WAITS = 1.02
"""Interval as a multiple of the slowest engine's cycles, above which a mapping with larger line buffers is tried."""
MOST_RELAXED = 3
"""Layers whose line buffers are tried otherwise where engines wait: the busiest ones."""
MOST_TRIALS = 16
"""Accelerators that are tried for that."""


def waits(found: Accelerator) -> bool:
    """Return whether the slowest engine waits for others."""
    slowest = max(stage.config.cycles for stage in found.stages)
    return found.schedule.interval_cycles > MOST_WAITS * slowest


def without_waits(space: DesignSpace, placed: Sequence[Folding], found: Accelerator, budget: Budget) -> Accelerator:
    """Return the accelerator with other line buffers for its busiest layers, where engines wait and that helps."""
    if not waits(found):
        return found
    best = found
    for trial in _other_buffers(space, placed, budget)[:MOST_TRIALS]:
        accelerator = space.accelerator(trial, found.board)
        fits = not budget.excess(accelerator_cost(accelerator, space.family))
        if fits and accelerator.schedule.interval_cycles < best.schedule.interval_cycles:
            best = accelerator
            if not waits(best):
                break
    return best


def _other_buffers(space: DesignSpace, placed: Sequence[Folding], budget: Budget) -> list[list[Folding]]:
    """Return the foldings with roomy line buffers, or ones in large RAM, for the busiest layers; the cheapest first."""
    rows = [{folding: space.candidate(layer, folding)} for layer, folding in zip(space.layers, placed, strict=True)]
    slowest = max(row[folding].cycles for row, folding in zip(rows, placed, strict=True))
    busiest = sorted(range(len(rows)), key=lambda index: (-rows[index][placed[index]].cycles, index))[:MOST_RELAXED]
    for index in busiest:
        for other in (replace(placed[index], roomy=True), replace(placed[index], large=True)):
            with suppress(MappingError):
                candidate = space.candidate(space.layers[index], other)
                if candidate.cycles <= slowest and candidate.cost != rows[index][placed[index]].cost:
                    rows[index][other] = candidate
    trials = []
    for choice in product(*rows):
        total = sum((row[folding].cost for row, folding in zip(rows, choice, strict=True)), Cost())
        if list(choice) != list(placed) and not budget.excess(total):
            trials.append((space.family.weight(total.lc, total.ebr, total.dsp), list(choice)))
    return [choice for _, choice in sorted(trials, key=lambda trial: trial[0])]
