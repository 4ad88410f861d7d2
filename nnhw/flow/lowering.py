"""Lowering with its proof: the samples go through the graph before and behind every pass, and must not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nnhw.flow.samples import differing_rows
from nnhw.ir import Graph, Node, graph_hash
from nnhw.ir.interpreter import run_in_chunks
from nnhw.passes import Parts, find_rounding_notes, lower, split


def lower_graph(graph: Graph, samples: Mapping[str, np.ndarray]) -> tuple[Parts, dict[str, Any]]:
    """Lower a captured graph and compare.

    Parameters
    ----------
    samples: `inputs`, and PyTorch's own answers: `torch`, and `torch_float64` where it can compute in float64.

    Returns
    -------
    The parts, and what the report says of them: mismatches are rows that differ.
    """
    inputs = samples["inputs"].astype(np.float64)
    reference = run_in_chunks(graph, inputs)[0]
    passes: dict[str, int] = {}
    before, known = reference, graph

    def compare(name: str, after_pass: Graph) -> None:
        nonlocal before, known
        after = before if after_pass is known else run_in_chunks(after_pass, inputs)[0]
        passes[name] = differing_rows(before, after)
        before, known = after, after_pass

    proofs: dict[str, str] = {}
    parts = split(lower(graph, observe=compare, proofs=proofs))
    passes["split"] = differing_rows(before, run_parts(parts, inputs))
    facts = {
        "hash": graph_hash(parts.body),
        "weight_bits": sum(_weight_bits(parts.body, node) for node in _layers(parts.body)),
        "accumulators": {layer_name(node): _bounds(node) for node in _layers(parts.body)},
        "samples": len(inputs),
        "torch_ir": _differing(samples, "torch", reference),
        "torch_float64_ir": _differing(samples, "torch_float64", reference),
        "torch_float64_gap": _gap(samples, "torch_float64", reference),
        "passes": passes,
        "proofs": proofs,
        "near_ties": [str(note) for note in find_rounding_notes(graph)],
    }
    return parts, facts


def run_parts(parts: Parts, inputs: np.ndarray) -> np.ndarray:
    """Compute head, body and tail on [N, *shape]."""
    codes = run_in_chunks(parts.head, inputs)
    return run_in_chunks(parts.tail, run_in_chunks(parts.body, codes))[0]


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
    """Return the rows in which PyTorch's answer is another number than the reference rounded to PyTorch's dtype."""
    if name not in samples:
        return None
    return differing_rows(samples[name], reference.astype(samples[name].dtype))


def _gap(samples: Mapping[str, np.ndarray], name: str, reference: np.ndarray) -> float | None:
    """Return the greatest difference between PyTorch's answers and the reference, as a share of the greatest answer."""
    if name not in samples or samples[name].shape != reference.shape or not reference.size:
        return None
    largest = float(np.abs(reference).max())
    return float(np.abs(samples[name] - reference).max()) / (largest or 1.0)
