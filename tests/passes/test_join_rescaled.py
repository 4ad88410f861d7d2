"""Additions of rescaled codes, as TFLite has them: equal for every pair of codes before and after lowering."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnhw.errors import LoweringError, ProblemList
from nnhw.ir import Graph, GraphBuilder, IntType, Location, TensorType, run
from nnhw.ir.ops import Concat, Rescale, Threshold, WeightedSum
from nnhw.mapping.layers import StepFunction
from nnhw.mapping.shared.program.lines import fit_lines
from nnhw.passes import lower

INT8, WIDE = IntType(-128, 127), 1 << 30
FRACTION = 20
CHANNELS = 2


class Codes:
    """A graph of int8 codes and rescalings with one multiplier for all channels."""

    def __init__(self, inputs: int = 2) -> None:
        self.graph = GraphBuilder("net")
        self.inputs = [self.graph.input("abc"[k], TensorType((CHANNELS, 1, 1), INT8)) for k in range(inputs)]

    def rescale(self, x: str, scale: float, bias: int, op: Rescale) -> str:
        """Add a rescaling by a real factor."""
        mantissa, exponent = math.frexp(scale)
        rows = [min(round(mantissa * (1 << 31)), (1 << 31) - 1), exponent, bias]
        names = [self.constant(row) for row in rows]
        return self.graph.add("rescale", op, [x, *names], Location("add", "net.py", 9))

    def constant(self, number: int | list[int]) -> str:
        """Add a constant, the same in all channels unless there are several."""
        row = np.broadcast_to(np.array(number, np.int64), CHANNELS).copy()
        return self.graph.constant("c", row, TensorType(row.shape, IntType(-(1 << 31), (1 << 31) - 1)))

    def added(
        self, scales: tuple[float, float, float], zeros: tuple[int, int, int], rounding: str, sign: int = 1
    ) -> Graph:
        """Return TFLite's addition of both inputs: scales and zero points of both, and of the result."""
        most = 2 * max(scales[:2])
        wide = Rescale(0, -WIDE, WIDE - 1, rounding)
        branches = [
            self.rescale(name, scale / most * (1 << FRACTION), -zero, wide)
            for name, scale, zero in zip(self.inputs, scales[:2], zeros[:2], strict=True)
        ]
        total = self.graph.add("sum", WeightedSum((1, sign)), branches)
        last = Rescale(zeros[2], INT8.low, INT8.high, rounding)
        return self.graph.build([self.rescale(total, most / (1 << FRACTION) / scales[2], 0, last)])


def all_pairs(graph: Graph) -> list[np.ndarray]:
    grid = np.meshgrid(*[np.arange(INT8.low, INT8.high + 1)] * len(graph.inputs), indexing="ij")
    return [axis.reshape(-1, 1, 1, 1).repeat(CHANNELS, axis=1) for axis in grid]


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name not in ("constant", "input")]


SCALES = st.floats(0.003, 0.3).map(lambda number: float(np.float32(number)))
ZEROS = st.integers(-128, 127)


@settings(max_examples=6, deadline=None)
@given(
    st.tuples(SCALES, SCALES, st.floats(0.5, 1.8)),
    st.tuples(ZEROS, ZEROS, ZEROS),
    st.sampled_from(["double", "single"]),
)
@example((0.1, 0.1, 1.0), (-128, -128, -128), "double")
@example((0.25, 0.125, 0.5), (3, -7, 0), "double")
@example((0.1, 0.0001, 1.0), (0, 0, 0), "double")
@example((0.1, 0.07, 100.0), (0, 0, 0), "single")
def test_addition_equals_its_graph_for_every_pair(
    scales: tuple[float, float, float], zeros: tuple[int, int, int], rounding: str
) -> None:
    a, b, ratio = scales
    graph = Codes().added((a, b, ratio * max(a, b)), zeros, rounding)
    lowered = lower(graph)
    assert "rescale" not in ops(lowered)
    values = {node.name: codes for node, codes in zip(graph.inputs, all_pairs(graph), strict=True)}
    left = [values[node.name] for node in lowered.inputs]
    assert (run(lowered, left)[0] == run(graph, all_pairs(graph))[0]).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_addition_is_a_line_that_a_shared_engine_runs(sign: int) -> None:
    graph = Codes().added((0.0235, 0.0471, 0.0519), (5, -12, -3), "double", sign)
    lowered = lower(graph)
    assert ops(lowered) == ["weighted_sum", "threshold"]
    assert (run(lowered, all_pairs(graph))[0] == run(graph, all_pairs(graph))[0]).all()
    (node,) = [one for one in lowered.nodes if isinstance(one.op, Threshold)]
    steps = lowered.constants[node.inputs[1]]
    assert steps.shape == (CHANNELS, 255)
    function = StepFunction(steps, np.arange(-128, 128)[np.newaxis].repeat(CHANNELS, axis=0), INT8)
    (line, *_) = fit_lines(function, lowered.node(node.inputs[0]).type.int_dtype)
    assert line.factor_bits <= 26


def test_proof_is_that_every_pair_was_evaluated() -> None:
    graph, proofs = Codes().added((0.02, 0.03, 0.04), (1, 2, 3), "double"), dict[str, str]()
    lower(graph, proofs=proofs)
    assert list(proofs.values()) == ["every combination evaluated"]


def test_rescaling_of_wide_integers_is_a_function_of_one_code() -> None:
    net = Codes(1)
    wide = net.rescale(net.inputs[0], 0.37 * (1 << FRACTION), 11, Rescale(0, -WIDE, WIDE - 1, "double"))
    graph = net.graph.build([net.rescale(wide, 2.3 / (1 << FRACTION), 0, Rescale(4, -128, 127, "double"))])
    lowered = lower(graph)
    assert ops(lowered) == ["threshold"]
    assert (run(lowered, all_pairs(graph))[0] == run(graph, all_pairs(graph))[0]).all()


def test_concatenation_of_rescaled_codes_stays_as_it_is() -> None:
    net = Codes()
    names = [net.rescale(name, 0.7, 3, Rescale(-1, -128, 127, "double")) for name in net.inputs]
    graph = lower(net.graph.build([net.graph.add("joined", Concat(0), names)]))
    assert ops(graph) == ["rescale", "rescale", "concat"]


def test_rescalings_that_differ_between_channels_are_refused_in_a_sum() -> None:
    net = Codes()
    wide = Rescale(0, -WIDE, WIDE - 1, "double")
    names = [net.constant(row) for row in ([1 << 30, 3 << 29], 19, 0)]
    one = net.graph.add("one", wide, [net.inputs[0], *names])
    total = net.graph.add("sum", WeightedSum((1, 1)), [one, net.rescale(net.inputs[1], 1e5, 0, wide)])
    graph = net.graph.build([net.rescale(total, 1e-5, 0, Rescale(0, -128, 127, "double"))])
    with pytest.raises((LoweringError, ProblemList), match=r"differ from channel to channel; use one multiplier"):
        lower(graph)


def test_one_source_may_have_another_rescaling_in_each_channel() -> None:
    net = Codes(1)
    wide = net.rescale("a", 0.7 * (1 << FRACTION), 0, Rescale(0, -WIDE, WIDE - 1, "double"))
    rows = [[1 << 30, 1_700_000_000], [-18, -19], [3 << FRACTION, -(5 << FRACTION)]]
    last = net.graph.add("last", Rescale(1, -128, 127, "double"), [wide, *map(net.constant, rows)])
    graph = net.graph.build([last])
    lowered = lower(graph)
    assert ops(lowered) == ["threshold"]
    images = all_pairs(graph)
    results = run(graph, *images)[0]
    assert (results[:, 0] != results[:, 1]).any()
    assert np.array_equal(run(lowered, *images)[0], results)
