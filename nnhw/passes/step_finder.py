"""Step functions, the integer form of regions, and the ops `threshold` and `step_table` made from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nnhw.ir import BIT, Graph, IntType, Node, TensorType
from nnhw.ir.ops import StepTable, Threshold, WeightedSum

from .edit import Edit, bypassed


@dataclass(frozen=True)
class Steps:
    """A step function in each channel c: the code of x is codes[c, k] for the last k with starts[c, k] <= x.

    Parameters
    ----------
    starts: first x of each segment, int64 [channels, segments]; each row is sorted and begins with the least x of the
        range. Shorter rows are filled up with starts beyond the range, and with their last code.
    codes: code of each segment, int64 [channels, segments].
    proof: how it is known that no step is missing, for the report.
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
        """Of each channel: 1 if it rises, -1 if it falls, 0 if it is constant, 2 if it rises and falls."""
        moves = np.diff(self.codes, axis=1)
        rises, falls = (moves > 0).any(axis=1), (moves < 0).any(axis=1)
        return np.where(rises & falls, 2, rises.astype(np.int64) - falls)

    def channel_rows(self, classes: np.ndarray) -> Steps:
        """Return the steps of all channels from those of classes, given the class of each channel, int [channels]."""
        return replace(self, starts=self.starts[classes], codes=self.codes[classes])

    def thresholds(self, codes: IntType, never: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the operands of the op `threshold`: thresholds [channels, steps] and descending, bool [channels].

        No channel may both rise and fall.

        Parameters
        ----------
        codes: the type of the codes; there is a step for each code above the least one.
        never: a threshold beyond the range, for codes that are not reached.
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
    """Finds the steps of functions, one in each channel, from their codes at ascending integers, block by block."""

    def __init__(self) -> None:
        self._found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._last: np.ndarray | None = None

    def add(self, places: np.ndarray, codes: np.ndarray) -> None:
        """Take a block of codes, int64 [N, channels], at integers [N, channels], or [N] for all channels."""
        # The last codes of the block before are the first ones to compare with.
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
        """Return all steps; rows with fewer steps are filled up with `never`, an integer beyond the range."""
        channels, places, codes = (np.concatenate(arrays) for arrays in zip(*self._found, strict=True))
        # Blocks came by place; steps are stored by channel.
        order = np.lexsort((places, channels))
        channels, places, codes = channels[order], places[order], codes[order]
        counts = np.bincount(channels)
        # The number of each step within its channel.
        column = np.arange(len(channels)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = len(counts), int(counts.max())
        last = codes[np.cumsum(counts) - 1]
        starts, values = np.full(shape, never), np.repeat(last[:, np.newaxis], shape[1], axis=1)
        starts[channels, column], values[channels, column] = places, codes
        return Steps(starts, values)


def replaced(graph: Graph, quantizer: Node, sources: tuple[Node, ...], factors: tuple[int, ...], steps: Steps) -> Graph:
    """Replace a quantizer by a threshold, or by a step table if a channel both rises and falls; return the new graph.

    It reads the only source, or the weighted sum of several; if it changes no code, its readers read the source.

    Parameters
    ----------
    factors: factor of each source in the sum; empty for a single source.
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
