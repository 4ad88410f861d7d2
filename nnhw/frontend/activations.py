"""Handlers of traced activations, and of rounding that users write themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnhw.errors import CaptureError, IrError
from nnhw.ir import Op
from nnhw.ir.ops import (
    Absolute,
    Ceil,
    Clamp,
    Divide,
    Elu,
    Exp,
    Floor,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    Multiply,
    Negate,
    PRelu,
    Relu,
    Round,
    Sigmoid,
    Silu,
    Softplus,
    Sqrt,
    Square,
    Tanh,
    Truncate,
)

from .calls import Call
from .translator import Handler, Translator
from .values import Float, TracedConstant, Value

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # torch's own constants


def unary(kind: type[Op], make: Callable[[Call], Op]) -> Handler:
    """Return the handler of an op of one operand, made from the attributes of the call."""

    def handle(translator: Translator, call: Call) -> Value:
        return _applied(translator, call, make)

    handle.__doc__ = kind.__doc__
    return handle


def plain(op: Op) -> Handler:
    """Return the handler of an op that takes no attributes from the call."""
    return unary(type(op), lambda call: op)


def clamp(translator: Translator, call: Call) -> Value:
    """clamp, hardtanh and ReLU6, whose bounds have different names."""
    given = call.arguments
    low, high = (given.get(name, given.get(f"{name}_val")) for name in ("min", "max"))
    if call.operator == "aten.relu6.default":
        low, high = 0.0, 6.0
    if any(not isinstance(bound, int | float | None) for bound in (low, high)):
        raise CaptureError(f"{call} has tensors as bounds; use numbers")
    bounds = (float("-inf") if low is None else float(low), float("inf") if high is None else float(high))
    # Written so that NaN is refused, too.
    if not bounds[0] <= bounds[1]:
        raise CaptureError(
            f"{call} has the bounds {bounds[0]} and {bounds[1]}; the first must not be above the second: exchange them"
        )
    return _applied(translator, call, lambda _: Clamp(*bounds))


def prelu(translator: Translator, call: Call) -> Value:
    """x, or x times a slope of its channel."""
    slope = call["weight"]
    if not isinstance(slope, TracedConstant):
        raise CaptureError(f"{call} computes its weight from the model's input; it must be a parameter")
    x = translator.floats(call["self"], call.location)
    # One slope counts for all channels, and needs no axis.
    shape = () if slope.tensor.numel() == 1 else tuple(slope.tensor.shape)
    return Float(translator.emit(call, PRelu(), x, translator.parameter(slope, call, shape)))


def log_sigmoid(translator: Translator, call: Call) -> Value:
    """log(1 / (1 + e**-x)) = -softplus(-x)."""
    x = translator.floats(call["self"], call.location)
    negative = translator.emit(call, Negate(), x, suffix="negative")
    # Without a threshold: torch's log_sigmoid has none.
    curve = translator.emit(call, Softplus(1.0, float("inf")), negative, suffix="softplus")
    return Float(translator.emit(call, Negate(), curve))


def power(translator: Translator, call: Call) -> Value:
    """x ** 3, x ** 2, x ** 1, x ** 0.5 and x ** -1."""
    ops: dict[Any, Op | None] = {3: Square(), 2: Square(), 1: None, 0.5: Sqrt(), -1: Divide()}
    exponent = call["exponent"]
    if isinstance(exponent, TracedConstant) and exponent.tensor.numel() == 1:
        exponent = exponent.tensor.item()
    if not isinstance(exponent, int | float) or exponent not in ops:
        shown = exponent if isinstance(exponent, int | float) else "a tensor"
        raise CaptureError(f"{call} has the exponent {shown}; only 3, 2, 1, 0.5 and -1 are supported: multiply instead")
    op = ops[exponent]
    if op is None:
        return call["self"]  # type: ignore[no-any-return]
    x = translator.floats(call["self"], call.location)
    if exponent == 3:
        # As torch does: x * x * x.
        square = translator.emit(call, op, x, suffix="square")
        return Float(translator.emit(call, Multiply(), square, x))
    one = [translator.array(f"{translator.label(call)}.one", np.array(1.0), call.location)] if exponent == -1 else []
    return Float(translator.emit(call, op, *one, x))


def _applied(translator: Translator, call: Call, make: Callable[[Call], Op]) -> Value:
    try:
        op = make(call)
    # An op checks its own attributes, and knows no layer: that is added here.
    except IrError as error:
        raise CaptureError(f"{call}: {error}") from error
    operand = call.arguments["self"] if "self" in call.arguments else call["input"]
    return Float(translator.emit(call, op, translator.floats(operand, call.location)))


def _gelu(call: Call) -> Op:
    if call["approximate"] not in ("none", "tanh"):
        raise CaptureError(f"{call} has approximate='{call['approximate']}'; use 'none' or 'tanh'")
    return Gelu(call["approximate"] == "tanh")


def _elu(call: Call) -> Op:
    return Elu(float(call["alpha"]), float(call["scale"]), float(call["input_scale"]))


def _celu(call: Call) -> Op:
    if not call["alpha"]:
        raise CaptureError(f"{call} has alpha=0; use a positive alpha")
    return Elu(float(call["alpha"]), 1.0, 1.0 / float(call["alpha"]))


HANDLERS: dict[str, Handler] = {
    "aten.relu.default": plain(Relu()),
    "aten.relu6.default": clamp,
    "aten.hardtanh.default": clamp,
    "aten.clamp.default": clamp,
    "aten.clamp_min.default": clamp,
    "aten.clamp_max.default": clamp,
    "aten.clip.default": clamp,
    "aten.leaky_relu.default": unary(LeakyRelu, lambda call: LeakyRelu(float(call["negative_slope"]))),
    "aten.prelu.default": prelu,
    "aten.elu.default": unary(Elu, _elu),
    "aten.selu.default": plain(Elu(_SELU_ALPHA, _SELU_SCALE)),
    "aten.celu.default": unary(Elu, _celu),
    "aten.hardsigmoid.default": plain(HardSigmoid()),
    "aten.hardswish.default": plain(HardSwish()),
    "aten.sigmoid.default": plain(Sigmoid()),
    "aten.special_expit.default": plain(Sigmoid()),
    "aten.tanh.default": plain(Tanh()),
    "aten.silu.default": plain(Silu()),
    "aten.mish.default": plain(Mish()),
    "aten.gelu.default": unary(Gelu, _gelu),
    "aten.softplus.default": unary(Softplus, lambda call: Softplus(float(call["beta"]), float(call["threshold"]))),
    "aten.log_sigmoid.default": log_sigmoid,
    "aten.abs.default": plain(Absolute()),
    "aten.absolute.default": plain(Absolute()),
    "aten.square.default": plain(Square()),
    "aten.pow.Tensor_Scalar": power,
    "aten.pow.Tensor_Tensor": power,
    "aten.exp.default": plain(Exp()),
    "aten.sqrt.default": plain(Sqrt()),
    "aten.floor.default": plain(Floor()),
    "aten.ceil.default": plain(Ceil()),
    "aten.round.default": plain(Round()),
    "aten.trunc.default": plain(Truncate()),
    "aten.fix.default": plain(Truncate()),
}
