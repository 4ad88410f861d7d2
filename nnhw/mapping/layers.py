"""Layers: an integer graph as the mapper sees it. Each layer becomes one engine or a few; streams connect them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd, prod

import numpy as np

from nnhw.engines.own import OwnEngine, Port
from nnhw.ir import IntType, Location, Op
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax

Pair = tuple[int, int]
"""(rows, columns)."""
Shape = tuple[int, int, int]
"""(channels, height, width) of a feature map; a vector has height and width 1, a series height 1."""
Loops = tuple[int, int, int, int]
"""Counts of nested loops over the elements of a stream: (outer, rows, columns, run), the outermost first."""


@dataclass(frozen=True, eq=False)
class DoubleScaling:
    """A step function as fixed-point arithmetic with double rounding: see the IR's `rescale`.

    Parameters
    ----------
    multiplier, exponent, bias: int64 [channels].
    offset: zero point of the codes.
    """

    multiplier: np.ndarray
    exponent: np.ndarray
    bias: np.ndarray
    offset: int


@dataclass(frozen=True, eq=False)
class StepFunction:
    """A function from accumulators to codes, constant between steps: see the IR's `step_table`.

    Parameters
    ----------
    thresholds: int64 [channels, steps], each row sorted.
    codes: int64 [channels, steps + 1].
    code: type of the codes.
    scaling: the same function, for every accumulator that occurs, as fixed-point arithmetic; None if not known.
    """

    thresholds: np.ndarray
    codes: np.ndarray
    code: IntType
    scaling: DoubleScaling | None = None

    def of_channels(self, rows: np.ndarray) -> StepFunction:
        """Return the function of other channels, each of which takes the row of one that this one has."""
        scaling = self.scaling
        if scaling is not None:
            constants = (scaling.multiplier[rows], scaling.exponent[rows], scaling.bias[rows])
            scaling = DoubleScaling(*constants, scaling.offset)
        return StepFunction(self.thresholds[rows], self.codes[rows], self.code, scaling)

    @cached_property
    def _digest(self) -> bytes:
        # By content, as equal functions are read again with each way of cutting a network, as other arrays.
        second = () if self.scaling is None else (self.scaling.multiplier, self.scaling.exponent, self.scaling.bias)
        digest = hashlib.sha256(repr((self.code, self.scaling and self.scaling.offset)).encode())
        for values in (self.thresholds, self.codes, *second):
            digest.update(repr((values.dtype, values.shape)).encode())
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.digest()

    def __eq__(self, other: object) -> bool:
        """Return whether the other is the same function, written in the same way."""
        return isinstance(other, StepFunction) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@dataclass(frozen=True)
class Padding:
    """A border around a feature map.

    Parameters
    ----------
    before, after: (rows, columns) at the top left, and at the bottom right.
    value: of the border's elements.
    bipolar: whether the map inside is bipolar, which with a border of zeros becomes a map of -1, 0 and 1.
    """

    before: Pair
    after: Pair
    value: int
    bipolar: bool = False

    def around(self, shape: Shape) -> Shape:
        """Return the shape of a padded feature map."""
        channels, height, width = shape
        return (
            channels,
            height + self.before[0] + self.after[0],
            width + self.before[1] + self.after[1],
        )


@dataclass(frozen=True, eq=False)
class Layer:
    """The base of all layers.

    Parameters
    ----------
    name: name of the model's layer.
    node: name of the IR value that leaves.
    location: place in the user's model.
    inputs: names of the IR values that come in, each from another layer or from the input of the graph.
    function: function from accumulators to codes; None: the accumulators leave.
    element: element type of the IR value that leaves.
    """

    name: str
    node: str
    location: Location
    inputs: tuple[str, ...]
    function: StepFunction | None = field(repr=False)
    element: IntType

    @property
    def where(self) -> str:
        """The layer's name and source line, for messages."""
        # Layers that nnhw has added itself have no place in the model.
        return str(self.location) if self.location.module else f"'{self.name}'"

    @property
    def shape(self) -> Shape:
        """The feature map that leaves."""
        raise NotImplementedError

    @property
    def run(self) -> int:
        """Number of elements that stay together in the stream; lanes of an engine without a matrix must divide it."""
        return self.shape[0]

    @property
    def products(self) -> int:
        """Products of weights and activations per frame, without those with padding."""
        return 0


class ShapedLayer(Layer):
    """The base of layers for which the shape that leaves is a parameter, `extent`, and does not follow from others."""

    extent: Shape

    @property
    def shape(self) -> Shape:
        """The feature map that leaves."""
        return self.extent


@dataclass(frozen=True, eq=False)
class WindowLayer(Layer):
    """A layer that looks at its input through a sliding window.

    Parameters
    ----------
    activation: type of the input's elements, its padding included.
    source: the feature map that comes in.
    padding: around it, or None.
    kernel, stride, dilation: (rows, columns).
    """

    activation: IntType
    source: Shape
    padding: Padding | None
    kernel: Pair
    stride: Pair
    dilation: Pair

    @property
    def padded(self) -> Shape:
        """The feature map that the window moves over."""
        return self.padding.around(self.source) if self.padding else self.source

    @property
    def positions(self) -> Pair:
        """(rows, columns) of window positions."""
        rows, columns = (
            (size - step * (span - 1) - 1) // stride + 1
            for size, span, stride, step in zip(self.padded[1:], self.kernel, self.stride, self.dilation, strict=True)
        )
        return rows, columns

    def taps(self, positions: Pair) -> int:
        """Return the number of taps of the first (rows, columns) of positions, without those in padding."""
        before = self.padding.before if self.padding else (0, 0)
        # Rows and columns are independent: a tap is inside where both are.
        totals = []
        for axis in range(2):
            starts = np.arange(positions[axis])[:, None] * self.stride[axis] - before[axis]
            places = starts + np.arange(self.kernel[axis]) * self.dilation[axis]
            totals.append(int(((places >= 0) & (places < self.source[axis + 1])).sum()))
        return totals[0] * totals[1]


@dataclass(frozen=True, eq=False)
class MatrixLayer(WindowLayer):
    """A convolution, or a linear layer as the convolution whose kernel is its whole input.

    Parameters
    ----------
    weights: int64 [outputs, channels / groups, kernel rows, kernel columns].
    weight: their type.
    groups: number of groups of channels that do not mix.
    pool: (rows, columns) of the windows of a max pooling behind the layer, which tile the map; (1, 1) without one.
    """

    weights: np.ndarray = field(repr=False)
    weight: IntType
    groups: int
    pool: Pair

    @property
    def blocks(self) -> Pair:
        """(rows, columns) of output pixels, after pooling."""
        rows, columns = self.positions
        return rows // self.pool[0], columns // self.pool[1]

    @property
    def vectors(self) -> int:
        """Output pixels that are computed per frame, in front of pooling."""
        return self.blocks[0] * self.blocks[1] * self.pool[0] * self.pool[1]

    @property
    def shape(self) -> Shape:
        """The feature map that leaves."""
        return (len(self.weights), *self.blocks)

    @property
    def products(self) -> int:
        """Products of one frame."""
        # Pixels that pooling drops are not computed, so their products do not count.
        rows, columns = self.blocks[0] * self.pool[0], self.blocks[1] * self.pool[1]
        return self.taps((rows, columns)) * self.weights.shape[0] * self.weights.shape[1]


@dataclass(frozen=True, eq=False)
class ChannelLayer(WindowLayer):
    """A reduction of each channel by itself: depthwise convolution, pooling.

    Parameters
    ----------
    op: 'dot', 'sum' or 'max'.
    weights: int64 [channels, kernel rows, kernel columns] of 'dot', else None.
    weight: their type.
    """

    op: str
    weights: np.ndarray | None = field(repr=False)
    weight: IntType | None

    @property
    def shape(self) -> Shape:
        """The feature map that leaves."""
        return (self.source[0], *self.positions)

    @property
    def is_global(self) -> bool:
        """Whether one window covers the whole map, so that no line buffer is needed."""
        return self.kernel == self.padded[1:]

    @property
    def products(self) -> int:
        """Products of one frame."""
        return 0 if self.weights is None else self.taps(self.positions) * self.source[0]


@dataclass(frozen=True, eq=False)
class SumLayer(ShapedLayer):
    """A weighted sum of several values, or of one: then a requantization or a change of type alone.

    Parameters
    ----------
    factors: of each input.
    extent: the common shape.
    """

    factors: tuple[int, ...]
    extent: Shape


@dataclass(frozen=True, eq=False)
class PairLayer(ShapedLayer):
    """The product, the maximum or the minimum of two values of one shape.

    Parameters
    ----------
    op: see `PairConfig`.
    kinds: types of the two values.
    extent: the common shape.
    """

    op: str
    kinds: tuple[IntType, IntType]
    extent: Shape


@dataclass(frozen=True)
class ProductForm:
    """Orders in which operands and results of a product of two computed matrices stream.

    Axes, each order from the outermost to the innermost: `r` the rows of the operand that streams, `c` the columns of
    the one that is held, `k` what is added over, `h` the heads, of each of which there is one pair of matrices. Rows
    are outermost where they stream.

    Parameters
    ----------
    rows, held, result: the orders of the operand that streams, of the one that is held, and of the result.
    lanes: axes along which the elements of a beat lie: a part of the first axis, or all of it and a part of the second.
    """

    rows: str
    held: str
    result: str
    lanes: str


@dataclass(frozen=True, eq=False)
class MatrixProductLayer(ShapedLayer):
    """The product of two computed matrices, or of one pair for each head; the operand that streams comes in first.

    Parameters
    ----------
    form: the orders of the streams.
    kinds: element types of the two operands.
    sizes: (rows, columns, inner, heads): of the axes `r`, `c`, `k`, `h`.
    period: number of results after which the channels of the function begin again.
    extent: the shape that leaves.
    """

    form: ProductForm
    kinds: tuple[IntType, IntType]
    sizes: tuple[int, int, int, int]
    period: int
    extent: Shape

    @property
    def products(self) -> int:
        """Products of one frame."""
        return prod(self.sizes)


@dataclass(frozen=True, eq=False)
class BroadcastLayer(ShapedLayer):
    """Constants that are the same for each frame: it reads nothing.

    Parameters
    ----------
    values: int64 [elements], in stream order.
    extent: their shape.
    """

    values: np.ndarray = field(repr=False)
    extent: Shape


@dataclass(frozen=True, eq=False)
class RowLayer(ShapedLayer):
    """What works on rows: the elements of one axis, which follow one another in the stream.

    Parameters
    ----------
    kind: type of the elements that come in.
    length: elements of a row.
    extent: the shape.
    """

    kind: IntType
    length: int
    extent: Shape

    @property
    def run(self) -> int:
        """Elements that stay together: a row, or a pixel where each channel has a function of its own."""
        # A requantizer takes its channels lane by lane, so the lanes have to divide a pixel as well.
        return self.length if self.function is None else gcd(self.length, self.extent[0])

    @property
    def rows(self) -> int:
        """Rows of a frame."""
        return prod(self.extent) // self.length


@dataclass(frozen=True, eq=False)
class NormLayer(RowLayer):
    """A normalization along one axis."""

    op: IntegerNorm


@dataclass(frozen=True, eq=False)
class SoftmaxLayer(RowLayer):
    """A softmax along one axis.

    Parameters
    ----------
    table: int64 [distances], of powers.
    keep: bool [rows, length], the elements that take part; None: all do.
    """

    op: IntegerSoftmax
    table: np.ndarray = field(repr=False)
    keep: np.ndarray | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class ConcatLayer(ShapedLayer):
    """Feature maps behind one another along the channels, the columns or the rows: streams that take turns.

    Parameters
    ----------
    parts: elements of each input in a turn.
    turns: of a frame: a turn is a pixel where channels are joined, a row where columns are, else the frame.
    extent: the joined shape.
    constants: so many of the first inputs are the same for each frame.
    """

    parts: tuple[int, ...]
    turns: int
    extent: Shape
    constants: int

    @property
    def run(self) -> int:
        """Elements that stay together."""
        # Beats must not mix inputs, nor end within a pixel that the next layer reads.
        return gcd(self.extent[0], *self.parts)


@dataclass(frozen=True, eq=False)
class SliceLayer(ShapedLayer):
    """A part of a feature map along one axis: some elements of each turn of the stream are kept.

    Parameters
    ----------
    turns: turns per frame, see `ConcatLayer`.
    period: elements that come in per turn.
    first, count: the first element of a turn that is kept, and how many are kept.
    extent: shape of the map that leaves.
    """

    turns: int
    period: int
    first: int
    count: int
    extent: Shape

    @property
    def run(self) -> int:
        """Elements that stay together."""
        return gcd(self.extent[0], self.period, self.first, self.count)


@dataclass(frozen=True, eq=False)
class TransposeLayer(ShapedLayer):
    """A stream in another order: of four nested loops over its elements, the two in the middle change places.

    Parameters
    ----------
    loops: counts of the loops at the input: [outer, rows, columns, run] --> [outer, columns, rows, run].
    extent: shape of the map that leaves.
    """

    loops: Loops
    extent: Shape

    @property
    def run(self) -> int:
        """Elements that stay together."""
        return self.loops[3]


@dataclass(frozen=True, eq=False)
class UpsampleLayer(Layer):
    """Each pixel several times.

    Parameters
    ----------
    source: the feature map that comes in.
    factor: (rows, columns).
    """

    source: Shape
    factor: Pair

    @property
    def shape(self) -> Shape:
        """The feature map that leaves."""
        channels, height, width = self.source
        return channels, height * self.factor[0], width * self.factor[1]


@dataclass(frozen=True, eq=False)
class PadLayer(Layer):
    """Padding that is not part of a window layer."""

    source: Shape
    padding: Padding

    @property
    def shape(self) -> Shape:
        """The feature map that leaves."""
        return self.padding.around(self.source)


@dataclass(frozen=True, eq=False)
class OwnLayer(ShapedLayer):
    """An operator with an engine that the user brings.

    Parameters
    ----------
    op: the operator.
    engine: the class of its engines.
    sources: types and shapes of its inputs.
    extent: shape of the map that leaves.
    """

    op: Op
    engine: type[OwnEngine]
    sources: tuple[Port, ...]
    extent: Shape


def as_map(shape: tuple[int, ...]) -> Shape:
    """Return the feature map that streams like a value of an IR shape.

    The shape is [elements], [channels, length] or [channels, .., width]: the last axis counts columns, and all axes
    between the first and the last together count rows.
    """
    channels, *sides = shape
    return channels, prod(sides[:-1]), sides[-1] if sides else 1
