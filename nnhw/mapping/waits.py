"""Larger line buffers for mappings in which engines wait for line buffers."""

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
"""If the interval exceeds the slowest engine's cycles by more than this factor, larger line buffers are tried."""
MOST_RELAXED = 3
"""Number of layers, the busiest ones, whose line buffers are varied."""
MOST_TRIALS = 16
"""Most accelerators that are assembled to find one with a shorter interval."""


def waits(found: Accelerator) -> bool:
    """Return whether the interval of an accelerator is longer than its slowest engine alone explains."""
    slowest = max(stage.config.cycles for stage in found.stages)
    return found.schedule.interval_cycles > MOST_WAITS * slowest


def without_waits(space: DesignSpace, placed: Sequence[Folding], found: Accelerator, budget: Budget) -> Accelerator:
    """Return the accelerator with the shortest interval among variants with other line buffers of the busiest layers.

    It is `found` itself if no engine waits in it, or if no variant that fits the budget is faster.

    Parameters
    ----------
    placed: folding of each layer of `found`.
    """
    if not waits(found):
        return found
    best = found
    for trial in _other_buffers(space, placed, budget)[:MOST_TRIALS]:
        # To assemble an accelerator takes seconds where branches join; its cost alone does not.
        expected = space.expected_cost(trial)
        if expected is not None and budget.excess(expected):
            continue
        accelerator = space.accelerator(trial, found.board)
        fits = not budget.excess(accelerator_cost(accelerator, space.family))
        if fits and accelerator.schedule.interval_cycles < best.schedule.interval_cycles:
            best = accelerator
            if not waits(best):
                break
    return best


def _other_buffers(space: DesignSpace, placed: Sequence[Folding], budget: Budget) -> list[list[Folding]]:
    """Return variants with roomy line buffers, or line buffers in large RAM, for the busiest layers; cheapest first.

    Each is a folding for every layer, and fits the budget as far as engines alone are counted.
    """
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
    # At most 3 ** MOST_RELAXED combinations, as all other layers have a single choice.
    for choice in product(*rows):
        total = sum((row[folding].cost for row, folding in zip(rows, choice, strict=True)), Cost())
        if list(choice) != list(placed) and not budget.excess(total):
            trials.append((space.family.weight(total.lc, total.ebr, total.dsp), list(choice)))
    return [choice for _, choice in sorted(trials, key=lambda trial: trial[0])]
