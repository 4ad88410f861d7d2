"""The mapper: the fastest foldings that fit a board, or the smallest that reach a rate."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnhw.accelerator import Accelerator
from nnhw.errors import MappingError
from nnhw.ir import Graph, graph_hash
from nnhw.mapping.assemble import assemble, fit_window
from nnhw.mapping.cost import Cost, cost
from nnhw.mapping.folding import Folding, cycles, foldings, matmul_config
from nnhw.mapping.layers import Layer, read_layers

MARGIN = 0.85
"""Share of a board's logic cells that a mapping may be estimated to take: beyond, clocks drop."""
EBR_WEIGHT_LC = 25
"""Logic cells that a block RAM is taken to be worth when foldings of the same speed are compared."""


@dataclass(frozen=True)
class Budget:
    """What the engines of an accelerator may take, the link already subtracted."""

    lc: float
    ebr: int


@dataclass(frozen=True)
class Candidate:
    """A folding with what it gives and takes."""

    folding: Folding
    cycles: int
    cost: Cost

    @property
    def weight(self) -> float:
        """One number to compare candidates by."""
        return self.cost.lc + EBR_WEIGHT_LC * self.cost.ebr


def layer_cost(layer: Layer, folding: Folding) -> Cost:
    """Return the cost of a folded layer: window, array, thresholds."""
    window = fit_window(layer, folding)
    return cost(window) + cost(matmul_config(layer, folding, window.weight_order()))


def frontier(layer: Layer) -> list[Candidate]:
    """Return the candidates of a layer that no other one beats in both cycles and cost, fastest first."""
    found = [Candidate(folding, cycles(layer, folding), layer_cost(layer, folding)) for folding in foldings(layer)]
    found.sort(key=lambda candidate: (candidate.cycles, candidate.weight))
    kept: list[Candidate] = []
    for candidate in found:
        if not kept or candidate.weight < kept[-1].weight:
            kept.append(candidate)
    return kept


def smallest_within(frontiers: Sequence[Sequence[Candidate]], interval: int) -> list[Candidate] | None:
    """Return the smallest candidate of each layer that takes at most `interval` cycles, or None."""
    chosen = []
    for candidates in frontiers:
        fitting = [candidate for candidate in candidates if candidate.cycles <= interval]
        if not fitting:
            return None
        chosen.append(min(fitting, key=lambda candidate: candidate.weight))
    return chosen


def place_weights(layers: Sequence[Layer], chosen: Sequence[Folding], budget: Budget) -> tuple[list[Folding], Cost]:
    """Move weights from block RAM to logic, cheapest first, until the block RAMs suffice.

    Returns
    -------
    The foldings with their `logic_pe`, and their cost (which may still exceed the budget).
    """
    placed = list(chosen)
    costs = [layer_cost(layer, folding) for layer, folding in zip(layers, placed, strict=True)]
    while sum(item.ebr for item in costs) > budget.ebr:
        moves = []
        for index, (layer, folding) in enumerate(zip(layers, placed, strict=True)):
            for more in range(folding.logic_pe + 1, folding.pe + 1):
                moved = replace(folding, logic_pe=more)
                after = layer_cost(layer, moved)
                saved = costs[index].ebr - after.ebr
                if saved > 0:
                    moves.append(((after.lc - costs[index].lc) / saved, index, moved, after))
                    break
        if not moves:
            break
        _, index, moved, after = min(moves, key=lambda move: move[:2])
        placed[index], costs[index] = moved, after
    return placed, sum(costs, Cost())


def place_thresholds(layers: Sequence[Layer], chosen: Sequence[Folding], budget: Budget, taken: Cost) -> list[Folding]:
    """Move thresholds from logic to the block RAMs that are left, where that saves most logic."""
    placed, left = list(chosen), budget.ebr - taken.ebr
    while True:
        moves = []
        for index, (layer, folding) in enumerate(zip(layers, placed, strict=True)):
            if layer.code is None or not folding.logic_thresholds:
                continue
            moved = replace(folding, logic_thresholds=False)
            before, after = layer_cost(layer, folding), layer_cost(layer, moved)
            more = after.ebr - before.ebr
            if 0 < more <= left and before.lc - after.lc >= EBR_WEIGHT_LC * more:
                moves.append(((after.lc - before.lc) / more, index, moved, more))
        if not moves:
            return placed
        _, index, moved, more = min(moves, key=lambda move: move[:2])
        placed[index], left = moved, left - more


def map_body(
    body: Graph,
    board_name: str,
    budget: Budget,
    *,
    target_interval: int | None = None,
    overrides: Mapping[str, Mapping[str, int]] | None = None,
) -> Accelerator:
    """Map an integer graph on engines.

    Parameters
    ----------
    body: one integer input, one integer output, a chain of layers.
    board_name: for the record.
    budget: what the engines may take.
    target_interval: cycles a frame that suffice; the smallest mapping that reaches them is taken. None: the
        fastest that fits.
    overrides: for a layer's name, any of `pe`, `channel_lanes`, `row_lanes`, `hop`, `drain`, `logic_pe`.

    Raises
    ------
    MappingError: a layer that no engine runs; a network that does not fit, with what is missing and what would fit;
        an override that names no layer or that the engine does not accept.
    """
    layers = read_layers(body)
    frontiers = [_overridden(layer, (overrides or {}).get(layer.name)) for layer in layers]
    _check_names(layers, overrides or {})
    fastest = max(min(candidate.cycles for candidate in candidates) for candidates in frontiers)
    intervals = sorted({candidate.cycles for candidates in frontiers for candidate in candidates})
    intervals = [interval for interval in intervals if interval >= fastest]
    if target_interval is not None:
        reach = [interval for interval in intervals if interval <= target_interval]
        intervals = reach[-1:] or intervals[:1]
    placed, taken = _fastest(layers, frontiers, intervals, budget)
    placed = place_thresholds(layers, placed, budget, taken)
    return assemble(layers, placed, body.name, graph_hash(body), board_name, body.inputs[0].type.shape)


def _fastest(
    layers: Sequence[Layer], frontiers: Sequence[Sequence[Candidate]], intervals: Sequence[int], budget: Budget
) -> tuple[list[Folding], Cost]:
    """Return the foldings of the first interval that fits, and their cost; a longer interval never costs more."""
    results: dict[int, tuple[list[Folding], Cost] | None] = {}

    def fits(interval: int) -> bool:
        chosen = smallest_within(frontiers, interval)
        placed = place_weights(layers, [item.folding for item in chosen], budget) if chosen else None
        results[interval] = placed
        return placed is not None and placed[1].lc <= budget.lc and placed[1].ebr <= budget.ebr

    index = bisect_left(intervals, True, key=fits)
    if index < len(intervals) and fits(intervals[index]):
        found = results[intervals[index]]
        assert found is not None
        return found
    smallest = results[intervals[-1]]
    taken = smallest[1] if smallest else Cost()
    raise MappingError(
        f"the network does not fit: its smallest mapping at {intervals[-1]} cycles a frame takes "
        f"{taken.lc:.0f} logic cells and {taken.ebr} block RAMs, "
        f"but the board leaves {budget.lc:.0f} and {budget.ebr} to the engines "
        f"({_excess(taken, budget)}); {_remedy(layers, taken, budget)}"
    )


def _excess(taken: Cost, budget: Budget) -> str:
    """Say by how much a mapping is too large."""
    parts = []
    if taken.lc > budget.lc:
        parts.append(f"{taken.lc - budget.lc:.0f} logic cells too many")
    if taken.ebr > budget.ebr:
        parts.append(f"{taken.ebr - budget.ebr} block RAMs too many")
    return " and ".join(parts)


def _remedy(layers: Sequence[Layer], taken: Cost, budget: Budget) -> str:
    """Say what would fit: the share that the largest layer must shrink by, or a board."""
    largest = max(layers, key=lambda layer: layer.weights.size * layer.weight.bits)
    bits = largest.weights.size * largest.weight.bits
    share = min(1.0, budget.lc / taken.lc if taken.lc else 1.0, budget.ebr / taken.ebr if taken.ebr else 1.0)
    return (
        f"the largest layer is {largest.where} with {bits} weight bits; about {share:.0%} of the "
        "network's present size would fit: use fewer channels or fewer bits, a slower --target-fps, "
        "or a board with more resources ('nnhw boards')"
    )


def _check_names(layers: Sequence[Layer], overrides: Mapping[str, Mapping[str, int]]) -> None:
    unknown = sorted(set(overrides) - {layer.name for layer in layers})
    if unknown:
        names = ", ".join(f"'{layer.name}'" for layer in layers)
        raise MappingError(
            f"the overrides name layer '{unknown[0]}', which the model does not have; its layers are {names}"
        )


def _overridden(layer: Layer, override: Mapping[str, int] | None) -> list[Candidate]:
    """Return the candidates of a layer that agree with an override."""
    if not override:
        return frontier(layer)
    free = set(Folding.__dataclass_fields__)
    wrong = sorted(set(override) - free)
    if wrong:
        raise MappingError(f"layer {layer.where} is overridden with '{wrong[0]}'; known are {', '.join(sorted(free))}")
    folded = {key: value for key, value in override.items() if key in ("pe", "channel_lanes", "row_lanes")}
    rest: dict[str, Any] = {key: value for key, value in override.items() if key not in folded}
    agreeing = [item for item in foldings(layer) if all(getattr(item, key) == value for key, value in folded.items())]
    if not agreeing:
        raise MappingError(
            f"layer {layer.where} cannot be folded as {dict(override)}: "
            f"pe must divide its {layer.weights.shape[0]} outputs, "
            f"channel_lanes its {layer.weights.shape[1]} channels, row_lanes be 1 or {layer.weights.shape[2]}"
        )
    found = []
    for item in agreeing:
        folding = replace(item, **rest)
        found.append(Candidate(folding, cycles(layer, folding), layer_cost(layer, folding)))
    return sorted(found, key=lambda candidate: candidate.cycles)
