"""Factors of branches with decimal scales: right for all combinations, and the least that there are."""

from __future__ import annotations

import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import nnhw
from nnhw.frontend import capture
from nnhw.ir import Graph, IntType, run
from nnhw.ir.ops import Add, Quantize, WeightedSum
from nnhw.mapping.mapper import map_body
from nnhw.nn import Int, QuantConv2d, UInt
from nnhw.nn.quantizers import Quantizer
from nnhw.passes import lower, split
from nnhw.passes.factors import find_factors, greatest_factor
from tests.mapping.test_mapper import LARGE, check_equal
from tests.passes.test_joins import INT4, INT8, UINT8, Branches, all_combinations, factors_of
from tests.passes.test_wide_joins import assert_same_code, single

PAIRS = torch.tensor(list(itertools.product(range(-128, 128), repeat=2)), dtype=torch.float32).reshape(-1, 2, 1, 1)


class Residual(nn.Module):
    """Adds two branches whose codes are the two channels of the input, moved to where the branch's codes begin."""

    def __init__(self, *branches: Quantizer, out: Quantizer) -> None:
        super().__init__()
        self.quant, self.out = Int(8, 1.0), out
        self.branches = nn.ModuleList(branches)
        self.picks = nn.ModuleList(_pick(channel, branch) for channel, branch in enumerate(branches))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.quant(x)
        values = [branch(pick(x)) for pick, branch in zip(self.picks, self.branches, strict=True)]
        return self.out(torch.relu(values[0] + values[1]))  # type: ignore[no-any-return]


def _pick(channel: int, branch: Quantizer) -> nn.Module:
    scale = float(branch.scale)
    layer = QuantConv2d(2, 1, 1, weight_quant=Int(4, scale), bias=True)
    layer.weight.data = torch.tensor([1.0 - channel, float(channel)]).reshape(1, 2, 1, 1) * scale
    layer.bias.data = torch.tensor([(branch.qmin - float(branch.zero_point) + 128) * scale])
    return layer.eval()


def lowered_of(model: nn.Module) -> Graph:
    """Lower a model, and compare it with PyTorch and the reference for every pair of codes."""
    graph = capture(model, PAIRS[:2])
    lowered = lower(graph)
    (node,) = [node for node in lowered.nodes if isinstance(node.op, WeightedSum)]
    sums = [lowered.node(name) for name in node.inputs]
    seen: dict[str, np.ndarray] = {}
    result = run(lowered, PAIRS.numpy(), observe=seen.__setitem__)[0]
    pairs = np.stack([seen[node.name].reshape(-1) for node in sums])
    assert len(np.unique(pairs, axis=1).T) == 2**16
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(PAIRS.double()).numpy()
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(result, nnhw.reference(model)(PAIRS).numpy())
    return lowered


@pytest.mark.parametrize(
    ("left", "right", "out"),
    [
        (Int(8, 0.033), Int(8, 0.01), Int(8, 0.078)),
        (Int(8, 0.063), Int(8, 0.099), UInt(8, 0.2)),
        (Int(8, 0.05), UInt(8, 2**-8), Int(8, 0.0625)),
        (UInt(8, 0.021, zero_point=77), Int(8, 0.031), Int(8, 0.05)),
    ],
    ids=["decimal", "coarse", "power_of_two", "zero_point"],
)
def test_branches_of_decimal_scales_equal_pytorch_for_every_pair(
    left: Quantizer, right: Quantizer, out: Quantizer
) -> None:
    lowered = lowered_of(Residual(left, right, out=out))
    assert max(map(abs, factors_of(lowered))) <= 510
    body = split(lowered).body
    check_equal(body, map_body(body, "test", LARGE))


@pytest.mark.parametrize("seed", range(8))
def test_random_decimal_scales_are_never_refused(seed: int) -> None:
    """Of such scales, one in six was refused when only the best approximations of their ratio were tried."""
    rng = np.random.default_rng(seed)
    a, b, out = (int(k) / 1000 for k in rng.integers(5, 100, 3))
    assert max(map(abs, factors_of(lowered_of(Residual(Int(8, a), UInt(8, b), out=Int(8, out)))))) <= 510


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_thousandths_are_added_exactly(data: st.DataObject) -> None:
    scales = st.integers(1, 999).map(lambda k: single(k / 1000))
    kinds = data.draw(st.sampled_from([(INT8, UINT8), (INT4, INT8), (INT4, INT4, INT4)]))
    net = Branches(*((kind, data.draw(scales)) for kind in kinds), shape=(1,))
    value = net.values[0]
    for other in net.values[1:]:
        value = net.then(Add(), value, other)
    graph = net.build(value, Quantize(-128, 127), data.draw(scales))
    values = all_combinations(graph)
    np.testing.assert_array_equal(run(lower(graph), values)[0], run(graph, values)[0])


def test_three_branches_of_decimal_scales_and_few_codes() -> None:
    net = Branches((INT4, single(0.21)), (INT4, single(0.113)), (INT4, single(0.077)))
    a, b, c = net.values
    graph = net.build(net.then(Add(), net.then(Add(), a, b), c), Quantize(-8, 7), single(0.35))
    values = all_combinations(graph)
    np.testing.assert_array_equal(run(lower(graph), values)[0], run(graph, values)[0])


@pytest.mark.parametrize("scale", [0.00002, 0.000001])
def test_a_sum_of_a_large_layer_and_a_code_of_unlike_scales(scale: float) -> None:
    net = Branches((IntType(-(2**27), 2**27), single(scale)), (INT8, single(0.731)), shape=(1,))
    graph = net.build(net.then(Add(), *net.values), Quantize(-128, 127), single(1.931))
    lowered = lower(graph)
    (total,) = [node for node in lowered.nodes if isinstance(node.op, WeightedSum)]
    assert total.type.int_dtype.bits > 32
    assert_same_code(graph, lowered)


def fits(values: np.ndarray, segments: np.ndarray, factors: tuple[int, ...]) -> bool:
    """Return whether all pairs of combinations are in order, by looking at each."""
    total = values @ np.array(factors)
    later = segments[:, np.newaxis] > segments
    return bool((total[:, np.newaxis] > total)[later].all())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_factors_of_two_sources_are_the_least_and_are_found_if_there_are_any(data: st.DataObject) -> None:
    spans = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    values = np.array(list(itertools.product(*(range(span + 1) for span in spans))))
    weights = [data.draw(st.integers(1, 9)) + Fraction(data.draw(st.integers(-1, 1)), 1000) for _ in spans]
    sums = np.array([sum(k * int(x) for k, x in zip(weights, row, strict=True)) for row in values])
    cuts = sorted(data.draw(st.lists(st.sampled_from(sums.tolist()), max_size=6)))
    segments = np.searchsorted(np.array(cuts, dtype=object), sums, side="right")
    if data.draw(st.booleans()):  # what no weighted sum does
        segments[data.draw(st.integers(0, len(segments) - 1))] += 1
    ratios = np.array([float(weight / max(weights)) for weight in weights])
    found = find_factors(values, segments[:, np.newaxis], ratios)
    lead = int(ratios.argmax())
    served = [k for k in itertools.product(range(1, 13), repeat=2) if fits(values, segments, k)]
    near = [k for k in served if abs(k[1 - lead] - k[lead] * ratios[1 - lead]) <= 1]
    assert found is None or fits(values, segments, found)
    assert (found is not None) or not near
    if found is not None and near:
        assert found[lead] == min(k[lead] for k in near)


def test_greatest_factor_is_that_of_the_last_mediant_or_of_the_effort() -> None:
    assert greatest_factor([255, 255]) == 510
    assert greatest_factor([255, 1]) == 510
    assert greatest_factor([15, 15, 15]) == 1350
    assert greatest_factor([0, 0]) == 2
    assert greatest_factor([255, 255, 255]) == 390150
    assert greatest_factor([255] * 4) == 155344


def test_factors_reject_an_order_that_no_sum_has() -> None:
    values = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    segments = np.array([[0, 1, 1, 0]]).T
    assert find_factors(values, segments, np.array([1.0, 1.0])) is None
