"""Lowering, checked: samples go through the graph before and behind every pass, and their results must be equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from nnhw.errors import ExactnessError, IrError, LoweringError
from nnhw.flow.models.samples import differing_rows
from nnhw.ir import Graph, Node, TensorType, graph_hash, run
from nnhw.ir.graph import levels
from nnhw.ir.interpreter import joined, run_in_chunks
from nnhw.passes import OPTIMIZATIONS, Parts, Size, find_rounding_notes, lower, savings, split

_STEPS = 256
"""Number of random steps, each with random states, on which the body of a loop is compared."""


def lower_graph(
    graph: Graph, samples: Mapping[str, np.ndarray], *, rounds: bool = True
) -> tuple[Parts, dict[str, Any]]:
    """Lower a captured graph and compare: a pass that changes the result of any sample is an error.

    Parameters
    ----------
    samples: arrays by name: `inputs` [N, *shape], and PyTorch's results: `torch`, in the model's own precision, and
        `torch_float64` where it can compute in float64.
    rounds: the model computes in float32, so that its codes may differ from the graph's at ties of rounding.

    Returns
    -------
    Head, body and tail, and the facts of the stage `lower` for the report.

    Raises
    ------
    LoweringError: the graph has no integer form, or a result is NaN or infinite.
    ExactnessError: a pass changes a result.
    """
    inputs = samples["inputs"].astype(np.float64)
    reference = before = joined(run_in_chunks(graph, inputs))
    check_finite(graph, inputs, reference)
    known = graph
    passes: dict[str, int] = {}
    sizes: dict[str, tuple[Size, Size]] = {}

    def compare(name: str, after_pass: Graph) -> None:
        nonlocal before, known
        # A pass that finds nothing to do returns the graph that it was given: nothing to run again.
        after = before if after_pass is known else joined(run_in_chunks(after_pass, inputs))
        check_equal(name, before, after, lambda rows: _first_difference([known], [after_pass], inputs[rows]))
        check_bodies(name, known, after_pass)
        if name in OPTIMIZATIONS and after_pass is not known:
            sizes[name] = Size.of(known), Size.of(after_pass)
        before, known = after, after_pass
        passes[name] = 0

    proofs: dict[str, str] = {}
    parts = split(lower(graph, observe=compare, proofs=proofs))
    halves = [parts.head, parts.body, parts.tail]
    after = run_parts(parts, inputs)
    check_equal("split", before, after, lambda rows: _first_difference([known], halves, inputs[rows]))
    passes["split"] = 0
    facts = {
        "hash": graph_hash(parts.body),
        "weight_bits": sum(_weight_bits(part, node) for _, part in levels(parts.body) for node in _layers(part)),
        "accumulators": {layer_name(node): _bounds(node) for _, part in levels(parts.body) for node in _layers(part)},
        "samples": len(inputs),
        "torch_ir": _differing(samples, "torch", reference),
        "torch_gap": _gap(samples, "torch", reference),
        "torch_argmax": _same_argmax(samples, "torch", reference),
        "torch_float64_ir": _differing(samples, "torch_float64", reference),
        "torch_float64_gap": _gap(samples, "torch_float64", reference),
        "torch_float64_argmax": _same_argmax(samples, "torch_float64", reference),
        "passes": passes,
        "savings": savings(sizes),
        "proofs": proofs,
        "near_ties": [str(note) for note in find_rounding_notes(graph) if rounds or note.functions],
    }
    return parts, facts


def check_finite(graph: Graph, inputs: np.ndarray, result: np.ndarray) -> None:
    """Raise LoweringError, with the layer that it comes from, if a result is NaN or infinite."""
    bad = np.flatnonzero(~np.isfinite(result).reshape(len(result), -1).all(axis=1))
    if not len(bad):
        return
    values = _values([graph], inputs[bad[:1]])
    node = next(node for node in graph.nodes if not np.isfinite(values.get(node.name, 0)).all())
    raise LoweringError(
        f"{node} gives NaN or infinity for {len(bad)} of the {len(result)} images that the graphs are compared on; "
        f"check its parameters for NaN, infinity and zeros that it divides by, and what it does with negative numbers"
    )


def check_equal(
    name: str, before: np.ndarray, after: np.ndarray, first_layer: Callable[[np.ndarray], Node | None]
) -> None:
    """Compare the results of a graph before and after a pass.

    Parameters
    ----------
    first_layer: finds the first layer whose codes differ in a few rows, given their numbers.

    Raises
    ------
    ExactnessError: they differ.
    """
    count = differing_rows(before, after)
    if not count:
        return
    same_shape = before.shape == after.shape
    rows = np.flatnonzero((before != after).reshape(len(before), -1).any(axis=1))[:1] if same_shape else np.arange(1)
    layer = first_layer(rows)
    raise ExactnessError(
        f"the pass '{name}' changes what the model computes, in {count} of {len(before)} images"
        + (f"; {layer} is the first layer whose codes differ" if layer else "")
        + "; this is a mistake of nnhw, please report the model"
    )


def check_bodies(name: str, before: Graph, after: Graph) -> None:
    """Compare the bodies of loops before and after a pass, on random steps and states within their types.

    The samples of a whole model reach only few of the states that its loops can have.

    Raises
    ------
    ExactnessError: a body computes something else.
    """
    known = {loop.name: scan.body for loop, scan in before.loops}
    for loop, scan in after.loops:
        body = known.get(loop.name, scan.body)
        if body is scan.body:
            continue
        inputs = [_any_codes(node.type, number) for number, node in enumerate(body.inputs)]
        if any((left != right).any() for left, right in zip(run(body, inputs), run(scan.body, inputs), strict=True)):
            raise ExactnessError(
                f"the pass '{name}' changes what the body of {loop} computes; this is a mistake of nnhw, please report "
                f"the model"
            )


def _any_codes(type: TensorType, seed: int) -> np.ndarray:
    """Return random values of a type, int [_STEPS, *shape]; a quarter of them are its lowest or highest value."""
    rng, kind = np.random.default_rng(seed), type.int_dtype
    values = rng.integers(kind.low, kind.high, (_STEPS, *type.shape), endpoint=True)
    ends = rng.integers(0, 8, values.shape)
    values = np.where(ends == 0, kind.low, np.where(ends == 1, kind.high, values))
    return np.where(values < 0, -1, 1) if kind.bipolar else values


def _first_difference(known: Sequence[Graph], made: Sequence[Graph], inputs: np.ndarray) -> Node | None:
    """Return the first layer whose integers differ, in any order, as a pass may have permuted them.

    Parameters
    ----------
    known, made: graphs before and after the pass; of several, each reads the result of the one before.
    """
    before, after = _values(known, inputs), _values(made, inputs)
    for node in (node for graph in made for node in graph.nodes):
        if node.name not in before or node.name not in after or not node.type.is_int:
            continue
        if before[node.name].size != after[node.name].size:  # a pass has left out channels that nobody reads
            continue
        if not np.array_equal(np.sort(before[node.name], axis=None), np.sort(after[node.name], axis=None)):
            return node
    return None


def _values(graphs: Sequence[Graph], inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of all nodes but constants, by name; each of the graphs reads the result of the one before.

    Parameters
    ----------
    inputs: [N, *shape] of the first graph.

    Returns
    -------
    Values up to the first node that cannot be computed.
    """
    found: dict[str, np.ndarray] = {}
    with suppress(IrError):
        for graph in graphs:
            inputs = run(graph, inputs, found.__setitem__)[0]  # only the last one has several
    return found


def run_parts(parts: Parts, inputs: np.ndarray) -> np.ndarray:
    """Compute head, body and tail, one after the other, on inputs [N, *shape]."""
    codes = run_in_chunks(parts.head, inputs)
    return joined(run_in_chunks(parts.tail, run_in_chunks(parts.body, codes)))


def layer_name(node: Node) -> str:
    """Return the name by which people know a layer."""
    return node.location.module or node.name


def _layers(body: Graph) -> list[Node]:
    return [node for node in body.nodes if node.op.name in ("linear", "conv2d")]


def _weight_bits(body: Graph, node: Node) -> int:
    weights = body.node(node.inputs[1])
    return weights.type.size * weights.type.int_dtype.bits


def _bounds(node: Node) -> dict[str, int]:
    sums = node.type.int_dtype
    return {"low": sums.low, "high": sums.high, "bits": sums.bits}


def _differing(samples: Mapping[str, np.ndarray], name: str, reference: np.ndarray) -> int | None:
    """Return the number of rows in which PyTorch's result differs from the reference, rounded to PyTorch's dtype."""
    if name not in samples:
        return None
    return differing_rows(samples[name], reference.astype(samples[name].dtype))


def _gap(samples: Mapping[str, np.ndarray], name: str, reference: np.ndarray) -> float | None:
    """Return the greatest difference of PyTorch's results from the reference, divided by the largest magnitude."""
    if name not in samples or samples[name].shape != reference.shape or not reference.size:
        return None
    largest = float(np.abs(reference).max())
    return float(np.abs(samples[name] - reference).max()) / (largest or 1.0)


def _same_argmax(samples: Mapping[str, np.ndarray], name: str, reference: np.ndarray) -> int | None:
    """Return on how many samples the greatest of several results is the same one in PyTorch; None for other results."""
    if name not in samples or samples[name].shape != reference.shape or reference.ndim != 2 or reference.shape[1] < 2:
        return None
    return int((samples[name].argmax(axis=1) == reference.argmax(axis=1)).sum())
