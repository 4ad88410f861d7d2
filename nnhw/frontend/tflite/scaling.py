"""The numbers that TFLite's kernels compute with, from the scales in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nnhw.errors import CaptureError
from nnhw.nn.functional import quantize
from nnhw.nn.rescaling import quantized_multiplier, rescale

from .model_file import FileOperator, FileTensor, ModelFile

WIDE = 1 << 30
"""Beyond all integers that are added."""


@dataclass(frozen=True)
class Site:
    """One operator of a file, as it is built.

    Parameters
    ----------
    rounding: 'double' or 'single'.
    """

    model: ModelFile
    operator: FileOperator
    rounding: str

    @property
    def made(self) -> FileTensor:
        """Its result."""
        return self.model.made(self.operator)

    def option(self, name: str, default: Any) -> Any:
        """Return an option, or what it is in a file that leaves the table out."""
        return self.operator.options.get(name, default)

    def given(self, place: int) -> FileTensor:
        """Return the tensor that it reads at a place. Raises: CaptureError if there is none."""
        found = self.model.given(self.operator)[place] if place < len(self.operator.inputs) else None
        if found is None:
            raise self.refusal(f"has no input {place}; convert the model again")
        return found

    def optional(self, place: int) -> FileTensor | None:
        """Return the tensor that it reads at a place, if there is one."""
        return self.model.given(self.operator)[place] if place < len(self.operator.inputs) else None

    def constant(self, place: int) -> np.ndarray:
        """Return the numbers of a constant that it reads. Raises: CaptureError if it is computed."""
        found = self.given(place)
        if found.data is None:
            raise self.refusal(f"computes its {found.place}, which must be a constant")
        return found.data

    def refusal(self, what: str) -> CaptureError:
        """Return the error for what is not supported."""
        return CaptureError(f"{self.model.label(self.operator)} {what}")

    def check_codes(self, *tensors: FileTensor, types: Sequence[str] = ("INT8",)) -> None:
        """Check that tensors hold codes with one scale. Raises: CaptureError."""
        for tensor in tensors:
            if tensor.type not in types:
                needed = " or ".join(types)
                raise self.refusal(
                    f"has {tensor.place} of type {tensor.type}, and {needed} is needed; {_remedy(tensor.type)}"
                )
            if tensor.quantization is None or len(tensor.quantization.scale) != 1:
                raise self.refusal(
                    f"needs one scale for {tensor.place}; convert the model with full integer quantization"
                )
            if not tensor.codes.low <= tensor.zero_point <= tensor.codes.high:
                raise self.refusal(f"has the zero point {tensor.zero_point} for {tensor.place}, which is no code of it")

    def check_same(self, *tensors: FileTensor) -> None:
        """Check that codes of tensors stand for the same numbers. Raises: CaptureError."""
        self.check_codes(*tensors, types=("INT8", "UINT8"))
        if len({(tensor.type, tensor.scale, tensor.zero_point) for tensor in tensors}) > 1:
            raise self.refusal(
                f"moves codes without computing, but {' and '.join(tensor.place for tensor in tensors)} have other "
                f"scales or zero points; convert the model again, which puts a QUANTIZE between them"
            )

    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest distance of its result, given its fused activation."""
        name, made = self.option("FusedActivationFunction", "NONE"), self.made
        low, high = made.distances.low, made.distances.high
        scale = np.float32(made.scale)

        def steps(number: float) -> int:
            ratio = np.float32(number) / scale
            return int(math.copysign(math.floor(abs(float(ratio)) + 0.5), number))

        ends = {"NONE": (None, None), "RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}
        if name not in ends:
            raise self.refusal(f"has the fused activation {name}; NONE, RELU, RELU6 and RELU_N1_TO_1 are supported")
        least, most = ends[name]
        return (
            low if least is None else max(low, steps(least)),
            high if most is None else min(high, steps(most)),
        )


def _remedy(type: str) -> str:
    if type == "UINT8":
        return "convert the model with full integer quantization by TensorFlow 2, which makes int8"
    if type in ("FLOAT32", "FLOAT16"):
        return "convert it with full integer quantization: converter.representative_dataset and TFLITE_BUILTINS_INT8"
    return "convert the model with 8 bits: TFLITE_BUILTINS_INT8"


class RescaleCall(nn.Module):
    """The operator `nnhw.rescale` with its constants.

    Parameters
    ----------
    scales: real factors.
    low, high: bounds of the result.
    """

    multiplier: Tensor
    exponent: Tensor
    bias: Tensor

    def __init__(self, scales: Sequence[float], bias: Any, low: int, high: int, rounding: str, shift: int = 0) -> None:
        super().__init__()
        pairs = [quantized_multiplier(scale) for scale in scales]
        self.register_buffer("multiplier", torch.tensor([pair[0] for pair in pairs]))
        self.register_buffer("exponent", torch.tensor([pair[1] for pair in pairs]))
        self.register_buffer("bias", torch.as_tensor(np.array(bias, np.int64).reshape(-1)))
        self.low, self.high, self.rounding, self.shift = low, high, rounding, shift

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, ..] of integers."""
        result: Tensor = rescale(
            x, self.multiplier, self.exponent, self.bias, 0, self.low, self.high, self.rounding, self.shift
        )
        return result


def bounded(low: int, high: int) -> RescaleCall:
    """Return what keeps integers, within bounds."""
    return RescaleCall([1.0], 0, low, high, "double")


class Whole(nn.Module):
    """Constant integers as weights: a quantizer with scale 1 in front of them."""

    weight: Tensor
    one: Tensor
    zero: Tensor

    def __init__(self, weight: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(weight.astype(np.float64)))
        self.register_buffer("one", torch.ones(1, dtype=torch.float64))
        self.register_buffer("zero", torch.zeros(1, dtype=torch.float64))
        self.low, self.high = min(int(weight.min()), -1), max(int(weight.max()), 1)

    def forward(self) -> Tensor:
        """Return the weights."""
        result: Tensor = quantize(self.weight, self.one, self.zero, self.low, self.high, -1, False)
        return result


class FromReal(nn.Module):
    """Codes of real numbers: their distances from the zero point, in float64.

    TFLite divides in float32 and rounds half away from zero; so does this where it is given float32.
    """

    scale: Tensor
    one: Tensor
    zero_point: Tensor

    def __init__(self, tensor: FileTensor) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(tensor.scale, dtype=torch.float32))
        self.register_buffer("one", torch.ones(1))
        self.register_buffer("zero_point", torch.tensor([float(tensor.zero_point)]))
        self.codes = tensor.codes

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, real numbers; the shape stays."""
        low, high = self.codes.low, self.codes.high
        steps = x / self.scale
        return quantize(steps, self.one, self.zero_point, low, high, -1, False, "half_away").to(torch.float64)


class ToReal(nn.Module):
    """The numbers that codes stand for."""

    scale: Tensor

    def __init__(self, tensor: FileTensor) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(tensor.scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; the shape stays."""
        return x * self.scale
