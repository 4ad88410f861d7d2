"""Tasks: layers as a shared engine runs them, weighted sums over windows, with a function and perhaps a max pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from nnhw.errors import MappingError
from nnhw.ir import IntType
from nnhw.mapping.layers import (
    ChannelLayer,
    Layer,
    MatrixLayer,
    Padding,
    PadLayer,
    Pair,
    PairLayer,
    Shape,
    StepFunction,
    SumLayer,
)
from nnhw.mapping.shared.program.lines import Line
from nnhw.mapping.shared.program.pieces import Move, MovedPixels, Piece, part_of

STREAMING = "--style streaming"
"""What messages advise where no array runs a layer: an engine of its own may."""


@dataclass(frozen=True)
class Window:
    """The pixels of its source that a task reads; pairs are (rows, columns).

    Parameters
    ----------
    source: shape of the feature map that comes in.
    before: width of the border above and to the left.
    border: value of the border's elements.
    kernel, dilation: number of taps of a position, and distance from one tap to the next, in pixels.
    pool, stride: number of positions whose maximum is stored as one pixel, and distance from one position to the next.
    blocks, step: number of pixels that are stored, and distance of their windows in the source.
    """

    source: Shape
    before: Pair = (0, 0)
    border: int = 0
    kernel: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pool: Pair = (1, 1)
    stride: Pair = (1, 1)
    blocks: Pair = (1, 1)
    step: Pair = (1, 1)

    @property
    def pixels(self) -> int:
        """Number of pixels that are stored."""
        return self.blocks[0] * self.blocks[1]

    @cached_property
    def has_border(self) -> bool:
        """Whether any tap lies outside of the source."""
        axes = zip(self.kernel, self.dilation, self.pool, self.stride, self.blocks, self.step, strict=True)
        ends = [(k - 1) * d + (p - 1) * s + (b - 1) * t for k, d, p, s, b, t in axes]
        sizes = zip(ends, self.before, self.source[1:], strict=True)
        return any(before > 0 or end - before >= size for end, before, size in sizes)

    def rows_read(self, first: int, end: int) -> tuple[int, int]:
        """Return the rows of the source, as (first, end), that are read for the stored rows first..end - 1."""
        # Rows in the border are read from nowhere, so they are cut off below.
        low = first * self.step[0] - self.before[0]
        spread = (self.pool[0] - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0]
        high = (end - 1) * self.step[0] - self.before[0] + spread + 1
        return max(0, low), min(self.source[1], high)

    @cached_property
    def is_pixelwise(self) -> bool:
        """Whether each stored pixel is made of the source's pixel at the same place only."""
        alone = self.kernel == self.pool == self.step == (1, 1) and self.blocks == self.source[1:]
        return alone and not self.has_border

    @cached_property
    def is_global(self) -> bool:
        """Whether a single pixel is stored, from one position without border."""
        return self.blocks == self.pool == (1, 1) and not self.has_border

    @cached_property
    def tiles_source(self) -> bool:
        """Whether it is a max pooling whose windows tile the source."""
        plain = self.kernel == self.stride == (1, 1) and self.pool == self.step
        return plain and not self.has_border


@dataclass(frozen=True, eq=False)
class Task:
    """One layer, with the function or max pooling behind it if they run together.

    Parameters
    ----------
    name, where: the layer's name for reports, and its name and place for messages.
    node: name of the IR value that is stored.
    sources: names of the IR values that are read: one, or the summands of a sum.
    window: the pixels that are read.
    weights: int64 [outputs, channels / groups, rows, columns] if dense; [channels or 1, rows, columns] if channelwise;
        [1, summands, 1] of a sum.
    channels: number of channels of the stored value.
    element: type of its elements.
    sums: range of the sums, in terms of the model's values.
    channelwise: whether each channel is computed by itself; else the task is dense.
    groups: number of groups of channels that do not mix, of a dense task.
    function: from sums to codes; None: the sums are codes already, or leave as they are.
    is_sum: whether it adds values pixel by pixel, or passes a single one on.
    is_maximum: whether it only takes maxima, and adds nothing.
    products: products of the model per frame.
    lines: possible lines of the requantizer, by ascending shift; empty: sums leave.
    piece: the pixels of a larger map that it stores; None: it stores a map of its own.
    """

    name: str
    where: str
    node: str
    sources: tuple[str, ...]
    window: Window
    weights: np.ndarray = field(repr=False)
    channels: int
    element: IntType
    sums: IntType
    channelwise: bool = True
    groups: int = 1
    function: StepFunction | None = field(default=None, repr=False)
    is_sum: bool = False
    is_maximum: bool = False
    products: int = 0
    lines: tuple[Line, ...] = field(default=(), repr=False)
    piece: Piece | None = None

    @property
    def shape(self) -> Shape:
        """The feature map that leaves."""
        return (self.channels, *self.window.blocks)

    @property
    def value(self) -> str:
        """Name of the IR value that it stores, or of which it stores a piece."""
        return self.node if self.piece is None else self.piece.map

    @cached_property
    def weight_range(self) -> tuple[int, int]:
        """(lowest, highest) weight."""
        return int(self.weights.min()), int(self.weights.max())

    @cached_property
    def weight_sums(self) -> np.ndarray:
        """The sum of the weights of each output, int64 [outputs or 1]."""
        return self.weights.reshape(len(self.weights), -1).sum(axis=1)

    @cached_property
    def equal_taps(self) -> np.ndarray:
        """Whether all weights of an output are equal, bool [outputs or 1]."""
        taps = self.weights.reshape(len(self.weights), -1)
        return np.asarray((taps == taps[:, :1]).all(axis=1))

    @cached_property
    def needs_row_steps(self) -> bool:
        """Whether the step from one row that it stores to the next differs from that between its pixels."""
        rows, columns = self.window.blocks
        return self.piece is not None and rows > 1 and self.piece.row != columns * self.piece.step[1]


def read_task(layer: Layer, elements: Mapping[str, IntType]) -> Task:
    """Return the task of a layer, without its lines.

    Parameters
    ----------
    elements: types of the values that it reads, by name.

    Raises
    ------
    MappingError: no array runs it.
    """
    if isinstance(layer, MatrixLayer):
        return _matrix(layer)
    if isinstance(layer, ChannelLayer):
        return _channelwise(layer)
    if isinstance(layer, SumLayer):
        return _sum(layer, elements)
    if isinstance(layer, PadLayer):
        return _pad(layer)
    kind = layer.op if isinstance(layer, PairLayer) else type(layer).__name__.removesuffix("Layer").lower()
    raise MappingError(f"layer {layer.where} ({kind}) does not run on a shared engine", f"use {STREAMING}")


def read_move(move: Move) -> list[Task]:
    """Return the tasks that store the pieces of a moved map, without their lines.

    Raises
    ------
    MappingError: no array can: pixels do not keep their channels, and the layer in front cannot be split.
    """
    if move.keeps_channels:
        return [_copy(move, moved, number) for number, moved in enumerate(move.pieces)]
    if move.made is None:
        raise MappingError(
            f"layer {move.last.where} moves channels; a shared engine does that only right behind a "
            f"convolution without groups that nothing else reads",
            f"use {STREAMING}",
        )
    return [_part(move, move.made, moved, number) for number, moved in enumerate(move.pieces)]


def _copy(move: Move, moved: MovedPixels, number: int) -> Task:
    """Return the task that copies the pixels of a piece."""
    return Task(
        name=move.last.name,
        where=move.last.where,
        node=f"{move.last.node}[{number}]",
        sources=(move.source,),
        window=_through(Window(move.shape), moved),
        weights=np.ones((1, 1, 1), np.int64),
        channels=move.shape[0],
        element=move.last.element,
        sums=move.last.element,
        is_maximum=True,
        piece=moved.piece,
    )


def _part(move: Move, layer: MatrixLayer, moved: MovedPixels, number: int) -> Task:
    """Return the part of a convolution that computes a piece."""
    whole = _matrix(part_of(layer, moved.channels))
    rows, columns = moved.blocks
    # In proportion, as pieces may have unequal borders, which a count of taps would have to look at.
    products = layer.products * len(moved.channels) * rows * columns // prod(layer.shape)
    window = _through(whole.window, moved)
    return replace(whole, node=f"{move.last.node}[{number}]", window=window, products=products, piece=moved.piece)


def _through(window: Window, moved: MovedPixels) -> Window:
    """Return the window of the pixels of a piece alone, of a task that stores the map in front."""
    (down, right), (row, column) = window.step, moved.first
    return replace(
        window,
        # A piece begins at a later pixel, so the border in front of it is smaller, or negative.
        before=(window.before[0] - row * down, window.before[1] - column * right),
        blocks=moved.blocks,
        step=(down * moved.step[0], right * moved.step[1]),
    )


def weighted_range(weights: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[int, int]:
    """Return the lowest and the highest sum of products of weights [outputs, n] and numbers within low..high [n]."""
    ends = weights * low, weights * high
    return int(np.minimum(*ends).sum(axis=1).min()), int(np.maximum(*ends).sum(axis=1).max())


def _matrix(layer: MatrixLayer) -> Task:
    # A border behind the map needs no field: how many pixels are stored says how far windows reach.
    padding = layer.padding or Padding((0, 0), (0, 0), 0)
    window = Window(
        source=layer.source,
        before=padding.before,
        border=padding.value,
        kernel=layer.kernel,
        dilation=layer.dilation,
        pool=layer.pool,
        stride=layer.stride,
        blocks=layer.blocks,
        step=(layer.stride[0] * layer.pool[0], layer.stride[1] * layer.pool[1]),
    )
    return Task(
        **_common(layer),
        window=window,
        weights=layer.weights,
        channels=len(layer.weights),
        sums=_sums(layer.weights, layer.activation),
        channelwise=False,
        groups=layer.groups,
        products=layer.products,
    )


def _channelwise(layer: ChannelLayer) -> Task:
    maximum, padding = layer.op == "max", layer.padding or Padding((0, 0), (0, 0), 0)
    # A maximum has no weights: codes are multiplied by 1, and the collector takes the greatest one.
    weights = np.ones((1, *((1, 1) if maximum else layer.kernel)), np.int64) if layer.weights is None else layer.weights
    window = Window(
        source=layer.source,
        before=padding.before,
        border=padding.value,
        kernel=(1, 1) if maximum else layer.kernel,
        dilation=layer.dilation,
        # The taps of a maximum are positions of their own, whose codes are joined; those of a sum are added.
        pool=layer.kernel if maximum else (1, 1),
        stride=layer.dilation if maximum else layer.stride,
        blocks=layer.positions,
        step=layer.stride,
    )
    return Task(
        **_common(layer),
        window=window,
        weights=weights,
        channels=layer.source[0],
        sums=_sums(weights, layer.activation),
        is_maximum=maximum,
        products=layer.products,
    )


def _sum(layer: SumLayer, elements: Mapping[str, IntType]) -> Task:
    # The loop over summands has one stride, a distance between two storages.
    if len(layer.inputs) > 2:
        raise MappingError(
            f"layer {layer.where} adds {len(layer.inputs)} values, the array adds two at once",
            f"add two at a time with a quantizer behind each sum, or {STREAMING}",
        )
    factors = np.array(layer.factors, np.int64)
    types = [elements[name] for name in layer.inputs]
    low, high = (np.array([getattr(kind, end) for kind in types]) for end in ("low", "high"))
    return Task(
        **_common(layer),
        window=Window(layer.extent, blocks=(layer.extent[1], layer.extent[2])),
        weights=factors.reshape(1, -1, 1),
        channels=layer.extent[0],
        sums=IntType(*weighted_range(factors[None], low, high)),
        is_sum=True,
    )


def _pad(layer: PadLayer) -> Task:
    padding = layer.padding
    blocks = padding.around(layer.source)[1:]
    return Task(
        **_common(layer),
        window=Window(layer.source, padding.before, padding.value, blocks=blocks),
        weights=np.ones((1, 1, 1), np.int64),
        channels=layer.source[0],
        sums=layer.element,
        is_maximum=True,
    )


def _sums(weights: np.ndarray, activation: IntType) -> IntType:
    taps = weights.reshape(len(weights), -1)
    return IntType(*weighted_range(taps, np.array(activation.low), np.array(activation.high)))


def _common(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "where": layer.where,
        "node": layer.node,
        "sources": layer.inputs,
        "element": layer.element,
        "function": layer.function,
    }
