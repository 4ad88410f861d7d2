"""Maps that several tasks make, each some of its pixels: upsampled and cropped maps, and transposed convolutions.

Between layers that compute, an integer graph may have some that only move elements: those that repeat pixels, leave
some out, or put parts of a pixel's channels at pixels of their own (the last step of a transposed convolution, and a
pixel shuffle). A shared engine has no such layers. Instead, each task in front stores what it computes where it belongs
in the moved map, at pixels that are equally far apart:

- where moved pixels keep all their channels, one task for each piece of the moved map copies the pixels;
- where they keep some channels only, the convolution in front is split, and each part computes the channels of a piece.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from nnhw.mapping.layers import Layer, MatrixLayer, Pair, Shape, SliceLayer, StepFunction, TransposeLayer, UpsampleLayer

MOST_PIECES = 16
"""Most pieces of a map: each takes records of its own, with their weights."""
Mover = TransposeLayer | SliceLayer | UpsampleLayer


@dataclass(frozen=True)
class Piece:
    """Pixels of a map that are equally far apart; pairs are (rows, columns).

    Parameters
    ----------
    map: name of the IR value.
    width: columns of the map.
    first, step: place of the first pixel, and distance from one pixel to the next.
    """

    map: str
    width: int
    first: Pair
    step: Pair

    @property
    def pixel(self) -> int:
        """Number of the first pixel in the map."""
        return self.first[0] * self.width + self.first[1]

    @property
    def row(self) -> int:
        """Pixels of the map from the first pixel of a row to that of the next one."""
        return self.step[0] * self.width


@dataclass(frozen=True, eq=False)
class MovedPixels:
    """One piece of a moved map, and where its pixels are from.

    Parameters
    ----------
    piece: the pixels that are stored.
    first, step: in the map in front, the place of the pixel that becomes the first one, and the distance to the next.
    blocks: number of pixels.
    channels: int64 [channels], those of the map in front that they keep.
    """

    piece: Piece
    first: Pair
    step: Pair
    blocks: Pair
    channels: np.ndarray


@dataclass(frozen=True, eq=False)
class Move:
    """A moved map.

    Parameters
    ----------
    layers: the layers that move elements, the last one makes the map.
    source, shape: name and shape of the map in front.
    pieces: of the moved map, which have all its pixels.
    made: the convolution that makes the map in front, if it can be split: without groups, and nothing else reads it.
    """

    layers: tuple[Mover, ...]
    source: str
    shape: Shape
    pieces: tuple[MovedPixels, ...]
    made: MatrixLayer | None

    @property
    def last(self) -> Mover:
        """The layer that makes the moved map."""
        return self.layers[-1]

    @property
    def keeps_channels(self) -> bool:
        """Whether all moved pixels have all channels of a pixel in front, in the same order."""
        every = np.arange(self.shape[0])
        return all(np.array_equal(piece.channels, every) for piece in self.pieces)

    @property
    def replaced(self) -> set[str]:
        """Names of the values that are not made: those between its layers, and that of a convolution that is split."""
        inner = {layer.node for layer in self.layers[:-1]}
        return inner if self.keeps_channels or self.made is None else {*inner, self.made.node}


def find_moves(layers: Sequence[Layer], shapes: Mapping[str, Shape], output: str) -> dict[str, Move]:
    """Return the moved maps of a network that consist of few pieces, by name.

    Parameters
    ----------
    shapes: of all values, by name.
    output: name of the value that leaves.
    """
    made = {layer.node: layer for layer in layers}
    readers = Counter(name for layer in layers for name in layer.inputs)
    # What leaves the network is read by the host.
    readers[output] += 1
    inner = {
        layer.inputs[0]
        for layer in layers
        if isinstance(layer, Mover) and readers[layer.inputs[0]] == 1 and isinstance(made.get(layer.inputs[0]), Mover)
    }
    found = {}
    for layer in layers:
        if not isinstance(layer, Mover) or layer.node in inner:
            continue
        chain: list[Mover] = [layer]
        while chain[0].inputs[0] in inner:
            before = made[chain[0].inputs[0]]
            assert isinstance(before, Mover)
            chain.insert(0, before)
        source = chain[0].inputs[0]
        pieces = _pieces(chain, shapes[source])
        if pieces is not None:
            front = made.get(source) if readers[source] == 1 else None
            split = front if isinstance(front, MatrixLayer) and front.groups == 1 else None
            found[layer.node] = Move(tuple(chain), source, shapes[source], pieces, split)
    return found


def part_of(layer: MatrixLayer, channels: np.ndarray) -> MatrixLayer:
    """Return the part of a convolution that computes some output channels, int64 [channels]."""
    function: StepFunction | None = layer.function
    return replace(
        layer,
        weights=np.ascontiguousarray(layer.weights[channels]),
        function=None if function is None else function.of_channels(channels),
    )


def _pieces(layers: Sequence[Mover], shape: Shape) -> tuple[MovedPixels, ...] | None:
    """Return the fewest pieces of a map; None if it does not consist of pixels in front that are equally far apart.

    Parameters
    ----------
    shape: of the map in front.
    """
    channels, _, width = shape
    # Every element is followed through all layers by its number.
    places = np.arange(prod(shape))
    for layer in layers:
        places = _moved(layer, places)
    kept, rows, columns = layers[-1].shape
    pixels, numbers = np.divmod(places.reshape(rows, columns, kept), channels)
    # A moved pixel with channels of several pixels in front is none that one position computes.
    if (pixels != pixels[..., :1]).any():
        return None
    sources = np.stack(np.divmod(pixels[..., 0], width), axis=-1)
    steps = [(down, right) for down in range(1, rows + 1) for right in range(1, columns + 1)]
    # The fewest pieces first: each takes records of its own.
    for step in sorted((step for step in steps if prod(step) <= MOST_PIECES), key=prod):
        found = list(_pieces_at(layers[-1].node, sources, numbers, step))
        if None not in found:
            return tuple(piece for piece in found if piece is not None)
    return None


def _pieces_at(node: str, sources: np.ndarray, numbers: np.ndarray, step: Pair) -> Iterator[MovedPixels | None]:
    """Yield the pieces of a map with pixels so far apart; None for pixels that are not equally far apart in front.

    Parameters
    ----------
    sources: int64 [rows, columns, 2], the place in front of each pixel.
    numbers: int64 [rows, columns, channels], its channels there.
    """
    width = sources.shape[1]
    for first in itertools.product(range(step[0]), range(step[1])):
        mine, own = sources[first[0] :: step[0], first[1] :: step[1]], numbers[first[0] :: step[0], first[1] :: step[1]]
        blocks = mine.shape[:2]
        # The distances of the first pixels; `grid` checks that all others are the same.
        down = int(mine[1, 0, 0] - mine[0, 0, 0]) if blocks[0] > 1 else 1
        right = int(mine[0, 1, 1] - mine[0, 0, 1]) if blocks[1] > 1 else 1
        grid = np.stack(np.meshgrid(down * np.arange(blocks[0]), right * np.arange(blocks[1]), indexing="ij"), axis=-1)
        # Loops of a record go forwards only.
        if min(down, right) < 1 or (mine != mine[0, 0] + grid).any() or (own != own[0, 0]).any():
            yield None
            return
        begin = int(mine[0, 0, 0]), int(mine[0, 0, 1])
        yield MovedPixels(Piece(node, width, first, step), begin, (down, right), blocks, own[0, 0])


def _moved(layer: Mover, elements: np.ndarray) -> np.ndarray:
    """Return elements of a stream, int64 [elements], as they leave a layer."""
    if isinstance(layer, TransposeLayer):
        return elements.reshape(layer.loops).transpose(0, 2, 1, 3).reshape(-1)
    if isinstance(layer, SliceLayer):
        return elements.reshape(layer.turns, layer.period)[:, layer.first : layer.first + layer.count].reshape(-1)
    channels, height, width = layer.source
    pixels = elements.reshape(height, width, channels)
    return pixels.repeat(layer.factor[0], axis=0).repeat(layer.factor[1], axis=1).reshape(-1)
