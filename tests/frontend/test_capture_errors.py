"""What cannot be captured says what, where, what is needed and what to do; all of a model's problems at once."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from nnhw.errors import CaptureError, InputError, NnhwError
from nnhw.frontend import capture
from nnhw.nn import Int, QuantConv2d, QuantLinear, Sign, UInt
from nnhw.nn.functional import quantize
from tests.frontend.models import binary_mlp, images
from tests.frontend.test_capture import Function

LINE = re.compile(r"test_capture(_errors)?\.py:\d+")


def message_of(model: object, example: object = None) -> str:
    """Return the message that capture raises, with line numbers of this file left out."""
    with pytest.raises(NnhwError) as caught:
        capture(model, images() if example is None else example)  # type: ignore[arg-type]
    return LINE.sub("HERE", str(caught.value))


def layers(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *modules)


IN_FRONT = (
    "needs quantized inputs, but there is no quantizer in front of it; put one there, such as nnhw.nn.Sign(), "
    "nnhw.nn.QuantReLU(4), or nnhw.nn.UInt(8, scale=2**-8) for an image"
)


AT_THE_INPUT = (
    "needs quantized inputs, but reads the model's input as floats; add a quantizer there with --calibrate DATA.npy or "
    "nnhw.quantize(model, data), or put one there yourself, such as nnhw.nn.UInt(8, scale=2**-8) for an image"
)


def test_capture_lists_all_problems_at_once() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        y = m.fc(x.flatten(1))
        y = torch.frac(y)
        y = torch.cumsum(y, 1)
        return functional.linear(m.sign(y), torch.exp(torch.arange(6.0)).reshape(2, 3))

    assert message_of(Function(forward)) == (
        "4 problems:\n"
        f"  1. linear 'fc' (HERE) {AT_THE_INPUT}\n"
        "  2. frac of the model (HERE): operator aten.frac.default is not supported; use x - torch.trunc(x)\n"
        "  3. cumsum of the model (HERE): operator aten.cumsum.default is not supported; use nnhw.nn.QuantLinear "
        "whose weights are a constant triangle of ones\n"
        "  4. linear of the model (HERE) needs quantized weights, but they are float32; use nnhw.nn.QuantLinear"
    )


def test_capture_names_the_line_of_each_problem() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        return m.fc(torch.frac(x.flatten(1)))

    with pytest.raises(CaptureError) as caught:
        capture(Function(forward), images())
    line = forward.__code__.co_firstlineno + 1
    assert f"frac of the model (test_capture_errors.py:{line}):" in str(caught.value)


def test_capture_rejects_layers_without_quantizers() -> None:
    model = layers(nn.Linear(64, 8), nn.ReLU(), QuantLinear(8, 4))
    assert message_of(model) == (
        f"3 problems:\n  1. linear '1' {AT_THE_INPUT}\n"
        "  2. linear '1' needs quantized weights, but they are float32; use nnhw.nn.QuantLinear\n"
        f"  3. linear '3' {IN_FRONT}"
    )
    sums = nn.Sequential(Sign(), QuantConv2d(1, 2, 3, bias=False), QuantConv2d(2, 2, 3))
    assert message_of(sums) == f"conv2d '2' {IN_FRONT}"


ERRORS: dict[str, tuple[nn.Module, str]] = {
    "untrained_observer": (
        layers(Int(4, "observed"), QuantLinear(64, 4)),
        (
            "quantize '1' needs scales that are positive and finite, got nan; a quantizer with scale='observed' "
            "has to see "
            "data in training mode first, and weights must not hold NaN"
        ),
    ),
    "dynamic_scale": (
        layers(Int(4), QuantLinear(64, 4)),
        "quantize '1' computes its scale from the model's input; use a fixed scale, or scale='observed' and train",
    ),
    "channel_scales_into_a_layer": (
        layers(Int(4, [0.5] * 32 + [0.25] * 32, axis=1), QuantLinear(64, 4)),
        (
            "linear '2' needs inputs with one scale, but the quantizer in front has one per channel; give it one "
            "scale, with axis=-1, and let a batch norm in front of it make the channels alike"
        ),
    ),
    "weight_scales_per_input": (
        layers(Sign(), QuantLinear(64, 4, weight_quant=Int(4, axis=1))),
        "linear '2' needs weights with one scale, or one per output; use axis=0 in their quantizer",
    ),
    "batch_statistics": (
        layers(Sign(), QuantLinear(64, 4), nn.BatchNorm1d(4, track_running_stats=False)),
        (
            "batch_norm '3' uses the statistics of the batch (training mode); call model.eval() before export, and use "
            "track_running_stats=True"
        ),
    ),
    "dropout_in_training": (
        Function(lambda m, x: m.fc(functional.dropout(m.sign(x.flatten(1))))),
        (
            "dropout of the model (HERE) drops values at random, because its argument training is True; use "
            "nn.Dropout, or F.dropout(x, p, training=self.training), and call model.eval() before torch.export"
        ),
    ),
    "random": (
        Function(lambda m, x: m.fc(m.sign(x.flatten(1) + torch.rand(64)))),
        "rand of the model (HERE): operator aten.rand.default gives random numbers; a model must not depend on them",
    ),
    "fixed_batch": (
        Function(lambda m, x: m.fc(m.sign(x).view(4, 64))),
        (
            "view of the model (HERE) fixes the batch size to 4, so that no other is possible; use x.flatten(1) or "
            "x.reshape(x.shape[0], ..)"
        ),
    ),
    "batch_in_a_row": (
        Function(lambda m, x: m.fc(m.sign(x).reshape(-1, 32).reshape(-1, 64))),
        (
            "reshape of the model (HERE) must keep the batch as its first axis, but makes the shape [2*batch, 32]; "
            "use x.flatten(1) or x.reshape(x.shape[0], ..)"
        ),
    ),
    "along_the_batch": (
        Function(lambda m, x: m.fc(m.sign(x.flatten(1))).argmax()),
        "argmax of the model (HERE) works along the batch, got dim=None; use dim=1 or dim=-1",
    ),
    "indices_go_on": (
        Function(lambda m, x: m.sign(m.fc(m.sign(x.flatten(1))).argmax(1).to(torch.float32))),
        "floating-point values are needed at 'sign' (HERE), got integers; let argmax be the model's end",
    ),
    "softmax_along_the_batch": (
        Function(lambda m, x: m.fc(m.sign(x.flatten(1))).softmax(0)),
        "softmax of the model (HERE) works along the batch, got dim=0; use dim=1 or dim=-1",
    ),
    "half_precision": (
        Function(lambda m, x: m.fc(m.sign(x.flatten(1))).half()),
        "to of the model (HERE) converts to torch.float16; only float32 and float64 are supported; leave it out",
    ),
    "image_constants": (
        Function(lambda m, x: m.fc(m.sign(x.flatten(1))) + torch.arange(4.0)[:, None]),
        (
            "the model fixes the batch size to 4, so that no other is possible; use x.flatten(1) or "
            "x.reshape(x.shape[0], ..)"
        ),
    ),
    "dynamic_weight": (
        Function(lambda m, x: functional.linear(m.sign(x.flatten(1)), m.sign(x.flatten(1)))),
        "linear of the model (HERE) computes its weights from the model's input; they must be a parameter",
    ),
    "constant_output": (
        Function(lambda m, x: torch.ones(3) * 2),
        "the model's output does not depend on its input; return something computed from it",
    ),
    "in_place_elsewhere": (
        Function(lambda m, x: _relu_of_a_view(m, x)),
        "relu of the model (HERE) changes a tensor in place that is used elsewhere, too; use inplace=False",
    ),
    "activation_zero_points": (
        Function(
            lambda m, x: m.fc(quantize(x.flatten(1), torch.full((64,), 0.1), torch.arange(64.0), 0, 99, 1, False))
        ),
        "quantize of the model (HERE) has one zero point per channel; activations need one zero point for all channels",
    ),
}


def _relu_of_a_view(m: Function, x: torch.Tensor) -> torch.Tensor:
    y = x.flatten(1) - 0.5
    functional.relu_(y.view(-1, 8, 8))
    return m.fc(m.sign(y))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ERRORS)
def test_capture_rejects(name: str) -> None:
    model, expected = ERRORS[name]
    assert message_of(model) == expected


def test_capture_rejects_control_flow_that_depends_on_data(capfd: pytest.CaptureFixture[str]) -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    message = message_of(Function(forward))
    assert message.startswith("the model cannot be traced at HERE: GuardOnDataDependentSymNode: ")
    assert message.endswith(
        "; branches and loops must not depend on the values of tensors: use torch.where, see docs/how-to/refused.md"
    )
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def _multiplied(m: Function) -> None:
    m.fc.weight.data.mul_(torch.ones(64))


def _set_to_zero(m: Function) -> None:
    m.fc.weight.data[0] = 0


@pytest.mark.parametrize("change", [_multiplied, _set_to_zero])
def test_capture_rejects_a_mask_on_weights_in_forward(change: Callable[[Function], None]) -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        y = m.fc(m.sign(x.flatten(1)))
        change(m)
        return y

    message = message_of(Function(forward))
    assert message.startswith("forward changes 'fc.weight' of the model (HERE), on which its result depends; ")
    assert message.endswith("leave that out in eval mode")


def test_weights_that_forward_assigns_are_those_of_the_trace() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        m.fc.weight.data = m.fc.weight.data.sign()
        return m.fc(m.sign(x.flatten(1)))

    graph = capture(Function(forward), images())
    (weights,) = [graph.constants[node.inputs[1]] for node in graph.nodes if node.op.name == "linear"]
    assert set(np.unique(weights).tolist()) == {-1, 1}


def test_capture_rejects_an_example_that_does_not_go_through() -> None:
    assert message_of(binary_mlp(), images(2, (1, 9, 9))) == (
        "example_input of shape [2, 1, 9, 9] and dtype float32 does not go through the model: layer '2': "
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x81 and 64x12); give the shape and dtype that the "
        "model takes, with the batch as first axis"
    )
    with pytest.raises(InputError):
        capture(binary_mlp(), images(2, (1, 9, 9)))


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (np.zeros((1, 2)), ("example_input must be one tensor [batch, ..], got ndarray; models with several inputs are "
         "not supported")),
        (torch.zeros(3), ("example_input needs the shape [batch, ..] with at least one image, got [3]; the "
         "batch is the first axis")),
        (torch.zeros(0, 3), ("example_input needs the shape [batch, ..] with at least one image, got [0, 3]; the "
         "batch is the first axis")),
        (torch.tensor([[1.0, torch.nan], [torch.inf, 0.0]]),
         "example_input holds NaN or infinity in 2 of 4 places; give finite numbers"),
    ],
)  # fmt: skip
def test_capture_rejects_examples(example: object, message: str) -> None:
    assert message_of(binary_mlp(), example) == message


def test_capture_rejects_what_is_no_model() -> None:
    assert message_of("model.py") == "a model is an nn.Module or an ExportedProgram, got str"
    with pytest.raises(CaptureError, match=r"a module needs an example_input \[batch, \.\.\] to be captured"):
        capture(binary_mlp())


def test_capture_rejects_a_program_in_training_mode() -> None:
    model = nn.Sequential(nn.Flatten(), Sign(), QuantLinear(64, 4), nn.BatchNorm1d(4), nn.Dropout(), Sign()).train()
    program = torch.export.export(model, (images(),), strict=False)
    with pytest.raises(NnhwError) as caught:
        capture(program)
    assert str(caught.value) == (
        "2 problems:\n"
        "  1. batch_norm '3' uses the statistics of the batch (training mode); call model.eval() before export, "
        "and use "
        "track_running_stats=True\n"
        "  2. dropout '4' drops values at random, because its argument training is True; use nn.Dropout, or "
        "F.dropout(x, p, training=self.training), and call model.eval() before torch.export"
    )


def test_capture_rejects_half_floats() -> None:
    model = nn.Sequential(Sign(), nn.Linear(4, 2)).half()
    with pytest.raises(InputError, match=r"^the model holds float16 in '0\.scale'; .*: use model\.float\(\)$"):
        capture(model, torch.ones(2, 4))


def test_capture_rejects_weights_with_nan() -> None:
    model = nn.Sequential(nn.Flatten(), UInt(2, 0.5), QuantLinear(64, 4, weight_quant=Int(4, 0.5)))
    model[2].weight.data[1, 2] = torch.nan
    assert message_of(model) == (
        "quantize '2.weight_quant' quantizes weights that hold NaN or infinity; train again, or load another file"
    )
