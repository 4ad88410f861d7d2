"""Constants that differ by row, column or pixel: each element is a channel of its own, with steps of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.verification.comparison import compare_stages
from nnhw.frontend import capture
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import Graph
from nnhw.ir.ops import Reshape
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.nn import Int, QuantConv2d, QuantLinear, UInt
from nnhw.passes import lower
from nnhw.passes.flatten_positions import flatten_positions

LARGE = Budget(lc=100_000, ebr=1000)
Function = Callable[["Positions", Tensor], Tensor]


class Positions(nn.Module):
    """A function with tables between two convolutions."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.first = nn.Sequential(UInt(4, 2**-4), QuantConv2d(1, 3, 2, weight_quant=Int(4, 2**-3), bias=True))
        self.codes, self.last = Int(4, 2**-3), QuantConv2d(3, 2, 1, weight_quant=Int(4, 2**-3))
        for name, shape in {"row": (4, 1), "column": (1, 5), "pixel": (4, 5), "element": (3, 4, 5)}.items():
            self.register_buffer(name, torch.randn(1, *(1,) * (3 - len(shape)), *shape))
        self.slopes = nn.Parameter(torch.tensor([0.1, -0.2, 0.3]))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, 5, 6] --> [batch, 2, 4, 5]."""
        return self.last(self.codes(self.function(self, self.first(x))))


FUNCTIONS: dict[str, Function] = {
    "row": lambda m, x: x + m.row,
    "column": lambda m, x: x * m.column,
    "pixel": lambda m, x: functional.relu(x + m.pixel) - 0.25,
    "element": lambda m, x: torch.maximum(x, m.element),
    "slopes": lambda m, x: functional.prelu(x + m.pixel, m.slopes),
    "where": lambda m, x: torch.where(x > m.pixel, x, 0.5 * m.element),
    "two values": lambda m, x: m.codes(x) + x + m.pixel,
}
IMAGES = torch.linspace(0, 1, 6 * 30).reshape(6, 1, 5, 6)


def made(name: str) -> Positions:
    return Positions(FUNCTIONS[name]).eval()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_flatten_positions_is_exact(name: str) -> None:
    model = made(name)
    captured = capture_quantizers(model, IMAGES)
    images = torch.rand(40, 1, 5, 6).numpy()
    answers = own_answers(model, captured, images)
    assert answers.double is not None
    _, facts = lower_graph(captured.graph, {"inputs": images, "torch_float64": answers.double})
    assert facts["torch_float64_ir"] == 0
    assert any(isinstance(node.op, Reshape) for node in lower(captured.graph, "flatten_positions").nodes)


@pytest.mark.parametrize("name", ["row", "element", "slopes"])
def test_flatten_positions_costs_no_transposition(name: str) -> None:
    body = lower_graph(capture(made(name), IMAGES), {"inputs": IMAGES.numpy()})[0].body
    accelerator = map_body(body, "board", LARGE)
    assert not [stage.name for stage in accelerator.stages if "transpose" in stage.name]
    codes = np.random.default_rng(0).integers(0, 16, (4, 1, 5, 6))
    assert [one.name for one in compare_stages(accelerator, body, codes) if not one.equal] == []


def test_flatten_positions_takes_rows_of_features() -> None:
    torch.manual_seed(0)

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.linear = Int(4, 2**-3), QuantLinear(3, 4, weight_quant=Int(4, 2**-3))
            self.codes, self.last = Int(4, 2**-3), QuantLinear(4, 2, weight_quant=Int(4, 2**-3))
            self.places = nn.Parameter(torch.randn(5, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.codes(self.linear(self.first(x)) + self.places))

    images = torch.randn(20, 5, 3)
    model = Embedded().eval()
    captured = capture_quantizers(model, images)
    answers = own_answers(model, captured, images.numpy())
    assert answers.double is not None
    parts, facts = lower_graph(captured.graph, {"inputs": images.numpy(), "torch_float64": answers.double})
    assert facts["torch_float64_ir"] == 0
    accelerator = map_body(parts.body, "board", LARGE)
    codes = np.random.default_rng(0).integers(-8, 8, (4, *parts.body.inputs[0].type.shape))
    assert [one.name for one in compare_stages(accelerator, parts.body, codes) if not one.equal] == []


def test_flatten_positions_leaves_constants_of_channels() -> None:
    graph: Graph = capture(Positions(lambda m, x: x * m.slopes.reshape(1, 3, 1, 1) + 0.5).eval(), IMAGES)
    assert flatten_positions(graph) is graph
