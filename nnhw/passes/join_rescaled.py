"""Pass: codes that are rescaled to wide integers and added become steps of one weighted sum of the codes.

rescale(weighted_sum(rescale(a), rescale(b); 1, 1)) --> threshold(weighted_sum(a, b; k1, k2))
rescale(rescale(a))                                 --> threshold(a)

if the inner rescalings give wide integers, as TFLite's addition does, which brings both branches to a common scale with
20 fraction bits. Each rescaling rounds, so near ties the result is no weighted sum with the scales as factors. All
pairs of codes are evaluated, to find factors with which the result is a line of the weighted sum (see `lines`); if
there are none, any factors that put all pairs in the right order (see `factors`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.errors import LoweringError, NnhwError, raise_all
from nnhw.ir import Graph, Node
from nnhw.ir.ops import Rescale, WeightedSum

from .code_lines import Pairs, find_line
from .factors import find_factors
from .joins import COMBINATIONS, COMBINED
from .step_finder import StepFinder, Steps, replaced

MOST_CODES = 2**10
"""A value with at most so many different integers counts as codes; others are wide."""
MOST_FACTORS = 2**13
"""Greatest sum of both factors of a line: it bounds the weighted sum of 8-bit codes that a shared engine computes."""


@dataclass(frozen=True)
class Rescaled:
    """A function from codes to a rescaled integer, with wide integers in between.

    Parameters
    ----------
    graph: the graph that has all of it.
    node: the last op, a rescaling.
    inner: sums and rescalings in front of it, in the order of the graph.
    sources: the values with the codes.
    """

    graph: Graph
    node: Node
    inner: tuple[Node, ...]
    sources: tuple[Node, ...]

    def __call__(self, *codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the last op's input and its result in channel 0, int64 [n] each, for codes [n] of each source."""
        read, made = self._evaluated(codes, slice(1))
        return read[:, 0], made[:, 0]

    def of_channels(self, codes: np.ndarray) -> np.ndarray:
        """Return the result, int64 [n, channels], for codes [n] of the only source."""
        made = self._evaluated([codes], slice(None))[1]
        return np.broadcast_to(made, (len(codes), self.node.type.shape[0]))

    def _evaluated(self, codes: Sequence[np.ndarray], channels: slice) -> tuple[np.ndarray, np.ndarray]:
        known = {source.name: array[:, np.newaxis] for source, array in zip(self.sources, codes, strict=True)}
        for node in (*self.inner, self.node):
            operands = [known[name] if name in known else self.graph.constants[name][channels] for name in node.inputs]
            known[node.name] = node.op.evaluate(*operands)
        return known[self.node.inputs[0]], known[self.node.name]


def join_rescaled(graph: Graph, proofs: dict[str, str] | None = None) -> Graph:
    """Replace each rescaling of rescaled integers by an equal function of codes.

    Parameters
    ----------
    proofs: receives, by node name, the proof that the function is equal.

    Raises
    ------
    LoweringError, or a ProblemList of several, for sums that have no such form.
    """
    problems: list[NnhwError] = []
    for node in graph.nodes:
        # A rescaling to wide integers is an inner one of another node.
        if not isinstance(node.op, Rescale) or _is_wide(node) or node.name not in graph:
            continue
        try:
            found = _found(graph, graph.node(node.name))
            if found is not None:
                factors, sources, steps = _steps(found)
                if proofs is not None:
                    proofs[node.name] = COMBINED
                graph = replaced(graph, found.node, sources, factors, steps)
        except NnhwError as error:
            problems.append(error)
    raise_all(problems)
    return graph


def _is_wide(node: Node) -> bool:
    kind = node.type.int_dtype
    return kind.high - kind.low >= MOST_CODES


def _found(graph: Graph, node: Node) -> Rescaled | None:
    """Return a rescaling as a function of codes; None unless it reads rescalings to wide integers."""
    inner: dict[str, Node] = {}
    sources: dict[str, Node] = {}
    waiting = [*graph.data_inputs(node)]
    while waiting:
        one = waiting.pop()
        if isinstance(one.op, WeightedSum) or (isinstance(one.op, Rescale) and _is_wide(one)):
            inner[one.name] = one
            waiting += graph.data_inputs(one)
        elif _is_wide(one):
            return None
        else:
            sources[one.name] = one
    if not any(isinstance(one.op, Rescale) for one in inner.values()):
        return None
    order = tuple(one for one in graph.nodes if one.name in inner)
    found = Rescaled(graph, node, order, tuple(one for one in graph.nodes if one.name in sources))
    _check(found)
    return found


def _check(found: Rescaled) -> None:
    """Raise LoweringError if there are too many combinations of codes, or, with two sources, channels differ."""
    graph, names = found.graph, " and ".join(map(str, found.sources))
    constants = [graph.constants[k] for one in (*found.inner, found.node) for k in one.inputs if k in graph.constants]
    if len(found.sources) > 1 and any((array != array[:1]).any() for array in constants):
        raise LoweringError(
            f"{found.node} adds {names} with rescalings that differ from channel to channel; use one multiplier and "
            f"one shift for all channels of a branch"
        )
    kinds = [source.type.int_dtype for source in found.sources]
    count = math.prod(kind.high - kind.low + 1 for kind in kinds)
    if len(found.sources) > 2 or count > COMBINATIONS:
        raise LoweringError(
            f"{found.node} adds {len(found.sources)} values that are rescaled, {names}, and {count} combinations of "
            f"codes, too many to evaluate; add two at a time, with a rescaling to 8 bits behind each sum"
        )


def _steps(found: Rescaled) -> tuple[tuple[int, ...], tuple[Node, ...], Steps]:
    """Return factors (empty for one source), the sources that the result depends on, and the steps of all channels."""
    kinds = [source.type.int_dtype for source in found.sources]
    if len(kinds) == 1:
        finder, every = StepFinder(), np.arange(kinds[0].low, kinds[0].high + 1)
        finder.add(every, found.of_channels(every))
        return (), found.sources, finder.steps(kinds[0].high + 1)
    grid = np.meshgrid(*(np.arange(kind.low, kind.high + 1) for kind in kinds), indexing="ij")
    values = [axis.reshape(-1) for axis in grid]
    read, codes = found(*values)
    shape, channels = grid[0].shape, np.zeros(found.node.type.shape[0], np.int64)
    for axis, (source, kind) in enumerate(zip(found.sources, kinds, strict=True)):
        # A row for each code of this source: if no row varies with the other source, the result is a function of this
        # one alone.
        rows = np.moveaxis(codes.reshape(shape), axis, 0).reshape(shape[axis], -1)
        if (rows == rows[:, :1]).all():
            finder = StepFinder()
            finder.add(np.arange(kind.low, kind.high + 1), rows[:, :1])
            return (), (source,), finder.steps(kind.high + 1).channel_rows(channels)
    factors, steps = _joint(found, values, read, codes)
    return factors, found.sources, steps.channel_rows(channels)


def _joint(
    found: Rescaled, values: list[np.ndarray], read: np.ndarray, codes: np.ndarray
) -> tuple[tuple[int, ...], Steps]:
    """Return factors of both sources and the steps of their weighted sum. Raises: LoweringError."""
    slopes = [_slope(read, own, other) for own, other in (values, values[::-1])]
    lead = int(np.abs(slopes[1]) > np.abs(slopes[0]))
    # `Pairs` rises with its first code; a result that falls with it is turned round by the sign of both factors.
    sign = -1 if slopes[lead] < 0 else 1
    line = None
    if slopes[1 - lead]:
        pairs = Pairs.of(sign * values[lead], sign * values[1 - lead], codes)
        line = find_line(pairs, slopes[1 - lead] / slopes[lead], MOST_FACTORS)
    if line is not None:
        own, steps = line
        ordered = own if lead == 0 else own[::-1]
        factors = tuple(sign * factor for factor in ordered)
        total = np.stack(values, axis=1) @ np.array(factors)
        starts = np.concatenate([[total.min()], steps])
        return factors, Steps(starts[np.newaxis], np.arange(codes.min(), codes.max() + 1)[np.newaxis])
    # No line: any factors that keep the order will do.
    stacked, order = np.stack(values, axis=1), np.argsort(read, kind="stable")
    segments = np.zeros((len(codes), 1), np.int64)
    segments[order[1:], 0] = np.cumsum(np.diff(codes[order]) != 0)
    factors_ = find_factors(stacked, segments, np.array(slopes) / slopes[lead])
    if factors_ is None:
        raise LoweringError(
            f"{found.node} adds {' and '.join(map(str, found.sources))}, each rescaled and rounded, and no factors "
            f"make its code a function of their weighted sum; use the same scale for both, or scales of a simple ratio"
        )
    total = stacked @ np.array(factors_)
    places, first = np.unique(total, return_index=True)
    finder = StepFinder()
    finder.add(places, codes[first][:, np.newaxis])
    return factors_, finder.steps(int(places[-1]) + 1)


def _slope(read: np.ndarray, own: np.ndarray, other: np.ndarray) -> float:
    """Return the mean change of the last op's input per step of codes `own`, with codes `other` at their least."""
    line = np.flatnonzero(other == other[0])
    return float(read[line[-1]] - read[line[0]]) / max(int(own[line[-1]] - own[line[0]]), 1)
