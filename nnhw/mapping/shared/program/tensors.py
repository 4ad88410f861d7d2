"""The layout of values in the memory of a shared engine: the zero of their codes, and the words of each channel.

A granule is as many channels as the array has lanes; it is what the array writes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.mapping.layers import ConcatLayer
from nnhw.mapping.shared.program.task_network import StoredValue, TaskNetwork
from nnhw.mapping.shared.program.tasks import STREAMING, Task


@dataclass(frozen=True)
class Tensor:
    """A value in memory.

    Parameters
    ----------
    value: its shape and type.
    zero: code that is stored as 0: code = stored code + zero.
    storage: name of the value whose words hold it: its own name, or that of a concatenation.
    first: channel of the storage at which it begins.
    origin: word of the storage at which its first pixel begins.
    step: words from one pixel of a row to the next.
    row: words from the first pixel of a row to that of the next one.
    chunk: words from one word of a pixel to the next: 1, or the number of pixels if it lies plane by plane.
    rows: number of the feature map's rows that memory holds at once.
    """

    value: StoredValue
    zero: int
    storage: str
    first: int
    origin: int
    step: int
    row: int
    chunk: int
    rows: int

    @property
    def is_planar(self) -> bool:
        """Whether it lies plane by plane: the first word of all pixels, then the second."""
        return self.chunk > 1

    def words(self, array: ArrayConfig) -> int:
        """Return the number of words of a storage."""
        return self.pixels * array.chunks(self.value.shape[0])

    @property
    def stored_range(self) -> tuple[int, int]:
        """(lowest, highest) stored code, borders included."""
        low, high = self.value.range
        return low - self.zero, high - self.zero

    @property
    def pixels(self) -> int:
        """Number of pixels of the feature map that memory holds at once."""
        return self.rows * self.value.shape[2]

    def places(self, pixels: np.ndarray) -> np.ndarray:
        """Return the word of the storage at which each of some pixels begins, given their numbers, int64 [n]."""
        rows, columns = np.divmod(pixels, self.value.shape[2])
        return self.origin + rows * self.row + columns * self.step

    def rows_of_words(self, words: np.ndarray) -> np.ndarray:
        """Return the row that each word of a storage belongs to; words behind the last row count as that row's."""
        pixels = words % self.pixels if self.is_planar else words // self.step
        return np.minimum(pixels // self.value.shape[2], self.rows - 1)

    def granule(self, number: int, array: ArrayConfig) -> tuple[int, int]:
        """Return where a granule of the first pixel begins: (place in the storage, slice of the word there)."""
        bit = (self.first + number * array.lanes) * array.activation_bits
        return (
            bit // array.word_bits * self.chunk,
            bit % array.word_bits // array.granule_bits if array.slices > 1 else 0,
        )


def lay_out(
    network: TaskNetwork, array: ArrayConfig, kept: Mapping[str, int] | None = None, pixelwise: Iterable[str] = ()
) -> dict[str, Tensor]:
    """Return the layout of each value of a network in memory.

    Parameters
    ----------
    kept: by name, the number of rows of a value that memory holds at once; of other values all are held.
    pixelwise: names of values that have to lie pixel by pixel.

    Raises
    ------
    MappingError: codes are too wide, or a concatenation does not keep to the granules of the array.
    """
    homes = _homes(network, array)
    ends = ((network.source, network.loaded), (network.output, network.sent))
    outside, fixed = {name for name, _ in ends}, {name for name, linked in ends if not linked}
    storages = {storage for storage, _ in homes.values()}
    pieces = {task.node: task.piece for task in network.tasks if task.piece is not None}
    planar = _planar(network, array, outside | set(homes) | storages | set(pixelwise))
    tensors = {}
    for name, value in network.values.items():
        storage, first = homes.get(name, (name, 0))
        zero = _zero(name, network.values[storage], array, fixed)
        chunks = array.chunks(network.values[storage].shape[0])
        rows, width = (kept or {}).get(name, value.shape[1]), value.shape[2]
        step, chunk = (1, rows * width) if name in planar else (chunks, 1)
        origin, row = 0, step * width
        # It lies in the words of the whole map, at every so many pixels.
        if (piece := pieces.get(name)) is not None:
            origin, step, row = piece.pixel * step, piece.step[1] * step, piece.row * step
        tensors[name] = Tensor(value, zero, storage, first, origin, step, row, chunk, rows)
    return tensors


def _planar(network: TaskNetwork, array: ArrayConfig, others: set[str]) -> set[str]:
    """Return the names of the values that lie plane by plane: first one word of every pixel, then the next.

    A tile writes whole planes then, so its result may lie over planes of its source that have been read.

    Parameters
    ----------
    others: values that have to lie pixel by pixel, such as those that come in or leave.
    """
    # Else a granule is not one word, and a plane would be written in parts of words.
    if array.granule_bits != array.word_bits:
        return set()
    # A single pixel is the same either way.
    large = {name for name, value in network.values.items() if value.shape[1] * value.shape[2] > 1}
    found = {name for name in large - others if array.chunks(network.values[name].shape[0]) > 1}
    # The summands of a sum are read with the same strides, so they need the same layout.
    while mixed := {
        name
        for task in network.tasks
        if len(task.sources) > 1 and not found.issuperset(task.sources)
        for name in task.sources
        if name in found
    }:
        found -= mixed
    return found


def _zero(name: str, value: StoredValue, array: ArrayConfig, fixed: set[str]) -> int:
    """Return the code of a value that is stored as 0. Raises: MappingError if its codes are too many.

    Parameters
    ----------
    fixed: names of values that other engines take or give, whose codes nobody can shift.
    """
    low, high = value.range
    half = 1 << (array.activation_bits - 1)
    # Codes as they are, else unsigned codes: both travel without a shift. Any other zero needs somebody who shifts.
    choices = (0, half) if name in fixed else (0, half, low + half)
    for zero in choices:
        if -half <= low - zero and high - zero < half:
            return zero
    codes, bits = f"value '{name}' has the codes {low}..{high}", array.activation_bits
    if high - low < 2 * half:
        raise MappingError(
            f"{codes}, and between engines the array takes and gives {-half}..{half - 1} or 0..{2 * half - 1}",
            f"choose its zero point as 0 or {half}, or use {STREAMING} for the layers that read it",
        )
    raise MappingError(
        f"{codes}, the array stores {bits} bits",
        f"quantize it to {bits} bits, use an array with more, or {STREAMING} for the layers that read it",
    )


def _homes(network: TaskNetwork, array: ArrayConfig) -> dict[str, tuple[str, int]]:
    """Return the storage and the first channel there of each value that is part of a concatenation."""
    homes: dict[str, tuple[str, int]] = {}
    made = {task.value for task in network.tasks}
    summands = {name for task in network.tasks if len(task.sources) > 1 for name in task.sources}
    for layer in network.concats:
        first = 0
        for name, channels in zip(layer.inputs, layer.parts, strict=True):
            end = first + -(-channels // array.lanes) * array.lanes
            # The parts are written in place by the tasks that make them, so each has to begin at a granule, and to end
            # at one.
            aligned = first % array.lanes == 0
            last = first + channels == layer.extent[0]
            fits = end <= array.chunks(layer.extent[0]) * array.codes_per_word if last else end == first + channels
            if name not in made or name in homes or name in summands or not aligned or not fits:
                raise _not_joined(layer, name, channels, array)
            homes[name] = (layer.node, first)
            first += channels
    for task in network.tasks:
        if task.piece is not None:
            homes[task.node] = _home_of_piece(task, homes, array)
    return homes


def _home_of_piece(task: Task, homes: Mapping[str, tuple[str, int]], array: ArrayConfig) -> tuple[str, int]:
    """Return the storage of the map of which a task stores a piece, and its first channel there."""
    if task.value in homes:
        return homes[task.value]
    # A granule that reaches beyond its pixel would overwrite the next one, which belongs to another piece.
    if -(-task.channels // array.lanes) * array.lanes > array.chunks(task.channels) * array.codes_per_word:
        raise MappingError(
            f"layer {task.where} makes pixels of {task.channels} channels beside those of others, and the array stores "
            f"{array.lanes} channels at once",
            f"use more channels, an array with fewer lanes, or {STREAMING}",
        )
    return task.value, 0


def _not_joined(layer: ConcatLayer, name: str, channels: int, array: ArrayConfig) -> MappingError:
    return MappingError(
        f"layer {layer.where} joins '{name}' of {channels} channels: the array joins results of layers whose channels "
        f"are multiples of {array.lanes} and that no sum and no other concatenation reads",
        f"change the number of channels, or use {STREAMING}",
    )
