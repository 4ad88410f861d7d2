"""QuantizeLinear and DequantizeLinear, and the integers between them.

Source: the ONNX specification of both operators; onnxruntime/core/mlas/lib/quantize.cpp for ONNX Runtime.
"""

from __future__ import annotations

import operator
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from .elementwise import BinaryNode
from .node import Build, OnnxNode
from .quantizing import PER_TENSOR, Convention, QuantizedWeight, QuantizeNode, Requantized
from .values import Known, TensorCoding, Traced, Value

LIMITS = {
    "UINT8": (0, 255),
    "INT8": (-128, 127),
    "INT16": (-32768, 32767),
    "INT4": (-8, 7),
    "UINT4": (0, 15),
    "INT2": (-2, 1),
    "UINT2": (0, 3),
}
"""The types whose integers become codes --> their least and greatest integer."""
_TYPES = {0: "UINT8", 2: "UINT8", 3: "INT8", 5: "INT16", 21: "UINT4", 22: "INT4", 25: "UINT2", 26: "INT2"}
"""Numbers of types, as the attribute output_dtype has them --> names; 0 is the default."""
_MOVES = frozenset(
    {
        "Clip",
        "Reshape",
        "Flatten",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Concat",
        "Split",
        "Slice",
        "MaxPool",
        "Identity",
        "Pad",
    }
)
BIAS_MAX = 1 << 24  # float32 holds all integers below it exactly


class IntegerInput(nn.Module):
    """The model's integer input as codes of scale 1: integer - zero point."""

    def __init__(self, zero_point: float, codes: QuantizeNode) -> None:
        super().__init__()
        self.zero_point, self.codes = zero_point, codes

    def forward(self, x: Tensor) -> Tensor:
        """[N, *shape] of integers --> the same shape of float32."""
        x = x.float()
        result: Tensor = self.codes(x - self.zero_point if self.zero_point else x)
        return result


def limits_of(node: OnnxNode, kind: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a type. Raises: CaptureError."""
    if kind not in LIMITS:
        raise node.refusal(f"has integers of the type {kind}; use {', '.join(LIMITS)}")
    return LIMITS[kind]


def quantize_linear(node: OnnxNode) -> Value:
    """QuantizeLinear, with a constant scale: one, or one for each channel."""
    scale, zero_point, kind = _parameters(node)
    tensor, (low, high) = _clipped(node, node.proto.output[0], limits_of(node, kind))
    axis = _axis(node, scale, zero_point)
    x = node[0]
    # Exporters write pairs of QuantizeLinear and DequantizeLinear: such a pair is one fake quantization, as PyTorch has
    # it. Where an integer operator reads the codes, they stay integers.
    real = _only_dequantized(node, tensor)
    coding = TensorCoding(scale, zero_point, low, high, axis, real)
    if isinstance(x, Known):
        return replace(_weight(node, x.array, coding, tensor, 0), coding=coding)
    return _codes_of(node, node.floats(0), coding, tensor)


def _clipped(node: OnnxNode, tensor: str, limits: tuple[int, int]) -> tuple[str, tuple[int, int]]:
    """Return the name of a tensor of integers, and its limits; a Clip that alone reads it is taken into both."""
    consumers = node.builder.consumers.get(tensor, [])
    # QCDQ files bound codes to fewer bits than their type has by a Clip between the two nodes.
    if len(consumers) != 1 or consumers[0].op_type != "Clip" or len(consumers[0].input) != 3:
        return tensor, limits
    bounds = [node.builder.number_of(name) for name in consumers[0].input[1:]]
    if None in bounds:
        return tensor, limits
    low, high = (int(bound) for bound in bounds if bound is not None)
    return consumers[0].output[0], (max(low, limits[0]), min(high, limits[1]))


def _codes_of(node: OnnxNode, x: Traced, coding: TensorCoding, tensor: str) -> Traced:
    """Add the quantizer of a computed value. `tensor`: where the file has its integers."""
    convention: Convention = (coding.low, coding.high, coding.axis, False, "half_even", False, False)
    zero_point = _checked_zero_point(node, coding)
    if coding.real:
        assert coding.scale is not None
        made = node.emit(QuantizeNode(coding.scale, zero_point, convention), x, coding=coding)
    elif coding.axis != PER_TENSOR:
        raise node.refusal("makes integers with a scale for each channel, which integer operators read; use one scale")
    else:
        assert coding.scale is not None
        codes = QuantizeNode(np.ones(1), zero_point, convention)
        made = node.emit(Requantized(None, (), float(coding.scale.reshape(-1)[0]), codes), x, coding=coding)
    return tapped(node, made, coding, tensor)


def tapped(
    node: OnnxNode, made: Traced, coding: TensorCoding, tensor: str, part: tuple[int, int, int] | None = None
) -> Traced:
    """Note in which tensor the file has the integers of a quantizer, and return the value `made`; see `Tap`."""
    shape = [1] * len(made.shape)
    if coding.axis != PER_TENSOR:
        shape[coding.axis] = -1
    arrays = (array.astype(np.float64) for array in (coding.zero_point, coding.unit))
    offset, factor = (array.reshape(shape if array.size > 1 else ()) for array in arrays)
    reads = node.proto.input[0] if node.op == "QuantizeLinear" and coding.real and not made.constant else ""
    return node.tap(made, tensor, offset, factor, part, reads)


def _checked_zero_point(node: OnnxNode, coding: TensorCoding) -> np.ndarray:
    # IR and engines take a zero point off the codes: 16-bit codes less a zero point would need 17 bits.
    if coding.high - coding.low > 255 and coding.zero_point.any():
        raise node.refusal("has 16 bits and a zero point; use a zero point of 0, or 8 bits")
    return coding.zero_point


def dequantize_linear(node: OnnxNode) -> Value:
    """DequantizeLinear: (integer - zero point) * scale."""
    scale, zero_point, _ = _parameters(node)
    x = node[0]
    if isinstance(x, Known):
        return _dequantized(node, x, scale, zero_point)
    if x.coding is not None and x.coding.real:
        if not x.coding.same(scale, zero_point):
            raise node.refusal("has another scale or zero point than the QuantizeLinear that it reads; use the same")
        # For its checks, and so that the attribute counts as taken.
        _axis(node, scale, zero_point)
        return replace(x, coding=None, positive=bool((x.coding.low >= x.coding.zero_point).all()))
    # For its checks, and so that the attribute counts as taken.
    _axis(node, scale, zero_point)
    if scale.size != 1:
        raise node.refusal("reads integers of integer operators with a scale for each channel; use one scale")
    integers = integer_operand(node, 0, zero_point)
    return node.emit(BinaryNode(operator.mul, scale.reshape(())), integers)


def _dequantized(node: OnnxNode, x: Known, scale: np.ndarray, zero_point: np.ndarray) -> Value:
    """Return constants: integers of up to 16 bits behind a quantizer, those of 32, such as a bias, as numbers."""
    axis = _axis(node, scale, zero_point)
    shape = [1] * x.array.ndim
    if axis != PER_TENSOR:
        shape[axis] = -1
    spread = [array.reshape(shape if array.size > 1 else ()) for array in (scale, zero_point)]
    # In float32, in the order of the specification: the quantizer of the module must find the same codes again.
    numbers = (x.array.astype(np.float32) - spread[1].astype(np.float32)) * spread[0]
    if x.type not in LIMITS:
        if x.type != "INT32":
            raise node.refusal(f"has integers of the type {x.type}; use {', '.join((*LIMITS, 'INT32'))}")
        return Known(node.proto.output[0], numbers.astype(np.float32))
    coding = TensorCoding(scale, zero_point, *LIMITS[x.type], axis, True)
    convention: Convention = (coding.low, coding.high, axis, False, "half_even", False, False)
    layer = QuantizedWeight(numbers, QuantizeNode(scale, zero_point, convention))
    return node.tap(node.emit(layer, constant=True), node.proto.output[0])


def _weight(node: OnnxNode, numbers: np.ndarray, coding: TensorCoding, tensor: str, place: int) -> Traced:
    """Add the quantizer of constants. `tensor`: where the file has their integers; `place`: of the input they are."""
    scale = coding.unit
    if not coding.real and coding.scale is not None:
        shape = [1] * numbers.ndim
        if coding.axis != PER_TENSOR:
            shape[coding.axis] = -1
        numbers = numbers / coding.scale.reshape(shape if coding.scale.size > 1 else ())
    convention: Convention = (coding.low, coding.high, coding.axis, False, "half_even", False, False)
    layer = QuantizedWeight(numbers, QuantizeNode(scale, coding.zero_point, convention))
    return tapped(node, node.emit(layer, result=place, constant=True), coding, tensor)


def integer_weight(node: OnnxNode, place: int, zero_point: np.ndarray, axis: int) -> Traced:
    """Return integer weights, constant or computed, as distances from their zero point.

    Parameters
    ----------
    place: of the input.
    zero_point: one, or one for each output.
    axis: of the outputs in the weights.

    Raises
    ------
    CaptureError: their type has no codes, or the zero points do not fit.
    """
    value = node[place]
    if isinstance(value, Traced):
        return integer_operand(node, place, zero_point)
    low, high = limits_of(node, value.type)
    zero_point = zero_point.reshape(-1)
    axis = node.axis(axis, value.array.ndim) if zero_point.size > 1 else PER_TENSOR
    if zero_point.size not in (1, value.array.shape[axis]):
        raise node.refusal(
            f"has {zero_point.size} zero points for {value.array.shape[axis]} outputs; use one, or one for each output"
        )
    shape = [1] * value.array.ndim
    if axis != PER_TENSOR:
        shape[axis] = -1
    numbers = value.array.astype(np.float32) - zero_point.astype(np.float32).reshape(
        shape if axis != PER_TENSOR else ()
    )
    return _weight(node, numbers, TensorCoding(None, zero_point, low, high, axis), value.name, place)


def integer_operand(node: OnnxNode, place: int, zero_point: np.ndarray) -> Traced:
    """Return a computed input of integers, or the model's own, as distances from its zero point.

    Raises: CaptureError if it is of floats, or was made with another zero point.
    """
    if np.unique(zero_point).size > 1:
        raise node.refusal(f"has one zero point per channel for its input {place}; use one for all channels")
    x = node.traced(place)
    coding = x.coding
    if coding is None:
        if x.like.is_floating_point() or x.key != node.builder.graph.input:
            raise node.refusal(f"needs integers as its input {place}; put QuantizeLinear in front of it")
        return _input(node, x, zero_point)
    if coding.real or np.unique(coding.zero_point).size > 1 or coding.axis != PER_TENSOR:
        raise node.refusal(f"reads integers with a scale for each channel as its input {place}; use one scale")
    if float(coding.zero_point.reshape(-1)[0]) != float(zero_point.reshape(-1)[0]):
        raise node.refusal(
            f"takes {zero_point.reshape(-1)[0]} as zero point of its input {place}, which was made with "
            f"{coding.zero_point.reshape(-1)[0]}; use the same"
        )
    return x


def _input(node: OnnxNode, x: Traced, zero_point: np.ndarray) -> Traced:
    """Return the model's integer input as codes; one step for each zero point, however many nodes read it."""
    offset = zero_point.reshape(-1)[:1]
    # Several operators may read the input; equal ones share one quantizer, and the codes are compared once.
    key = f"{x.key} - {offset[0]}"
    if key not in node.builder.inputs:
        low, high = limits_of(node, str(x.like.dtype).removeprefix("torch.").upper())
        convention: Convention = (low, high, PER_TENSOR, False, "half_even", False, False)
        coding = TensorCoding(None, offset, low, high)
        layer = IntegerInput(float(offset[0]), QuantizeNode(np.ones(1), _checked_zero_point(node, coding), convention))
        made = node.emit(layer, x, result=len(node.inputs) + 1, coding=coding)
        node.builder.inputs[key] = tapped(node, made, coding, x.key)
    return node.builder.inputs[key]


def _parameters(node: OnnxNode) -> tuple[np.ndarray, np.ndarray, str]:
    """Return scale, zero point (int32), and the name of the integers' type, of a node for (de)quantization."""
    node.take("precision")
    node.take("saturate")
    if node.take("block_size", 0):
        raise node.refusal("has scales for blocks of a channel, whose products have no common scale; use per channel")
    scale = node.known(1, "scale")
    given = node[2] if node.given(2) else None
    kind = _TYPES.get(node.take("output_dtype", 0) if node.op == "QuantizeLinear" else 0, "another type")
    node.take("output_dtype")
    if given is None:
        return scale, np.zeros(1, np.int32), kind
    if not isinstance(given, Known):
        raise node.refusal("computes its zero point from the model's input; export it as a constant")
    return scale, given.array.astype(np.int32), given.type


def _axis(node: OnnxNode, scale: np.ndarray, zero_point: np.ndarray) -> int:
    """Return the axis along which scales or zero points differ; PER_TENSOR if there is one of each.

    Raises: CaptureError if the value has no such axis, or another number of channels along it.
    """
    axis = node.take("axis", 1)
    if scale.size == 1 and zero_point.size == 1:
        return PER_TENSOR
    value = node[0]
    shape = value.array.shape if isinstance(value, Known) else value.shape
    place = node.axis(axis, len(shape))
    if scale.shape != (shape[place],) or zero_point.size not in (1, scale.size):
        raise node.refusal(
            f"has scales of the shape {list(scale.shape)} and zero points of the shape {list(zero_point.shape)} for "
            f"the {shape[place]} channels along axis {place}; use one of each, or one for each channel"
        )
    return place


def _only_dequantized(node: OnnxNode, tensor: str) -> bool:
    """Return whether DequantizeLinear alone reads integers, directly or behind operators that move them."""
    if tensor == node.builder.graph.output:
        return False
    for consumer in node.builder.consumers.get(tensor, []):
        if consumer.op_type == "DequantizeLinear":
            continue
        if consumer.op_type not in _MOVES or not all(_only_dequantized(node, name) for name in consumer.output if name):
            return False
    return True


TABLE: dict[str, Build] = {"QuantizeLinear": quantize_linear, "DequantizeLinear": dequantize_linear}
