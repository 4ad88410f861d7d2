"""Quantization after training: where quantizers stand, and what their scales are."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import Dim
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, Dataset, IterableDataset

import nnhw
from nnhw.errors import InputError
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture
from nnhw.ir import run
from nnhw.nn import Bipolar, Int, QuantConv2d, Quantizer, QuantLinear
from nnhw.nn.calibration import rounded, weight_quantizer
from nnhw.passes import lower, split
from tests.nn.networks import branches, function, make, residual


def codes(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return the ranges of the activations' codes by the quantizers' names."""
    named = model.named_children()
    return {name: (module.qmin, module.qmax) for name, module in named if isinstance(module, Quantizer)}


def mismatches(model: nn.Module, images: Tensor) -> set[int]:
    with torch.no_grad():
        samples = {"inputs": images.numpy(), "torch": model(images).numpy()}
    return set(lower_graph(capture(model, images), samples)[1]["passes"].values())


class Products(nn.Module):
    """Products with a matrix for each head, and by the letters of an einsum, with weights on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.mixed = nn.Parameter(torch.randn(2, 8, 4)), nn.Parameter(torch.randn(3, 4, 5))
        self.gains, self.last = nn.Parameter(torch.rand(4)), nn.Parameter(torch.randn(5, 2, 6))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 2, 3, 8] --> [N, 6]."""
        x = torch.relu(x @ self.heads)
        x = torch.relu(torch.einsum("bhri,i->bhri", x, self.gains))
        x = torch.relu(torch.einsum("rio,bhri", self.mixed, x))
        result: Tensor = torch.einsum("bho,ohk->bk", x, self.last)
        return result


def products() -> tuple[nn.Module, Tensor]:
    return make(Products, 2, 3, 8)


BITS = ((8, 8), (4, 4), (3, 2), (1, 1))
MANY_BITS = ((residual, 8, 8), (residual, 1, 1), (branches, 4, 4), (branches, 1, 1), (products, 8, 8), (products, 3, 2))


@pytest.mark.parametrize(
    ("make_model", "weight_bits", "act_bits"),
    [
        pytest.param(make_model, *bits, marks=[] if (make_model, *bits) in MANY_BITS else pytest.mark.long)
        for make_model in (residual, branches, products)
        for bits in BITS
    ],
)
def test_quantized_model_lowers_exactly(make_model: Any, weight_bits: int, act_bits: int) -> None:
    model, images = make_model()
    quantized = nnhw.quantize(model, images, weight_bits, act_bits)
    assert not quantized.training
    assert mismatches(quantized, images[:4]) == {0}


def weights_read(model: fx.GraphModule, pixels: Tensor) -> list[np.ndarray]:
    """Return the weights of each linear operator that runs, as torch computes with them."""
    read: list[np.ndarray] = []

    class Weights(TorchFunctionMode):
        def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = called.__name__.strip("_")
            if name in ("linear", "conv2d", "matmul", "einsum"):
                found = [item for item in (*args, *(kwargs or {}).values()) if isinstance(item, Tensor)]
                read.append(found[0 if name == "einsum" else 1].numpy())
            return called(*args, **(kwargs or {}))

    with torch.no_grad(), Weights():
        model(pixels)
    return read


WEIGHTS_BY_FUNCTIONS: dict[str, tuple[Callable[[Any, Tensor], Tensor], int]] = {
    "layers": (lambda m, x: m.fc(m.conv(x)[:, :2].flatten(1)), 2),
    "transposed": (lambda m, x: x.flatten(1) @ m.fc.weight.T, 1),
    "transposed_by_a_method": (lambda m, x: torch.matmul(x.flatten(1), other=m.fc.weight.t()), 1),
    "scaled": (lambda m, x: functional.conv2d(x, weight=m.kernel * 2), 1),
    "of_an_einsum": (lambda m, x: torch.einsum("oi,bchi->bcho", m.square.abs(), x), 1),
    "tied": (lambda m, x: functional.linear(torch.relu(x @ m.square), m.square), 2),
    "of_a_layer_as_well": (lambda m, x: torch.relu(m.fc(x.flatten(1))) @ m.fc.weight, 2),
}


@pytest.mark.parametrize("name", WEIGHTS_BY_FUNCTIONS)
def test_quantize_leaves_no_weights_float(name: str) -> None:
    forward, count = WEIGHTS_BY_FUNCTIONS[name]
    model, images = function(forward)
    quantized = nnhw.quantize(model, images, weight_bits=2)
    weights = weights_read(quantized, images)
    assert len(weights) == count
    for weight in weights:  # -scale, 0 and scale, for each output
        assert len(np.unique(weight)) <= 1 + 2 * max(weight.shape)
        assert 1 < max(len(np.unique(abs(row))) for axis in (0, -1) for row in np.moveaxis(weight, axis, 0))
        assert any(
            all(len(np.unique(abs(row[row != 0]))) <= 1 for row in np.moveaxis(weight, axis, 0)) for axis in (0, -1)
        )
    assert mismatches(quantized, images[:4]) == {0}


ONE_VALUE: dict[str, tuple[Callable[[Any, Tensor], Tensor], set[str]]] = {
    "swish": (lambda m, y: y * torch.sigmoid(y), {"mul_quant"}),
    "hard_swish": (lambda m, y: y * functional.hardtanh(y + 3, 0, 6) / 6, {"truediv_quant"}),
    "softsign": (lambda m, y: y / (1 + abs(y)), {"truediv_quant"}),
    "sums": (lambda m, y: functional.relu(y) - y * 0.25 + torch.tanh(y), {"add_quant"}),
    "twice": (lambda m, y: (lambda z: z * torch.sigmoid(z))(y * torch.sigmoid(y)), {"mul_1_quant"}),
    "of_a_maximum": (lambda m, y: (lambda z: z * torch.sigmoid(z))(functional.max_pool2d(y, 1)), {"mul_quant"}),
    "and_another_value": (
        lambda m, y: y * torch.sigmoid(y) + m.next(y),
        {"conv_quant", "mul_quant", "next_1_quant", "add_quant"},
    ),
}


@pytest.mark.parametrize(
    ("name", "act_bits"),
    [(name, 8) for name in ONE_VALUE]
    + [pytest.param(name, 4, marks=[] if name == "swish" else pytest.mark.long) for name in ONE_VALUE],
)
def test_quantize_puts_one_quantizer_behind_a_function_of_one_value(name: str, act_bits: int) -> None:
    gate, quantizers = ONE_VALUE[name]
    model, images = function(lambda m, x: m.fc(gate(m, m.conv(x))[:, :2].flatten(1)))
    quantized = nnhw.quantize(model, images, act_bits=act_bits)
    assert codes(quantized).keys() == quantizers | {"x_quant"}
    assert_equal(quantized, images)


SPELLINGS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "multiply": (lambda y: torch.multiply(y, 0.5), lambda y: y * 0.5),
    "subtract": (lambda y: torch.subtract(y, 0.5), lambda y: y - 0.5),
    "true_divide": (lambda y: torch.true_divide(y, 4), lambda y: y / 4),
    "divide": (lambda y: y.divide(4), lambda y: y / 4),
    "negative": (torch.negative, lambda y: -y),
    "expit": (torch.special.expit, torch.sigmoid),
    "absolute": (torch.absolute, abs),
    "type_as": (lambda y: y.type_as(torch.ones(1)), lambda y: y),
    "max": (lambda y: torch.max(y, y * 2), lambda y: torch.maximum(y, y * 2)),
    "min": (lambda y: y.min(other=y * 2), lambda y: torch.minimum(y, y * 2)),
    "transposed": (lambda y: y.mT, lambda y: y.transpose(2, 3)),
    "softsign": (functional.softsign, lambda y: y / (1 + abs(y))),
    "tanhshrink": (functional.tanhshrink, lambda y: y - torch.tanh(y)),
}


CONDITIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "where": lambda y: torch.where(y > 0, y, 0.1 * y),
    "mask": lambda y: y * (y > 0.1).float(),
    "masked_fill": lambda y: y.masked_fill((y < -0.2) | (y > 0.3), 0.0),
    "not": lambda y: y * ~(y <= 0.1),
    "threshold": lambda y: functional.threshold(y, 0.1, -0.5),
    "hardshrink": lambda y: functional.hardshrink(y, 0.2),
    "softshrink": lambda y: functional.softshrink(y, 0.1),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_quantize_takes_conditions_on_one_value(name: str) -> None:
    model, images = function(lambda m, x: m.fc(CONDITIONS[name](m.conv(x))[:, :2].flatten(1)))
    quantized = nnhw.quantize(model, images)
    assert len(codes(quantized)) == 2
    assert_equal(quantized, images)


def test_quantize_keeps_a_sign_as_it_is() -> None:
    model, images = function(lambda m, x: m.fc(torch.sign(m.conv(x))[:, :2].flatten(1)))
    quantized = nnhw.quantize(model, images)
    assert codes(quantized).keys() == {"conv_weight_quant", "fc_weight_quant", "x_quant"}
    assert "the model's own quantizers stay as they are" in quantized.added
    assert_equal(quantized, images)


@pytest.mark.parametrize("name", SPELLINGS)
def test_quantize_takes_other_spellings(name: str) -> None:
    quantized = []
    for spelled in SPELLINGS[name]:
        model, images = function(lambda m, x, spelled=spelled: m.fc(spelled(m.conv(x))[:, :2].flatten(1)))
        quantized.append(nnhw.quantize(model, images))
    with torch.no_grad():
        assert torch.equal(quantized[0](images), quantized[1](images))
    assert len(codes(quantized[0])) == len(codes(quantized[1])) == 2
    if name in ("max", "tanhshrink"):
        assert_equal(quantized[0], images)


def test_quantize_takes_activations_of_several_steps_as_layers() -> None:
    torch.manual_seed(1)
    images = torch.randn(10, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Softsign(), nn.Linear(8, 8), nn.Tanhshrink(), nn.Linear(8, 2))
    quantized = nnhw.quantize(model, images)
    assert len(codes(quantized)) == 3
    assert_equal(quantized, images)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal", "a hook"])
def test_quantize_folds_parametrizations_of_weights(name: str) -> None:
    torch.manual_seed(1)
    images = torch.randn(10, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    made = nn.utils.weight_norm if name == "a hook" else getattr(parametrizations, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made(model[0])
    with torch.no_grad():
        model(images)
        exact = model.eval()(images)
        quantized = nnhw.quantize(model, images)
        assert isinstance(quantized.get_submodule("0"), QuantLinear)
        assert float((quantized(images) - exact).norm() / exact.norm()) < 0.03
        assert torch.equal(model(images), exact)
    assert_equal(quantized, images)


def test_quantize_gives_codes_to_a_function_of_too_many_sums() -> None:
    torch.manual_seed(2)
    first, last = nn.Linear(400, 400), nn.Linear(400, 2)

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = first, last

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            return self.last(y * torch.sigmoid(y))

    images = torch.randn(10, 400)
    for bits, read in ((8, {"x_quant", "first_quant", "mul_quant"}), (2, {"x_quant", "mul_quant"})):
        quantized = nnhw.quantize(Wide().eval(), images, bits, bits, input_bits=bits)
        assert set(codes(quantized)) == read
        assert_equal(quantized, images)


def assert_equal(model: fx.GraphModule, pixels: Tensor) -> None:
    """Compare what PyTorch computes in float64 with the captured and the integer graph."""
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(pixels.double()).numpy()
    graph = capture(model, pixels)
    np.testing.assert_array_equal(run(graph, pixels.numpy().astype(np.float64))[0], expected)
    np.testing.assert_array_equal(split(lower(graph)).run(pixels.numpy().astype(np.float64))[0], expected)


class Joined(nn.Module):
    """A model that ends in a join of several values: one of its input, or of two layers, with what may stand behind."""

    def __init__(self, end: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(x, self.last(torch.relu(self.first(x))))


@pytest.mark.parametrize(
    ("end", "coded"),
    [
        (lambda x, y: x - y, "sub"),
        (lambda x, y: torch.relu(x + y).reshape(-1, 2, 4), "relu_1"),
        (lambda x, y: torch.softmax(x + torch.sigmoid(y), -1), "add"),
    ],
    ids=["difference", "moved", "softmax"],
)
def test_quantize_gives_codes_to_a_join_that_is_the_result(end: Callable[[Tensor, Tensor], Tensor], coded: str) -> None:
    torch.manual_seed(6)
    images = torch.rand(40, 8)
    model = Joined(end).eval()
    quantized = nnhw.quantize(model, images)
    assert f"{coded}_quant" in codes(quantized)
    integers = lower(capture(quantized, images))
    pixels = images.numpy().astype(np.float64)
    np.testing.assert_array_equal(split(integers).run(pixels)[0], run(capture(quantized, images), pixels)[0])
    with torch.no_grad():
        assert float((quantized(images) - model(images)).abs().max()) < 0.05


def test_quantize_gives_no_codes_to_a_function_of_one_value_that_is_the_result() -> None:
    quantized = nnhw.quantize(Joined(lambda x, y: y * torch.sigmoid(y)).eval(), torch.rand(40, 8))
    assert set(codes(quantized)) == {"x_quant", "relu_quant"}


def test_quantize_stays_close_to_the_float_model() -> None:
    model, images = residual()
    with torch.no_grad():
        exact = model(images)
        errors = [
            float((nnhw.quantize(model, images, bits, bits)(images) - exact).norm() / exact.norm())
            for bits in (8, 4, 2)
        ]
    assert errors[0] < 0.02 < errors[2]
    assert errors == sorted(errors)


def test_quantize_places_quantizers_in_front_of_what_needs_codes() -> None:
    model, images = residual()
    quantized = nnhw.quantize(model, images, act_bits=6)
    assert codes(quantized) == {
        "x_quant": (-128, 127),  # the image: 8 bits, and the data has both signs
        "relu_quant": (0, 63),  # in front of the pooling, for both of its readers
        "norm_quant": (-32, 31),  # a branch of the addition
        "relu_1_quant": (0, 63),
        "adaptive_avg_pool2d_quant": (0, 63),
        "weight_quant": (-127, 127),
    }
    assert isinstance(quantized.conv, QuantConv2d)
    assert isinstance(quantized.norm, nn.BatchNorm2d)


def test_quantize_shares_a_scale_in_front_of_a_concatenation() -> None:
    model, images = branches()
    quantized = nnhw.quantize(model, images)
    assert codes(quantized) == {"x_quant": (-128, 127), "relu_quant": (-128, 127), "silu_quant": (-128, 127)}
    assert torch.equal(quantized.relu_quant.scale, quantized.silu_quant.scale)
    assert "concat" in {node.op.name for node in capture(quantized, images[:2]).nodes}


def test_quantize_input_without_negative_data_has_no_sign() -> None:
    model, images = branches()
    assert codes(nnhw.quantize(model, images.abs(), input_bits=5))["x_quant"] == (0, 31)


def test_quantize_input_behind_a_normalization_has_the_inputs_bits() -> None:
    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.last = OwnConv(1, 2, 3), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.relu(self.conv((x - 0.5) / 0.25)).flatten(1))

    class OwnConv(nn.Conv2d):
        """A subclass, whose weights a function reads."""

    torch.manual_seed(1)
    model, images = Normalized().eval(), torch.rand(20, 1, 4, 4)
    quantized = nnhw.quantize(model, images, 3, 4)
    assert codes(quantized) == {"truediv_quant": (-128, 127), "relu_quant": (0, 15), "conv_weight_quant": (-3, 3)}
    assert mismatches(quantized, images[:4]) == {0}


def test_quantize_leaves_the_model_as_it_is() -> None:
    model, images = residual()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    nnhw.quantize(model, [images[:10], images[10:]])
    assert model.training
    assert type(model.conv) is nn.Conv2d
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_quantize_takes_batches_arrays_and_loaders_alike() -> None:
    model, images = branches()
    labels = torch.zeros(20)
    given: list[Any] = [
        images,
        images.numpy(),
        [images[:7], images[7:]],
        [(images[:20], labels), (images[20:], labels)],
    ]
    made = [nnhw.quantize(model, data).state_dict() for data in given]
    assert all(torch.equal(value, state[name]) for state in made[1:] for name, value in made[0].items())


def test_quantize_an_exported_program_is_the_same() -> None:
    model, images = branches()
    program = torch.export.export(model, (images[:2],), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    with torch.no_grad():
        assert torch.equal(nnhw.quantize(program, images)(images), nnhw.quantize(model, images)(images))


def test_quantize_evaluates_before_and_after() -> None:
    model, images = residual()
    labels = model(images).argmax(1)
    labels[:10] = (labels[:10] + 1) % 3
    accuracy = nnhw.quantize(model, images, evaluate=(images, labels)).accuracy
    assert (accuracy.before, accuracy.samples) == (0.75, 40)
    assert str(accuracy) == f"accuracy 75.00% before, {accuracy.after:.2%} after quantization, on 40 images"
    assert 0.5 < accuracy.after <= 1
    assert nnhw.quantize(model, images).accuracy is None


def test_accuracy_belongs_to_the_weights_that_were_measured(tmp_path: Path) -> None:
    model, images = residual()
    quantized = nnhw.quantize(model, images, 4, 4, evaluate=(images, model(images).argmax(1)))
    measured, kept = quantized.accuracy, copy.deepcopy(quantized)
    bias = quantized.get_parameter("stem.bias")
    before = bias.detach().clone()
    with torch.no_grad():
        bias += 0.1
    assert quantized.accuracy is None
    assert repr(quantized).endswith("8-bit input, accuracy not measured since the network was changed>")
    assert "not measured since the network was changed" in quantized._repr_html_()
    build = nnhw.build(quantized, images, board="ulx3s_25f", out=tmp_path / "b", stop_at="capture")
    assert build.report["model"]["accuracy"] is None
    with torch.no_grad():
        bias.copy_(before)
    assert quantized.accuracy == kept.accuracy == measured
    # In training mode batch norms count what they see; a mode alone changes no result of a model that is built.
    quantized.train()
    assert quantized.accuracy == measured
    with torch.no_grad():
        quantized(images)
    assert quantized.accuracy is None


def test_repr_of_a_quantized_model_has_the_bits_of_its_layers() -> None:
    model, images = residual()
    quantized = nnhw.quantize(model, images, 4, 5, evaluate=(images, model(images).argmax(1)))
    assert repr(quantized).startswith("<Residual, quantized: 3 layers, 4-bit weights, 5-bit activations, 8-bit input, ")
    quantized.get_submodule("stem").weight_quant = Int(2, axis=0)  # type: ignore[assignment]
    activation = list(codes(quantized))[1]
    quantized.set_submodule(activation, Int(3, 0.5))
    assert repr(quantized) == (
        "<Residual, quantized: 3 layers, 2 to 4-bit weights, 3 to 5-bit activations, 8-bit input, accuracy not "
        "measured since the network was changed>"
    )


def test_quantize_evaluates_on_images_of_the_users_choice() -> None:
    model, images = residual()
    others = torch.randn(12, 2, 8, 8)
    labels = model(others).argmax(1)
    labels[:3] = (labels[:3] + 1) % 3
    for given in ((others, labels), (others.numpy(), labels.numpy()), ([others[:5], others[5:]], labels.tolist())):
        accuracy = nnhw.quantize(model, images, 2, 2, evaluate=given).accuracy
        assert (accuracy.before, accuracy.samples) == (0.75, 12)
        assert accuracy.after < 1
    state = nnhw.quantize(model, images, evaluate=(others, labels)).state_dict()
    unseen = nnhw.quantize(model, images).state_dict()
    assert all(torch.equal(value, unseen[name]) for name, value in state.items())


def test_weight_quantizer_is_symmetric_with_a_scale_for_each_output() -> None:
    weight = torch.tensor([[0.5, -1.0, 0.25], [0.0, 0.0, 0.0], [3.0, -0.1, 0.2]])
    quantizer = weight_quantizer(weight, 8, 0)
    assert isinstance(quantizer, Int)
    assert (quantizer.qmin, quantizer.qmax) == (-127, 127)
    assert quantizer.scale is not None
    assert quantizer.scale.shape == (3,)
    assert (quantizer(weight) - weight).abs().max() <= quantizer.scale.max() * 0.51
    assert quantizer(weight)[1].tolist() == [0, 0, 0]


def test_weight_quantizer_of_one_bit_has_the_mean_magnitude() -> None:
    quantizer = weight_quantizer(torch.tensor([[0.5, -1.5], [0.0, 0.0]]), 1, 0)
    assert isinstance(quantizer, Bipolar)
    assert quantizer(torch.tensor([[0.5, -1.5], [0.0, 0.0]])).tolist() == [[1, -1], [1, 1]]


def test_scales_have_twelve_significant_bits() -> None:
    scales = rounded(torch.tensor([0.1, 1 / 3, 7.77e-5, 1.0]))
    mantissas, _ = torch.frexp(scales)
    assert (mantissas * 2**12).frac().abs().max() == 0
    assert (scales / torch.tensor([0.1, 1 / 3, 7.77e-5, 1.0]) - 1).abs().max() < 2**-12


def test_quantize_follows_a_loop_over_parts() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])

        def forward(self, x: Tensor) -> Tensor:
            parts = [layer(part) for layer, part in zip(self.layers, x.chunk(2, dim=1), strict=True)]
            return torch.cat(parts, dim=1).reshape(-1, 2, 2).flatten(1)

    model = Parts().eval()
    images = torch.randn(9, 8, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(model, (images,), dynamic_shapes=({0: Dim.DYNAMIC},))
    for calibration in (images, images[:1]):
        assert torch.equal(nnhw.quantize(model, calibration)(images), nnhw.quantize(program, calibration)(images))


FLOAT_NET = """
import torch
from torch import nn
torch.manual_seed(1)
model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
example_input = torch.rand(4, 1, 4, 4)
"""


def test_build_calibrates_a_float_model(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from nnhw.cli import app
    from nnhw.flow.folder.build_folder import read_json

    net, data, labels = tmp_path / "net.py", tmp_path / "x.npy", tmp_path / "y.npy"
    net.write_text(FLOAT_NET, encoding="utf-8")
    np.save(data, np.random.default_rng(1).random((20, 1, 4, 4), np.float32))
    np.save(labels, np.zeros(20, np.int64))
    out = tmp_path / "build"
    command = ["build", str(net), "--out", str(out), "--stop-at", "lower"]
    options = ["--calibrate", str(data), "--labels", str(labels), "--weight-bits", "4", "--act-bits", "5"]
    result = CliRunner().invoke(app, [*command, *options])
    assert result.exit_code == 0, result.output
    assert read_json(out / "capture.json")["accuracy"]["samples"] == 20
    assert "after quantization, on 20 images" in result.output
    assert read_json(out / "lower.json")["weight_bits"] == 4 * (16 * 8 + 8 * 3)
    others, own = tmp_path / "z.npy", ["--evaluate", str(tmp_path / "z.npy")]
    np.save(others, np.random.default_rng(2).random((7, 1, 4, 4), np.float32))
    np.save(labels, np.zeros(7, np.uint8))
    result = CliRunner().invoke(app, [*command, *options, *own])
    assert result.exit_code == 0, result.output
    assert read_json(out / "capture.json")["accuracy"]["samples"] == 7
    for given, problem in (
        (options, f"labels '{labels}' need the shape [20], whole numbers, one per image, got uint8 [7]"),
        ([*options[:2], *own], f"--evaluate '{others}' needs --labels LABELS.npy, the labels [N] of these images"),
        (own, "--evaluate, --labels, --weight-bits and --act-bits need --calibrate DATA.npy, images for a float model"),
    ):
        refused = CliRunner().invoke(app, [*command, *given])
        assert refused.exit_code == 1
        assert problem in " ".join(refused.output.split())
    np.save(data, np.ones((20, 1, 4, 5), np.float32))
    refused = CliRunner().invoke(app, [*command, "--calibrate", str(data)])
    assert "needs images of the shape [1, 4, 4], which example_input has, got [1, 4, 5]" in " ".join(
        refused.output.split()
    )
    refused = CliRunner().invoke(app, [*command, "--weight-bits", "4"])
    assert refused.exit_code == 1
    assert "--weight-bits and --act-bits need --calibrate DATA.npy, images for a float model" in refused.output


def test_calibration_file_that_cannot_be_read_is_refused_by_what_is_wrong_with_it(tmp_path: Path) -> None:
    from nnhw.flow.models.calibrate import _load

    (tmp_path / "text.npy").write_text("1, 2", encoding="utf-8")
    np.save(tmp_path / "objects.npy", np.array([[1], [2, 3]], dtype=object))
    with pytest.raises(InputError, match=r"objects.npy' holds Python objects, not numbers; save an array of numbers"):
        _load(tmp_path / "objects.npy", "calibration data")
    for name, problem in (("none.npy", ": No such file or directory; check the path"), ("text.npy", "numpy.save")):
        with pytest.raises(InputError, match=rf"^calibration data '.*{name}' cannot be read.*{problem}$"):
            _load(tmp_path / name, "calibration data")


class Numbered(Dataset[tuple[Tensor, int]]):
    """Images that hold their number; it notes which were read."""

    def __init__(self, count: int) -> None:
        self.count, self.read = count, set[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.read.add(index)
        return torch.full((4,), float(index) - 7), index % 2


class Streamed(IterableDataset[Tensor]):
    """Images whose number is not known."""

    def __iter__(self) -> Iterator[Tensor]:
        return (torch.full((4,), float(index) - 7) for index in range(100))


@pytest.mark.parametrize("kind", ["dataset", "loader", "streamed"])
def test_quantize_takes_datasets(kind: str) -> None:
    data = {"dataset": Numbered(100), "loader": DataLoader(Numbered(100), 7), "streamed": Streamed()}[kind]
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    images = torch.stack([torch.full((4,), float(index) - 7) for index in range(100)])
    with torch.no_grad():
        assert torch.equal(nnhw.quantize(model, data)(images), nnhw.quantize(model, images)(images))


def test_quantize_spreads_over_a_large_dataset() -> None:
    data = Numbered(5000)
    nnhw.quantize(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), data)
    assert len(data.read) == 1024
    assert {0, 4999} < data.read
    assert np.diff(sorted(data.read)).max() == 5


def test_quantize_stops_a_loader_when_it_has_enough_images() -> None:
    data = Numbered(5000)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    nnhw.quantize(model, DataLoader(data, 100))
    assert len(data.read) == 1100  # whole batches
    images = DataLoader(data, 100)
    assert nnhw.quantize(model, images, evaluate=(images, torch.zeros(5000).long())).accuracy
    assert len(data.read) == 5000


class DropPath(nn.Module):
    """Stochastic depth, as it is written in residual networks: nothing in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.probability = 0.5

    def forward(self, x: Tensor) -> Tensor:
        """Drop images of a batch while the model is trained."""
        if self.probability == 0.0 or not self.training:
            return x
        kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.probability)
        return x * kept / (1 - self.probability)


class Noise(nn.Module):
    """Noise while a model is trained, by a function that is told so."""

    def forward(self, x: Tensor) -> Tensor:
        """Add noise."""
        return with_noise(x, self.training)


def with_noise(x: Tensor, training: bool) -> Tensor:
    return x + torch.randn_like(x) if training else x


class Residual(nn.Module):
    """A branch that may be dropped, around which the input goes."""

    def __init__(self, dropped: nn.Module) -> None:
        super().__init__()
        self.conv, self.dropped = nn.Conv2d(2, 2, 3, padding=1), dropped

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 2, height, width] --> the same."""
        return torch.relu(x + self.dropped(self.conv(x)))


@pytest.mark.parametrize(
    ("kind", "training"),
    [(DropPath, True), (Noise, True), (nn.Dropout2d, True), (nn.AlphaDropout, True), (DropPath, False)],
)
def test_quantize_leaves_out_what_does_nothing_in_eval_mode(kind: type[nn.Module], training: bool) -> None:
    made = []
    for dropped in (kind(), nn.Identity()):
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 2, 3), nn.ReLU(), Residual(dropped), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        layers.append(nn.Linear(2, 3))
        images = torch.rand(16, 1, 6, 6)
        made.append(nnhw.reference(nnhw.quantize(nn.Sequential(*layers).train(training), images), images)(images))
    assert torch.equal(*made)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.AvgPool2d(2), nn.ReLU()),
        (nn.BatchNorm2d(3), nn.AvgPool2d(2)),
        (nn.AvgPool2d(2), nn.AvgPool2d((2, 1))),
        (nn.AdaptiveAvgPool2d(1),),
    ],
)
def test_quantize_puts_a_quantizer_in_front_of_average_pooling(layers: tuple[nn.Module, ...]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), *layers, nn.Flatten(), nn.LazyLinear(4))
    images = torch.rand(16, 1, 6, 6)
    model(images)
    quantized = nnhw.quantize(model.eval(), images)
    graph = capture(quantized, images)
    pooled = [node for node in graph.nodes if node.op.name == "sum_pool2d"]
    assert pooled
    assert all(graph.data_inputs(node)[0].op.name == "quantize" for node in pooled)
    lower(graph)


@pytest.mark.usefixtures("shallow_stack")
def test_quantize_follows_functions_without_recursion() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(200):
                x = functional.relu(x)
            return self.layer(x)

    torch.manual_seed(30)
    inputs = torch.rand(8, 4)
    model = Deep().eval()
    error = (nnhw.quantize(model, inputs)(inputs) - model(inputs)).abs().max().item()
    assert error < 0.05


def test_quantize_rejects_an_empty_dataset() -> None:
    with pytest.raises(InputError, match="calibration data is empty"):
        nnhw.quantize(nn.Sequential(nn.Linear(4, 3)), Numbered(0))
