"""What every operator of the IR is: a frozen dataclass of attributes with a type rule and a meaning."""

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
SOME = -2


@dataclass(frozen=True)
class Operand:
    """An input of an operator as its type rule sees it.

    Parameters
    ----------
    value: the array if the operand is a constant. It has no batch axis.
    """

    type: TensorType
    value: Array | None = None

    @property
    def constant(self) -> Array:
        """The array of an operand that has to be a constant.

        Raises: IrError if it is none.
        """
        if self.value is None:
            raise IrError(f"a constant is needed here, got a value of type {self.type}")
        return self.value


@dataclass(frozen=True)
class Op(ABC):
    """An operator. Its dataclass fields are its attributes.

    A field is an int, float, bool, str, a tuple of ints, or a graph: what the text form can print and parse.

    Most operators know nothing of sequences: of one they compute each step by itself, as they do each image of a batch.
    """

    name: ClassVar[str]
    arity: ClassVar[int]  # number of inputs; ANY: two or more; SOME: one or more
    parameters: ClassVar[tuple[int, ...]] = ()  # positions of operands that are constants; all others are not
    optional: ClassVar[tuple[str, ...]] = ()  # attributes that the text form leaves out where they have their default
    along_steps: ClassVar[bool] = False  # its rule and its meaning are of whole sequences, [N, steps, *shape]
    from_library: ClassVar[bool] = False  # PyTorch's last bits depend on the machine; `waver` bounds them, too

    def check_operands(self, operands: Sequence[Operand]) -> None:
        """Check how many operands there are, and which of them are constants. Raises: IrError."""
        if self.arity == ANY and len(operands) < 2:
            raise IrError(f"{self.name} takes two or more inputs, got {len(operands)}")
        if self.arity not in (ANY, len(operands)):
            raise IrError(f"{self.name} takes {self.arity} inputs, got {len(operands)}")
        for position, operand in enumerate(operands):
            wanted = position in self.parameters
            if wanted != (operand.value is not None):
                raise IrError(f"input {position} of {self.name} must {'' if wanted else 'not '}be a constant")

    @abstractmethod
    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Return the result's type. Raises: IrError for operands that do not fit."""

    @abstractmethod
    def evaluate(self, *inputs: Array) -> Array:
        """Return the result for arrays with a batch axis in front (constants have none): the op's one meaning."""

    def trend(self, position: int, operands: Sequence[Operand]) -> Array | None:
        """Tell how the result moves with operand `position`, all others being constants.

        Returns
        -------
        int array that broadcasts to the operand's shape: 1 never falls, -1 never rises, 0 constant; or None
        if the operator is not elementwise or not monotone. Follows from signs, never from samples.
        """
        return None

    def turns(self) -> tuple[float, ...]:
        """Return where an elementwise op that is not monotone changes direction, ascending.

        Between two of these operand values, each belonging to both of its sides, the result never falls or never
        rises, alternately. None if the op is monotone, or if nothing is known: then `trend` says which.
        """
        return ()

    def first_direction(self) -> int:
        """Return how an op with `turns` starts from minus infinity: 1 never falls, -1 never rises."""
        return 1

    def waver(self, x: Array, result: Array) -> Array | None:
        """Bound how far the result may be from a function that moves as `trend` or `turns` say in every last bit.

        Returns
        -------
        float64 of the shape of `result`: 0 where the result is what every IEEE machine gives; or None if the op itself
        moves as it says: one IEEE operation, or several of which each is monotone.
        """
        return None

    def limits(self) -> tuple[float, float]:
        """Return what an op that wavers never falls below, and never exceeds."""
        return -float("inf"), float("inf")


RISING = np.array(1)
FALLING = np.array(-1)


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
    """Return whether an array of `shape` broadcasts to `target` without repeating any of the target's elements."""
    behind = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(size in (1, most) for size, most in zip(shape, behind, strict=True))


def along_shape(constant: Array, rank: int) -> Array:
    """Give a constant the batch axis that it lacks, so that it broadcasts over values of `rank` + 1 axes."""
    return constant.reshape((1,) * (rank + 1 - constant.ndim) + constant.shape)
