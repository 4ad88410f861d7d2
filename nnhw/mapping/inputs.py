"""The input's codes as bytes: codes of a quantizer with a zero point do not fit into a byte, and travel shifted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnhw.ir import IntType, Location
from nnhw.mapping.layers import ChannelLayer, Layer, MatrixLayer, StepFunction, SumLayer, as_map

BYTE_BITS = 8
"""Bits of an element that travels in a byte of its own."""


def as_byte(codes: IntType) -> tuple[IntType, int]:
    """Return the type of the elements that travel on the link, and the offset: code = element + offset.

    Codes that fit into a byte travel as they are. Others with at most 256 values travel as signed bytes. In the IR,
    `Int(8, zero_point=z)` has the codes -128 - z to 127 - z; the bytes are -128 to 127, the quantizer's own numbers.
    """
    if codes.bits <= BYTE_BITS or codes.high - codes.low >= 1 << BYTE_BITS:
        return codes, 0
    # The least code becomes the least signed byte.
    offset = codes.low + (1 << (BYTE_BITS - 1))
    return IntType(codes.low - offset, codes.high - offset), offset


def read_bytes(layers: Sequence[Layer], source: str, codes: IntType, shape: tuple[int, ...]) -> tuple[Layer, ...]:
    """Return layers that read the elements of the input instead of its codes.

    Sums of products read the elements: what their sums lack is a constant, which `Encodings` keeps, and a border of 0
    becomes the element of code 0. For all other layers, an additional layer adds the offset first.

    Parameters
    ----------
    layers: layers that read the codes.
    source, codes, shape: name, type and shape of the input.
    """
    _, offset = as_byte(codes)
    if not offset:
        return tuple(layers)
    whole = f"{source}.whole"
    found = [_shifted(layer, source, whole, offset) for layer in layers]
    if not any(whole in layer.inputs for layer in found):
        return tuple(found)
    extent = as_map(shape)
    steps = np.arange(codes.low, codes.high + 1)[None].repeat(extent[0], axis=0)
    # A layer with a function streams plain codes; this one has each code as its own step.
    identity = StepFunction(steps[:, 1:], steps, codes)
    return SumLayer("input", whole, Location(), (source,), identity, codes, (1,), extent), *found


def _shifted(layer: Layer, source: str, whole: str, offset: int) -> Layer:
    """Return a layer that reads the elements if it can, else the codes by the name `whole`."""
    # A sum takes the offset of its elements into its own constants, as `Encodings` has it.
    if source not in layer.inputs or isinstance(layer, SumLayer):
        return layer
    if not isinstance(layer, MatrixLayer | ChannelLayer) or (isinstance(layer, ChannelLayer) and layer.op == "max"):
        return replace(layer, inputs=tuple(whole if name == source else name for name in layer.inputs))
    codes, padding = layer.activation, layer.padding
    return replace(
        layer,
        activation=IntType(codes.low - offset, codes.high - offset),
        padding=replace(padding, value=padding.value - offset) if padding else None,
    )
