"""TFLite files as cases: one for each operator and form, those of the field's topologies, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tflite
from torch import Tensor, nn

from nnhw.errors import NnhwError
from nnhw.frontend.tflite import TfliteModel, parse_model
from nnhw.frontend.tflite.module import example_of
from tests.frontend.cases import Case
from tests.frontend.tflite_models import File

SAME = {"Padding": "SAME", "StrideW": 1, "StrideH": 1}
VALID = {"Padding": "VALID", "StrideW": 1, "StrideH": 1}


def network(file: File, rounding: str = "double") -> tuple[nn.Module, Tensor]:
    """Return what the door makes of a file, and its example input."""
    model = parse_model(file.bytes(), "net.tflite")
    return TfliteModel(model, rounding).eval(), example_of(model)


def refusal(file: File) -> str:
    """Return what is said of a file that is refused."""
    with pytest.raises(NnhwError) as raised:
        network(file)
    return str(raised.value)


def conv(**options: Any) -> File:
    file = File(1, 6, 5, 3)
    stride = options.get("StrideW", 1), options.get("StrideH", 1)
    gap = options.get("DilationWFactor", 1)
    shape = (1, -(-6 // stride[1]), -(-5 // stride[0]), 4)
    if options.get("Padding") == "VALID":
        shape = (1, (6 - 2 * gap - 1) // stride[1] + 1, (5 - 2 * gap - 1) // stride[0] + 1, 4)
    file.layer("CONV_2D", file.input, (4, 3, 3, 3), shape, **options)
    return file


def behind(
    kind: str,
    *,
    scale: float = 0.05,
    zero: int = -3,
    shape: tuple[int, ...] = (1, 4, 4, 4),
    extra: Any = (),
    **options: Any,
) -> File:
    """Return an operator between two convolutions."""
    file = File(1, 4, 4, 2)
    x = file.layer("CONV_2D", file.input, (4, 1, 1, 2), (1, 4, 4, 4), scale=0.05, **SAME)
    y = file.apply(kind, [x, *(make(file) for make in extra)], shape, scale, zero, **options)
    file.layer("CONV_2D", y, (3, 1, 1, shape[3]), (*shape[:3], 3), **SAME)
    return file


def joined(kind: str, scales: tuple[float, float] = (0.05, 0.05), **options: Any) -> File:
    """Return two branches that meet."""
    file = File(1, 4, 4, 2)
    a = file.layer("CONV_2D", file.input, (3, 1, 1, 2), (1, 4, 4, 3), scale=scales[0], **SAME)
    b = file.layer("CONV_2D", file.input, (3, 3, 3, 2), (1, 4, 4, 3), scale=scales[1], **SAME)
    depth = 6 if kind == "CONCATENATION" else 3
    y = file.apply(kind, [a, b], (1, 4, 4, depth), 0.05 if kind == "CONCATENATION" else 0.08, **options)
    file.layer("CONV_2D", y, (2, 1, 1, depth), (1, 4, 4, 2), **SAME)
    return file


def dense(**options: Any) -> File:
    file = File(1, 12)
    x = file.layer("FULLY_CONNECTED", file.input, (6, 12), (1, 6), **options)
    file.layer("FULLY_CONNECTED", x, (3, 6), (1, 3), per_channel=False)
    return file


def real() -> File:
    """Return real numbers in and out, with a softmax."""
    file = File(1, 12, type="float32")
    x = file.apply("QUANTIZE", [file.input], (1, 12), 0.1, 4)
    x = file.layer("FULLY_CONNECTED", x, (5, 12), (1, 5), scale=0.3)
    x = file.apply("SOFTMAX", [x], (1, 5), 1 / 256, -128, Beta=1.0)
    file.apply("DEQUANTIZE", [x], (1, 5), type="float32")
    return file


def requantized() -> File:
    """Return codes of uint8 at both ends, as converters put them around int8."""
    file = File(1, 8, type="uint8", zero=125)
    x = file.apply("QUANTIZE", [file.input], (1, 8), 0.05, -3)
    x = file.layer("FULLY_CONNECTED", x, (4, 8), (1, 4))
    file.apply("QUANTIZE", [x], (1, 4), file.scales[x] * 1.3, 7)
    return file


def softmax_in_uint8() -> File:
    """Return the ends that converters make where codes of uint8 are asked for."""
    file = File(1, 8, type="uint8", zero=125)
    x = file.apply("QUANTIZE", [file.input], (1, 8), 0.05, -3)
    x = file.layer("FULLY_CONNECTED", x, (4, 8), (1, 4), scale=0.3)
    x = file.apply("SOFTMAX", [x], (1, 4), 1 / 256, -128, Beta=1.0)
    file.apply("QUANTIZE", [x], (1, 4), 1 / 256, 0, "uint8")
    return file


def pooled(kind: str, padding: str = "VALID", **options: Any) -> File:
    return behind(
        kind, shape=(1, 2, 2, 4), Padding=padding, StrideW=2, StrideH=2, FilterWidth=2, FilterHeight=2, **options
    )


def depthwise_separable() -> File:
    """Return a small keyword-spotting network."""
    file = File(1, 10, 8, 1)
    x = file.layer(
        "CONV_2D",
        file.input,
        (4, 4, 3, 1),
        (1, 5, 4, 4),
        **{**SAME, "StrideW": 2, "StrideH": 2},
        FusedActivationFunction="RELU",
    )
    for _ in range(2):
        x = file.layer(
            "DEPTHWISE_CONV_2D",
            x,
            (1, 3, 3, 4),
            (1, 5, 4, 4),
            DepthMultiplier=1,
            FusedActivationFunction="RELU",
            **SAME,
        )
        x = file.layer("CONV_2D", x, (4, 1, 1, 4), (1, 5, 4, 4), FusedActivationFunction="RELU", **SAME)
    x = file.apply(
        "AVERAGE_POOL_2D",
        [x],
        (1, 1, 1, 4),
        file.scales[x],
        Padding="VALID",
        StrideW=4,
        StrideH=5,
        FilterWidth=4,
        FilterHeight=5,
    )
    x = file.apply("RESHAPE", [x, file.integers(-1, 4)], (1, 4), file.scales[x])
    x = file.layer("FULLY_CONNECTED", x, (3, 4), (1, 3))
    file.apply("SOFTMAX", [x], (1, 3), 1 / 256, -128, Beta=1.0)
    return file


def residual() -> File:
    """Return a small residual network."""
    file = File(1, 6, 6, 3)
    x = file.layer("CONV_2D", file.input, (4, 3, 3, 3), (1, 6, 6, 4), FusedActivationFunction="RELU", **SAME)
    y = file.layer("CONV_2D", x, (4, 3, 3, 4), (1, 6, 6, 4), FusedActivationFunction="RELU", **SAME)
    y = file.layer("CONV_2D", y, (4, 3, 3, 4), (1, 6, 6, 4), **SAME)
    x = file.apply(
        "ADD", [x, y], (1, 6, 6, 4), 1.2 * max(file.scales[x], file.scales[y]), FusedActivationFunction="RELU"
    )
    x = file.apply("MEAN", [x, file.integers(1, 2)], (1, 4), file.scales[x] / 2)
    file.layer("FULLY_CONNECTED", x, (3, 4), (1, 3))
    return file


def autoencoder() -> File:
    file = File(1, 16)
    x = file.input
    for size, before in ((8, 16), (3, 8), (8, 3), (16, 8)):
        x = file.layer(
            "FULLY_CONNECTED",
            x,
            (size, before),
            (1, size),
            per_channel=False,
            FusedActivationFunction="NONE" if size == 16 else "RELU",
        )
    return file


def split(axis: int = 3) -> File:
    file = File(1, 4, 4, 4)
    parts = [file.tensor(f"part_{k}", (1, 4, 4, 2)) for k in range(2)]
    file.operators.append(("SPLIT", [file.integers(axis), file.input], parts, {"NumSplits": 2}))
    a, b = (file.layer("CONV_2D", part, (2, 1, 1, 2), (1, 4, 4, 2), scale=0.05, **SAME) for part in parts)
    y = file.apply("CONCATENATION", [b, a], (1, 4, 4, 4), Axis=3)
    file.layer("CONV_2D", y, (2, 1, 1, 4), (1, 4, 4, 2), **SAME)
    return file


def transposed(padding: str) -> File:
    file = File(1, 4, 3, 2)
    size = (8, 6) if padding == "SAME" else (9, 7)
    file.layer("TRANSPOSE_CONV", file.input, (3, 3, 3, 2), (1, *size, 3), Padding=padding, StrideW=2, StrideH=2)
    return file


def one(kind: str, shape: tuple[int, ...], weights: tuple[int, ...], made: tuple[int, ...], **options: Any) -> File:
    """Return one layer with weights."""
    file = File(*shape)
    file.layer(kind, file.input, weights, made, **options)
    return file


def window(kind: str, shape: tuple[int, ...], made: tuple[int, ...], **options: Any) -> File:
    """Return one pooling."""
    file = File(*shape)
    file.apply(kind, [file.input], made, **options)
    return file


def halves() -> File:
    """Return a layer with weights of 4 bits, an odd number of them."""
    file = File(1, 3, 3, 1)
    codes = file.rng.integers(-7, 8, (3, 3, 3, 1))
    even = np.append(codes.reshape(-1), 0) & 15
    w = file.tensor("weights", codes.shape, "int8", ([0.01, 0.02, 0.015], [0, 0, 0], 0), codes)
    file.buffers[-1] = (even[::2] | even[1::2] << 4).astype(np.uint8).tobytes()
    file.tensors[w] = (codes.shape, tflite.TensorType.INT4, *file.tensors[w][2:])
    file.apply("CONV_2D", [file.input, w], (1, 3, 3, 3), 0.05, **SAME)
    return file


def sloped() -> File:
    file = File(1, 8)
    file.apply("SOFTMAX", [file.input], (1, 8), 1 / 256, -128, Beta=0.5)
    return file


def bordered() -> File:
    """Return a border of another value than 0.0, of four widths."""
    file = File(1, 3, 4, 2)
    value = file.tensor("value", (1,), "int8", (0.05, -3, 0), np.array([77]))
    file.apply("PADV2", [file.input, file.integers((0, 0), (1, 2), (3, 0), (0, 0)), value], (1, 6, 7, 2))
    return file


ROWS, COLUMNS = {"StrideH": 2, "StrideW": 1}, {"StrideH": 1, "StrideW": 3}
FORMS: dict[str, Callable[[], File]] = {
    "conv_of_unequal_strides_same": lambda: one(
        "CONV_2D", (1, 7, 8, 2), (3, 4, 3, 2), (1, 4, 8, 3), Padding="SAME", **ROWS
    ),
    "conv_of_unequal_strides_valid": lambda: one(
        "CONV_2D", (1, 7, 8, 2), (3, 2, 3, 2), (1, 6, 2, 3), Padding="VALID", **COLUMNS
    ),
    "conv_of_unequal_dilations": lambda: one(
        "CONV_2D", (1, 9, 8, 2), (3, 3, 3, 2), (1, 9, 8, 3), DilationHFactor=3, DilationWFactor=2, **SAME
    ),
    "conv_of_unequal_dilations_valid": lambda: one(
        "CONV_2D", (1, 9, 8, 2), (3, 3, 3, 2), (1, 3, 6, 3), DilationHFactor=3, **VALID
    ),
    "conv_of_groups": lambda: one("CONV_2D", (1, 5, 4, 6), (4, 3, 3, 3), (1, 5, 4, 4), **SAME),
    "depthwise_of_two_each": lambda: one(
        "DEPTHWISE_CONV_2D", (1, 6, 5, 3), (1, 3, 2, 6), (1, 3, 5, 6), DepthMultiplier=2, Padding="SAME", **ROWS
    ),
    "depthwise_dilated": lambda: one(
        "DEPTHWISE_CONV_2D", (1, 6, 7, 3), (1, 2, 3, 3), (1, 3, 5, 3), DepthMultiplier=1, DilationHFactor=3, **VALID
    ),
    "transposed_of_unequal_strides": lambda: one(
        "TRANSPOSE_CONV", (1, 4, 3, 2), (3, 5, 7, 2), (1, 8, 9, 3), Padding="SAME", StrideH=2, StrideW=3
    ),
    "transposed_of_unequal_strides_valid": lambda: one(
        "TRANSPOSE_CONV", (1, 4, 3, 2), (3, 3, 4, 2), (1, 6, 10, 3), Padding="VALID", **COLUMNS
    ),
    "dense_of_rows": lambda: one("FULLY_CONNECTED", (1, 3, 8), (5, 8), (1, 3, 5), KeepNumDims=True),
    "max_pool_of_unequal_windows": lambda: window(
        "MAX_POOL_2D", (1, 7, 8, 2), (1, 4, 8, 2), Padding="SAME", FilterHeight=3, FilterWidth=2, **ROWS
    ),
    "max_pool_valid_relu6": lambda: window(
        "MAX_POOL_2D", (1, 7, 8, 2), (1, 5, 3, 2), Padding="VALID", FilterHeight=3, FilterWidth=2,
        FusedActivationFunction="RELU6", **COLUMNS,
    ),
    "average_pool_of_unequal_windows": lambda: window(
        "AVERAGE_POOL_2D", (1, 7, 8, 2), (1, 3, 5, 2), Padding="VALID", FilterHeight=2, FilterWidth=4,
        FusedActivationFunction="RELU", **ROWS,
    ),
    "weights_of_4_bits": halves,
    "softmax_of_beta": sloped,
    "border_of_a_value": bordered,
}  # fmt: skip
"""Names --> files of one operator, in which no size, stride or width can take the place of another one."""

FILES: dict[str, Callable[[], File]] = {
    "conv_same": lambda: conv(**SAME),
    "conv_valid": lambda: conv(**VALID),
    "conv_stride": lambda: conv(Padding="SAME", StrideW=2, StrideH=2, FusedActivationFunction="RELU"),
    "conv_dilated": lambda: conv(DilationWFactor=2, DilationHFactor=2, **SAME),
    "conv_relu6": lambda: conv(FusedActivationFunction="RELU6", **SAME),
    "conv_relu1": lambda: conv(FusedActivationFunction="RELU_N1_TO_1", **VALID),
    "conv_one_scale": lambda: conv(per_channel=False, **SAME),
    "depthwise_separable": depthwise_separable,
    "dense": dense,
    "dense_per_channel_relu": lambda: dense(FusedActivationFunction="RELU"),
    "real_softmax": real,
    "requantized": requantized,
    "softmax_in_uint8": softmax_in_uint8,
    "max_pool": lambda: pooled("MAX_POOL_2D"),
    "max_pool_same_relu": lambda: pooled("MAX_POOL_2D", "SAME", FusedActivationFunction="RELU"),
    "average_pool": lambda: pooled("AVERAGE_POOL_2D"),
    "relu": lambda: behind("RELU", scale=0.04),
    "relu6": lambda: behind("RELU6"),
    "relu1": lambda: behind("RELU_N1_TO_1", scale=0.02, zero=7),
    "pad": lambda: behind("PAD", shape=(1, 6, 7, 4), extra=[lambda f: f.integers((0, 0), (1, 1), (2, 1), (0, 0))]),
    "add": lambda: joined("ADD", (0.05, 0.031)),
    "add_relu": lambda: joined("ADD", (0.02, 0.09), FusedActivationFunction="RELU"),
    "sub": lambda: joined("SUB", (0.05, 0.05)),
    "add_constant": lambda: behind("ADD", extra=[lambda f: f.codes((4,))]),
    "sub_constant": lambda: behind("SUB", extra=[lambda f: f.codes((1,))]),
    "mul_constant": lambda: behind("MUL", extra=[lambda f: f.codes((1, 1, 1, 4))]),
    "mul_number": lambda: behind("MUL", extra=[lambda f: f.codes((1,))]),
    "concat": lambda: joined("CONCATENATION", Axis=3),
    "concat_relu": lambda: joined("CONCATENATION", Axis=3, FusedActivationFunction="RELU"),
    "mean": residual,
    "mean_keep": lambda: behind(
        "MEAN", shape=(1, 1, 1, 4), scale=0.03, extra=[lambda f: f.integers(1, 2)], KeepDims=True
    ),
    "logistic": lambda: behind("LOGISTIC", scale=1 / 256, zero=-128),
    "tanh": lambda: behind("TANH", scale=1 / 128, zero=0),
    "leaky_relu": lambda: behind("LEAKY_RELU", scale=0.04, Alpha=0.1),
    "hard_swish": lambda: behind("HARD_SWISH", scale=0.04, zero=-80),
    "resize": lambda: behind("RESIZE_NEAREST_NEIGHBOR", shape=(1, 8, 12, 4), extra=[lambda f: f.integers(8, 12)]),
    "transpose_conv_same": lambda: transposed("SAME"),
    "transpose_conv_valid": lambda: transposed("VALID"),
    "transpose": lambda: behind("TRANSPOSE", extra=[lambda f: f.integers(0, 2, 1, 3)]),
    "split": split,
    "strided_slice": lambda: behind(
        "STRIDED_SLICE", shape=(1, 3, 2, 4), BeginMask=9, EndMask=9,
        extra=[lambda f: f.integers(0, 1, 0, 0), lambda f: f.integers(0, 4, 2, 0), lambda f: f.integers(1, 1, 1, 1)],
    ),
    "maximum": lambda: behind("MAXIMUM", extra=[lambda f: f.codes((1,), 0.05, -3)]),
    "minimum": lambda: behind("MINIMUM", extra=[lambda f: f.codes((1,), 0.05, -3)]),
    "autoencoder": autoencoder,
    "mul_computed": lambda: joined("MUL"),
    "unknown": lambda: behind("SQUARED_DIFFERENCE", extra=[lambda f: f.codes((4,))]),
    "custom": lambda: behind("MyOwnOperator"),
    "concat_unlike": lambda: joined("CONCATENATION", (0.05, 0.06), Axis=3),
    "average_pool_same": lambda: behind(
        "AVERAGE_POOL_2D", Padding="SAME", StrideW=1, StrideH=1, FilterWidth=3, FilterHeight=3
    ),
}  # fmt: skip
"""Names --> files."""


@functools.cache
def cases() -> list[Case]:
    """Return all of them, in both roundings where these differ."""
    made = [Case("TFLite", name, lambda make=make: network(make())) for name, make in FILES.items()]
    single = ("conv_same", "dense", "mean", "depthwise_separable", "logistic")
    return made + [
        Case("TFLite", f"{name}_single", lambda name=name: network(FILES[name](), "single")) for name in single
    ]
