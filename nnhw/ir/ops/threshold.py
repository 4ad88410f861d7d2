"""Step functions: the integer form of all ops between a layer's sums and the next codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnhw.errors import IrError
from nnhw.ir.types import BIPOLAR, IntType, TensorType

from .base import Array, Op, Operand, int_operand


@dataclass(frozen=True)
class Threshold(Op):
    """Codes by comparison with thresholds: with count = the number of thresholds of the channel that are <= x,

        index = count            in a rising channel
        index = steps - count    in a falling (descending) one
        code  = low + index      or, if bipolar, -1 for index 0 and +1 for index 1

    Inputs: x, integers [channels, ..]; thresholds, integer constant [channels, steps], each row sorted; descending,
    constant of booleans [channels]. For x in a..b, a threshold of b + 1 is never reached, and one of a always.

    Parameters
    ----------
    low: the code of index 0; -1 if bipolar.
    bipolar: whether the codes are -1 and +1; then there is one step.
    """

    low: int
    bipolar: bool = False
    name: ClassVar[str] = "threshold"
    arity: ClassVar[int] = 3
    parameters: ClassVar[tuple[int, ...]] = (1, 2)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Shape of x, codes low..low + steps."""
        x, thresholds, descending = operands
        int_operand(x, "x")
        int_operand(thresholds, "thresholds")
        rows, falls = thresholds.constant, descending.constant
        if rows.ndim != 2 or not x.type.shape or rows.shape[0] != x.type.shape[0] or falls.shape != rows.shape[:1]:
            raise IrError(
                f"threshold needs x [channels, ..], thresholds [channels, steps] and descending [channels], "
                f"got {x.type}, {thresholds.type} and {descending.type}"
            )
        if falls.dtype != np.bool_:
            raise IrError(f"descending must be boolean, got {falls.dtype}")
        if (np.diff(rows, axis=1) < 0).any():
            raise IrError("the thresholds of a channel must be sorted")
        # With two steps there would be three codes, one of them 0.
        if self.bipolar and (rows.shape[1] != 1 or self.low != -1):
            raise IrError(f"a bipolar threshold has one step and low -1, got {rows.shape[1]} steps and low {self.low}")
        return TensorType(x.type.shape, BIPOLAR if self.bipolar else IntType(self.low, self.low + rows.shape[1]))

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 codes of the shape of x."""
        x, thresholds, descending = inputs
        spread = (-1,) + (1,) * (x.ndim - 2)
        count = _counts(x, thresholds)
        index = np.where(descending.reshape(spread), thresholds.shape[1] - count, count)
        return 2 * index - 1 if self.bipolar else self.low + index


@dataclass(frozen=True)
class StepTable(Op):
    """Codes of any function that is constant between steps, monotone or not: with count as in `Threshold`,

        code = codes[channel, count]

    Inputs: x, integers [channels, ..]; thresholds, integer constant [channels, steps], each row sorted; codes, integer
    constant [channels, steps + 1].

    Parameters
    ----------
    low, high: range of the codes.
    bipolar: the codes are -1 and +1.
    """

    low: int
    high: int
    bipolar: bool = False
    name: ClassVar[str] = "step_table"
    arity: ClassVar[int] = 3
    parameters: ClassVar[tuple[int, ...]] = (1, 2)

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Shape of x, codes low..high."""
        x, thresholds, codes = operands
        for operand, role in ((x, "x"), (thresholds, "thresholds"), (codes, "codes")):
            int_operand(operand, role)
        rows, values = thresholds.constant, codes.constant
        if rows.ndim != 2 or not x.type.shape or len(rows) != x.type.shape[0]:
            raise IrError(f"step_table needs x [channels, ..] and thresholds [channels, steps], got {x.type}")
        if values.shape != (len(rows), rows.shape[1] + 1):
            raise IrError(f"step_table needs codes [channels, steps + 1], got {codes.type} for {thresholds.type}")
        if (np.diff(rows, axis=1) < 0).any():
            raise IrError("the thresholds of a channel must be sorted")
        dtype = IntType(self.low, self.high, self.bipolar)
        if not dtype.holds(values):
            raise IrError(f"the codes of a step_table must be in {dtype}, got {values.min()}..{values.max()}")
        return TensorType(x.type.shape, dtype)

    def evaluate(self, *inputs: Array) -> Array:
        """Return int64 codes of the shape of x."""
        x, thresholds, codes = inputs
        spread = (-1,) + (1,) * (x.ndim - 2)
        counts = _counts(x, thresholds)
        result: Array = codes[np.arange(len(codes)).reshape(spread), counts]
        return result


def _counts(x: Array, thresholds: Array) -> Array:
    """Return how many thresholds [channels, steps] of its channel each element of x [N, channels, ..] reaches."""
    counts = np.zeros(x.shape, dtype=np.int64)
    for channel, row in enumerate(thresholds if x.size else ()):
        values = x[:, channel]
        low, high = int(values.min()), int(values.max())
        # Fewer different integers than elements: search for each integer once, and look the elements up.
        if high - low < values.size:
            counts[:, channel] = np.searchsorted(row, np.arange(low, high + 1), side="right")[values - low]
        else:
            counts[:, channel] = np.searchsorted(row, values, side="right")
    return counts
