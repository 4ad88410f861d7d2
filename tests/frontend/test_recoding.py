"""Codes behind arithmetic that loses nothing are codes again."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.errors import NnhwError
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir.ops import Quantize
from nnhw.nn import Int, QuantConv2d, Quantizer, Sign, UInt


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return self.function(x)


def model_of(quantizer: Quantizer, function: Callable[[Tensor], Tensor]) -> nn.Module:
    torch.manual_seed(0)
    layers = [QuantConv2d(1, 3, 3, weight_quant=Int(4, 0.125)) for _ in range(2)]
    layers[1] = QuantConv2d(3, 2, 2, weight_quant=Int(4, 0.125))
    return nn.Sequential(Int(4, 0.25), layers[0], quantizer, Function(function), layers[1]).eval()


EXAMPLE = torch.linspace(-2, 2, 4 * 36).reshape(4, 1, 6, 6)


@pytest.mark.parametrize(
    ("quantizer", "function", "op"),
    [
        (Sign(), lambda x: (x + 1) / 2, Quantize(0, 1)),
        (Sign(), lambda x: x * 0.5 + 0.5, Quantize(0, 1)),
        (Sign(), lambda x: 1 - x, Quantize(0, 1)),
        (Sign(), functional.relu, Quantize(0, 1)),
        (Sign(), lambda x: x * -3, Quantize(-1, 1, bipolar=True)),
        (Sign(), lambda x: functional.pad((x + 1) / 2, (1, 0, 0, 1), value=2.0), Quantize(0, 2)),
        (Sign(), lambda x: functional.max_pool2d((x + 1) / 2, 2), Quantize(0, 1)),
        (Int(4, 0.25), lambda x: x * 2 + 1, Quantize(-6, 9)),
        (Int(3, 0.1), lambda x: x * 2, Quantize(-4, 3)),
        (UInt(1, 0.5), lambda x: x - 0.5, Quantize(-1, 0)),
        (UInt(3, 0.5), lambda x: torch.cat([x[:, :1], Int(4, 0.25)(x[:, 1:])], 1), Quantize(-8, 14)),
        (Sign(), lambda x: torch.cat([x[:, 1:], UInt(2, 0.5)(x[:, :1])], 1), Quantize(-2, 3)),
        (UInt(3, 0.5), lambda x: functional.max_pool2d(torch.cat([x, -x], 1), 2)[:, 1:4], Quantize(-7, 7)),
    ],
)
def test_recoding_is_exact(quantizer: Quantizer, function: Callable[[Tensor], Tensor], op: Quantize) -> None:
    model = model_of(quantizer, function)
    captured = capture_quantizers(model, EXAMPLE)
    assert [node.op for node in captured.graph.nodes if isinstance(node.op, Quantize)][-1] == op
    answers = own_answers(model, captured, EXAMPLE.numpy())
    assert answers.double is not None
    _, facts = lower_graph(captured.graph, {"inputs": EXAMPLE.numpy(), "torch_float64": answers.double})
    assert facts["torch_float64_ir"] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 0.1,
        torch.tanh,
        lambda x: x * torch.tensor([0.5, 1.0, 1.0]).reshape(3, 1, 1),
        lambda x: functional.pad(x, (1, 1), value=0.3),
    ],
)
def test_recoding_leaves_what_has_no_common_scale(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(NnhwError, match="needs quantized inputs"):
        capture_quantizers(model_of(Int(4, 0.25), function), EXAMPLE)


def test_codes_of_one_unsigned_bit_are_zero_and_one() -> None:
    assert np.array_equal(UInt(1, 0.5)(torch.tensor([-1.0, 0.2, 0.3, 7.0])).numpy(), np.float32([0, 0, 0.5, 0.5]))
