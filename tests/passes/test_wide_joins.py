"""An accumulator and a code of unlike scales that are added before a quantizer."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nnhw.frontend import capture
from nnhw.ir import BIPOLAR, Graph, IntType, run, verify
from nnhw.ir.ops import Add, BatchNorm, Dequantize, Multiply, Quantize, Relu, Silu, Sqrt, Subtract, WeightedSum
from nnhw.mapping.mapper import map_body
from nnhw.nn import Bipolar, Int, QuantConv2d, QuantLinear, UInt
from nnhw.passes import joins, lower, split
from nnhw.passes.regions import find_region, quantizers
from nnhw.passes.wide_joins import find_wide_steps, fixed_at, simplest_between
from tests.frontend.models import images, settled
from tests.ir.graphs import floats
from tests.mapping.test_mapper import LARGE, check_equal
from tests.passes.models import SIGN
from tests.passes.test_joins import INT4, INT8, UINT8, Branches, all_combinations, factors_of, message_of, short

WIDE = IntType(-60000, 60000)
SMALL = IntType(-300, 200)


def single(scale: float) -> float:
    """Return any scale that float32 has."""
    return float(np.float32(scale))


def assert_same_code(graph: Graph, lowered: Graph) -> None:
    """Compare on both sides of every step for every code, at both ends, and at random."""
    verify(lowered)
    kinds = [node.type.int_dtype for node in graph.inputs]
    lead = max(range(2), key=lambda k: kinds[k].high - kinds[k].low)
    factors, shape = factors_of(lowered), graph.inputs[0].type.shape
    rows = np.unique(lowered.constants["quantize.thresholds"])
    codes = np.arange(kinds[1 - lead].low, kinds[1 - lead].high + 1)
    places = (rows[:, None] - factors[1 - lead] * codes) // factors[lead]
    sums = np.concatenate([places + k for k in (-1, 0, 1, 2)]).clip(kinds[lead].low, kinds[lead].high)
    pairs = [sums.reshape(-1), np.broadcast_to(codes, sums.shape).reshape(-1)]
    rng = np.random.default_rng(0)
    random = [rng.integers(kind.low, kind.high + 1, 20_000) for kind in (kinds[lead], kinds[1 - lead])]
    values = [np.concatenate(parts) for parts in zip(pairs, random, strict=True)]
    ordered = values if lead == 0 else values[::-1]
    images = [np.broadcast_to(value.reshape(-1, *[1] * len(shape)), (len(value), *shape)) for value in ordered]
    np.testing.assert_array_equal(run(lowered, images)[0], run(graph, images)[0])


@pytest.mark.parametrize("code", [INT4, UINT8, INT8], ids=str)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("a", "b"), [(single(0.00137), single(0.0317)), (short(0.0021), short(0.39))])
def test_sums_of_an_accumulator_and_a_code_are_exact(code: IntType, first: bool, a: float, b: float) -> None:
    net = Branches((WIDE, a), (code, b)) if first else Branches((code, b), (WIDE, a))
    value = net.then(Relu(), net.then(Subtract(), *net.values))
    graph = net.build(net.then(Add(), value, net.constant([0.25, -0.7])), Quantize(0, 15), single(1.3))
    lowered = lower(graph)
    assert [node.op.name for node in lowered.nodes][-1] == "threshold"
    assert max(map(abs, factors_of(lowered))) < 2**16
    assert_same_code(graph, lowered)


def test_falling_and_constant_channels_and_signs() -> None:
    for op, scale in ((SIGN, 1.0), (Quantize(-8, 7), single(3.7))):
        net = Branches((WIDE, single(0.00137)), (INT4, single(0.31)), shape=(4, 1, 1))
        total = net.then(Add(), *net.values)
        names = [floats(net.graph, "c", row) for row in ([1, -1, 0, 0.001], [0.5, 0, 1, 90], [0] * 4, [1] * 4)]
        graph = net.build(net.then(BatchNorm(1e-5), total, *names), op, scale)
        assert_same_code(graph, lower(graph))


def test_factors_are_the_least_that_there_are() -> None:
    net = Branches((SMALL, single(0.013)), (INT4, single(0.0437)))
    graph = net.build(net.then(Add(), *net.values), Quantize(-8, 7), single(0.31))
    region = find_region(graph, quantizers(graph)[0])
    assert region is not None
    found = find_wide_steps(region)
    assert found is not None
    values = [array[:, 0] for array in all_combinations(graph)]
    codes = run(graph, all_combinations(graph))[0][:, 0]

    def fits(*factors: int) -> bool:
        total = np.sum([factor * array for factor, array in zip(factors, values, strict=True)], axis=0)
        order = np.lexsort((codes, total))
        return bool(
            (np.diff(codes[order]) >= 0).all() and not (np.diff(codes[order]) > 0)[np.diff(total[order]) == 0].any()
        )

    assert found[0][0] > 1
    assert fits(*found[0])
    assert not any(fits(least, other) for least in range(1, found[0][0]) for other in range(1, 5 * least))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_wide_steps_decide_as_all_pairs_do(data: st.DataObject) -> None:
    scales = st.builds(lambda mantissa, shift: mantissa / 2**shift, st.integers(2048, 4095), st.integers(12, 19))
    net = Branches((SMALL, data.draw(scales)), (data.draw(st.sampled_from([INT4, BIPOLAR])), data.draw(scales)))
    value = net.then(data.draw(st.sampled_from([Add(), Subtract()])), *net.values)
    pairs = st.lists(st.floats(-2, 2, width=16), min_size=2, max_size=2)
    value = net.then(Multiply(), value, net.constant(data.draw(pairs)))
    value = net.then(Add(), value, net.constant(data.draw(pairs)))
    graph = net.build(value, Quantize(-8, 7), data.draw(scales))
    region = find_region(graph, quantizers(graph)[0])
    assert region is not None
    found = find_wide_steps(region)
    assert found is not None
    factors, steps = found
    values = all_combinations(graph)
    values = [array[values[1][:, 0] != 0] for array in values]  # bipolar codes have no 0
    total = sum(factor * array for factor, array in zip(factors, values, strict=True))
    np.testing.assert_array_equal(steps(np.ascontiguousarray(total)), run(graph, values)[0])


def test_a_region_with_a_fixed_code_is_one_of_channels() -> None:
    net = Branches((INT4, 0.5), (UINT8, [0.25, 0.125]))
    right = net.then(Relu(), net.then(Add(), net.values[1], net.constant([-3.0, 2.0])))
    graph = net.build(net.then(Add(), net.values[0], right), Quantize(-8, 7), 0.5)
    region = find_region(graph, quantizers(graph)[0])
    assert region is not None
    fixed = fixed_at(region, 0, np.array([0, 7, 200]))
    assert fixed.source.type.shape == (6,)
    sums = np.arange(-8, 8)
    first = region.classes[0]
    wanted = [run(graph, [np.stack([sums] * 2, 1), np.full((16, 2), code)])[0][:, first] for code in (0, 7, 200)]
    np.testing.assert_array_equal(run(fixed.graph, np.stack([sums] * 6, 1))[0], np.concatenate(wanted, axis=1))


@pytest.mark.parametrize(
    ("low", "high", "simplest"),
    [
        ((1, 3), (1, 2), (2, 5)),
        ((0, 1), (1, 7), (1, 8)),
        ((-5, 2), (9, 4), (1, 1)),
        ((-7, 2), (-1, 3), (-1, 1)),
        ((3, 1), (10, 3), (13, 4)),
        ((314, 100), (315, 100), (22, 7)),
        ((-1, 9), (0, 1), (-1, 10)),
    ],
)
def test_simplest_between(low: Sequence[int], high: Sequence[int], simplest: Sequence[int]) -> None:
    assert simplest_between(Fraction(*low), Fraction(*high)) == Fraction(*simplest)


def wide_message(net: Branches, value: str, scale: float = 1.0) -> str:
    return message_of(net.build(value, Quantize(0, 15), scale))


def test_wide_joins_reject_scales_whose_rounding_decides() -> None:
    net = Branches((IntType(-(2**20), 2**20), 0.002), (INT8, 0.05))
    assert wide_message(net, net.then(Multiply(), net.then(Add(), *net.values), net.constant(1 / 3)), 0.04) == (
        "quantize 'add' (net.py:9) joins input 'a' in int -1048576..1048576 and input 'b' in int -128..127, and no two "
        "integers make its code a function of their weighted sum, the same in all channels, within 40 bits; put a "
        "quantizer on the branch of input 'a', or use scales that are powers of two, the same for all channels"
    )


def test_wide_joins_reject_scales_that_differ_from_channel_to_channel_and_products() -> None:
    net = Branches((WIDE, [single(0.001), single(0.0013)]), (INT8, single(0.3)))
    assert "the same in all channels, within 40 bits" in wide_message(net, net.then(Add(), *net.values))
    net = Branches((WIDE, single(0.001)), (INT8, single(0.3)))
    value = net.then(Add(), net.then(Relu(), net.values[0]), net.values[1])
    assert "integers make its code a function" in wide_message(net, value)


def test_wide_joins_reject_turns() -> None:
    net = Branches((WIDE, single(0.001)), (INT8, single(0.3)))
    assert message_of(net.build(net.then(Silu(), net.then(Add(), *net.values)), Quantize(-8, 7), 0.05)) == (
        "quantize 'add' (net.py:9) joins input 'a' in int -60000..60000 and input 'b' in int -128..127, and the ops "
        "in front of it are not known to rise or fall with input 'a' for every code; put a quantizer on the branch of "
        "input 'a'"
    )


def test_wide_joins_name_channels_of_nan() -> None:
    net = Branches((WIDE, single(0.001)), (INT8, single(0.3)))
    value = net.then(Sqrt(), net.then(Multiply(), net.then(Add(), *net.values), net.constant([0.0, 1.0])))
    assert "gives NaN or infinity for sums of input 'a' in int -60000..60000 and" in wide_message(net, value)
    assert "in channels 1;" in wide_message(net, value)


def test_a_residual_of_sums_runs_on_an_accelerator() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.out = UInt(8, 0.0173), UInt(4, 0.31)
            self.conv = QuantConv2d(3, 3, 3, padding=1, weight_quant=Int(8, 0.0371), bias=True)
            self.fc = QuantLinear(75, 4, weight_quant=Bipolar(0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.quant(x)
            return self.fc(self.out(self.conv(x) + x).flatten(1))  # type: ignore[no-any-return]

    graph = capture(settled(Residual()), images(2, (3, 5, 5)))
    parts = split(lower(graph))
    (joined,) = [node for node in parts.body.nodes if isinstance(node.op, WeightedSum)]
    assert len({parts.body.node(name).op.name for name in joined.inputs}) == 2
    x = images(50, (3, 5, 5), seed=1).numpy()
    np.testing.assert_array_equal(parts.run(x)[0], run(graph, x)[0])
    check_equal(parts.body, map_body(parts.body, "test", LARGE))


def test_the_enumeration_is_left_where_there_are_too_many_pairs() -> None:
    assert (WIDE.high - WIDE.low) * 256 > joins.COMBINATIONS
    net = Branches((WIDE, single(0.001)), (INT8, single(0.3)))
    region = find_region(graph := net.build(net.then(Add(), *net.values), Quantize(0, 15), 1.0), quantizers(graph)[0])
    assert region is not None
    assert isinstance(region.nodes[0].op, Dequantize)
    assert find_wide_steps(region) is not None
