"""Step functions: the integer form of a region, and how it becomes an op."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nnhw.ir import BIT, Graph, IntType, Node, TensorType
from nnhw.ir.ops import StepTable, Threshold, WeightedSum

from .edit import Edit, bypassed


@dataclass(frozen=True)
class Steps:
    """In each channel c, the code of x is codes[c, k] for the last k with starts[c, k] <= x.

    Parameters
    ----------
    starts: int64 [channels, segments], each row sorted, the first of each the least x. Rows with fewer segments than
        others end in places that no x reaches, with the last code again.
    codes: int64 of the same shape.
    proof: how it is known that these are all steps, for the report.
    """

    starts: np.ndarray
    codes: np.ndarray
    proof: str = ""

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the codes of integers [N, channels]."""
        result = np.empty_like(values)
        for channel, (starts, codes) in enumerate(zip(self.starts, self.codes, strict=True)):
            result[:, channel] = codes[np.searchsorted(starts, values[:, channel], side="right") - 1]
        return result

    def is_identity(self, range_: IntType) -> bool:
        """Return whether each integer of the range is its own code."""
        count = range_.high - range_.low + 1
        return self.starts.shape[1] == count and bool((self.codes == self.starts).all())

    @property
    def directions(self) -> np.ndarray:
        """1 for a channel that rises, -1 falls, 0 is constant, 2 does more than one of them."""
        moves = np.diff(self.codes, axis=1)
        rises, falls = (moves > 0).any(axis=1), (moves < 0).any(axis=1)
        return np.where(rises & falls, 2, rises.astype(np.int64) - falls)

    def channel_rows(self, classes: np.ndarray) -> Steps:
        """Return the steps of each channel, given its class."""
        return replace(self, starts=self.starts[classes], codes=self.codes[classes])

    def thresholds(self, codes: IntType, never: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs of the op `threshold` [channels, steps] and [channels], where no channel turns.

        Parameters
        ----------
        never: a place beyond the range.
        """
        count = 1 if codes.bipolar else codes.high - codes.low
        wanted = np.arange(1, count + 1)
        descending = self.directions < 0
        rows = np.empty((len(self.starts), count), dtype=np.int64)
        for channel, (starts, values) in enumerate(zip(self.starts, self.codes, strict=True)):
            index = (values > 0).astype(np.int64) if codes.bipolar else values - codes.low
            # Rising: the first segment whose index is not below the step. Falling: the first that is below.
            first = (
                np.searchsorted(-index, -wanted, side="right")[::-1]
                if descending[channel]
                else np.searchsorted(index, wanted)
            )
            rows[channel] = np.append(starts, never)[first]
        return rows, descending


class StepFinder:
    """Collects the steps of functions from their codes at ascending places, block by block."""

    def __init__(self) -> None:
        self._found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._last: np.ndarray | None = None

    def add(self, places: np.ndarray, codes: np.ndarray) -> None:
        """Take codes [N, channels] at places [N, channels], or [N] the same for all channels."""
        before = codes[:1] if self._last is None else self._last
        changes = np.diff(codes, axis=0, prepend=before) != 0
        if self._last is None:
            changes[0] = True
        rows, channels = np.nonzero(changes)
        self._found.append(
            (channels, places[rows, channels] if places.ndim == 2 else places[rows], codes[rows, channels])
        )
        self._last = codes[-1:]

    def steps(self, never: int) -> Steps:
        """Return all steps; `never` is a place beyond the range, for rows that end early."""
        channels, places, codes = (np.concatenate(arrays) for arrays in zip(*self._found, strict=True))
        order = np.lexsort((places, channels))
        channels, places, codes = channels[order], places[order], codes[order]
        counts = np.bincount(channels)
        column = np.arange(len(channels)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = len(counts), int(counts.max())
        last = codes[np.cumsum(counts) - 1]
        starts, values = np.full(shape, never), np.repeat(last[:, np.newaxis], shape[1], axis=1)
        starts[channels, column], values[channels, column] = places, codes
        return Steps(starts, values)


def replaced(graph: Graph, quantizer: Node, sources: tuple[Node, ...], factors: tuple[int, ...], steps: Steps) -> Graph:
    """Put thresholds, or a table of steps, in the place of a quantizer: of its source, or of a sum of its sources.

    Codes that stay what they are need neither.
    """
    if not factors and sources[0].type == quantizer.type and steps.is_identity(quantizer.type.int_dtype):
        return bypassed(graph, quantizer.name, sources[0].name)
    edit = Edit(graph, {quantizer.name})
    value = sources[0].name
    if factors:
        value = edit.add(quantizer, WeightedSum(factors), [source.name for source in sources], f"{quantizer.name}.sum")
    codes, range_ = quantizer.type.int_dtype, edit.type_of(value).int_dtype
    never = range_.high + 1
    place = IntType(range_.low, never)
    if (steps.directions == 2).any():
        arrays = {"thresholds": steps.starts[:, 1:], "codes": steps.codes}
        types = {"thresholds": place, "codes": IntType(int(steps.codes.min()), int(steps.codes.max()))}
        op: Threshold | StepTable = StepTable(codes.low, codes.high, codes.bipolar)
    else:
        thresholds, descending = steps.thresholds(codes, never)
        arrays = {"thresholds": thresholds, "descending": descending}
        types = {"thresholds": place, "descending": BIT}
        op = Threshold(codes.low, codes.bipolar)
    inputs = [
        edit.constant(f"{quantizer.name}.{role}", array, TensorType(array.shape, types[role]))
        for role, array in arrays.items()
    ]
    edit.add(quantizer, op, [value, *inputs])
    return edit.apply(quantizer.name)
