"""Captured operators compute what PyTorch does in float64, where all scales are powers of two; and keep codes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from nnhw.errors import CaptureError
from nnhw.frontend import capture
from nnhw.frontend.calls import Call
from nnhw.frontend.constant_folding import shaped_constant
from nnhw.frontend.values import TracedConstant
from nnhw.ir import BIPOLAR, Graph, IntType, Location, run
from nnhw.ir.ops import Quantize
from nnhw.nn import Int, QuantConv2d, QuantIdentity, Sign
from nnhw.passes import lower, split
from tests.frontend.examples import BETWEEN_VALUES, CURVES, EXACT, Forward, Net, trimmed
from tests.frontend.models import images, settled


def captured(function: Forward, codes: nn.Module | None = None) -> tuple[Graph, np.ndarray, np.ndarray]:
    """Return the graph, its result and that of PyTorch in float64."""
    x = images(3, (3, 8, 8)) * 8 - 4
    model = trimmed(settled(Net(function, codes)), x)
    graph = capture(model, x)
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(x.double())
    return graph, run(graph, x.numpy())[0], expected.numpy()


def ops(graph: Graph) -> list[str]:
    """Return the names of the ops behind the first quantizer."""
    return [node.op.name for node in graph.nodes if node.op.name not in ("input", "constant")][1:]


@pytest.mark.parametrize("name", EXACT)
def test_capture_equals_pytorch(name: str) -> None:
    function, expected_ops = EXACT[name]
    graph, result, expected = captured(function)
    np.testing.assert_array_equal(result, expected)
    assert result.shape == expected.shape
    if expected_ops:
        assert ops(graph) == expected_ops


@pytest.mark.parametrize("name", BETWEEN_VALUES)
def test_capture_of_operators_between_values_equals_pytorch(name: str) -> None:
    _, result, expected = captured(BETWEEN_VALUES[name])
    np.testing.assert_array_equal(result, expected)
    assert result.shape == expected.shape
    assert len(np.unique(result)) > 5


@pytest.mark.parametrize("name", CURVES)
def test_capture_of_curves_gives_the_codes_of_pytorch(name: str) -> None:
    # The last bit of exp differs from library to library; between two codes it decides nothing.
    _, result, expected = captured(lambda m, x: m.finer(CURVES[name](m, x)))
    np.testing.assert_array_equal(result, expected)
    assert len(np.unique(result)) > 5


def test_capture_keeps_scales_per_channel_through_layout() -> None:
    scales = Int(6, [0.25, 0.125, 0.0625], axis=1)
    for function in (
        lambda m, x: functional.max_pool2d(x, 2),
        lambda m, x: functional.avg_pool2d(x, 2),
        lambda m, x: functional.pad(x, (1, 0)),
        lambda m, x: functional.interpolate(x, scale_factor=2),
        lambda m, x: x.permute(0, 2, 3, 1),
        lambda m, x: x.flatten(1),
        lambda m, x: x.flatten(2),
        lambda m, x: torch.cat([x, x], 1),
        lambda m, x: torch.cat([x, x], 2),
    ):
        graph, result, expected = captured(function, scales)
        np.testing.assert_array_equal(result, expected)
        assert ops(graph)[0] not in ("dequantize", "div")


SHAPED: dict[str, Forward] = {
    "expand_as": lambda m, x: x + m.positions.expand_as(x),
    "expand": lambda m, x: x + m.positions.expand(x.shape[0], 3, -1, -1),
    "expand_number": lambda m, x: x * m.step.expand_as(x),
    "broadcast_to": lambda m, x: x - torch.broadcast_to(m.positions, x.shape),
    "repeat": lambda m, x: x + m.positions.repeat(x.shape[0], 3, 1, 1),
    "tile": lambda m, x: x + m.positions.tile(x.shape[0], 3, 1, 1),
    "quantized": lambda m, x: torch.cat([m.codes(m.positions).expand_as(x), x], 1),
    "in_place": lambda m, x: (x * 2).add_(m.positions.expand_as(x)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_capture_takes_constants_in_the_shape_of_values(name: str) -> None:
    _, result, expected = captured(SHAPED[name])
    np.testing.assert_array_equal(result, expected)


def test_shaped_constant_rejects_what_has_an_axis_of_steps() -> None:
    node = fx.Graph().call_function(torch.ops.aten.expand_as.default)
    bias = TracedConstant(torch.ones(1, 1, 3), "bias")
    call = Call(node, "aten.expand_as.default", {"self": bias}, Location("net", "net.py", 3))
    with pytest.raises(CaptureError) as caught:
        shaped_constant(call, (3,))
    assert str(caught.value) == (
        "expand_as 'net' (net.py:3) cannot expand a constant of shape [1, 1, 3] to [batch, 3]; give the constant the "
        "shape of one image, with a first axis of size 1"
    )


def test_capture_pads_bipolar_codes_with_zero() -> None:
    graph, result, expected = captured(lambda m, x: functional.pad(x, (1, 1, 1, 1)), Sign())
    np.testing.assert_array_equal(result, expected)
    assert [node.type.dtype for node in graph.nodes if node.op.name in ("quantize", "pad")] == [BIPOLAR, IntType(-1, 1)]


def test_capture_of_zero_points_pads_with_the_code_of_zero() -> None:
    graph, result, expected = captured(lambda m, x: functional.pad(x, (1, 1)), Int(6, 2**-3, zero_point=5))
    np.testing.assert_array_equal(result, expected)
    assert ops(graph) == ["pad", "dequantize"]


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("axis", [-1, 0])
def test_capture_takes_every_width_of_weights(bits: int, axis: int) -> None:
    weights = Int(bits, [2.0**-3] * 4 if axis == 0 else 2**-3, axis=axis)
    model = settled(nn.Sequential(QuantIdentity(bits, 2**-2), QuantConv2d(3, 4, 3, weight_quant=weights, groups=1)))
    x = images(2, (3, 6, 6)) * 8 - 4
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(x.double()).numpy()
    graph = capture(model, x)
    np.testing.assert_array_equal(run(graph, x.numpy())[0], expected)
    assert graph.node("1.weight").type.dtype == IntType(-(1 << bits - 1), (1 << bits - 1) - 1)


def test_capture_computes_equal_codes_of_a_value_once() -> None:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        pixels = x.flatten(2)
        return m.other(m.line(m.finer(pixels)) + m.line(Int(8, 2**-5)(pixels)) + m.line(m.quant(pixels)))

    graph, result, expected = captured(forward, nn.Identity())
    np.testing.assert_array_equal(result, expected)
    kinds = [(node.op.low, node.op.high) for node in graph.nodes if isinstance(node.op, Quantize)]
    assert kinds == [(-128, 127), (-8, 7), (-16, 15)]


def test_capture_of_an_input_quantized_twice_alike_lowers() -> None:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        return m.other(m.quant(m.plane(m.finer(x))) + m.sign(m.plane(m.finer(x))))

    model = settled(Net(forward, nn.Identity()))
    graph = capture(model, images(2, (3, 8, 8)))
    parts = split(lower(graph))
    x = images(5, (3, 8, 8), 1).numpy()
    np.testing.assert_array_equal(parts.run(x)[0], run(graph, x)[0])


def test_capture_tells_a_parameter_from_its_quantized_self() -> None:
    _, result, expected = captured(
        lambda m, x: x * m.slopes.weight[:, None, None] + m.quant(m.slopes.weight[:, None, None])
    )
    np.testing.assert_array_equal(result, expected)
    model = settled(Net(lambda m, x: (x + m.weight[:, 0]) * m.quant(m.weight)[:, 0] + m.quant(m.weight).flip(0)[:, 0]))
    x = images(2, (3, 8, 8))
    with torch.no_grad():
        by_torch = copy.deepcopy(model).double()(x.double()).numpy()
    np.testing.assert_array_equal(run(capture(model, x), x.numpy())[0], by_torch)
