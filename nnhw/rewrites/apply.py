"""Applying rewrites to a graph, and comparing the results before and after on numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nnhw.errors import ExactnessError, InputError, NnhwError
from nnhw.ir import Graph, IntType, Node, run, verify
from nnhw.ir.interpreter import joined, run_in_chunks
from nnhw.ir.ops import Input
from nnhw.passes.edit import retyped

from .pattern import Match
from .rewrite import Rewrite

MOST_PLACES = 10_000
"""Most places at which one rewrite is applied: one that finds more is taken for endless."""
MOST_CORNERS = 6
"""Number of a match's inputs up to which all combinations of least and greatest values are tried."""
RANDOM_ROWS = 64
"""Random rows on which a match with integer inputs is tried."""
SAMPLE_ROWS = 32
"""Samples whose values at the match's inputs it is tried on."""


@dataclass(frozen=True)
class MatchedPlace:
    """A place where a rewrite was applied.

    Parameters
    ----------
    layer: its operator, module and line, as messages show them.
    differing: rows in which the replaced value changes, of those on which the place was tried by itself.
    rows: number of these rows: values of samples, ends of ranges, and random ones.
    """

    layer: str
    differing: int
    rows: int


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite did to a graph.

    Parameters
    ----------
    name: of the rewrite.
    approximates: whether it may change results.
    places: those where it was applied.
    samples: number of rows on which the whole graph was compared, before and after.
    differing: number of these rows whose result changed.
    greatest: the greatest absolute change of an element of the result.
    """

    name: str
    approximates: bool
    places: tuple[MatchedPlace, ...]
    samples: int
    differing: int
    greatest: float

    def facts(self) -> dict[str, Any]:
        """Return the rewrite's entry of the report, as plain data."""
        return asdict(self) | {"places": [asdict(place) for place in self.places]}


def apply_rewrites(
    graph: Graph, rewrites: Sequence[Rewrite], samples: np.ndarray
) -> tuple[Graph, tuple[Rewritten, ...]]:
    """Apply rewrites one after the other, each at every place of its pattern once, and compare results.

    A rewrite is tried twice: the whole graph on samples and at the ends of its input's range; and each place by itself,
    on the values that reach it, and where those are integers also at the ends of their ranges and on random ones.

    Parameters
    ----------
    graph: of the float level, with one input.
    samples: [N, *shape] of its input.

    Returns
    -------
    The graph behind all of them, and what each did.

    Raises
    ------
    InputError: `rewrites` holds something else; a pattern is nowhere in the graph; a replacement fails.
    ExactnessError: a result changes, and the rewrite does not say that it approximates.
    """
    for rewrite in rewrites:
        if not isinstance(rewrite, Rewrite):
            raise InputError(f"`rewrites` is a list of nnhw.Rewrite, given {rewrite!r} in it")
    done = []
    for rewrite in rewrites:
        after, places = _applied(graph, rewrite, samples)
        # Of each rewrite by itself, so that a change of results names the one that made it.
        rows = np.concatenate([samples, _range_ends(graph, samples)])
        differing, greatest, first = _compared(joined(run_in_chunks(graph, rows)), joined(run_in_chunks(after, rows)))
        if differing and not rewrite.approximates:
            raise ExactnessError(
                f"{rewrite} changes what the model computes, in {differing} of {len(rows)} rows: {first}; {_REMEDY}"
            )
        done.append(Rewritten(rewrite.name, rewrite.approximates, places, len(rows), differing, greatest))
        graph = after
    return graph, tuple(done)


_REMEDY = "mend it, or let it say `approximates=True` if that is meant"


def _applied(graph: Graph, rewrite: Rewrite, samples: np.ndarray) -> tuple[Graph, tuple[MatchedPlace, ...]]:
    """Return the graph with a rewrite applied at all of its places, and the places."""
    made: frozenset[str] = frozenset()
    places: list[MatchedPlace] = []
    while (match := rewrite.matches(graph, made)) is not None:
        if len(places) == MOST_PLACES:
            raise InputError(f"{rewrite} finds more than {MOST_PLACES} places; its condition `where` must end it")
        changed, new = rewrite.replaced(match)
        try:
            # Types behind the place may change with the replacement, such as ranges of sums.
            after = verify(retyped(changed))
        except NnhwError as error:
            raise InputError(f"{rewrite} at {graph.node(match.root.name)} does not fit there: {error}") from error
        places.append(_tried(graph, after, rewrite, match, samples[:SAMPLE_ROWS]))
        # What the rewrite has made is no further place of it, or one that finds its own result would not end.
        made, graph = made | new | {match.root.name}, after
    if not places and not rewrite.optional:
        found = ", ".join(dict.fromkeys(node.op.name for node in graph.nodes if node.inputs))
        raise InputError(
            f"{rewrite} finds its pattern nowhere in model '{graph.name}', which has the operators {found}; look at "
            "the graph with `nnhw ir --stage capture`, or let the rewrite say `optional=True`"
        )
    return graph, tuple(places)


def _tried(before: Graph, after: Graph, rewrite: Rewrite, match: Match, samples: np.ndarray) -> MatchedPlace:
    """Compare a place before and after its replacement, by itself, on values of its inputs.

    Raises: ExactnessError if the value changes, and the rewrite does not say that it approximates.
    """
    root = before.node(match.root.name)
    result = _heir(before, after, match)
    leaves = [before.node(name) for name in _leaves(before, match) if name not in before.constants]
    rows = _rows_for(before, leaves, samples)
    here = run(_cut(before, leaves, root.name), rows)[0]
    there = run(_cut(after, leaves, result), rows)[0]
    differing, _, first = _compared(here, there)
    if differing and not rewrite.approximates:
        raise ExactnessError(
            f"{rewrite} changes what {root} computes, in {differing} of {len(here)} rows of values that may reach it: "
            f"{first}; {_REMEDY}"
        )
    return MatchedPlace(str(root), differing, len(here))


def _heir(before: Graph, after: Graph, match: Match) -> str:
    """Return the name of the value in `after` that stands where the match's result stood in `before`."""
    root = match.root.name
    # A replacement may have another name: what reads it, or that it is an output, tells which value it is.
    for old, new in zip(before.outputs, after.outputs, strict=True):
        if old == root:
            return new
    for node in before.nodes:
        if root in node.inputs and node.name in after:
            return after.node(node.name).inputs[node.inputs.index(root)]
    raise InputError(f"nothing reads {before.node(root)}, so that nothing can take its place")


def _leaves(graph: Graph, match: Match) -> list[str]:
    """Return the names of the values that a match reads from outside, each once."""
    read = (name for inner in sorted(match.covered) for name in graph.node(inner).inputs)
    return [name for name in dict.fromkeys(read) if name not in match.covered]


def _cut(graph: Graph, leaves: Sequence[Node], result: str) -> Graph:
    """Return the part of a graph that computes the value `result` from the values `leaves`, which become its inputs.

    A graph behind a replacement may lack leaves that the replacement does not read.
    """
    inputs = {node.name: Node(node.name, Input(), (), node.type) for node in leaves}
    if result in inputs:  # the value itself comes out
        return Graph(graph.name, tuple(inputs.values()), (result,), {})
    nodes = tuple(inputs.get(node.name, node) for node in graph.nodes if not isinstance(node.op, Input))
    given = tuple(node for name, node in inputs.items() if name in graph and isinstance(graph.node(name).op, Input))
    cut = Graph(graph.name, given + nodes, (result,), graph.constants).pruned()
    # Leaves that the result does not depend on were pruned as well; they stay inputs, as rows are given for all.
    missing = tuple(node for name, node in inputs.items() if name not in cut)
    return Graph(graph.name, missing + cut.nodes, cut.outputs, cut.constants)


def _rows_for(graph: Graph, leaves: Sequence[Node], samples: np.ndarray) -> dict[str, np.ndarray]:
    """Return rows of values for the leaves, by name: those that samples give, and if all leaves are integers, also
    the ends of their ranges in combinations, and random ones.
    """
    seen: dict[str, np.ndarray] = {}
    run(graph, samples, seen.__setitem__)
    rows = {node.name: [seen[node.name]] for node in leaves}
    if all(node.type.is_int for node in leaves):
        # The same rows each time: a rewrite must not be refused in one build and taken in the next.
        generator = np.random.default_rng(1)
        corners = itertools.product((False, True), repeat=min(len(leaves), MOST_CORNERS))
        for corner in corners:
            # With more leaves than MOST_CORNERS, some are at the same end always.
            for node, high in zip(leaves, itertools.cycle(corner), strict=False):
                kind = node.type.int_dtype
                rows[node.name].append(np.full((1, *node.type.shape), kind.high if high else kind.low))
        for node in leaves:
            rows[node.name].append(_random(node.type.int_dtype, (RANDOM_ROWS, *node.type.shape), generator))
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def _random(kind: IntType, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    numbers = generator.integers(kind.low, kind.high, shape, endpoint=True)
    return np.where(numbers < 0, -1, 1) if kind.bipolar else numbers


def _range_ends(graph: Graph, samples: np.ndarray) -> np.ndarray:
    """Return two rows filled with the least and the greatest input: of the input's type, or of the samples."""
    node = graph.inputs[0]
    if isinstance(node.type.dtype, IntType):
        low, high = float(node.type.dtype.low), float(node.type.dtype.high)
    else:
        low, high = float(samples.min(initial=0)), float(samples.max(initial=0))
    return np.stack([np.full(node.type.shape, end, samples.dtype) for end in (low, high)])


def _compared(before: np.ndarray, after: np.ndarray) -> tuple[int, float, str]:
    """Return the number of rows that differ, the greatest absolute difference, and the first one in words."""
    rows = (before != after).reshape(len(before), -1).any(axis=1)
    if not rows.any():
        return 0, 0.0, ""
    place = np.argwhere(before != after)[0]
    index = tuple(place)
    gap = float(np.abs(before.astype(np.float64) - after.astype(np.float64)).max())
    element = f"element {[int(axis) for axis in index[1:]]} of row {int(index[0])}"
    return int(rows.sum()), gap, f"{element} is {before[index]} before and {after[index]} after"
