"""Encodings: which elements stream for the values between layers, such as raw sums instead of the true ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.accelerator import Stream
from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.join import type_of_sum
from nnhw.engines.matrix_product import factor_type, sum_range
from nnhw.engines.pairwise import pair_range
from nnhw.errors import MappingError
from nnhw.ir import BIPOLAR, IntType
from nnhw.mapping.inputs import as_byte
from nnhw.mapping.layers import (
    ChannelLayer,
    ConcatLayer,
    Layer,
    MatrixLayer,
    MatrixProductLayer,
    NormLayer,
    PairLayer,
    SliceLayer,
    SoftmaxLayer,
    SumLayer,
    TransposeLayer,
)


@dataclass(frozen=True)
class Encoding:
    """How the values of a node stream: value = multiplier * element + offset of the channel; see `Stream`.

    Parameters
    ----------
    element: type of the elements that stream.
    multiplier: the same for all channels.
    offsets: int64 [channels], or [1] for all; None: 0.
    """

    element: IntType
    multiplier: int = 1
    offsets: np.ndarray | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the elements are the values themselves."""
        return self.multiplier == 1 and (self.offsets is None or not self.offsets.any())

    def stream(self, lanes: int, elements: int) -> Stream:
        """Return the stream with so many lanes (elements a beat) and elements per frame."""
        return Stream(lanes, elements, self.element, self.multiplier, self.offsets)


class Encodings:
    """The encodings of all values of one network.

    Parameters
    ----------
    layers: all layers, each behind those that it reads, as `read_bytes` returns them.
    source: name and type of the network's input.
    states: names and types of the states of loops.
    """

    def __init__(
        self, layers: Sequence[Layer], source: tuple[str, IntType], states: Sequence[tuple[str, IntType]] = ()
    ) -> None:
        self._source = source[0]
        element, offset = as_byte(source[1])
        # States come back as they are: their type is what the memory holds.
        self._of = {name: Encoding(kind) for name, kind in states}
        self._of[self._source] = Encoding(element, 1, np.array([offset]) if offset else None)
        for layer in layers:
            self._of[layer.node] = Encoding(layer.element) if layer.function is not None else self.raw_of(layer)

    def stream(self, layer: Layer, lanes: int, elements: int) -> Stream:
        """Return the stream that leaves a layer: codes, or raw results if it has no function."""
        return self._of[layer.node].stream(lanes, elements)

    def raw_of(self, layer: Layer) -> Encoding:
        """Return the encoding of a layer's results in front of its function, as its engine computes them."""
        if isinstance(layer, SumLayer):
            offsets = self._offsets(layer)
            element = type_of_sum(self.elements(layer), self.factors(layer))
            return Encoding(element, 1, offsets if offsets.any() else None)
        if isinstance(layer, PairLayer):
            return Encoding(pair_range(layer.op, *layer.kinds))
        if isinstance(layer, MatrixProductLayer):
            left, right = map(factor_type, layer.kinds)
            return Encoding(sum_range(left, right, layer.sizes[2]))
        if isinstance(layer, NormLayer):
            return Encoding(layer.op.results(layer.length))
        if isinstance(layer, SoftmaxLayer):
            return Encoding(IntType(0, layer.op.high))
        if isinstance(layer, SliceLayer | TransposeLayer):
            read = self._of[layer.inputs[0]]
            # `check_alike` has the offsets of all channels equal, so one stands for all, in whatever order they leave.
            return replace(read, offsets=None if read.offsets is None else read.offsets[:1])
        if isinstance(layer, ConcatLayer):
            return self._joined(layer)
        if isinstance(layer, MatrixLayer):
            arithmetic = LaneArithmetic(layer.activation, layer.weight)
            factors = layer.weights.reshape(len(layer.weights), -1)
        elif isinstance(layer, ChannelLayer) and layer.op != "max":
            taps = layer.kernel[0] * layer.kernel[1]
            ones = BIPOLAR if layer.activation.bipolar else IntType(1, 1)
            arithmetic = LaneArithmetic(layer.activation, layer.weight or ones)
            factors = np.ones((layer.source[0], taps), np.int64) if layer.weights is None else layer.weights
            factors = factors.reshape(len(factors), -1)
        else:
            return Encoding(layer.activation if isinstance(layer, ChannelLayer) else layer.element)
        # The engine adds bits of bipolar factors, not -1 and +1: multiplier and offsets make the true sum of that
        # count.
        element = IntType(*arithmetic.raw_range(factors))
        return Encoding(element, arithmetic.multiplier, arithmetic.offsets(factors) + self._lacking(layer, factors))

    def _joined(self, layer: ConcatLayer) -> Encoding:
        """Return the encoding of a concatenation: raw sums are joined by channels, if all count in the same steps."""
        read = [self._of[name] for name in layer.inputs]
        if all(one.is_plain for one in read) or sum(layer.parts) != layer.extent[0]:
            return Encoding(layer.element)
        # `check_joined` then refuses what is no plain value.
        if len({one.multiplier for one in read}) > 1:
            return Encoding(layer.element)
        low, high = min(one.element.low for one in read), max(one.element.high for one in read)
        none = np.zeros(1, np.int64)
        offsets = [
            _per_channel(none if one.offsets is None else one.offsets, part, layer, name)
            for one, part, name in zip(read, layer.parts, layer.inputs, strict=True)
        ]
        return Encoding(IntType(low, high), read[0].multiplier, np.concatenate(offsets))

    def check_joined(self, layer: ConcatLayer) -> None:
        """Refuse a concatenation that reads raw sums and gives none of its own. Raises: MappingError."""
        if self._of[layer.node].is_plain:
            self.check_plain(layer)

    def _lacking(self, layer: Layer, factors: np.ndarray) -> np.ndarray:
        """Return what sums of the input's elements lack of the sums of its codes, int64 [channels].

        Parameters
        ----------
        factors: of each channel's sum, [channels, n].
        """
        offsets = self._of[layer.inputs[0]].offsets if self._source in layer.inputs else None
        return factors.sum(axis=1) * (0 if offsets is None else offsets)

    def elements(self, layer: SumLayer) -> tuple[IntType, ...]:
        """Return the types of the elements that a sum reads."""
        return tuple(self._of[name].element for name in layer.inputs)

    def factors(self, layer: SumLayer) -> tuple[int, ...]:
        """Return the factors of a weighted sum with respect to the elements that stream, instead of the values."""
        pairs = zip(layer.factors, layer.inputs, strict=True)
        return tuple(factor * self._of[name].multiplier for factor, name in pairs)

    def _offsets(self, layer: SumLayer) -> np.ndarray:
        """Return what a weighted sum of the elements lacks of that of the values, int64 [channels]."""
        total = np.zeros(layer.extent[0], dtype=np.int64)
        for factor, name in zip(layer.factors, layer.inputs, strict=True):
            offsets = self._of[name].offsets
            if offsets is not None:
                total += factor * _per_channel(offsets, len(total), layer, name)
        return total

    def is_plain(self, name: str, kind: IntType) -> bool:
        """Return whether the elements that stream are the values themselves, of the given type."""
        return self._of[name].is_plain and self._of[name].element == kind

    def check_plain(self, layer: Layer) -> None:
        """Raise MappingError if a layer reads raw sums, which only some kinds can. The network's input is allowed."""
        for name in layer.inputs:
            if name != self._source and not self._of[name].is_plain:
                raise _sums_read(layer, name)

    def check_alike(self, layer: Layer) -> None:
        """Raise MappingError if a layer reads raw sums whose offsets differ from channel to channel."""
        for name in layer.inputs:
            offsets = self._of[name].offsets
            if offsets is not None and (offsets != offsets[0]).any():
                raise _sums_read(layer, name)


def _per_channel(offsets: np.ndarray, channels: int, layer: Layer, name: str) -> np.ndarray:
    """Return offsets [channels] for a layer that sees the stream with another number of channels, behind a reshape.

    Raises: MappingError if one of its channels has elements with different offsets.
    """
    # Channels are innermost in a stream, so offsets repeat with the number of channels that the writer has.
    if len(offsets) == 1 or channels % len(offsets) == 0:
        return np.resize(offsets, channels)
    if not np.array_equal(np.resize(offsets[:channels], len(offsets)), offsets) or len(offsets) % channels:
        raise _sums_read(layer, name)
    return offsets[:channels]


def _sums_read(layer: Layer, name: str) -> MappingError:
    return MappingError(
        f"layer {layer.where} reads the sums of '{name}', which no quantizer follows; put a quantizer between the two"
    )
