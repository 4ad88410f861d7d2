"""Quantizer modules, layers and activations: what they compute, export, and refuse."""

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nnhw.errors import InputError
from nnhw.nn import (
    Bipolar,
    Int,
    QuantConv1d,
    QuantConv2d,
    QuantHardTanh,
    QuantIdentity,
    Quantizer,
    QuantLinear,
    QuantReLU,
    Scale,
    Sign,
    Ternary,
    UInt,
)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def small_model() -> nn.Sequential:
    return nn.Sequential(
        UInt(4, scale=2**-4),
        QuantConv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        Sign(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        QuantLinear(36, 6, weight_quant=Int(4, axis=0)),
        QuantReLU(4, scale="observed"),
        QuantLinear(6, 3, bias=False, weight_quant=Ternary()),
        Scale(2**-3),
    )


@pytest.mark.parametrize(
    ("quantizer", "codes"),
    [
        (Bipolar(), (-1, 1)),
        (Ternary(), (-1, 1)),
        (Int(2), (-2, 1)),
        (Int(8), (-128, 127)),
        (Int(8, narrow_range=True), (-127, 127)),
        (UInt(2), (0, 3)),
        (UInt(8), (0, 255)),
        (QuantReLU(3), (0, 7)),
        (QuantHardTanh(3), (-4, 3)),
        (QuantHardTanh(3, narrow_range=True), (-3, 3)),
        (QuantIdentity(8), (-128, 127)),
        (Sign(), (-1, 1)),
    ],
    ids=repr,
)
def test_quantizer_has_the_code_range_of_its_format(quantizer: Quantizer, codes: tuple[int, int]) -> None:
    assert (quantizer.qmin, quantizer.qmax) == codes


def test_int_default_scale_is_a_power_of_two_that_covers_the_weights() -> None:
    weight = random(5, 7)
    result = Int(8)(weight)
    step = 2.0 ** math.ceil(math.log2(weight.abs().max().item() / 127))
    assert torch.equal(result, torch.round(weight / step) * step)


def test_int_per_channel_scale_follows_each_channel() -> None:
    weight = torch.tensor([[7.0, 1.0], [0.875, 0.125]])
    assert torch.equal(Int(4, axis=0)(weight), weight)


def test_quantizer_takes_one_fixed_scale_per_channel() -> None:
    result = Int(4, scale=[1.0, 0.5], axis=0)(torch.tensor([[0.6], [0.6]]))
    assert result.tolist() == [[1.0], [0.5]]


def test_ternary_of_small_weights_is_zero() -> None:
    assert Ternary(scale=1.0)(torch.tensor([-0.6, -0.5, 0.5, 0.6])).tolist() == [-1, 0, 0, 1]


def test_activations_clamp_to_their_range() -> None:
    x = torch.tensor([-9.0, -0.26, 0.26, 9.0])
    assert QuantReLU(4)(x).tolist() == [0, 0, 0.25, 1.875]
    assert QuantHardTanh(4)(x).tolist() == [-1, -0.25, 0.25, 0.875]
    assert QuantIdentity(4)(x).tolist() == [-1, -0.25, 0.25, 0.875]
    assert Sign()(x).tolist() == [-1, -1, 1, 1]


def test_observed_scale_follows_training_and_stays_in_eval() -> None:
    relu = QuantReLU(4, scale="observed")
    assert math.isnan(relu.eval()(torch.ones(1)).item())
    relu.train()(torch.tensor([3.0]))
    relu(torch.tensor([1.0]))
    assert relu.scale.tolist() == [0.25]
    relu.eval()(torch.tensor([100.0]))
    assert relu.scale.tolist() == [0.25]


def test_observed_scale_survives_two_calls_before_backward() -> None:
    relu = QuantReLU(4, scale="observed").train()
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    (relu(x) + relu(8 * x)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [9, 9]


@pytest.mark.parametrize(
    ("layer", "shape", "plain"),
    [
        (QuantLinear(6, 4, weight_quant=Int(4)), (5, 6), nn.functional.linear),
        (QuantConv1d(2, 4, 3, stride=2, weight_quant=Int(4)), (5, 2, 9), nn.functional.conv1d),
        (QuantConv2d(2, 4, (3, 2), weight_quant=Int(4)), (5, 2, 6, 7), nn.functional.conv2d),
    ],
    ids=["linear", "conv1d", "conv2d"],
)
def test_layer_computes_with_quantized_weights(
    layer: QuantLinear | QuantConv1d | QuantConv2d, shape: tuple[int, ...], plain: Callable[..., Tensor]
) -> None:
    x = random(*shape)
    options = {} if isinstance(layer, QuantLinear) else {"stride": layer.stride}
    assert torch.equal(layer(x), plain(x, layer.weight_quant(layer.weight), layer.bias, **options))


def test_layer_weights_are_bipolar_by_default() -> None:
    layer = QuantLinear(8, 3, bias=False)
    assert torch.equal(layer(torch.eye(8)).T, torch.where(layer.weight >= 0, 1.0, -1.0))


def test_layer_gradient_reaches_the_latent_weights() -> None:
    layer = QuantLinear(2, 1, bias=False)
    layer.weight.data = torch.tensor([[0.5, -1.5]])
    layer(torch.tensor([[3.0, 4.0]])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[3.0, 0.0]]


def test_max_abs_layer_trains() -> None:
    layer = QuantConv1d(1, 2, 2, weight_quant=Int(3, axis=0))
    layer(random(1, 1, 5)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().min() > 0


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_export_keeps_each_quantizer_as_one_node(training: bool) -> None:
    model = small_model().train()
    model(random(4, 1, 8, 8))
    model.train(training)
    before = copy.deepcopy(model.state_dict())
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(model, (random(4, 1, 8, 8),), dynamic_shapes=({0: batch},))
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert targets.count("nnhw.quantize.default") == 6
    assert all(len(node.args) == 7 for node in exported.graph.nodes if str(node.target) == "nnhw.quantize.default")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    if not training:
        x = random(9, 1, 8, 8)
        assert torch.equal(exported.module()(x), model(x))


def test_float32_and_float64_agree_on_power_of_two_scales() -> None:
    model = small_model().train()
    model(random(16, 1, 8, 8))
    model.eval()
    x = random(16, 1, 8, 8)
    wide = copy.deepcopy(model).double()
    assert np.array_equal(model(x).detach().numpy(), wide(x.double()).detach().numpy())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Int(1), "Int needs bits from 2 to 8, got 1; for one bit use Bipolar or UInt"),
        (lambda: UInt(9), "UInt needs bits from 1 to 8, got 9"),
        (lambda: Int(4, scale=0.0), "Int needs scales that are positive and finite, got 0.0"),
        (lambda: Int(4, scale=math.nan), "Int needs scales that are positive and finite, got nan"),
        (
            lambda: Int(4, scale="mean"),  # type: ignore[arg-type]
            "Int needs scale to be a number, 'max_abs' or 'observed', got 'mean'",
        ),
        (
            lambda: Int(4, scale=[1.0, 2.0]),
            (
                "Int needs axis=-1 with one scale, or the channel axis with one scale per channel, "
                "got axis=-1 and 2 scales"
            ),
        ),
        (
            lambda: Int(4, scale="observed", axis=1),
            "Int needs axis=-1 for scale='observed', got axis=1; observe one scale",
        ),
        (lambda: UInt(4, zero_point=16), "UInt needs an integer zero_point from 0 to 15, got 16"),
        (
            lambda: QuantReLU(4, scale="max_abs"),
            "QuantReLU needs a scale that does not depend on the input: a number or 'observed', got 'max_abs'",
        ),
        (
            lambda: QuantLinear(1, 1, weight_quant=4),  # type: ignore[arg-type]
            "QuantLinear needs weight_quant to be a quantizer such as Bipolar() or Int(4), got 4",
        ),
        (
            lambda: QuantConv2d(1, 1, 1, weight_quant=Int(4, scale="observed")),
            "QuantConv2d needs a weight scale that is a number or 'max_abs', got 'observed'",
        ),
        (lambda: Scale(0.0), "Scale needs a factor that is positive and finite, got 0.0"),
    ],
)
def test_layers_reject_bad_parameters(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message
