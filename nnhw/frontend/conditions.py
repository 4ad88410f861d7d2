"""Handlers of traced conditions: comparisons, their combination, and the choice between two values.

A condition is a float, 0 or 1. It is a function of the values that it reads like any other operation, so that passes
can evaluate conditions of one value together with the layer in front.
"""

from __future__ import annotations

from typing import Any

import torch

from nnhw.errors import CaptureError
from nnhw.ir.ops import Absolute, Add, Greater, GreaterEqual, Maximum, Minimum, Multiply, Sign, Subtract, Where

from .calls import Call
from .elementwise import arithmetic, operand
from .translator import Handler, Translator
from .values import Codes, Float, Value

_NUMBERS = "compare them with a number first"


def greater(swapped: bool = False) -> Handler:
    """Return the handler of x > y, or of x < y."""
    return _comparison(Greater, swapped)


def greater_equal(swapped: bool = False) -> Handler:
    """Return the handler of x >= y, or of x <= y."""
    return _comparison(GreaterEqual, swapped)


def _comparison(op: type[Greater | GreaterEqual], swapped: bool) -> Handler:
    def handle(translator: Translator, call: Call) -> Value:
        # x < y is y > x: the IR has two comparisons instead of four.
        sides = (call["other"], call["self"]) if swapped else (call["self"], call["other"])
        return arithmetic(translator, call, op(), *sides)

    sign = ">" if op is Greater else ">="
    handle.__doc__ = f"1 where {'y' if swapped else 'x'} {sign} {'x' if swapped else 'y'}, else 0."
    return handle


def equal(translator: Translator, call: Call) -> Value:
    """1 where x = y, else 0."""
    return _equal(translator, call, call["self"], call["other"])


def not_equal(translator: Translator, call: Call) -> Value:
    """0 where x = y, else 1."""
    return _not(translator, call, _equal(translator, call, call["self"], call["other"]))


def both(translator: Translator, call: Call) -> Value:
    """1 where both conditions hold, else 0."""
    return arithmetic(translator, call, Minimum(), *_conditions(call, "self", "other"))


def either(translator: Translator, call: Call) -> Value:
    """1 where a condition holds, or both, else 0."""
    return arithmetic(translator, call, Maximum(), *_conditions(call, "self", "other"))


def one_of_two(translator: Translator, call: Call) -> Value:
    """1 where exactly one of two conditions holds, else 0."""
    left, right = _conditions(call, "self", "other")
    difference = arithmetic(translator, call, Subtract(), left, right, "difference")
    return _absolute(translator, call, difference)


def negation(translator: Translator, call: Call) -> Value:
    """0 where a condition holds, else 1."""
    return _not(translator, call, *_conditions(call, "self"))


def sign(translator: Translator, call: Call) -> Value:
    """-1, 0 or 1."""
    return Float(translator.emit(call, Sign(), translator.floats(call["self"], call.location)))


def heaviside(translator: Translator, call: Call) -> Value:
    """0 for x < 0, a constant for x = 0, 1 for x > 0."""
    above = arithmetic(translator, call, Greater(), call["self"], 0.0, "above")
    # -0.0 counts as 0, as in torch.
    at = _equal(translator, call, call["self"], 0.0)
    return _choice(translator, call, at, call["values"], above)


def where(translator: Translator, call: Call) -> Value:
    """x where a condition holds, else y."""
    return _choice(translator, call, call["condition"], call["self"], call["other"])


def masked_fill(translator: Translator, call: Call) -> Value:
    """A constant where a condition holds, else x."""
    return _choice(translator, call, call["mask"], call["value"], call["self"])


def threshold(translator: Translator, call: Call) -> Value:
    """x where it is above a bound, else a constant."""
    # torch has x > threshold, so that the threshold itself becomes the constant.
    above = arithmetic(translator, call, Greater(), call["self"], call["threshold"], "above")
    return _choice(translator, call, above, call["self"], call["value"])


def hardshrink(translator: Translator, call: Call) -> Value:
    """0 for -bound <= x <= bound, else x."""
    size = _absolute(translator, call, call["self"], "size")
    within = arithmetic(translator, call, GreaterEqual(), call["lambd"], size, "within")
    return _choice(translator, call, within, 0.0, call["self"])


def softshrink(translator: Translator, call: Call) -> Value:
    """x - bound above the bound, x + bound below -bound, 0 between."""
    x, bound = call["self"], call["lambd"]
    above = arithmetic(translator, call, Greater(), x, bound, "above")
    below = arithmetic(translator, call, Greater(), -bound, x, "below")
    less = arithmetic(translator, call, Subtract(), x, bound, "less")
    more = arithmetic(translator, call, Add(), x, bound, "more")
    rest = _choice(translator, call, below, more, 0.0, "rest")
    return _choice(translator, call, above, less, rest)


def _equal(translator: Translator, call: Call, left: Any, right: Any) -> Value:
    # Conditions are 0 or 1: the product is 1 where both hold.
    no_less = arithmetic(translator, call, GreaterEqual(), left, right, "no_less")
    no_more = arithmetic(translator, call, GreaterEqual(), right, left, "no_more")
    return arithmetic(translator, call, Multiply(), no_less, no_more, "equal")


def _not(translator: Translator, call: Call, condition: Value) -> Value:
    return arithmetic(translator, call, Subtract(), 1.0, condition)


def _absolute(translator: Translator, call: Call, value: Value, suffix: str = "") -> Value:
    return Float(translator.emit(call, Absolute(), translator.floats(value, call.location), suffix=suffix))


def _choice(translator: Translator, call: Call, condition: Any, x: Any, y: Any, suffix: str = "") -> Value:
    """Return x where a condition holds, else y; values have one shape, and constants broadcast to it."""
    values = [value for value in (condition, x, y) if isinstance(value, Codes | Float)]
    shapes = {translator.shape(value) for value in values}
    if len(shapes) != 1:
        given = " and ".join(sorted(translator.show(["batch", *shape]) for shape in shapes)) or "constants alone"
        raise CaptureError(f"{call} chooses between values of the shapes {given}; all must have the same shape")
    (shape,) = shapes
    names = [operand(translator, call, value, len(shape)) for value in (condition, x, y)]
    return Float(translator.emit(call, Where(), *names, suffix=suffix))


def _conditions(call: Call, *names: str) -> list[Any]:
    """Return operands that are conditions. Raises CaptureError: one is a number, for which torch combines bits."""
    given = [node.meta["val"] for node in call.node.all_input_nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    # & and | of integers combine bits in torch, which no op of the IR does.
    other = next((value.dtype for value in given[: len(names)] if value.dtype != torch.bool), None)
    if other is not None:
        raise CaptureError(f"{call} needs conditions, such as x > 0, got numbers of type {other}; {_NUMBERS}")
    return [call[name] for name in names]


def _kinds(name: str, *kinds: str) -> list[str]:
    return [f"aten.{name}.{kind}" for kind in kinds or ("Tensor", "Scalar")]


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_kinds("gt") + _kinds("greater"), greater()),
    **dict.fromkeys(_kinds("lt") + _kinds("less"), greater(swapped=True)),
    **dict.fromkeys(_kinds("ge") + _kinds("greater_equal"), greater_equal()),
    **dict.fromkeys(_kinds("le") + _kinds("less_equal"), greater_equal(swapped=True)),
    **dict.fromkeys(_kinds("eq"), equal),
    **dict.fromkeys(_kinds("ne") + _kinds("not_equal"), not_equal),
    **dict.fromkeys(("aten.logical_and.default", "aten.bitwise_and.Tensor", "aten.__and__.Tensor"), both),
    **dict.fromkeys(("aten.logical_or.default", "aten.bitwise_or.Tensor", "aten.__or__.Tensor"), either),
    **dict.fromkeys(("aten.logical_xor.default", "aten.bitwise_xor.Tensor", "aten.__xor__.Tensor"), one_of_two),
    **dict.fromkeys(("aten.logical_not.default", "aten.bitwise_not.default"), negation),
    **dict.fromkeys(("aten.sign.default", "aten.sgn.default"), sign),
    "aten.heaviside.default": heaviside,
    **dict.fromkeys(_kinds("where", "self", "Scalar", "ScalarSelf", "ScalarOther"), where),
    **dict.fromkeys(_kinds("masked_fill", "Scalar", "Tensor"), masked_fill),
    "aten.threshold.default": threshold,
    "aten.hardshrink.default": hardshrink,
    "aten.softshrink.default": softshrink,
}
