"""Fixed-point requantization as a layer: networks that are ported by hand give the integers of what they were."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.errors import CaptureError, InputError
from nnhw.frontend import capture
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import IntType, run
from nnhw.ir.ops import Rescale as IrRescale
from nnhw.nn import Int, QuantConv2d, QuantIdentity, QuantLinear, Rescale
from nnhw.nn.functional import quantize
from nnhw.nn.rescale_operator import quantized_multiplier, rescale
from nnhw.passes import lower

FOLDER = Path(os.environ.get("NNHW_DATA", "/nonexistent"), "cmsis_nn_int8")
VECTORS = sorted(FOLDER.glob("*.npz"))
SUMS = IntType(-(1 << 20), 1 << 20)
WHOLE = {"bias": False, "weight_quant": Int(8, scale=1.0)}


class Port(nn.Module):
    """An operator of CMSIS-NN, written in PyTorch by hand."""

    def __init__(self, vector: object) -> None:
        from benchmarks.cmsis import Vector

        assert isinstance(vector, Vector)
        super().__init__()
        weights, config = torch.from_numpy(vector.weights.copy()).double(), vector.config
        self.register_buffer("one", torch.ones(1).double())
        self.register_buffer("zero_point", torch.tensor([-float(config["INPUT_OFFSET"])]).double())
        self.pads: tuple[int, ...] = ()
        outputs = weights.shape[0]
        self.layer: nn.Module
        if vector.kind == "linear":
            self.layer = QuantLinear(weights.shape[1], outputs, **WHOLE)
        else:
            (top, left), (bottom, right) = vector.padding
            self.pads = (left, right, top, bottom)
            groups = config["IN_CH"] // weights.shape[1]
            self.layer = QuantConv2d(
                config["IN_CH"],
                outputs,
                vector.pair("FILTER"),
                stride=vector.pair("STRIDE"),
                dilation=vector.pair("DILATION"),
                groups=groups,
                **WHOLE,
            )
        self.layer.weight.data = weights
        self.rescale = Rescale.from_multiplier(
            *vector.scales,
            vector.arrays["biases_data"],
            zero_point=config["OUTPUT_OFFSET"],
            qmin=config["OUT_ACTIVATION_MIN"],
            qmax=config["OUT_ACTIVATION_MAX"],
        )

    def forward(self, x: Tensor) -> Tensor:
        x = quantize(x, self.one, self.zero_point, -128, 127, -1, False)
        if any(self.pads):
            x = functional.pad(x, self.pads)
        result: Tensor = self.rescale(self.layer(x))
        return result


@pytest.mark.skipif(not VECTORS, reason="NNHW_DATA does not name a folder with cmsis_nn_int8")
@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_rescale_by_hand_gives_the_outputs_of_cmsis_nn(path: Path) -> None:
    from benchmarks.cmsis import load_vector

    vector = load_vector(path)
    model, images = Port(vector).double().eval(), torch.from_numpy(vector.frames.copy()).double()
    wanted = vector.outputs - vector.config["OUTPUT_OFFSET"]
    graph = capture(model, images[:1])
    for made in (model(images).detach().numpy(), run(graph, images.numpy())[0], run(lower(graph), images.numpy())[0]):
        channels_last = made.transpose(0, 2, 3, 1) if made.ndim == 4 else made
        np.testing.assert_array_equal(channels_last.reshape(len(wanted), -1), wanted)


@given(
    st.lists(st.integers(-(1 << 20), 1 << 20), min_size=1, max_size=6),
    st.integers(0, (1 << 31) - 1),
    st.integers(-31, 10),
    st.integers(-(1 << 20), 1 << 20),
    st.sampled_from(["single", "double"]),
    st.integers(0, 4),
)
def test_rescale_equals_the_operator_of_the_graph(
    sums: list[int], multiplier: int, exponent: int, bias: int, rounding: str, shift: int
) -> None:
    numbers = [np.array([number]) for number in (multiplier, exponent, bias)]
    x = np.array(sums).reshape(-1, 1)
    wanted = IrRescale(3, -(1 << 40), 1 << 40, rounding, shift).evaluate(x, *numbers)
    made = rescale(
        torch.from_numpy(x).double(), *map(torch.from_numpy, numbers), 3, -(1 << 40), 1 << 40, rounding, shift
    )
    np.testing.assert_array_equal(made.numpy(), wanted)


@given(st.floats(2.0**-40, 2.0**29))
def test_quantized_multiplier_is_the_nearest_of_31_bits(scale: float) -> None:
    multiplier, exponent = quantized_multiplier(scale)
    if scale < 2.0**-32 * (1 - 2.0**-32):
        assert (multiplier, exponent) == (0, 0)
    else:
        assert 1 << 30 <= multiplier < 1 << 31
        assert abs(multiplier * 2.0 ** (exponent - 31) - scale) <= 2.0 ** (exponent - 32)


def test_quantized_multiplier_at_its_ends() -> None:
    assert quantized_multiplier(0.0) == (0, 0)
    assert quantized_multiplier(1.0) == (1 << 30, 1)
    assert quantized_multiplier(1 - 2.0**-40) == (1 << 30, 1)
    assert quantized_multiplier(2.0**40) == ((1 << 31) - 1, 30)


def network(rounding: str = "double") -> nn.Sequential:
    torch.manual_seed(3)
    layers = [
        QuantIdentity(8, scale=1.0),
        QuantConv2d(2, 4, 3, **WHOLE),
        Rescale([0.001, 0.002, 0.0005, 0.01], 40, zero_point=-3, rounding=rounding),
    ]
    layers += [nn.Flatten(), QuantLinear(64, 3, **WHOLE), Rescale(0.003, [1, -2, 3])]
    model = nn.Sequential(*layers).eval()
    for layer in (model[1], model[4]):
        layer.weight.data = torch.randint(-127, 128, layer.weight.shape).float()
    return model


@pytest.mark.parametrize("rounding", ["double", "single"])
def test_network_with_rescale_equals_its_reference(rounding: str) -> None:
    model = network(rounding)
    images = torch.randint(-128, 128, (20, 2, 6, 6)).float()
    captured = capture_quantizers(model, images)
    answers = own_answers(model, captured, images.numpy())
    np.testing.assert_array_equal(answers.own, nnhw.reference(model)(images).numpy())
    np.testing.assert_array_equal(run(lower(captured.graph), images.numpy())[0], answers.own)
    assert answers.ties == {"float32": 0, "float64": 0}


def test_sum_of_two_rescaled_values_stays_a_sum_of_integers() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes, self.layer = QuantIdentity(8, scale=1.0), QuantLinear(4, 4, **WHOLE)
            self.a, self.b, self.c = Rescale(30.5), Rescale(0.7), Rescale(0.01)

        def forward(self, x: Tensor) -> Tensor:
            x = self.codes(x)
            result: Tensor = self.c(self.a(x) - self.b(self.layer(x)))
            return result

    graph = capture(Residual().eval(), torch.randint(-128, 128, (4, 4)).float())
    assert [node.op.name for node in graph.nodes if node.op.name in ("weighted_sum", "sub")] == ["weighted_sum"]


def test_gradient_passes_inside_of_the_range() -> None:
    x = torch.tensor([[100.0, -4000.0, 90000.0]], requires_grad=True)
    Rescale(0.25, qmin=-2000, qmax=2000)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.25, 0.25, 0.0]]


def test_rescale_rejects_numbers_out_of_range() -> None:
    for make, message in (
        (lambda: Rescale(-1.0), "a rescaling needs scales that are finite and not negative, got -1.0"),
        (lambda: Rescale(1.0, qmin=200), "Rescale needs qmin <= qmax, got 200 and 127"),
        (lambda: Rescale(1.0, rounding="even"), "a rescaling needs the rounding 'double' or 'single', got 'even'"),
        (
            lambda: Rescale.from_multiplier(1 << 31, 0),
            "Rescale needs multiplier in 0..2147483647, got 2147483648..2147483648",
        ),
        (lambda: Rescale.from_multiplier(1, 31), "Rescale needs exponent in -31..30, got 31..31"),
        (lambda: Rescale(1.0, 0.5), "Rescale needs integers as bias, got 0.5"),
    ):
        with pytest.raises(InputError) as raised:
            make()
        assert str(raised.value) == message


def test_rescale_rejects_numbers_that_are_no_integers() -> None:
    with pytest.raises(InputError, match=r"nnhw::rescale needs integers, such as the sums of a layer"):
        Rescale(1.0)(torch.tensor([[0.5]]))
    model = nn.Sequential(QuantIdentity(8, scale=0.5), Rescale(1.0)).eval()
    with pytest.raises(CaptureError, match=r"rescale '1' .*needs integers: codes with scale 1"):
        capture(model, torch.ones(2, 3))
