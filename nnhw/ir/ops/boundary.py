"""Inputs and constants of a graph, and the ops that turn floats into integer codes and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import FLOAT, IntType, TensorType

from .base import RISING, Array, Op, Operand, along_shape, broadcasts_to, float_operand, int_operand
from .rounding import HALF_EVEN, ROUNDINGS


@dataclass(frozen=True)
class InputlessOp(Op):
    """An op without inputs; its node states the type."""

    arity: ClassVar[int] = 0

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Never called: the node's own type is the rule."""
        raise IrError(f"the type of {self.name} is stated, not inferred")

    def evaluate(self, *inputs: Array) -> Array:
        """Never called: the caller of the graph gives the value, or the graph has it."""
        raise IrError(f"{self.name} has a value, and no computation")


@dataclass(frozen=True)
class Input(InputlessOp):
    """A value that the caller gives, [N, *shape]."""

    name: ClassVar[str] = "input"


@dataclass(frozen=True)
class Constant(InputlessOp):
    """A value that is part of the graph. It has no batch axis."""

    name: ClassVar[str] = "constant"


class NoCode(IrError):
    """A quantizer got NaN, which has no code.

    Parameters
    ----------
    image: number of the first image that has it.
    place: the quantizer's node.
    """

    def __init__(self, image: int, place: str = "quantize") -> None:
        self.image, self.place = image, place
        super().__init__(f"{place} got NaN in image {image}, which has no code; give finite numbers")


@dataclass(frozen=True)
class Quantize(Op):
    """Codes of float values: clamp(round(x / scale + offset) - offset, low, high), or the sign of x.

    The IR has no zero points: a code is the distance from the zero point, so that code 0 stands for 0.0.
    Inputs: x, float64; scale, float64 constant that broadcasts to x.

    Parameters
    ----------
    low, high: least and greatest code.
    bipolar: the code is +1 where x >= 0 (0.0 and -0.0 included), else -1; the scale is not used.
    rounding: how a number between two integers is rounded: one of `ROUNDINGS`.
    reciprocal: x is rounded to float32 and multiplied by 1 / scale; the reciprocal, the product and the sum with the
        offset are rounded to float32. The scale has to be a float32 number then.
    offset: the zero point that is added in front of rounding. It moves ties: half to even of 0.5 + 1 is 2.
    """

    low: int
    high: int
    bipolar: bool = False
    rounding: str = HALF_EVEN
    reciprocal: bool = False
    offset: int = 0
    name: ClassVar[str] = "quantize"
    arity: ClassVar[int] = 2
    parameters: ClassVar[tuple[int, ...]] = (1,)
    optional: ClassVar[tuple[str, ...]] = ("rounding", "reciprocal", "offset")

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise IrError(f"quantize needs the rounding {', '.join(ROUNDINGS)}, got '{self.rounding}'")
        if self.bipolar and (self.rounding != HALF_EVEN or self.reciprocal or self.offset):
            raise IrError(
                "quantize takes the sign of x if it is bipolar: it has neither rounding, reciprocal nor offset"
            )

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Shape of x, integers low..high."""
        x, scale = operands
        float_operand(x, "x")
        _check_scale(x, scale)
        if self.reciprocal and not has_reciprocal(scale.constant).all():
            raise IrError("scales must be numbers of float32, and so must their reciprocals, to multiply by these")
        return TensorType(x.type.shape, IntType(self.low, self.high, self.bipolar))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 codes. Raises: IrError for NaN, which has no code."""
        x, scale = inputs
        # As an integer, NaN would silently become some code.
        if (bad := np.isnan(x)).any():
            raise NoCode(int(np.argwhere(bad)[0][0]))
        if self.bipolar:
            return np.where(x >= 0, 1, -1).astype(np.int64)
        steps = self._steps(x, along_shape(scale, x.ndim - 1))
        # Rounding leaves integers as they are and never falls, so it changes nothing to clamp in front of it.
        rounded = ROUNDINGS[self.rounding](np.clip(steps, self.low + self.offset, self.high + self.offset))
        return rounded.astype(np.int64) - self.offset

    def _steps(self, x: Array, scale: Array) -> Array:
        """Return x / scale + offset, rounded as the attributes say."""
        if self.reciprocal:
            # What overflows float32 becomes infinite, which the clip takes to the greatest code, as it should be.
            with np.errstate(over="ignore"):
                steps = x.astype(np.float32) * (np.float32(1) / scale.astype(np.float32))
        else:
            steps = x / scale
        return steps + steps.dtype.type(self.offset) if self.offset else steps

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising in x, because scales are positive, and no rounding ever falls."""
        return RISING if position == 0 else None


@dataclass(frozen=True)
class Dequantize(Op):
    """Float values of codes: code * scale. Inputs: x, integers; scale, float64 constant that broadcasts to x."""

    name: ClassVar[str] = "dequantize"
    arity: ClassVar[int] = 2
    parameters: ClassVar[tuple[int, ...]] = (1,)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Shape of x, float64."""
        x, scale = operands
        int_operand(x, "x")
        _check_scale(x, scale)
        return TensorType(x.type.shape, FLOAT)

    def evaluate(self, *inputs: Array) -> Array:
        """Return float64; the product is rounded once."""
        x, scale = inputs
        result: Array = x.astype(np.float64) * along_shape(scale, x.ndim - 1)
        return result

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Rising in x, because scales are positive."""
        return RISING if position == 0 else None


def _check_scale(x: Operand, scale: Operand) -> None:
    values = scale.constant
    if not broadcasts_to(values.shape, x.type.shape):
        raise IrError(f"a scale of shape {list(values.shape)} does not broadcast to {list(x.type.shape)}")
    if values.dtype != np.float64 or not (np.isfinite(values) & (values > 0)).all():
        raise IrError("scales must be float64, positive and finite")


def has_reciprocal(scale: Array) -> Array:
    """Return where scales are positive float32 numbers with a finite float32 reciprocal, bool of their shape."""
    with np.errstate(over="ignore"):
        single = scale.astype(np.float32)
        # Where a scale underflows to 0 the result is False anyway; 1 only avoids the warning of the division.
        inverse = np.float32(1) / np.where(single > 0, single, 1)
    result: Array = (single == scale) & (single > 0) & np.isfinite(inverse)
    return result
