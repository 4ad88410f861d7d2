"""Lowering is compared around every pass: what changes a result stops it."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nnhw
from nnhw.errors import CaptureError, ExactnessError, LoweringError
from nnhw.flow.models import lowering
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture
from nnhw.ir import Graph
from nnhw.nn import Int, QuantConv2d, QuantLinear, QuantReLU, UInt
from nnhw.passes import Parts
from nnhw.passes.order import PIPELINE

IMAGES = torch.linspace(-2, 2, 6 * 25).reshape(6, 1, 5, 5)


def model() -> nn.Module:
    torch.manual_seed(0)
    layers = [Int(4, 0.25), QuantConv2d(1, 3, 3, padding=1, weight_quant=Int(4, 0.125)), nn.BatchNorm2d(3)]
    layers += [QuantReLU(3), nn.MaxPool2d(2), nn.Flatten(), QuantLinear(12, 4, weight_quant=Int(4, 0.125))]
    return nn.Sequential(*layers).eval()


def spoiled(graph: Graph) -> Graph:
    """Return a graph with one constant that is another one: the weights of its first layer."""
    node = next(node for node in graph.nodes if node.op.name == "conv2d")
    constants = dict(graph.constants) | {node.inputs[1]: np.flip(graph.constants[node.inputs[1]], axis=2)}
    return Graph(graph.name, graph.nodes, graph.outputs, constants)


@functools.cache
def captured() -> Graph:
    """Return the graph of the model, traced once."""
    return capture(model(), IMAGES)


@pytest.mark.parametrize("name", list(PIPELINE))
def test_lowering_stops_behind_a_pass_that_changes_a_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, apply = captured(), PIPELINE[name]
    monkeypatch.setitem(PIPELINE, name, lambda graph: spoiled(apply(graph)))
    with pytest.raises(ExactnessError) as caught:
        lower_graph(graph, {"inputs": IMAGES.numpy()})
    message = str(caught.value)
    assert message.startswith(f"the pass '{name}' changes what the model computes, in 6 of 6 images; conv2d '1' ")
    assert message.endswith("is the first layer whose codes differ; this is a mistake of nnhw, please report the model")


def test_lowering_stops_behind_parts_that_are_not_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    split = lowering.split

    def wrong(graph: Graph) -> Parts:
        parts = split(graph)
        return Parts(parts.head, spoiled(parts.body), parts.tail)

    monkeypatch.setattr(lowering, "split", wrong)
    with pytest.raises(ExactnessError, match=r"^the pass 'split' changes .*; conv2d '1' is the first layer"):
        lower_graph(captured(), {"inputs": IMAGES.numpy()})


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "op"), [(lambda x: torch.sqrt(x - 1000), "sqrt"), (lambda x: torch.exp(x * 1e6), "exp")]
)
def test_lowering_refuses_results_that_are_no_numbers(function: Callable[[Tensor], Tensor], op: str) -> None:
    graph = capture(nn.Sequential(model(), Function(function)).eval(), IMAGES)
    with pytest.raises(LoweringError, match=f"^{op} '1'.* gives NaN or infinity for . of the 6 images"):
        lower_graph(graph, {"inputs": IMAGES.numpy()})


@pytest.mark.parametrize("shape", [(1,), (1, 1), ()])
def test_lowering_takes_one_number_for_all_channels(shape: tuple[int, ...]) -> None:
    gain = torch.full(shape, 0.25)
    images = torch.linspace(0, 255, 24).reshape(3, 8)
    layers = [UInt(8, 1.0), QuantLinear(8, 12, weight_quant=Int(8)), Function(lambda x: x * gain), Int(8, 1.0)]
    layers += [QuantLinear(12, 2, weight_quant=Int(8))]
    _, facts = lower_graph(capture(nn.Sequential(*layers).eval(), images), {"inputs": images.numpy()})
    assert set(facts["passes"].values()) == {0}


def test_build_refuses_parameters_that_are_no_numbers(tmp_path: Path) -> None:
    layer = QuantLinear(5, 2, weight_quant=Int(4, 0.125))
    layer.bias.data[0] = float("nan")
    with pytest.raises(
        CaptureError, match=r"^linear '1' .*reads '1.bias', which holds NaN or infinity in 1 of 2 places;"
    ):
        nnhw.build(nn.Sequential(Int(4, 0.25), layer).eval(), torch.randn(4, 5), out=tmp_path / "b", stop_at="map")


def test_build_refuses_zero_points_that_are_no_integers(tmp_path: Path) -> None:
    quantizer = UInt(4, 0.1, zero_point=7)
    quantizer.zero_point += 0.5
    layer = QuantLinear(5, 2, weight_quant=Int(4, 0.125))
    with pytest.raises(CaptureError, match=r"^quantize '0' .*needs zero points that are integers.*, got 7.5; round"):
        nnhw.build(nn.Sequential(quantizer, layer).eval(), torch.randn(4, 5), out=tmp_path / "b", stop_at="map")


def test_float32_ties_are_no_matter_of_a_model_in_float64(tmp_path: Path) -> None:
    layers = [Int(8, 0.1), QuantLinear(5, 30, bias=False, weight_quant=Int(8, 0.05)), Int(8, 0.01), QuantLinear(30, 2)]
    for dtype, noted in ((torch.float32, True), (torch.float64, False)):
        model = nn.Sequential(*layers).eval().to(dtype)
        build = nnhw.build(model, torch.randn(4, 5).to(dtype), out=tmp_path / "b", stop_at="lower")
        assert bool(build.report["exactness"]["near_ties"]) == noted
