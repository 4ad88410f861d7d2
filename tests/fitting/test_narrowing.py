"""The same network with fewer bits: the widths are those of one that was quantized with fewer bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from nnhw import quantize
from nnhw.fitting.narrowing import NotNarrowedError, activations_of, narrowed, width_of, with_plain_activations
from nnhw.frontend.source import Source
from nnhw.ir import FLOAT, Graph, TensorType
from nnhw.ir.graph import GraphBuilder
from nnhw.ir.interpreter import run
from nnhw.ir.ops import Dequantize, Quantize, WeightedSum
from nnhw.passes import lower, split


def _captured(model: nn.Module, images: torch.Tensor, weight_bits: int, act_bits: int) -> Graph:
    quantized = quantize(model, [images], weight_bits, act_bits)
    return Source(quantized, images[:4], "m").capture()


def _residual() -> tuple[nn.Module, torch.Tensor]:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(4 * 4 * 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            x = torch.relu(self.norm(self.second(x)) + x)
            x = torch.max_pool2d(x, 2)
            return self.last(x.flatten(1))

    torch.manual_seed(3)
    return Residual().eval(), torch.randn(16, 1, 8, 8)


def _widths(graph: Graph) -> list[tuple[str, int]]:
    """Return the bits of each value that a layer reads."""
    body = split(lower(graph)).body
    read = {name for node in body.nodes for name in node.inputs if node.op.name in ("linear", "conv2d", "weighted_sum")}
    return [(node.op.name, node.type.int_dtype.bits) for node in body.nodes if node.name in read]


@pytest.mark.parametrize("bits", [(8, 4), (4, 8), (4, 4), (2, 3)])
def test_narrow_networks_have_the_widths_of_networks_quantized_so(bits: tuple[int, int]) -> None:
    model, images = _residual()
    narrow = narrowed(_captured(model, images, 8, 8), *bits)
    assert _widths(narrow) == _widths(_captured(model, images, *bits))
    assert width_of(narrow) == bits


def test_narrow_networks_compute_nearly_the_same() -> None:
    model, images = _residual()
    graph = _captured(model, images, 8, 8)
    inputs = images.numpy().astype(np.float64)
    own, narrow = (run(one, inputs)[0] for one in (graph, narrowed(graph, 6, 6)))
    assert not np.array_equal(own, narrow)
    assert np.corrcoef(own.ravel(), narrow.ravel())[0, 1] > 0.95


def test_networks_are_not_made_wider() -> None:
    model, images = _residual()
    graph = _captured(model, images, 4, 4)
    assert narrowed(graph, 8, 8) == graph


def test_integers_with_a_meaning_of_their_own_are_refused_by_name() -> None:
    builder = GraphBuilder("g")
    scale = builder.constant("scale", np.array(0.5), TensorType((), FLOAT))
    x = builder.input("x", TensorType((3,), FLOAT))
    first = builder.add("first", Quantize(-128, 127), (x, scale))
    middle = builder.add("middle", Dequantize(), (first, scale))
    second = builder.add("second", Quantize(-128, 127), (middle, scale))
    total = builder.add("total", WeightedSum((1, 1)), (second, first))
    graph = builder.build([builder.add("y", Dequantize(), (total, scale))])
    with pytest.raises(NotNarrowedError, match="weighted_sum 'total' computes with integers"):
        narrowed(graph, 4, 4)


def test_plain_activations_take_the_place_of_those_that_are_searched() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.PReLU(), nn.Linear(5, 5), nn.Sigmoid())
    graph = _captured(nn.Sequential(*model, nn.Linear(5, 2)).eval(), torch.randn(32, 4), 8, 8)
    assert activations_of(graph) == ("tanh", "prelu", "sigmoid")
    plain = with_plain_activations(graph)
    names = {node.op.name for node in plain.nodes}
    assert activations_of(plain) == ()
    assert {"clamp", "relu", "hardsigmoid"} <= names
    assert np.isfinite(run(plain, np.ones((1, 4)))[0]).all()


def _attention() -> tuple[nn.Module, torch.Tensor]:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.positions = nn.Parameter(torch.randn(1, 3, 8))
            self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
            self.last = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.positions
            x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
            return self.last(x)

    torch.manual_seed(1)
    return Tokens().eval(), torch.randn(16, 3, 8)


def test_constants_of_each_image_and_attention_have_a_narrower_form() -> None:
    model, images = _attention()
    graph = _captured(model, images, 8, 8)
    assert {"broadcast", "integer_softmax", "integer_norm", "matrix_product"} <= {node.op.name for node in graph.nodes}
    inputs = images.numpy().astype(np.float64)
    own, near, narrow = (run(one, inputs)[0] for one in (graph, narrowed(graph, 7, 7), narrowed(graph, 4, 4)))
    assert width_of(narrowed(graph, 4, 4)) == (4, 4)
    assert np.corrcoef(own.ravel(), near.ravel())[0, 1] > 0.99
    assert 0.8 < np.corrcoef(own.ravel(), narrow.ravel())[0, 1] < np.corrcoef(own.ravel(), near.ravel())[0, 1]
