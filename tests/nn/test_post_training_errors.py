"""What quantization after training refuses, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.errors import InputError, NnhwError, ProblemList
from nnhw.nn import QuantLinear, Sign, UInt
from tests.nn.networks import Function, branches, function

HERE = Path(__file__).name


def problems_of(*arguments: Any, **options: Any) -> list[str]:
    with pytest.raises(NnhwError) as error:
        nnhw.quantize(*arguments, **options)
    problem = error.value
    return [str(item) for item in (problem.problems if isinstance(problem, ProblemList) else [problem])]


class Twice(nn.Module):
    """A model that returns two tensors."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def test_quantize_rejects_products_without_constant_weights() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        y = m.conv(x).flatten(2)
        y = m.square @ y.reshape(-1, 4, 8, 6)
        y = torch.einsum("bchw,hi,hj->bcij", y, m.square, m.square)
        return y

    line = forward.__code__.co_firstlineno
    assert problems_of(*function(forward)) == [
        (
            f"matmul of the model ({HERE}:{line + 2}) has its constant on the left; use x @ weight, "
            f"with the constant on the right"
        ),
        (
            f"einsum of the model ({HERE}:{line + 3}) needs one computed value and one constant "
            f"tensor of weights, as in x @ weight or torch.einsum('bri,io->bro', x, weight)"
        ),
    ]


NORM = "has no quantized form; use nn.BatchNorm1d or nn.BatchNorm2d, which are fixed after training"
VOLUME = "has no quantized form; use nn.Conv2d, or nn.Conv1d"
STATE = "use layers without state, such as nn.Conv1d along the time steps"
LAYERS: dict[str, tuple[nn.Module, tuple[int, ...], str]] = {
    "state": (nn.GRUCell(8, 4), (8,), f"layer '1' (GRUCell) has no quantized form; {STATE}"),
    "volume": (
        nn.Conv3d(1, 2, 3),
        (1, 4, 4, 4),
        "layer '1' (Conv3d) has no quantized form; use nn.Conv2d, or nn.Conv1d",
    ),
    "groups": (nn.GroupNorm(2, 8), (8, 4), f"layer '1' (GroupNorm) {NORM}"),
    "mirror": (nn.ReflectionPad1d(1), (2, 8), "layer '1' (ReflectionPad1d) has no quantized form; use padding with a "),
    "unknown": (nn.Softmin(1), (8,), "layer '1' (Softmin) has no quantized form; see docs/operators.md for what is "),
    "between": (nn.Upsample(scale_factor=2, mode="bilinear"), (2, 4, 4), "upsample '1' has mode='bilinear'; use "),
    "statistics": (nn.BatchNorm1d(8, track_running_stats=False), (8,), "layer '1' (BatchNorm1d) has no statistics of "),
    "other": (nn.RReLU(), (8,), "layer '1' (RReLU) has no quantized form; see docs/operators.md "),
}


@pytest.mark.parametrize("name", LAYERS)
def test_quantize_rejects_a_layer(name: str) -> None:
    layer, shape, problem = LAYERS[name]
    (found,) = problems_of(nn.Sequential(nn.ReLU(), layer), torch.ones(2, *shape))
    assert found.startswith(problem)


def test_quantize_rejects_conditions_on_two_values() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        y, z = m.conv(x), m.conv(x + 1)
        return m.fc(torch.where(y > z, y, z)[:, :2].flatten(1))

    line = forward.__code__.co_firstlineno + 2
    found = problems_of(*function(forward))
    assert len(found) == 2
    assert found[0].startswith(f"'>' of the model ({HERE}:{line}) depends on several values: conv2d 'conv' (")
    assert found[0].endswith(
        "compare a value with constants, and choose between functions of it, or use torch.maximum or torch.minimum"
    )


def test_quantize_rejects_modes_of_functions() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        x = functional.pad(x, (1, 1, 1, 1), "reflect")
        return m.conv(functional.interpolate(x, scale_factor=2, mode="bicubic"))

    line = forward.__code__.co_firstlineno
    assert problems_of(*function(forward)) == [
        f"pad of the model ({HERE}:{line + 1}) has mode='reflect'; use mode='constant'",
        f"interpolate of the model ({HERE}:{line + 2}) has mode='bicubic'; use mode='nearest'",
    ]


def test_quantize_rejects_a_log_softmax_in_front_of_a_layer() -> None:
    model, images = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1), nn.ReLU(), nn.Linear(3, 2)), torch.ones(2, 4)
    assert problems_of(model, images) == [
        (
            "log_softmax '1' mixes elements, which runs at the end of a model alone; leave it out, or use nn.Sigmoid "
            "or nn.ReLU"
        )
    ]
    assert nnhw.quantize(model[:3], images) is not None


def test_quantize_rejects_half_floats() -> None:
    for dtype in ("bfloat16", "float16"):
        model = nn.Sequential(nn.ReLU(), nn.Linear(4, 2)).to(getattr(torch, dtype))
        assert problems_of(model, torch.ones(2, 4)) == [
            f"the model holds {dtype} in '1.weight'; only float32 and float64 are supported: use model.float()"
        ]


def test_quantize_rejects_everything_at_once() -> None:
    class Bad(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.InstanceNorm2d(2), nn.GroupNorm(1, 2)
            self.conv = nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")

        def forward(self, x: Tensor) -> Tensor:
            return torch.logcumsumexp(torch.frac(self.conv(self.norm(self.first(x)))), dim=1)

    line = Bad.forward.__code__.co_firstlineno + 1
    images = torch.zeros(3, 2, 4, 4)
    with_nan = images.clone()
    with_nan[1, 0, 2, 2] = torch.nan
    assert problems_of(Bad(), [images, with_nan], weight_bits=9, act_bits=0, input_bits=True) == [
        "weight_bits must be a whole number from 1 to 8, got 9",
        "act_bits must be a whole number from 1 to 8, got 0",
        "input_bits must be a whole number from 1 to 8, got True",
        "calibration data, batch 1 holds NaN or infinity in 1 of 96 places, first at [1, 0, 2, 2]; give finite numbers",
        f"layer 'first' (InstanceNorm2d) {NORM}",
        f"layer 'norm' (GroupNorm) {NORM}",
        "layer 'conv' (Conv2d) has padding_mode='reflect'; use padding_mode='zeros'",
        f"frac of the model ({HERE}:{line}) has no quantized form; use x - torch.trunc(x)",
        (
            f"logcumsumexp of the model ({HERE}:{line}) has no quantized form; no engine computes it; let the model "
            "return the values that it needs, and do it with the results"
        ),
    ]


EMPTY = "calibration data is empty; give at least one batch [N, ..] of what the model will see"


COMPLEX = "calibration data needs real numbers, got an array of complex numbers; save float32 [N, ..]"


ALL_ZERO = "calibration data is 0 everywhere, which shows the range of no value; give images that the model will see"


UINT8 = (
    "calibration data needs floating-point images, got uint8; convert them as for training, such as "
    "x.astype(np.float32) / 255"
)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([], EMPTY),
        (None, "calibration data needs a tensor or array [N, ..], or batches of them, got None"),
        ("abc", "calibration data needs a tensor or array [N, ..], or batches of them, got str"),
        (torch.ones(3, 2, 8) * 1j, COMPLEX),
        (np.ones((3, 2, 8)) * 1j, COMPLEX),
        (
            torch.zeros(0, 2, 8),
            (
                "calibration data needs the shape [N, ..] with at least one image, got [0, 2, 8]; the batch is the "
                "first axis"
            ),
        ),
        (
            torch.zeros(5),
            "calibration data needs the shape [N, ..] with at least one image, got [5]; the batch is the first axis",
        ),
        (
            np.zeros((5, 2, 8), np.uint8),
            UINT8,
        ),
        (
            [torch.ones(2, 2, 8), torch.ones(2, 2, 9)],
            "calibration data needs images of one shape, got [2, 8] and [2, 9]; use batches of equal images",
        ),
        (torch.zeros(3, 2, 8), ALL_ZERO),
        (["images"], "calibration data needs tensors [N, ..], got str as batch 0; give one tensor for each batch"),
        (
            np.array([["a"]]),
            "calibration data needs real numbers, got an array of text; save float32 [N, ..]",
        ),
    ],
)
def test_quantize_rejects_calibration_data(data: Any, problem: str) -> None:
    assert problems_of(branches()[0], data) == [problem]


@pytest.mark.parametrize("model", [lambda x: x, "a"])
def test_quantize_rejects_what_is_no_model(model: Any) -> None:
    assert problems_of(model, torch.ones(2, 4)) == [
        f"a model is an nn.Module or an ExportedProgram, got {type(model).__name__}; give a float model"
    ]


def test_quantize_names_the_module_of_what_it_refuses() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.max(1)[1]

    line = Inner.forward.__code__.co_firstlineno + 1
    assert problems_of(nn.Sequential(nn.Linear(4, 2), Inner()), torch.ones(2, 4)) == [
        (
            f"max '1' ({HERE}:{line}) has no quantized form; use dim=(2, 3), the axes of height "
            "and width, with torch.amax; for the place of the greatest value use argmax at the model's end"
        )
    ]


def test_quantize_rejects_data_that_the_model_does_not_take() -> None:
    (problem,) = problems_of(branches()[0], torch.ones(4, 3, 8))
    assert problem.startswith("calibration data of shape [4, 3, 8] does not go through the model: ")
    assert problem.endswith("; give the shape that the model takes, with the batch as first axis")


def test_quantize_rejects_images_of_another_shape_than_the_example() -> None:
    model, images = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 3)), torch.ones(70, 1, 8, 8)
    wrong = (
        "calibration data needs images of the shape [1, 16, 16], which example_input has, got [1, 8, 8]; give "
        "[N, 1, 16, 16], or an example_input of the other shape"
    )
    example = torch.ones(2, 1, 16, 16)
    assert problems_of(model, images, example_input=example) == [wrong]
    program = torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},))
    assert problems_of(program, list(images.split(20))) == [wrong]
    assert nnhw.quantize(model, images, example_input=images[:1]) is not None
    images[69, 0, 7, 7] = torch.inf
    nan = "calibration data holds NaN or infinity in 1 of 4480 places, first at [69, 0, 7, 7]; give finite numbers"
    assert problems_of(model, images, example_input=example) == [nan, wrong]


def test_quantize_says_once_what_is_wrong_with_images_of_both_uses() -> None:
    model, images, example = nn.Sequential(nn.Linear(4, 2)), torch.full((5, 4), torch.nan), torch.ones(1, 4)
    nan = "calibration data holds NaN or infinity in 20 of 20 places, first at [0, 0]; give finite numbers"
    labels = torch.zeros(5, dtype=torch.int64)
    assert problems_of(model, images, evaluate=(images, labels)) == [nan]
    assert problems_of(model, images, evaluate=(images, labels[1:]), example_input=example) == [
        nan,
        "labels need the shape [5], whole numbers, one per image, got int64 [4]",
    ]
    assert problems_of(model, images, evaluate=(images, labels.float())) == [
        nan,
        "labels need the shape [N], whole numbers, one per image, got float32 [5]",
    ]


def test_quantize_rejects_evaluation_data() -> None:
    model, images = branches()
    labels = torch.zeros(5, dtype=torch.int64)
    wrong = "evaluation data needs images of the shape [2, 8], which {} has, got [2, 9]; give [N, 2, 8], or {} of the"
    assert problems_of(model, images, evaluate=(torch.ones(5, 2, 9), labels)) == [
        wrong.format("the calibration data", "the calibration data") + " other shape"
    ]
    assert problems_of(model, images, evaluate=(torch.ones(6, 2, 9), labels), example_input=images) == [
        wrong.format("example_input", "an example_input") + " other shape",
        "labels need the shape [6], whole numbers, one per image, got int64 [5]",
    ]
    assert problems_of(model, images, evaluate=(torch.ones(4, 2, 8), labels)) == [
        "labels need the shape [4], whole numbers, one per image, got int64 [5]"
    ]


def test_quantize_rejects_a_quantized_model() -> None:
    model = nn.Sequential(Sign(), QuantLinear(4, 2), UInt(8, 1.0))
    (problem,) = problems_of(model, torch.ones(2, 4))
    assert problem == (
        "the model is quantized already: it has quantizers at 0, 1.weight_quant, 2; give a float model, or build this "
        "one as it is"
    )


def test_quantize_rejects_a_model_that_cannot_be_traced() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    (problem,) = problems_of(Branching(), torch.ones(2, 4))
    line = Branching.forward.__code__.co_firstlineno + 1
    assert problem.startswith(f"the model cannot be traced for quantization at {HERE}:{line}: TraceError: ")
    assert problem.endswith(
        "; branches and loops must not depend on the values of tensors: use torch.where, see docs/how-to/refused.md"
    )


def test_quantize_rejects_weights_with_nan() -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    with torch.no_grad():
        model[0].bias[1] = torch.inf
    assert problems_of(model, torch.ones(2, 4)) == [
        "the model holds NaN or infinity in '0.bias'; train again, or load another file"
    ]


def test_quantize_rejects_labels() -> None:
    model, images = branches()
    assert problems_of(model, images, evaluate=(images, torch.zeros(39, dtype=torch.int64))) == [
        "labels need the shape [40], whole numbers, one per image, got int64 [39]"
    ]
    labels = torch.zeros(40, dtype=torch.int64)
    labels[7], labels[9] = 3, -1
    (problem,) = problems_of(model, images, evaluate=(images, labels))
    assert problem == (
        "labels need numbers from 0 to 2, for the model has 3 outputs, got others in 2 of 40 places, first 3 at [7]; "
        "number the classes as the outputs, from 0"
    )
    assert problems_of(model, images, evaluate=(images, labels > 0)) == [
        "labels need the shape [40], whole numbers, one per image, got bool [40]"
    ]
    twice = nn.Sequential(nn.Linear(4, 2), Twice())
    assert problems_of(twice, torch.ones(2, 4), evaluate=(torch.ones(2, 4), torch.tensor([0, 1]))) == [
        "accuracy needs one tensor of outputs, got tuple; leave evaluate out"
    ]
    words = function(lambda m, x: m.conv(x).flatten(2).argmax(1))
    assert problems_of(*words, evaluate=(words[1], torch.zeros(len(words[1]), dtype=torch.int64))) == [
        "accuracy needs one class for each image, got outputs [20, 48] for 20 images; leave evaluate out"
    ]
    with pytest.raises(InputError, match=r"^evaluate needs a pair: images \[N, \.\.\] and labels \[N\]$"):
        nnhw.quantize(model, images, evaluate=images)  # type: ignore[arg-type]
