"""Gates that are one function, stretched and moved, become one step function of one sum."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.ir import BIT, Graph, IntType
from nnhw.ir.ops import Concat, Linear, Slice, Threshold, WeightedSum
from nnhw.passes import merge_gates
from tests.mapping.networks import I4, Network
from tests.passes.test_optimizations import assert_same, counts

STEPS = 15


def steps_of(kind: str, channels: int, seed: int) -> np.ndarray:
    """Return the steps of a sigmoid, or of a straight line, each channel stretched and moved in a way of its own."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, STEPS + 1) / (STEPS + 1)
    curve = np.log(shares / (1 - shares)) if kind == "sigmoid" else 6 * shares - 3
    lines = rng.uniform(6, 12, (channels, 1)) * curve + rng.uniform(-9, 9, (channels, 1))
    return np.ceil(lines).astype(np.int64)


def gate(net: Network, parts: tuple[str, str], channels: int, low: int, kind: str = "sigmoid", falls: int = 0) -> str:
    """Add a step function of a weighted sum of two values; its last channels fall."""
    total = net.add(WeightedSum((2, 1)), *parts)
    steps = steps_of(kind, channels, low + 50)
    descending = np.arange(channels) >= channels - falls
    thresholds = net.constant(steps, IntType(int(steps.min()), int(steps.max())))
    return net.add(Threshold(low), total, thresholds, net.constant(descending, BIT))


def cell(kind: str = "sigmoid", read_twice: bool = False) -> Graph:
    """Return two gates, of 6 and of 3 channels, of which the first one is read last."""
    net = Network((5,), I4)
    state = net.code(net.linear(net.input, 4), I4)
    whole = net.linear(net.input, 9)
    first = (net.add(Slice(0, 0, 6), whole), net.linear(state, 6))
    second = (net.add(Slice(0, 6, 9), whole), net.linear(state, 3))
    gates = gate(net, first, 6, 0, falls=2), gate(net, second, 3, -8, kind)
    parts = [net.add(Slice(0, start, start + 3), gates[0]) for start in (0, 3)]
    early = net.add(WeightedSum((1, 1)), gates[1], parts[0])
    late = net.add(WeightedSum((1, 1)), early, parts[1])
    return net.body(net.add(Concat(0), late, second[1]) if read_twice else late)


def test_gates_of_one_function_become_one() -> None:
    graph = cell()
    merged = merge_gates(graph)
    assert_same(graph, merged)
    # The codes of the second gate begin at -8: a step function moves them.
    assert counts(merged) == {"linear": 3, "slice": 3, "threshold": 3, "weighted_sum": 3}
    (whole,) = (node for node in merged.nodes if isinstance(node.op, Threshold) and node.type.shape == (9,))
    slices = sorted(node.op.start for node in merged.nodes if isinstance(node.op, Slice))
    # The gate that is read first has the first channels.
    assert slices == [0, 3, 6]
    assert {graph.node(name).op for name in graph.outputs} == {WeightedSum((1, 1))}
    layers = [merged.node(name) for name in merged.node(whole.inputs[0]).inputs]
    assert [(type(layer.op), layer.type.shape) for layer in layers] == [(Linear, (9,)), (Linear, (9,))]


@pytest.mark.parametrize("graph", [cell("line"), cell(read_twice=True)], ids=["another function", "read twice"])
def test_gates_that_are_not_one_stay(graph: Graph) -> None:
    assert merge_gates(graph) is graph
