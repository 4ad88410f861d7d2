"""Handlers of traced arithmetic, batch normalization, and operations at a model's end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from nnhw.errors import CaptureError
from nnhw.ir import Op
from nnhw.ir.ops import (
    Add,
    ArgMax,
    BatchNorm,
    Divide,
    LogSoftmax,
    Maximum,
    Minimum,
    Multiply,
    Negate,
    Softmax,
    Subtract,
    Truncate,
)

from .calls import Call
from .layout import as_value
from .translator import Handler, KnownResult, Translator
from .two_values import check_shapes, paired
from .values import Codes, Float, Integers, TracedConstant, Value


def binary(op: Op) -> Handler:
    """Return the handler of an op of two operands, each a value, a constant or a number."""

    def handle(translator: Translator, call: Call) -> Value:
        if _is_condition(call):
            raise CaptureError(
                f"{call} computes with conditions; combine them with &, | and ~, or make numbers of them"
            )
        other = _times(translator, call, call["other"], call.arguments.get("alpha", 1))
        return arithmetic(translator, call, op, call["self"], other)

    handle.__doc__ = type(op).__doc__
    return handle


def reversed_subtract(translator: Translator, call: Call) -> Value:
    """other - alpha * self."""
    return arithmetic(
        translator, call, Subtract(), call["other"], _times(translator, call, call["self"], call["alpha"])
    )


def negate(translator: Translator, call: Call) -> Value:
    """-x."""
    return Float(translator.emit(call, Negate(), translator.floats(call["self"], call.location)))


def reciprocal(translator: Translator, call: Call) -> Value:
    """1 / x."""
    return arithmetic(translator, call, Divide(), 1.0, call["self"])


def bounded(translator: Translator, call: Call) -> Value:
    """min(max(x, low), high) with tensors as bounds, either of which may be missing."""
    value: Value = call["self"]
    low, high = call.arguments.get("min"), call.arguments.get("max")
    for op, bound, suffix in ((Maximum(), low, "low"), (Minimum(), high, "high")):
        if bound is not None:
            value = arithmetic(translator, call, op, value, bound, suffix)
    return value


def batch_norm(translator: Translator, call: Call) -> Value:
    """Batch normalization with the statistics of training."""
    if call["training"] or call["running_mean"] is None:
        raise KnownResult(
            f"{call} uses the statistics of the batch (training mode); call model.eval() before export, "
            f"and use track_running_stats=True"
        )
    x = translator.floats(call["input"], call.location)
    channels = translator.builder.type_of(x).shape[0]
    _check_variance(call)
    names = [_statistic(translator, call, name, channels) for name in ("weight", "bias", "running_mean", "running_var")]
    return Float(translator.emit(call, BatchNorm(float(call["eps"])), x, *names))


def _check_variance(call: Call) -> None:
    """Raise CaptureError unless all variances of a batch normalization are positive, with eps added."""
    if not isinstance(call["running_var"], TracedConstant):
        return
    # As the graph computes, in float64. Not above 0 catches NaN, too.
    variance = call["running_var"].doubles.flatten()
    bad = (~(variance + float(call["eps"]) > 0)).nonzero().flatten().tolist()
    if bad:
        others = f", and others in {len(bad) - 1} more" if bad[1:] else ""
        raise KnownResult(
            f"{call} needs variances that are above 0 with eps={call['eps']} added, got {variance[bad[0]]:g} in "
            f"channel {bad[0]}{others}; use eps=1e-5, or train again"
        )


def dropout(translator: Translator, call: Call) -> Value:
    """Nothing, outside of training."""
    if call["train"]:
        # Noted, not raised: what is behind dropout can be checked all the same.
        translator.problems.append(
            CaptureError(
                f"{call} drops values at random, because its argument training is True; use nn.Dropout, or "
                f"F.dropout(x, p, training=self.training), and call model.eval() before torch.export"
            )
        )
    value: Value = call["self" if "self" in call.arguments else "input"]  # nn.Dropout(inplace=True) names it 'self'
    return value


def softmax(translator: Translator, call: Call) -> Value:
    """Softmax along an axis of the image."""
    return _along_axis(translator, call, Softmax)


def log_softmax(translator: Translator, call: Call) -> Value:
    """log_softmax along an axis of the image."""
    return _along_axis(translator, call, LogSoftmax)


def argmax(translator: Translator, call: Call) -> Value:
    """The index of the greatest value along an axis of the image."""
    x = translator.floats(call["self"], call.location)
    axis = _image_axis(translator, call, x)
    return Integers(translator.emit(call, ArgMax(axis, bool(call["keepdim"])), x))


def same(translator: Translator, call: Call) -> Value:
    """The operand: clone, contiguous, detach and the like. A dtype may become another float, for all is float64.

    Integers are numbers without their fraction. Those below 16 bits would wrap around.
    """
    dtype = call.arguments.get("dtype")
    if dtype in (torch.int16, torch.int32, torch.int64) and not _of_condition(call):
        return Float(translator.emit(call, Truncate(), translator.floats(call["self"], call.location)))
    if dtype not in (None, torch.float32, torch.float64) and not _of_condition(call):
        raise CaptureError(f"{call} converts to {dtype}; only float32 and float64 are supported; {_conversion(dtype)}")
    value: Value = call.arguments["self"] if "self" in call.arguments else call["input"]
    return value


def type_as(translator: Translator, call: Call) -> Value:
    """The operand, in the dtype of another, both of them floats."""
    return same(translator, replace(call, arguments={**call.arguments, "dtype": call.node.meta["val"].dtype}))


def _conversion(dtype: torch.dtype) -> str:
    """Return the remedy for a conversion to a dtype that is not supported."""
    if dtype.is_complex:
        return "compute with real numbers, in two branches"
    if dtype == torch.bool:
        return "use a comparison, such as x != 0"
    return "leave it out" if dtype.is_floating_point else "use torch.trunc, torch.floor or torch.round, without it"


def _of_condition(call: Call) -> bool:
    """Return whether the operand is a condition, which may be converted to any dtype, as 0 or 1."""
    # Conditions are floats in the graph (`conditions`): a conversion changes nothing of them.
    (node, *_) = call.node.all_input_nodes
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool


def _is_condition(call: Call) -> bool:
    """Return whether a result is a tensor of booleans: torch's sum of conditions is a logical or."""
    result = call.node.meta.get("val")
    return isinstance(result, torch.Tensor) and result.dtype == torch.bool


def _times(translator: Translator, call: Call, value: Any, alpha: float) -> Any:
    """Return the second operand of a sum, multiplied by alpha."""
    if alpha == 1:
        return value
    if isinstance(value, int | float):
        return value * alpha
    if isinstance(value, TracedConstant):
        return TracedConstant(value.tensor * alpha, value.label, precise=value.doubles * alpha)
    return arithmetic(translator, call, Multiply(), value, float(alpha), "alpha")


def arithmetic(translator: Translator, call: Call, op: Op, left: Any, right: Any, suffix: str = "") -> Value:
    """Emit an op of two operands, each a value, a constant or a number. Raises: CaptureError: shapes that differ."""
    found = paired(translator, call, op, left, right, suffix)
    if found is not None:
        return found
    shapes = [translator.shape(value) for value in (left, right) if isinstance(value, Codes | Float)]
    check_shapes(translator, call, op, shapes)
    # Constants get as many axes as the computed operand at most.
    rank = max(map(len, shapes), default=0)
    left, right = (
        _positions(translator, call, op, left, right, rank),
        _positions(translator, call, op, right, left, rank),
    )
    names = [operand(translator, call, side, rank) for side in (left, right)]
    return Float(translator.emit(call, op, *names, suffix=suffix))


def _positions(translator: Translator, call: Call, op: Op, side: Any, other: Any, rank: int) -> Any:
    """Return an operand; a quantized constant of a sum that differs by position becomes a value of the graph."""
    if isinstance(op, Add | Subtract) and isinstance(side, TracedConstant) and _is_positional(side, rank):
        return as_value(translator, call, side, other)
    return side


def _is_positional(constant: TracedConstant, rank: int) -> bool:
    """Return whether a constant differs along two axes or more of an image with `rank` axes, so not only by channel."""
    if constant.codes is None:
        return False
    codes = constant.codes[0] if constant.codes.ndim == rank + 1 else constant.codes
    # A constant that differs along one axis is a bias of channels, or of rows; along two it is one of positions, such
    # as an embedding.
    moves = [bool((codes != codes.take([0], axis=axis)).any()) for axis in range(codes.ndim)]
    return sum(moves) > 1


def operand(translator: Translator, call: Call, value: Any, rank: int) -> str:
    """Return the name of an operand in the graph; a constant becomes a parameter with at most `rank` axes."""
    if isinstance(value, int | float):
        value = TracedConstant(torch.tensor(float(value), dtype=torch.float64), f"{translator.label(call)}.value")
    if not isinstance(value, TracedConstant):
        return translator.floats(value, call.location)
    is_map = sum(size > 1 for size in value.tensor.shape) > 1
    if is_map and bool((value.tensor == value.tensor.reshape(-1)[0]).all()):
        # One number throughout, such as that of torch.ones_like: as a number it goes with values of any shape.
        value = replace(value, tensor=value.tensor.reshape(-1)[0], precise=value.doubles.reshape(-1)[0], codes=None)
    shape = tuple(value.tensor.shape)
    if len(shape) > rank:
        if len(shape) > rank + 1 or shape[0] != 1:
            raise CaptureError(f"{call} has a constant of shape {list(shape)}, which differs from image to image")
        # Axis 0 of size 1 stands for the batch, which the graph does not have.
        shape = shape[1:]
    return translator.parameter(value, call, shape)


def _statistic(translator: Translator, call: Call, name: str, channels: int) -> str:
    value = call[name]
    if value is None:  # batch_norm without weight and bias: affine=False
        value = TracedConstant(torch.full((channels,), float(name == "weight")), f"{translator.label(call)}.{name}")
    if not isinstance(value, TracedConstant):
        raise CaptureError(f"{call} computes its {name} from the model's input; it must be a parameter")
    return translator.parameter(value, call, tuple(value.tensor.shape))


def _along_axis(translator: Translator, call: Call, op: type[Softmax | LogSoftmax]) -> Value:
    if call["dtype"] not in (None, torch.float32, torch.float64):
        raise CaptureError(f"{call} computes in {call['dtype']}; only float32 and float64 are supported")
    x = translator.floats(call["self"], call.location)
    return Float(translator.emit(call, op(_image_axis(translator, call, x)), x))


def _image_axis(translator: Translator, call: Call, x: str) -> int:
    rank = len(translator.builder.type_of(x).shape) + 1
    axis = None if call["dim"] is None else call["dim"] % rank
    if not axis:
        raise CaptureError(f"{call} works along the batch, got dim={call['dim']}; use dim=1 or dim=-1")
    return int(axis) - 1


def _names(*operators: str) -> list[str]:
    return [f"aten.{operator}.{kind}" for operator in operators for kind in ("Tensor", "Scalar")]


HANDLERS: dict[str, Handler] = {
    "aten.add.Tensor": binary(Add()),
    "aten.add.Scalar": binary(Add()),
    **dict.fromkeys(_names("sub", "subtract"), binary(Subtract())),
    "aten.rsub.Scalar": reversed_subtract,
    "aten.rsub.Tensor": reversed_subtract,
    **dict.fromkeys(_names("mul", "multiply"), binary(Multiply())),
    **dict.fromkeys(_names("div", "divide", "true_divide"), binary(Divide())),
    "aten.neg.default": negate,
    "aten.negative.default": negate,
    "aten.reciprocal.default": reciprocal,
    "aten.minimum.default": binary(Minimum()),
    "aten.min.other": binary(Minimum()),
    "aten.maximum.default": binary(Maximum()),
    "aten.max.other": binary(Maximum()),
    "aten.clamp.Tensor": bounded,
    "aten.clamp_min.Tensor": bounded,
    "aten.clamp_max.Tensor": bounded,
    "aten.batch_norm.default": batch_norm,
    "aten.dropout.default": dropout,
    "aten.feature_dropout.default": dropout,
    "aten.alpha_dropout.default": dropout,
    "aten.feature_alpha_dropout.default": dropout,
    "aten.softmax.int": softmax,
    "aten.log_softmax.int": log_softmax,
    "aten.argmax.default": argmax,
    "aten.clone.default": same,
    "aten.contiguous.default": same,
    "aten.detach.default": same,
    "aten.alias.default": same,
    "aten.lift_fresh_copy.default": same,
    "aten.to.dtype": same,
    "aten.to.device": same,
    "aten.to.dtype_layout": same,
    "aten._to_copy.default": same,
    "aten.type_as.default": type_as,
}
