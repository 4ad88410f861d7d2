"""Handlers of traced quantizers, at which values become codes."""

from __future__ import annotations

import numpy as np
import torch

from nnhw.errors import CaptureError
from nnhw.ir import IntType
from nnhw.ir.ops import Quantize
from nnhw.ir.ops.boundary import has_reciprocal
from nnhw.ir.ops.rounding import ROUNDINGS

from .calls import Call, evaluate
from .translator import QUANTIZE, Handler, Translator
from .values import Codes, TracedConstant, Unknown, Value

PER_TENSOR = -1


def quantize(translator: Translator, call: Call) -> Value:
    """Make codes of an activation, or compute those of a constant.

    A zero point is taken off the codes and their range, so that the IR needs none: code 0 stands for 0.0.
    """
    scale, zero_point = _fixed(call, "scale"), _fixed(call, "zero_point")
    _check_scale(call, scale)
    _check_rounding(call)
    _check_zero_point(call, zero_point)
    # Codes of constants are read off what torch makes of them, whatever convention that followed.
    if isinstance(call["x"], TracedConstant):
        return _quantized_constant(call, scale, zero_point)
    if len(set(zero_point.tolist())) != 1:
        raise CaptureError(f"{call} has one zero point per channel; activations need one zero point for all channels")
    dtype = _range(call, zero_point)
    floats = translator.floats(call["x"], call.location)
    spread = _spread(call, scale, len(translator.builder.type_of(floats).shape) + 1)
    if spread.ndim and not (spread.size and call["axis"]):
        raise CaptureError(f"{call} has one scale per image; use one scale, or axis=1 for one per channel")
    # The graph has no axis for the batch.
    spread = spread[0] if spread.ndim else spread
    op = _operator(call, dtype, int(zero_point[0]))
    # Equal quantizers of one value become one node.
    key = floats, op, spread.shape, spread.tobytes()
    if key not in translator.quantized:
        constant = translator.array(f"{translator.label(call)}.scale", spread, call.location)
        translator.quantized[key] = Codes(translator.emit(call, op, floats, constant), spread, quantized=True)
    return translator.quantized[key]


def observed_scale(translator: Translator, call: Call) -> Value:
    """A scale found from weights. If it depends on the model's input, the quantizer that uses it says what is wrong."""
    return Unknown()


def _fixed(call: Call, name: str) -> np.ndarray:
    value = call[name]
    if not isinstance(value, TracedConstant):
        raise CaptureError(
            f"{call} computes its {name} from the model's input; use a fixed scale, or scale='observed' and train"
        )
    array: np.ndarray = value.tensor.detach().to(torch.float64).cpu().numpy().reshape(-1)
    return array


def _check_scale(call: Call, scale: np.ndarray) -> None:
    bad = scale[~(np.isfinite(scale) & (scale > 0))]
    if bad.size:
        raise CaptureError(
            f"{call} needs scales that are positive and finite, got {bad[0]}; a quantizer with scale='observed' "
            f"has to see data in training mode first, and weights must not hold NaN"
        )
    # The IR computes in float64: it has the same products only if the scale and its reciprocal are numbers of float32.
    inexact = scale[~has_reciprocal(scale)] if call["reciprocal"] else scale[:0]
    if inexact.size:
        raise CaptureError(
            f"{call} multiplies by the reciprocal of its scale, so both must be numbers of float32, got the scale "
            f"{inexact[0]}; round it to float32, and take none below 2**-127"
        )


def _check_zero_point(call: Call, zero_point: np.ndarray) -> None:
    """Raise CaptureError unless zero points are integers, without which no code stands for 0.0."""
    bad = zero_point[zero_point != np.rint(zero_point)]
    if bad.size and not call["bipolar"]:
        raise CaptureError(
            f"{call} needs zero points that are integers, so that a code stands for 0.0, got {bad[0]}; round them, "
            f"such as by quantizer.zero_point.round_(), and calibrate or train with them as they are then"
        )


def _check_rounding(call: Call) -> None:
    """Raise CaptureError unless the rounding is a known one; a program from a file may have any text there."""
    if call["rounding"] not in ROUNDINGS:
        raise CaptureError(f"{call} needs the rounding {', '.join(ROUNDINGS)}, got '{call['rounding']}'")


def _operator(call: Call, dtype: IntType, zero_point: int) -> Quantize:
    """Return the IR's operator with the same rounding and order of steps."""
    if dtype.bipolar:
        return Quantize(dtype.low, dtype.high, bipolar=True)
    offset = zero_point if call["zero_point_first"] else 0
    return Quantize(dtype.low, dtype.high, rounding=call["rounding"], reciprocal=call["reciprocal"], offset=offset)


def _range(call: Call, zero_point: np.ndarray) -> IntType:
    if call["bipolar"]:
        return IntType(-1, 1, bipolar=True)
    return IntType(call["qmin"] - int(zero_point.max()), call["qmax"] - int(zero_point.min()))


def _spread(call: Call, scale: np.ndarray, rank: int) -> np.ndarray:
    """Shape scales so that they broadcast to a tensor of `rank` axes."""
    if call["axis"] == PER_TENSOR or scale.size == 1:
        return scale.reshape(())
    return scale.reshape([-1 if axis == call["axis"] else 1 for axis in range(rank)])


def _quantized_constant(call: Call, scale: np.ndarray, zero_point: np.ndarray) -> TracedConstant:
    """Quantize weights by the operator that the model was trained with, and read the codes off its result."""
    values = evaluate(call)
    exact = values.to(torch.float64).cpu().numpy()
    spread = _spread(call, scale, exact.ndim)
    if not np.isfinite(exact).all():
        raise CaptureError(f"{call} quantizes weights that hold NaN or infinity; train again, or load another file")
    codes = np.rint(exact / spread).astype(np.int64)
    dtype = _range(call, zero_point)
    # The product is computed again in the model's own dtype: equal to the bit, or these are no codes of the weights.
    rounded = torch.as_tensor(codes, dtype=values.dtype) * torch.as_tensor(spread, dtype=values.dtype)
    if not dtype.holds(codes) or not torch.equal(rounded, values.cpu()):
        raise CaptureError(f"{call} makes values that are not codes times the scale; give the weights a larger scale")
    source: TracedConstant = call["x"]
    return TracedConstant(values, source.label, codes, spread, dtype, torch.from_numpy(codes * spread))


HANDLERS: dict[str, Handler] = {QUANTIZE: quantize, "nnhw.power_of_two_scale.default": observed_scale}
