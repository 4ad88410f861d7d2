"""Products of two computed matrices: in which orders their streams come, and what holds and repeats them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.accelerator import stream_order, tensor_order
from nnhw.engines.window import WindowConfig
from nnhw.ir import Op
from nnhw.ir.ops import Permute, Reshape
from nnhw.mapping.layers import Loops, MatrixProductLayer, ProductForm
from nnhw.mapping.transpose import transposes

FORMS = (
    ProductForm("rhk", "chk", "rch", lanes="kh"),
    ProductForm("rkh", "khc", "rhc", lanes="ch"),
    ProductForm("rhk", "chk", "rhc", lanes="k"),
    ProductForm("rhk", "khc", "rhc", lanes="c"),
    ProductForm("rkh", "kch", "rch", lanes="h"),
    ProductForm("rkh", "ckh", "rch", lanes="h"),
)
"""The orders that attention has: queries times keys, and shares times values. Of each there are a form for streams in
which all heads of a key follow one another, and one for those in which all keys of a head do. The last two forms are
for matrices whose elements of all heads follow one another.
"""
AXES = "rckh"
"""Names of the axes, in the order of `MatrixProductLayer.sizes`; see `ProductForm`."""
SIDES = (("hrk", "hkc", "hrc"), ("hck", "hkr", "hcr"))
"""The axes of left, right and result, where the left operand streams row by row, and where the right one does."""


@dataclass(frozen=True)
class ProductOperand:
    """What a product reads of a stream.

    Parameters
    ----------
    shape: of the tensor that streams.
    ops: `flatten`, `reshape` and `permute` that make the operand of it, the first one first.
    axes: sizes of its axes: heads, rows, columns.
    """

    shape: tuple[int, ...]
    ops: tuple[Op, ...]
    axes: tuple[int, int, int]

    def transposed(self) -> ProductOperand:
        """Return the operand with its last two axes in each other's place."""
        heads, rows, columns = self.axes
        return ProductOperand(self.shape, (*self.ops, Reshape(self.axes), Permute((0, 2, 1))), (heads, columns, rows))

    def order(self, names: str) -> str | None:
        """Return the axes in the order in which they stream; see `axis_order`."""
        places = tensor_order(np.arange(math.prod(self.shape))[np.newaxis], self.shape)
        for op in self.ops:
            places = op.evaluate(places)
        return axis_order(places.reshape(self.axes), names)

    def turned(self, names: str, order: str) -> list[Loops]:
        """Return the steps that bring the stream into another order of the axes."""
        middle, inner, outer = order[1], order[2], order[0]
        last = Permute(tuple(names.index(name) for name in (inner, outer, middle)))
        return transposes(self.shape, [*self.ops, Reshape(self.axes), last])


def result_order(shape: tuple[int, ...], ops: Sequence[Op], axes: tuple[int, int, int], names: str) -> str | None:
    """Return the axes of a result in the order in which they stream behind some reorderings; see `axis_order`.

    Parameters
    ----------
    shape: of the result, in front of them.
    axes: heads, rows and columns of it.
    """
    streamed = np.arange(math.prod(shape)).reshape(1, *shape)
    for op in ops:
        streamed = op.evaluate(streamed)
    return axis_order(stream_order(streamed)[0].argsort().reshape(axes), names)


def streamed_rows(shape: tuple[int, ...], ops: Sequence[Op], alike: np.ndarray) -> np.ndarray:
    """Return which rows of a function the results take that stream, int64 [period]; they come again and again.

    Parameters
    ----------
    shape: of the result, whose first axis the rows of the function are for.
    ops: that reorder it.
    alike: for each of them, the first row that is equal.
    """
    # Elements are replaced by the rows that they take, and reordered as the result is.
    rows = np.broadcast_to(alike.reshape(-1, *[1] * (len(shape) - 1)), shape)[np.newaxis]
    for op in ops:
        rows = op.evaluate(rows)
    channels, stream = rows.shape[1], stream_order(rows)[0]
    periods = (period for period in range(channels, len(stream) + 1, channels) if len(stream) % period == 0)
    return next(stream[:period] for period in periods if (stream.reshape(-1, period) == stream[:period]).all())


def axis_order(places: np.ndarray, names: str) -> str | None:
    """Return the axes of a matrix of each head in the order in which they stream, the outermost first.

    Axes of one element are left out. None where an axis does not stream with one step.

    Parameters
    ----------
    places: of each element in the stream, int [heads, rows, columns].
    names: of the three axes.
    """
    # The step of an axis is the place of its second element, as the first one lies at 0; of one element, 0.
    steps = [int(places.take(size > 1, axis).flat[0]) for axis, size in enumerate(places.shape)]
    grids = np.meshgrid(*map(np.arange, places.shape), indexing="ij", sparse=True)
    if not np.array_equal(places, sum(step * grid for step, grid in zip(steps, grids, strict=True))):
        return None
    used = [(-step, name) for step, name, size in zip(steps, names, places.shape, strict=True) if size > 1]
    return "".join(name for _, name in sorted(used))


def fits(order: str | None, wanted: str) -> bool:
    """Return whether an order, without axes of one element, is a form's."""
    return order is not None and order == "".join(name for name in wanted if name in order)


@dataclass(frozen=True)
class OrderMatch:
    """How a product is computed of streams as they come.

    Parameters
    ----------
    form: of the streams.
    right_streams: the right operand streams row by row, and the left one is held.
    sizes: see `MatrixProductLayer`.
    length: number of the reorderings behind the result that cost nothing, because it leaves in that order.
    steps: that bring each operand into another order first, mostly none.
    rows: int64 [period], the row of the function for each result, in the order in which they leave.
    """

    form: ProductForm
    right_streams: bool
    sizes: tuple[int, int, int, int]
    length: int
    steps: tuple[list[Loops], list[Loops]]
    rows: np.ndarray


def best_match(
    operands: Sequence[ProductOperand], shape: tuple[int, ...], behind: Sequence[Op], alike: np.ndarray
) -> OrderMatch:
    """Return the way to compute a product in which the fewest streams are put into another order.

    There always is one: rows of a result stream behind one another as it stands.

    Parameters
    ----------
    operands: left [heads, rows, inner] and right [heads, inner, columns].
    shape: of the result.
    behind: `flatten`, `reshape` and `permute` that alone read the result, the first one first.
    alike: see `streamed_rows`.
    """
    found: list[OrderMatch] = []
    # With all reorderings behind it first: of equally good ways `min` takes the one that does most for nothing.
    for length in range(len(behind), -1, -1):
        found += _matches(operands, shape, behind[:length], streamed_rows(shape, behind[:length], alike))
    return min(found, key=lambda match: sum(map(len, match.steps)))


def _matches(
    operands: Sequence[ProductOperand], shape: tuple[int, ...], ops: Sequence[Op], rows: np.ndarray
) -> Iterator[OrderMatch]:
    """Yield the ways to have the result in the order behind some ops."""
    axes = math.prod(shape[:-2]), shape[-2], shape[-1]
    inner = operands[0].axes[2]
    for right_streams, (left_names, right_names, names) in enumerate(SIDES):
        order = result_order(shape, ops, axes, names)
        size = dict(zip(names, axes, strict=True)) | {"k": inner}
        for form in FORMS:
            if fits(order, form.result):
                orders = (form.held, form.rows) if right_streams else (form.rows, form.held)
                steps = [
                    [] if fits(operand.order(side), wanted) else operand.turned(side, wanted)
                    for operand, side, wanted in zip(operands, (left_names, right_names), orders, strict=True)
                ]
                sizes = size["r"], size["c"], inner, size["h"]
                yield OrderMatch(form, bool(right_streams), sizes, len(ops), (steps[0], steps[1]), rows)


def lane_choices(layer: MatrixProductLayer) -> Iterator[tuple[int, int, int]]:
    """Yield the choices of lanes: elements in a beat of the operand that is held, and the cells that take them.

    Returns
    -------
    (lanes, cells, spread) of each choice: `spread` neighbouring cells share elements; see `MatrixProductConfig`.
    """
    size = dict(zip(AXES, layer.sizes, strict=True))
    first, *second = (size[axis] for axis in layer.form.lanes)
    # The second axis is in a beat only where all of the first one is, see `ProductForm.lanes`.
    whole = [first * more for more in range(2, math.prod(second) + 1) if math.prod(second) % more == 0]
    for lanes in [*(part for part in range(1, first + 1) if first % part == 0), *whole]:
        simd = min(lanes, first) if layer.form.lanes[0] == "k" else 1
        spread = min(lanes, first) if layer.form.lanes[0] == "c" else 1
        yield lanes, lanes // simd, spread


def rows_window(layer: MatrixProductLayer, lanes: int, repeats: int, bits: int, address_bits: int) -> WindowConfig:
    """Return the window that holds a row of the operand that streams, and repeats it for the columns of the other one.

    Parameters
    ----------
    lanes: elements of a beat.
    repeats: how often each element leaves.
    """
    rows, _, inner, heads = layer.sizes
    pixelwise, walking = layer.form.rows == "rhk", layer.form.lanes == "h"
    return WindowConfig(
        height=rows,
        width=1 if pixelwise else inner,
        channels=heads * inner if pixelwise else heads,
        kernel=(1, 1 if pixelwise else inner),
        stride=(1, 1),
        block=(1, 1),
        channel_lanes=lanes,
        row_lanes=1,
        repeats=1 if walking else repeats,
        bits=bits,
        address_bits=address_bits,
        groups=head_groups(layer) if pixelwise else heads // lanes,
        walks=repeats if walking else 1,
    )


def head_groups(layer: MatrixProductLayer) -> int:
    """Return in how many parts the elements of all heads of a row are read, each for all columns."""
    return layer.sizes[3] if layer.form.result == "rhc" else 1


def held_window(layer: MatrixProductLayer, lanes: int, bits: int, address_bits: int) -> WindowConfig:
    """Return the window that holds all of the other operand, and reads it for each row."""
    rows, columns, inner, heads = layer.sizes
    width, pixel, taps = {
        "chk": (columns, heads * inner, columns),
        "khc": (inner, heads * columns, inner),
        "kch": (inner, columns * heads, inner),
        "ckh": (columns * inner, heads, inner),
    }[layer.form.held]
    return WindowConfig(
        height=1,
        width=width,
        channels=pixel,
        kernel=(1, taps),
        stride=(1, taps),
        block=(1, 1),
        channel_lanes=lanes,
        row_lanes=1,
        repeats=1,
        bits=bits,
        address_bits=address_bits,
        groups=head_groups(layer) if layer.form.held == "chk" else pixel // lanes,
        walks=rows,
    )
