"""The operators of QONNX: quantizers whose results are floats.

Source: https://github.com/fastmachinelearning/qonnx, docs/qonnx-custom-ops; Pappalardo et al., arXiv:2206.07527.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from .finn import weights_of
from .layout import moved
from .linear import batch_normalization, conv_layer
from .node import Build, OnnxNode
from .pooling import max_pool
from .quantizing import PER_TENSOR, Convention, QuantizedWeight, QuantizeNode
from .values import Known, Traced, Value

BITS_MAX = 16  # of a code
_ROUNDINGS = {
    "ROUND": "half_even",
    "HALF_EVEN": "half_even",
    "CEIL": "ceil",
    "FLOOR": "floor",
}
# HALF_UP is none of them: QONNX adds 0.5 to magnitudes in float32, so that numbers below a half may round up, too.
_TO_ZERO = ("DOWN", "ROUND_TO_ZERO")
_LAYOUTS = {3: "NWC"}
"""Number of axes --> the layout that MultiThreshold has where it states none, if its channels are not axis 1."""
THRESHOLDS_MAX = 255
"""Steps of a MultiThreshold: its codes have 8 bits at most."""


def quant(node: OnnxNode) -> Value:
    """Quant, also named IntQuant: codes of 1 to 16 bits, as the numbers that they stand for."""
    # QONNX's package has these two as required, and its documentation states defaults: to guess would be to be wrong.
    signed, narrow = bool(node.required("signed")), bool(node.required("narrow"))
    mode = node.take("rounding_mode", "ROUND").upper()
    scale, zero_point, bits = _parameters(node)
    x = node[0]
    # Of one signed bit QONNX makes -1 and +1, as its BipolarQuant does, and not -1 and 0.
    if bits == 1 and signed:
        if zero_point.any():
            raise node.refusal("has one bit and a zero point; use BipolarQuant")
        return _bipolar(node, scale)
    low, high = limits(signed, narrow, bits)
    # Brevitas exports biases with 32 bits: these stay numbers, and need no codes.
    if isinstance(x, Known) and bits > BITS_MAX:
        return _plain(node, x, scale, zero_point, (low, high), mode)
    if bits > BITS_MAX:
        raise node.refusal(f"has {bits} bits, but codes have 1 to {BITS_MAX}; use fewer")
    rounding = rounding_of(node, mode, low)
    return _quantized(node, scale, zero_point, (low, high), False, rounding)


def bipolar_quant(node: OnnxNode) -> Value:
    """BipolarQuant: scale times the sign, which is +1 for 0."""
    return _bipolar(node, node.known(1, "scale"))


def _bipolar(node: OnnxNode, scale: np.ndarray) -> Value:
    return _quantized(node, scale, np.zeros(1, np.float32), (-1, 1), True, "half_even")


def limits(signed: bool, narrow: bool, bits: int) -> tuple[int, int]:
    """Return the least and the greatest code of `bits` bits; a narrow range has one code less."""
    if signed:
        return -(1 << (bits - 1)) + int(narrow), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - int(narrow)


def rounding_of(node: OnnxNode, mode: str, low: int) -> str:
    """Return the name that `nnhw.quantize` has for a rounding mode. Raises: CaptureError if it has none.

    Rounding towards 0 is rounding down where `low`, the least code, is 0 or more.
    """
    if mode in _TO_ZERO and low >= 0:
        return "floor"
    if mode not in _ROUNDINGS:
        raise node.refusal(f"has rounding_mode='{mode}', which no engine does; use {', '.join(_ROUNDINGS)}")
    return _ROUNDINGS[mode]


def _parameters(node: OnnxNode) -> tuple[np.ndarray, np.ndarray, int]:
    """Return scale, zero point and width in bits."""
    scale, zero_point = node.known(1, "scale"), node.known(2, "zero point")
    return scale, zero_point, width_of(node, 3)


def width_of(node: OnnxNode, place: int) -> int:
    """Return the input at a place, which is a number of bits. Raises: CaptureError if it is not one whole number."""
    bits = node.known(place, "bit width").reshape(-1)
    if bits.size != 1 or bits[0] != int(bits[0]) or bits[0] < 1:
        raise node.refusal(f"has the bit widths {bits[:3].tolist()}; use one whole number")
    return int(bits[0])


def _quantized(
    node: OnnxNode, scale: np.ndarray, zero_point: np.ndarray, limits: tuple[int, int], bipolar: bool, rounding: str
) -> Value:
    """Add the quantizer of a computed value, or of constant weights. `limits`: least and greatest code."""
    x = node[0]
    shape = x.array.shape if isinstance(x, Known) else x.shape
    axis, (scale, zero_point) = aligned(node, (scale, zero_point), shape)
    convention: Convention = (*limits, axis, bipolar, rounding, False, bool(zero_point.any()))
    codes = QuantizeNode(scale, zero_point, convention)
    positive = limits[0] >= 0 and not zero_point.any() and not bipolar
    if isinstance(x, Known):
        made = node.emit(QuantizedWeight(x.array, codes), positive=positive, constant=True)
    else:
        made = node.emit(codes, node.floats(0), positive=positive)
    return node.tap(made, node.proto.output[0], reads="" if made.constant else node.proto.input[0])


def aligned(
    node: OnnxNode, parameters: tuple[np.ndarray, np.ndarray], shape: tuple[int, ...]
) -> tuple[int, tuple[np.ndarray, np.ndarray]]:
    """Return the axis of a tensor along which scales or zero points differ, and both as one number or one per index.

    Parameters
    ----------
    parameters: scale and zero point, which broadcast to the tensor.
    shape: of the tensor.

    Raises
    ------
    CaptureError: they differ along several axes.
    """
    whole = np.broadcast_shapes(*(array.shape for array in parameters))
    axes = [len(shape) - len(whole) + index for index, size in enumerate(whole) if size != 1]
    if not axes:
        scale, zero_point = (array.reshape(1) for array in parameters)
        return PER_TENSOR, (scale, zero_point)
    if len(axes) > 1 or axes[0] < 0 or shape[axes[0]] != max(whole):
        raise node.refusal(f"has scales of the shape {list(whole)}; use one scale, or one for each channel")
    scale, zero_point = (np.broadcast_to(array, whole).reshape(-1) for array in parameters)
    if zero_point.size and (zero_point == zero_point[0]).all():
        zero_point = zero_point[:1]
    return axes[0], (scale, zero_point)


def _plain(
    node: OnnxNode, x: Known, scale: np.ndarray, zero_point: np.ndarray, limits: tuple[int, int], mode: str
) -> Known:
    """Return the result of a quantizer with more than 16 bits on constants, such as a bias, as plain numbers."""
    functions: dict[str, Callable[..., np.ndarray]] = {"half_even": np.round, "ceil": np.ceil, "floor": np.floor}
    rounding = _ROUNDINGS.get(mode, "")
    if rounding not in functions:
        raise node.refusal(f"has rounding_mode='{mode}' and more than {BITS_MAX} bits; use ROUND, CEIL or FLOOR")
    codes = functions[rounding](np.clip(x.array / scale + zero_point, np.float32(limits[0]), np.float32(limits[1])))
    return Known(node.proto.output[0], ((codes - zero_point) * scale).astype(np.float32))


class Truncated(nn.Module):
    """Codes whose lower bits are cut off.

    Parameters
    ----------
    scale, zero_point: of the input.
    out_zero_point: of the result, in steps of the result.
    codes: quantizes the input's integers in steps of 2**bits that are cut.
    factor: the scale of the result.
    """

    def __init__(
        self, scale: float, zero_point: float, out_zero_point: float, codes: QuantizeNode, factor: float
    ) -> None:
        super().__init__()
        self.scale, self.zero_point, self.out_zero_point = scale, zero_point, out_zero_point
        self.codes, self.factor = codes, factor

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] of the input's real numbers --> the same shape of the result's."""
        steps = x / self.scale
        whole = torch.round(steps + self.zero_point if self.zero_point else steps)
        cut = self.codes(whole) / self.codes.scale
        return (cut - self.out_zero_point if self.out_zero_point else cut) * self.factor


def trunc(node: OnnxNode) -> Value:
    """Trunc: version 1 cuts the difference of two widths and keeps the scale, version 2 cuts by two scales."""
    x = node.floats(0)
    mode = node.required("rounding_mode").upper()
    scale, zero_point = (_number(node, place, what) for place, what in ((1, "scale"), (2, "zero point")))
    if node.version < 2:
        in_bits, out_bits = width_of(node, 3), width_of(node, 4)
        cut, out_scale, out_zero_point = in_bits - out_bits, scale, zero_point
        # Version 1 has no attribute for the sign.
        signed, narrow = not x.positive, False
    else:
        out_scale, out_bits = _number(node, 4, "scale"), width_of(node, 5)
        # A power of two but for the rounding of both scales to float32.
        cut = int(np.round(np.log2(np.float32(out_scale) / np.float32(scale))))
        out_zero_point = zero_point / 2.0**cut
        signed, narrow = bool(node.take("signed", 1)), bool(node.take("narrow", 0))
    if cut < 0 or out_bits > BITS_MAX:
        raise node.refusal(f"leaves {out_bits} bits and cuts {cut}; cut 0 or more, and leave up to {BITS_MAX}")
    low, high = limits(signed, narrow, out_bits)
    step = np.array([2.0**cut], np.float32)
    rounding = rounding_of(node, mode, low)
    codes = QuantizeNode(step, np.zeros(1, np.float32), (low, high, PER_TENSOR, False, rounding, False, False))
    layer = Truncated(scale, zero_point, out_zero_point, codes, out_scale)
    made = node.emit(layer, x, positive=x.positive and not zero_point)
    # result = (code - zero point) * scale  -->  code * step
    return node.tap(made, node.proto.output[0], -out_zero_point * out_scale, 2.0**cut / out_scale)


def _number(node: OnnxNode, place: int, what: str) -> float:
    array = node.known(place, what).reshape(-1)
    if not array.size or (array != array[0]).any():
        raise node.refusal(f"has a {what} for each channel; use one")
    return float(array[0])


class Staircase(nn.Module):
    """The number of thresholds that are at or below each element, by scale and bias.

    Each of them adds min(max(floor(x - threshold), -1), 0), which is -1 below it and 0 from it on, exactly.

    Parameters
    ----------
    thresholds: [steps, ..]; each of them broadcasts to the input.
    codes: makes codes of the counts.
    scale, bias: the result is count * scale + bias.
    """

    thresholds: Tensor

    def __init__(self, thresholds: np.ndarray, codes: QuantizeNode, scale: float, bias: float) -> None:
        super().__init__()
        self.register_buffer("thresholds", torch.from_numpy(np.array(thresholds, np.float32)))
        self.codes, self.scale, self.bias = codes, scale, bias

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] --> the same shape."""
        below = torch.clamp(torch.floor(x - self.thresholds[0]), -1.0, 0.0)
        for number in range(1, len(self.thresholds)):
            below = below + torch.clamp(torch.floor(x - self.thresholds[number]), -1.0, 0.0)
        count: Tensor = self.codes(below + float(len(self.thresholds)))
        count = count * self.scale if self.scale != 1 else count
        return count + self.bias if self.bias else count


def multi_threshold(node: OnnxNode) -> Value:
    """MultiThreshold: out_scale * (number of thresholds that are at or below x) + out_bias."""
    x, thresholds = node.floats(0), node.known(1, "thresholds")
    scale, bias = node.take("out_scale", 1.0), node.take("out_bias", 0.0)
    layout = node.take("data_layout", "")
    node.required("out_dtype")  # of the integers, which thresholds, scale and bias say already
    rank = len(x.shape)
    # Without a layout, QONNX takes values of three axes for sequences with the channels last.
    layout = layout or _LAYOUTS.get(rank, "")
    axis = layout.index("C") if "C" in layout else 1
    count = thresholds.shape[-1]
    if thresholds.ndim != 2 or not 1 <= count <= THRESHOLDS_MAX or axis >= rank:
        raise node.refusal(
            f"has thresholds of the shape {list(thresholds.shape)} for values of {rank} axes; use [channels, steps] "
            f"with 1 to {THRESHOLDS_MAX} steps"
        )
    if thresholds.shape[0] not in (1, x.shape[axis]) or not np.isfinite(thresholds).all():
        raise node.refusal(
            f"has thresholds for {thresholds.shape[0]} channels of {x.shape[axis]}; use one row for each"
        )
    # The count of thresholds at or below x does not depend on their order.
    layers = np.sort(thresholds, axis=1).T.reshape(count, -1, *(1,) * (rank - 1 - axis))
    codes = QuantizeNode(np.ones(1), np.zeros(1), (0, count, PER_TENSOR, False, "half_even", False, False))
    made = node.emit(Staircase(layers, codes, scale, bias), x)
    return node.tap(made, node.proto.output[0], bias, 1 / scale)


def channels_last(build: Build) -> Build:
    """Return the builder of an operator with channels as last axis, from that with channels first."""

    def built(node: OnnxNode) -> Value:
        x = node.traced(0)
        back, forth = _orders(len(x.shape))
        first = moved(node, Permuted(back), x)
        inner = OnnxNode(node.proto, (first, *node.inputs[1:]), node.builder.graph.opsets.get("", 13), node.builder, {})
        inner.adopt(node)
        made = build(inner)
        assert isinstance(made, Traced)
        return moved(node, Permuted(forth), made)

    return built


def _orders(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)


class Permuted(nn.Module):
    """A tensor with its axes in another order."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """Return the tensor with its axes in this order."""
        return x.permute(self.axes)


def _last_convolution(node: OnnxNode) -> Value:
    """Conv of a value with channels first, by weights [outputs, *kernel, inputs / groups]."""
    x, weight = node.floats(0), weights_of(node)
    rank = len(x.shape)
    back, _ = _orders(rank)
    if isinstance(weight, Known):
        weight = Known(weight.name, weight.array.transpose(back))
    else:
        weight = node.emit(Permuted(back), weight)
    layer, more = conv_layer(node, weight, node[2] if node.given(2) else None, x.shape)
    return node.emit(layer, x, *more)


TABLE: dict[str, Build] = {
    "Quant": quant,
    "IntQuant": quant,
    "BipolarQuant": bipolar_quant,
    "Trunc": trunc,
    "MultiThreshold": multi_threshold,
    "MaxPoolNHWC": channels_last(max_pool),
}
CHANNELS_LAST: dict[str, Build] = {
    "Conv": channels_last(_last_convolution),
    "MaxPool": channels_last(max_pool),
    "BatchNormalization": channels_last(batch_normalization),
}
