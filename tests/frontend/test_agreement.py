"""PyTorch's own evaluation against the captured graph: only rounding may explain a difference."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nnhw.errors import ExactnessError
from nnhw.frontend.agreement import Captured, own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import Graph
from nnhw.ir.ops import Quantize
from nnhw.nn import Int, QuantLinear, Sign, UInt

EXAMPLE = torch.randint(-600, 600, (48, 12), generator=torch.Generator().manual_seed(1)) / 200


def decimal_model(end: nn.Module | None = None) -> nn.Sequential:
    """Return a model whose scales are no powers of two, so that float32 rounds and meets ties."""
    torch.manual_seed(4)
    layers = [
        Int(8, 0.01),
        QuantLinear(12, 30, weight_quant=Int(8, 0.003)),
        nn.BatchNorm1d(30),
        nn.GELU(),
        Int(8, 0.01),
    ]
    layers += [QuantLinear(30, 5, weight_quant=Int(4, 0.05))]
    return nn.Sequential(*layers, *([end] if end else [])).eval()


def changed(captured: Captured, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Captured:
    """Return a model's graph with another constant."""
    graph = captured.graph
    constants = dict(graph.constants) | {name: change(graph.constants[name])}
    return dataclasses.replace(captured, graph=Graph(graph.name, graph.nodes, graph.outputs, constants))


@pytest.mark.parametrize("end", [None, nn.Softmax(1), nn.LogSoftmax(1), nn.Tanh(), nn.Sigmoid()])
def test_agreement_of_a_model_is_up_to_rounding(end: nn.Module | None) -> None:
    model = decimal_model(end)
    answers = own_answers(model, capture_quantizers(model, EXAMPLE), EXAMPLE.numpy())
    assert answers.precision == "float32"
    assert answers.own.dtype == np.float32
    assert answers.double is not None
    assert answers.double.dtype == np.float64
    assert answers.ties["float32"] > 0
    assert answers.ties["float64"] == 0


class Bounded(nn.Module):
    """A layer whose sums are compared with constants that forward makes."""

    def __init__(self, constant: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.codes, self.finer = Int(4, 0.25), Int(6, 0.05)
        self.first = QuantLinear(12, 3, weight_quant=Int(4, 0.125))
        self.last = QuantLinear(3, 2, weight_quant=Int(4, 0.125))
        self.constant = constant

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(self.codes(x))
        result: Tensor = self.last(self.finer(torch.maximum(y, self.constant(y))))
        return result


BOUNDS = (-0.4, 0.1, -0.3)
MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "tensor": lambda y: torch.tensor(BOUNDS),
    "tensor of the input's dtype": lambda y: torch.tensor(BOUNDS, dtype=y.dtype),
    "tensor of float32": lambda y: torch.tensor(BOUNDS, dtype=torch.float32),
    "tensor of float64": lambda y: torch.tensor(-0.4, dtype=torch.float64),
    "new_tensor": lambda y: y.new_tensor(BOUNDS),
    "as_tensor": lambda y: torch.as_tensor(BOUNDS, dtype=y.dtype),
    "scalar_tensor": lambda y: torch.scalar_tensor(-0.4, dtype=y.dtype),
    "full": lambda y: torch.full((3,), -0.4, dtype=y.dtype),
    "full of float32": lambda y: torch.full((3,), -0.4, dtype=torch.float32),
    "linspace": lambda y: torch.linspace(-0.4, 0.1, 3, dtype=y.dtype),
    "array": lambda y: torch.tensor(np.array(BOUNDS), dtype=y.dtype),
    "cast": lambda y: torch.from_numpy(np.array(BOUNDS)).to(y.dtype),
    "product": lambda y: torch.tensor(BOUNDS).to(y) * 0.99,
}


@pytest.mark.parametrize("name", MADE)
def test_agreement_takes_constants_of_the_dtype_of_the_input(name: str) -> None:
    torch.manual_seed(4)
    model = Bounded(MADE[name]).eval()
    captured = capture_quantizers(model, EXAMPLE)
    answers = own_answers(model, captured, EXAMPLE.numpy())
    assert answers.ties["float64"] == 0
    # What is computed from a constant is computed in float64; the constant itself is what the model has.
    if name not in ("array", "cast", "product"):
        bounds = captured.graph.constants[constant_of(captured, "maximum", 1)]
        np.testing.assert_array_equal(bounds, MADE[name](torch.zeros(1)).numpy())


def constant_of(captured: Captured, op: str, position: int) -> str:
    return next(node for node in captured.graph.nodes if node.op.name == op).inputs[position]


@pytest.mark.parametrize(
    ("op", "position", "change", "layer"),
    [
        ("linear", 1, lambda codes: np.where(codes == codes.max(), codes - 1, codes), "quantize '4'"),
        ("quantize", 1, lambda scale: scale * (1 + 2.0**-7), "quantize '0'"),
        ("batch_norm", 3, lambda mean: mean + 2.0**-7, "quantize '4'"),
        ("dequantize", 1, lambda scale: scale * (1 + 2.0**-40), "quantize '4'"),
        ("batch_norm", 2, lambda bias: bias + 2.0**-40, "quantize '4'"),
    ],
)
def test_agreement_names_the_first_layer_of_a_graph_that_is_not_the_model(
    op: str, position: int, change: Callable[[np.ndarray], np.ndarray], layer: str
) -> None:
    model = decimal_model()
    captured = capture_quantizers(model, EXAMPLE)
    wrong = changed(captured, constant_of(captured, op, position), change)
    with pytest.raises(
        ExactnessError, match=f"^{layer} is the first whose (code|operand) differs between PyTorch's own float"
    ):
        own_answers(model, wrong, EXAMPLE.numpy())


def test_agreement_notices_the_last_layer() -> None:
    model = decimal_model()
    captured = capture_quantizers(model, EXAMPLE)
    wrong = changed(captured, [n for n in captured.graph.constants if "bias" in n][-1], lambda bias: bias + 2.0**-16)
    with pytest.raises(ExactnessError, match="is the first whose result differs"):
        own_answers(model, wrong, EXAMPLE.numpy())


def test_agreement_of_float64_allows_far_less_than_float32() -> None:
    model = decimal_model().double()
    captured = capture_quantizers(model, EXAMPLE.double())
    answers = own_answers(model, captured, EXAMPLE.double().numpy())
    assert answers.precision == "float64"
    assert list(answers.ties) == ["float64"]
    bias = [name for name in captured.graph.constants if "bias" in name][-1]
    own_answers(model, changed(captured, bias, lambda array: array * (1 + 2.0**-52)), EXAMPLE.double().numpy())
    with pytest.raises(ExactnessError, match="float64"):
        own_answers(model, changed(captured, bias, lambda array: array + 2.0**-30), EXAMPLE.double().numpy())


class Cast(nn.Module):
    """What models of uint8 images begin with."""

    def __init__(self) -> None:
        super().__init__()
        self.quantizer, self.layer = UInt(8, 2**-8), QuantLinear(4, 2, bias=False, weight_quant=Int(4, 0.125))

    def forward(self, x: Tensor) -> Tensor:
        """Divide by 256, in float32 whatever comes."""
        return self.layer(self.quantizer(x.float() / 256))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_float64_goes_through_a_models_own_casts(dtype: torch.dtype) -> None:
    model = Cast().eval()
    images = torch.arange(0, 256, 4).reshape(16, 4).to(dtype)
    answers = own_answers(model, capture_quantizers(model, images), images.numpy())
    assert answers.double is not None
    assert answers.double.dtype == np.float64
    assert np.array_equal(answers.double, answers.own)
    assert answers.precision == "float32"


class Unread(nn.Module):
    """A quantizer whose codes nobody reads, in front of those that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.unread, self.sign, self.layer = Int(3, 0.5), Sign(), QuantLinear(12, 2, weight_quant=Int(4, 0.125))

    def forward(self, x: Tensor) -> Tensor:
        """Quantize twice, and use the second."""
        self.unread(x * 3)
        return self.layer(self.sign(x)).argmax(1)


def test_agreement_finds_quantizers_behind_one_that_nobody_reads() -> None:
    model = Unread().eval()
    captured = capture_quantizers(model, EXAMPLE)
    answers = own_answers(model, captured, EXAMPLE.numpy())
    assert answers.ties == {"float32": 0, "float64": 0}
    weights = next(name for name in captured.graph.constants if captured.graph.node(name).type.size == 24)
    with pytest.raises(ExactnessError, match="argmax"):
        own_answers(model, changed(captured, weights, np.flip), EXAMPLE.numpy())


def test_agreement_compares_the_codes_of_each_quantizer() -> None:
    model = decimal_model()
    captured = capture_quantizers(model, EXAMPLE)
    names = [quantizer.name for quantizer in captured.quantizers if quantizer.name]
    assert names == [node.name for node in captured.graph.nodes if isinstance(node.op, Quantize)]


def test_weights_at_ties_have_their_own_precisions_codes_in_float64() -> None:
    scale = torch.tensor(0.0074).item()
    layer = QuantLinear(12, 2, bias=False, weight_quant=Int(8, 0.0074))
    layer.weight.data = ((torch.arange(24) + 0.5) * scale).reshape(2, 12)
    quotients = layer.weight.data / torch.tensor(0.0074), layer.weight.data.double() / float(torch.tensor(0.0074))
    assert (quotients[0].round() != quotients[1].round()).any()
    model = nn.Sequential(Int(8, 0.25), layer).eval()
    answers = own_answers(model, capture_quantizers(model, EXAMPLE), EXAMPLE.numpy())
    assert answers.ties == {"float32": 0, "float64": 0}


@pytest.mark.parametrize("batch", [None, torch.export.Dim("batch")])
def test_an_exported_program_is_evaluated_in_both_precisions_and_not_changed(batch: object) -> None:
    model = decimal_model()
    program = torch.export.export(model, (EXAMPLE[:6],), dynamic_shapes=None if batch is None else ({0: batch},))
    before = {name: value.clone() for name, value in program.state_dict.items()}
    answers = own_answers(program, capture_quantizers(program), EXAMPLE.numpy())
    assert answers.double is not None
    assert answers.double.dtype == np.float64
    for name, value in program.state_dict.items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
    assert all(value.dtype != torch.float64 for value in model.parameters())
