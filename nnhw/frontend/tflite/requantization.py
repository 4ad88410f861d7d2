"""Requantization as TFLite's kernels do it, and the place (`Site`) of an operator while its layer is built."""

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
from nnhw.nn.rescale_operator import quantized_multiplier, rescale

from .model_file import FileOperator, FileTensor, ModelFile

WIDE = 1 << 30
"""A bound of operands of ADD and SUB that cuts none of them."""


@dataclass(frozen=True)
class Site:
    """One operator of a file while its layer is built.

    Parameters
    ----------
    rounding: 'double' or 'single': how products are rounded, see `load`.
    """

    model: ModelFile
    operator: FileOperator
    rounding: str

    @property
    def made(self) -> FileTensor:
        """The tensor that it makes."""
        return self.model.made(self.operator)

    def option(self, name: str) -> Any:
        """Return an option by the format's name."""
        return self.operator.options[name]

    def given(self, place: int) -> FileTensor:
        """Return the tensor of its input at a place. Raises: CaptureError if there is none."""
        found = self.model.given(self.operator)[place] if place < len(self.operator.inputs) else None
        if found is None:
            raise self.refusal(f"has no input {place}; convert the model again")
        return found

    def optional(self, place: int) -> FileTensor | None:
        """Return the tensor of its input at a place; None if there is none."""
        return self.model.given(self.operator)[place] if place < len(self.operator.inputs) else None

    def constant(self, place: int) -> np.ndarray:
        """Return the numbers of its constant input at a place. Raises: CaptureError if it is computed."""
        found = self.given(place)
        if found.data is None:
            raise self.refusal(f"computes its {found.place}, which must be a constant")
        return found.data

    def axis(self, number: int, tensor: FileTensor) -> int:
        """Return the axis 0.. of a tensor that a number stands for, which counts from the end if it is negative.

        Raises: CaptureError for a number that stands for none.
        """
        rank = len(tensor.shape)
        if not -rank <= number < rank:
            raise self.refusal(
                f"has the axis {number} of {tensor.place}, which has {rank} axes; use {-rank} to {rank - 1}"
            )
        return number % rank

    def refusal(self, what: str) -> CaptureError:
        """Return the error that refuses the operator: its label, then `what`."""
        return CaptureError(f"{self.model.label(self.operator)} {what}")

    def check_codes(self, *tensors: FileTensor, types: Sequence[str] = ("INT8",)) -> None:
        """Check that tensors hold codes of these types with one scale each. Raises: CaptureError."""
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
            # Borders are filled with the zero point: it has to be a code.
            if not tensor.codes.low <= tensor.zero_point <= tensor.codes.high:
                raise self.refusal(f"has the zero point {tensor.zero_point} for {tensor.place}, which is no code of it")

    def check_same(self, *tensors: FileTensor) -> None:
        """Check that tensors have one type, scale and zero point, as moving codes needs. Raises: CaptureError."""
        self.check_codes(*tensors, types=("INT8", "UINT8"))
        if len({(tensor.type, tensor.scale, tensor.zero_point) for tensor in tensors}) > 1:
            raise self.refusal(
                f"moves codes without computing, but {' and '.join(tensor.place for tensor in tensors)} have other "
                f"scales or zero points; convert the model again, which puts a QUANTIZE between them"
            )

    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest distance of its result that its fused activation lets through."""
        name, made = self.operator.options.get("FusedActivationFunction", "NONE"), self.made
        low, high = made.distances.low, made.distances.high
        scale = np.float32(made.scale)

        def steps(number: float) -> int:
            # As TFLite has it: a quotient in float32, rounded half away from zero.
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
    """A call of `nnhw.rescale` with constant arguments.

    Parameters
    ----------
    scales: real factors, one or one for each channel.
    bias: integers that are added first, one or one for each channel.
    low, high: bounds of the result.
    rounding: 'double' or 'single', see `load`.
    shift: bits by which the input is shifted left first.
    """

    multiplier: Tensor
    exponent: Tensor
    bias: Tensor

    def __init__(self, scales: Sequence[float], bias: Any, low: int, high: int, rounding: str, shift: int = 0) -> None:
        super().__init__()
        # As TFLite's QuantizeMultiplier: 31 bits of fraction and a power of two.
        pairs = [quantized_multiplier(scale) for scale in scales]
        self.register_buffer("multiplier", torch.tensor([pair[0] for pair in pairs]))
        self.register_buffer("exponent", torch.tensor([pair[1] for pair in pairs]))
        self.register_buffer("bias", torch.as_tensor(np.array(bias, np.int64).reshape(-1)))
        self.low, self.high, self.rounding, self.shift = low, high, rounding, shift

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, ..] of integers --> the same shape of integers low..high."""
        result: Tensor = rescale(
            x, self.multiplier, self.exponent, self.bias, 0, self.low, self.high, self.rounding, self.shift
        )
        return result


def bounded(low: int, high: int) -> RescaleCall:
    """Return a rescaling by 1, which only clamps integers to bounds."""
    return RescaleCall([1.0], 0, low, high, "double")


class Whole(nn.Module):
    """Constant integers as weights, behind a quantizer with scale 1, so that they are traced as codes."""

    weight: Tensor
    one: Tensor
    zero: Tensor

    def __init__(self, weight: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(weight.astype(np.float64)))
        self.register_buffer("one", torch.ones(1, dtype=torch.float64))
        self.register_buffer("zero", torch.zeros(1, dtype=torch.float64))
        # At least -1..1, so that weights that are all 0 or of one sign have a range of codes.
        self.low, self.high = min(int(weight.min()), -1), max(int(weight.max()), 1)

    def forward(self) -> Tensor:
        """Return the integers in float64."""
        result: Tensor = quantize(self.weight, self.one, self.zero, self.low, self.high, -1, False)
        return result


class FromReal(nn.Module):
    """The codes of real numbers as distances from the zero point, in float64.

    TFLite divides in float32 and rounds half away from zero; this does the same for an input in float32.
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
        """Any shape of real numbers --> the same shape of distances."""
        low, high = self.codes.low, self.codes.high
        steps = x / self.scale
        # The division stands in front of the quantizer, whose scale is 1, so that both happen in TFLite's order.
        return quantize(steps, self.one, self.zero_point, low, high, -1, False, "half_away").to(torch.float64)


class ToReal(nn.Module):
    """The real numbers that codes stand for."""

    scale: Tensor

    def __init__(self, tensor: FileTensor) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(tensor.scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape of distances --> the same shape of real numbers."""
        return x * self.scale
