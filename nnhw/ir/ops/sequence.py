"""Ops of whole sequences: the loop over their steps, their last step, their reversal, and values that become steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import IntType, TensorType

from .base import SOME, Array, Op, Operand

if TYPE_CHECKING:
    from nnhw.ir.graph import Graph, Node


@dataclass(frozen=True)
class Scan(Op):
    """A loop over the steps of sequences: from a step and the states, the body computes a result and the next states.

    The body's inputs are one step of each sequence, then the states; its outputs are the result, then the next states
    in the same order. Inputs of the op: the sequences, then the initial value of each state, a value or a constant. The
    op gives the sequence of the body's results; to get a state, let the body give it as its result, too.

    Parameters
    ----------
    body: the graph of one step; no value in it is a sequence.
    """

    body: Graph
    name: ClassVar[str] = "scan"
    arity: ClassVar[int] = SOME
    along_steps: ClassVar[bool] = True

    @property
    def states(self) -> tuple[Node, ...]:
        """The body's inputs that are states."""
        return self.body.inputs[self._sequences :]

    @property
    def _sequences(self) -> int:
        # Inputs are sequences and states, outputs one result and as many states.
        return len(self.body.inputs) - len(self.body.outputs) + 1

    def check_operands(self, operands: Sequence[Operand]) -> None:
        """Check that there is an operand for each input of the body. Raises: IrError."""
        if self._sequences < 1 or not self.body.outputs:
            raise IrError(
                f"scan needs a body with one step of a sequence or more as its inputs, then its states, and with a "
                f"result, then the next states, as its outputs, got {len(self.body.inputs)} inputs and "
                f"{len(self.body.outputs)} outputs"
            )
        if len(operands) != len(self.body.inputs):
            names = ", ".join(node.name for node in self.body.inputs)
            raise IrError(f"scan needs a value for each input of its body ({names}), got {len(operands)}")

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The sequence of the body's results."""
        nodes = self.body.inputs
        for node in self.body.nodes:
            if node.type.is_sequence:
                raise IrError(f"'{node.name}' in the body of scan is a sequence; a body computes one step")
        for operand, node in zip(operands[: self._sequences], nodes, strict=False):
            if operand.value is not None or not operand.type.is_sequence or not fits(operand.type.step, node.type):
                raise IrError(f"step '{node.name}' of scan needs a sequence of {node.type}, got {_kind(operand)}")
        for operand, node in zip(operands[self._sequences :], self.states, strict=True):
            if operand.type.is_sequence or not fits(operand.type, node.type):
                raise IrError(f"state '{node.name}' of scan begins as {node.type}, got {_kind(operand)}")
        for following, node in zip(self.body.output_nodes[1:], self.states, strict=True):
            # Not only within its range: hardware keeps a state in a register of one width.
            if following.type != node.type:
                raise IrError(
                    f"state '{node.name}' of scan is {node.type}, and a step makes {following.type} of it; a state "
                    f"keeps its type: put a quantizer of that type behind what computes it"
                )
        return self.body.output_nodes[0].type.sequence

    def evaluate(self, *inputs: Array) -> Array:
        """Return the results of all steps, by the body's own evaluation."""
        # Imported here, as the interpreter itself imports the ops.
        from nnhw.ir.interpreter import run_steps

        return run_steps(self, inputs)


@dataclass(frozen=True)
class AsSteps(Op):
    """A sequence whose steps are the first axis of a value, one step per index."""

    name: ClassVar[str] = "as_steps"
    arity: ClassVar[int] = 1
    along_steps: ClassVar[bool] = True

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """A sequence of what one index of the first axis has."""
        type = operands[0].type
        if operands[0].value is not None or type.is_sequence or not type.shape:
            raise IrError(f"as_steps needs a value with at least one axis, not a sequence, got {_kind(operands[0])}")
        return TensorType(type.shape[1:], type.dtype, is_sequence=True)

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the very array: [N, steps, ..] both as a value and as a sequence."""
        return inputs[0]


@dataclass(frozen=True)
class LastStep(Op):
    """The last step of a sequence: [steps, ..] --> [..]."""

    name: ClassVar[str] = "last_step"
    arity: ClassVar[int] = 1
    along_steps: ClassVar[bool] = True

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of one step."""
        return _sequence(self, operands[0]).step

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of the input."""
        return inputs[0][:, -1]


@dataclass(frozen=True)
class ReverseSteps(Op):
    """The steps of a sequence from the last to the first, as a loop in the other direction reads them."""

    name: ClassVar[str] = "reverse_steps"
    arity: ClassVar[int] = 1
    along_steps: ClassVar[bool] = True

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """The type of the input."""
        return _sequence(self, operands[0])

    def evaluate(self, *inputs: Array) -> Array:
        """Exact; the dtype of the input."""
        return np.flip(inputs[0], axis=1)


def fits(given: TensorType, wanted: TensorType) -> bool:
    """Return whether every value of type `given` belongs to type `wanted`, with the same shape."""
    ours, theirs = given.dtype, wanted.dtype
    if given.shape != wanted.shape or given.is_sequence != wanted.is_sequence:
        return False
    if not isinstance(ours, IntType) or not isinstance(theirs, IntType):
        return ours == theirs
    # A bipolar value fits integers, but no other integers fit a bipolar type.
    return theirs.low <= ours.low and ours.high <= theirs.high and ours.bipolar >= theirs.bipolar


def _sequence(op: Op, operand: Operand) -> TensorType:
    if not operand.type.is_sequence:
        raise IrError(f"{op.name} needs a sequence, got {operand.type}")
    return operand.type


def _kind(operand: Operand) -> str:
    return f"{'a constant' if operand.value is not None else 'a value'} of {operand.type}"
