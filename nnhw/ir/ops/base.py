"""The base of all operators: a frozen dataclass of attributes, with a type rule and a NumPy definition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

Array = np.ndarray
Pair = tuple[int, int]

ANY = -1
"""Arity of an op with two or more inputs."""
SOME = -2
"""Arity of an op with one or more inputs."""


@dataclass(frozen=True)
class Operand:
    """An input of an operator, as type rules get it.

    Parameters
    ----------
    type: its type.
    value: its array, without a batch axis, if it is a constant; else None.
    """

    type: TensorType
    value: Array | None = None

    @property
    def constant(self) -> Array:
        """The array of an operand that has to be a constant. Raises: IrError if it is not."""
        if self.value is None:
            raise IrError(f"a constant is needed here, got a value of type {self.type}")
        return self.value


@dataclass(frozen=True)
class Op(ABC):
    """An operator. Its dataclass fields are its attributes.

    A field is an int, float, bool, str, a tuple of ints, or a graph: what the text form can print and parse.

    Most operators know nothing of sequences: given one, they compute each step by itself, like an image of a batch.
    """

    name: ClassVar[str]
    """Name in the text form, and of the builder's method."""
    arity: ClassVar[int]
    """Number of inputs, or ANY, or SOME."""
    parameters: ClassVar[tuple[int, ...]] = ()
    """Positions of the operands that have to be constants; others must not be."""
    optional: ClassVar[tuple[str, ...]] = ()
    """Attributes that the text form leaves out if they have their default."""
    along_steps: ClassVar[bool] = False
    """Whether `infer` and `evaluate` are of whole sequences, [N, steps, *shape], instead of steps."""
    from_library: ClassVar[bool] = False
    """Whether PyTorch computes it by a library, with last bits that depend on the machine; `waver` bounds them, too."""

    def check_operands(self, operands: Sequence[Operand]) -> None:
        """Check how many operands there are, and which of them are constants. Raises: IrError."""
        if self.arity == ANY and len(operands) < 2:
            raise IrError(f"{self.name} takes two or more inputs, got {len(operands)}")
        if self.arity not in (ANY, len(operands)):
            raise IrError(f"{self.name} takes {self.arity} inputs, got {len(operands)}")
        for position, operand in enumerate(operands):
            # A constant in the place of a value would have no batch axis.
            wanted = position in self.parameters
            if wanted != (operand.value is not None):
                raise IrError(f"input {position} of {self.name} must {'' if wanted else 'not '}be a constant")

    @abstractmethod
    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Return the result's type. Raises: IrError for operands that do not fit."""

    @abstractmethod
    def evaluate(self, *inputs: Array) -> Array:
        """Return the result for arrays with a batch axis in front (constants have none). This defines the op."""

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Return the direction in which the result moves when operand `position` grows, all others being constants.

        Returns
        -------
        int array that broadcasts to the operand's shape: 1 never falls, -1 never rises, 0 constant; or None if the
        operator is not elementwise or not monotone. It follows from signs of parameters, never from samples.
        """
        return None

    def turns(self) -> tuple[float, ...]:
        """Return the operand values at which an elementwise op that is not monotone changes direction, ascending.

        Between two neighbouring turns, both included, the result never falls or never rises, alternately. Empty if the
        op is monotone, or if nothing is known; `trend` tells these two apart.
        """
        return ()

    def first_direction(self) -> int:
        """Return the direction of an op with `turns` below its first turn: 1 never falls, -1 never rises."""
        return 1

    def waver(self, x: Array, result: Array) -> Array | None:
        """Bound the wavering of the result: its distance from a function that keeps the op's directions exactly.

        A computed function such as tanh may fall by some last bits where the true one rises.

        Returns
        -------
        float64 of the shape of `result`, 0 where every IEEE machine gives the same result. None if the op does not
        waver: it is one IEEE operation, or several, each of which is monotone.
        """
        return None

    def limits(self) -> tuple[float, float]:
        """Return the least and the greatest result that an op which wavers can give."""
        return -float("inf"), float("inf")


RISING = np.array(1)
FALLING = np.array(-1)
"""Trends of ops that move in one direction in all channels; see `Op.trend`."""


def int_operand(operand: Operand, role: str) -> IntType:
    """Return the integer type of an operand. Raises: IrError if it is float."""
    if not isinstance(operand.type.dtype, IntType):
        raise IrError(f"{role} must be an integer tensor, got {operand.type}")
    return operand.type.dtype


def float_operand(operand: Operand, role: str) -> None:
    """Check that an operand is float64. Raises: IrError if it is not."""
    if operand.type.is_int:
        raise IrError(f"{role} must be float64, got {operand.type}")


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether an array of `shape` broadcasts to `target`, which itself has no axis to repeat."""
    behind = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(size in (1, most) for size, most in zip(shape, behind, strict=True))


def along_shape(constant: Array, rank: int) -> Array:
    """Return a constant with axes of size 1 in front, so that it broadcasts over values [N, ..] of `rank` + 1 axes."""
    return constant.reshape((1,) * (rank + 1 - constant.ndim) + constant.shape)
