"""Linear layers and convolutions in C: products of rows of numbers, or XOR and population count of rows of bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.errors import ExportError
from nnhw.ir import Node
from nnhw.ir.ops import Conv2d
from nnhw.ir.types import IntType

from . import words
from .c_text import BYTES, Scratch, accumulator, c_type, c_type_of, integer, loop, loops, table, times
from .sums import Sums
from .value_storage import Storage

WORD_BYTES = 8
"""Rows of bits are padded to a multiple of so many bytes."""
VECTOR_BYTES = 32
"""Rows of factors are padded to a multiple of so many bytes; short rows to half of it, a quarter, .."""
SHORT_VECTOR = 8
""".. but to no fewer elements than this."""


def linear_sums(node: Node, weight: np.ndarray, kind: IntType, x: Storage, name: str, small: bool) -> Sums:
    """Return the sums of a linear layer; its weights [outputs, inputs] are permuted to the order of x in memory."""
    slots = x.slots()
    # Places of x that hold no element get weights of 0.
    rows = np.where(slots >= 0, weight[:, np.maximum(slots, 0)], 0)
    extra = 0 if small else _extra(rows.shape[1], x)
    if x.bits:
        size = rows.shape[1] // 8
        extra = 0 if small else -size % WORD_BYTES
        copied = _Source("taps", [f"memcpy(taps, x, {size});"], size, extra)
        return _bit_sums(rows, weight.shape[1], name, copied if extra else _Source("x", []), small)
    if not extra:
        return _integer_sums(node, rows, kind, x, name, _Source("x", []), small)
    copy = f"memcpy(taps, x, {rows.shape[1] * BYTES[x.ctype]});"
    return _integer_sums(node, rows, kind, x, name, _Source("taps", [copy], rows.shape[1], extra), small)


def conv2d_sums(node: Node, weight: np.ndarray, kind: IntType, x: Storage, name: str, small: bool) -> Sums:
    """Return the sums of a convolution with weights [outputs, channels / groups, kernel_h, kernel_w]."""
    op = node.op
    assert isinstance(op, Conv2d)
    if any(op.padding):
        raise ExportError(f"{node} has padding of its own; lower the graph first, which separates it")
    outputs, per_group, *_ = weight.shape
    if per_group == 1 and outputs == op.groups and not x.bits:
        return _depthwise_sums(node, weight, x, name)
    taps = weight.transpose(0, 2, 3, 1)
    if x.bits:
        pixels = np.pad(taps, ((0, 0), (0, 0), (0, 0), (0, x.cells * 8 - per_group)))
        extra = 0 if small else -(weight.shape[2] * weight.shape[3] * x.cells) % WORD_BYTES
        source = _gathered(op, weight.shape[2:], x, x.cells, "0", extra)
        return _bit_sums(pixels.reshape(outputs, -1), weight[0].size, name, source, small)
    rows = taps.reshape(outputs, -1)
    if op.groups == 1:
        extra = 0 if small else _extra(rows.shape[1], x)
        source = _gathered(op, weight.shape[2:], x, x.cells, "0", extra)
        return _integer_sums(node, rows, kind, x, name, source, small)
    return _grouped_sums(node, rows, kind, x, name, weight.shape, small)


@dataclass
class _Source:
    """The factors of one sum, side by side in memory.

    Parameters
    ----------
    place: C expression of a pointer to them.
    gather: statements that copy them there; empty if they are there anyway.
    count: elements copied to the scratch array `taps`; 0: it is not used.
    extra: number of zeros behind them in `taps`.
    """

    place: str
    gather: list[str]
    count: int = 0
    extra: int = 0

    def scratch(self, ctype: str) -> list[Scratch]:
        """Return the array `taps`, if there is one."""
        return [Scratch("taps", ctype, self.count + self.extra)] if self.count else []


def _extra(count: int, x: Storage) -> int:
    """Return how many zeros fill up a row to whole vectors, so that compilers need no loop for the rest."""
    # A row of three factors is not blown up to 32: memory and copies would cost more than the loop for the rest.
    wide = VECTOR_BYTES // BYTES[x.ctype]
    while wide // 2 >= max(count, SHORT_VECTOR):
        wide //= 2
    return -count % wide


def _integer_sums(
    node: Node, rows: np.ndarray, kind: IntType, x: Storage, name: str, source: _Source, small: bool
) -> Sums:
    ctype = _accumulator(node, rows, x)
    padded = np.pad(rows, ((0, 0), (0, source.extra)))
    helper, _, weights = _weights(padded, kind, x, ctype, name, small)
    call = f"{helper}({source.place}, {name}_weights, {padded.shape[1]}, {len(rows)}, sums);"
    zeros = f"memset(taps + {source.count}, 0, {source.extra * BYTES[x.ctype]});"
    return Sums(
        ctype,
        [*source.gather, call],
        weights,
        [helper],
        [*source.scratch(x.ctype), Scratch("sums", ctype, len(rows))],
        [zeros] if source.extra else [],
    )


def _weights(
    rows: np.ndarray, kind: IntType, x: Storage, ctype: str, name: str, small: bool
) -> tuple[str, int, list[str]]:
    """Return (name of the helper that multiplies rows of weights, array elements of a row, table of weights)."""
    bits = weight_bits(rows) if small else 0
    # Packed weights are summed with their offset, which must not overflow the type of the sums.
    largest = max(abs(x.dtype.low), abs(x.dtype.high)) * rows.shape[1] << bits + 1
    if not bits or accumulator(largest) != ctype:
        weights = c_type(kind)
        helper = "_".join(["products", *(one.removesuffix("_t") for one in (x.ctype, weights, ctype))])
        return helper, rows.shape[1], table(weights, f"{name}_weights", rows)
    packed = pack_rows(rows, bits)
    helper = "_".join([f"packed{bits}", *(one.removesuffix("_t") for one in (x.ctype, ctype))])
    return helper, packed.shape[1], table("uint8_t", f"{name}_weights", packed)


def weight_bits(rows: np.ndarray) -> int:
    """Return the bits of a packed weight: 1 (for -1 and +1), 2 or 4; 0 if weights are wider."""
    if (np.abs(rows) == 1).all():
        return 1
    return next((bits for bits in (2, 4) if rows.min() >= -(1 << (bits - 1)) and rows.max() < 1 << (bits - 1)), 0)


def pack_rows(rows: np.ndarray, bits: int) -> np.ndarray:
    """Return rows of weights as bytes, the first weight in the lowest bits; each row starts with a new byte.

    Half of the range is added to a weight, so that it is not negative; with 1 bit, 0 stands for -1 and 1 for +1.
    """
    codes = (rows > 0) if bits == 1 else rows + (1 << (bits - 1))
    per_byte = 8 // bits
    padded = np.pad(codes.astype(np.int64), ((0, 0), (0, -rows.shape[1] % per_byte)))
    return (padded.reshape(len(rows), -1, per_byte) << (bits * np.arange(per_byte))).sum(axis=2)


def _bit_sums(rows: np.ndarray, count: int, name: str, source: _Source, small: bool) -> Sums:
    """Return sums of products of +1 and -1: `count - 2 * (number of bits that differ)`, with eight weights a byte."""
    packed = np.packbits(rows > 0, axis=1, bitorder="little").astype(np.int64)
    arrays = [*source.scratch("uint8_t"), Scratch("sums", "int32_t", len(rows))]
    if small:
        size = packed.shape[1]
        difference = f"differing_bits({source.place}, {name}_weights + channel * {size}, {size})"
        body = [*source.gather, *loop("channel", len(rows), [f"sums[channel] = {count} - 2 * {difference};"])]
        return Sums("int32_t", body, table("uint8_t", f"{name}_weights", packed), ["differing_bits"], arrays)
    blocks = words.layout(packed)
    arrays[-1] = Scratch("sums", "int32_t", len(blocks) * words.BLOCK)
    call = f"products_of_bits({source.place}, {name}_weights, {blocks.shape[1]}, {len(blocks)}, {count}, sums);"
    zeros = [f"memset(taps + {source.count}, 0, {source.extra});"] if source.extra else []
    tables = table("uint8_t", f"{name}_weights", blocks)
    return Sums("int32_t", [*source.gather, call], tables, ["products_of_bits"], arrays, zeros)


def _gathered(op: Conv2d, kernel: tuple[int, ...], x: Storage, cells: int, offset: str, extra: int) -> _Source:
    """Return the inputs of one sum side by side: in the map itself if they are so there, else as a copy."""
    height, width = kernel
    corner = x.pixel(times("row", op.stride[0]), times("column", op.stride[1]))
    base = _plus(_plus("x", corner), offset)
    whole, size, count = cells == x.cells, BYTES[x.ctype], height * width * cells
    in_rows = width == 1 or (whole and op.dilation[1] == 1)
    # With a kernel as wide as the map, its rows follow one another without a gap, and are one run.
    if in_rows and (height == 1 or (width == x.pitch and whole and op.dilation[0] == 1)):
        copy = f"memcpy(taps, {base}, {count * size});"
        return _Source("taps", [copy], count, extra) if extra else _Source(base, [])
    run = width * cells if in_rows else cells
    source = _plus("from", f"ky * {op.dilation[0] * x.pitch * x.cells}" if height > 1 else "0")
    target = _plus("taps", f"ky * {width * cells}" if height > 1 else "0")
    if not in_rows:
        source, target = _plus(source, f"kx * {op.dilation[1] * x.cells}"), _plus(target, f"kx * {cells}")
    counts = [("ky", height)] if height > 1 else []
    counts += [] if in_rows else [("kx", width)]
    copies = loops(counts, [f"memcpy({target}, {source}, {run * size});"])
    return _Source("taps", [f"const {x.ctype} *from = {base};", *copies], count, extra)


def _grouped_sums(
    node: Node, rows: np.ndarray, kind: IntType, x: Storage, name: str, shape: tuple[int, ...], small: bool
) -> Sums:
    op = node.op
    assert isinstance(op, Conv2d)
    ctype, outputs = _accumulator(node, rows, x), shape[0] // op.groups
    source = _gathered(op, shape[2:], x, shape[1], f"group * {shape[1]}", 0)
    helper, size, weights = _weights(rows, kind, x, ctype, name, small)
    start = f"{name}_weights + group * {outputs * size}"
    call = f"{helper}({source.place}, {start}, {rows.shape[1]}, {outputs}, sums + group * {outputs});"
    arrays = [*source.scratch(x.ctype), Scratch("sums", ctype, len(rows))]
    body = loop("group", op.groups, [*source.gather, call])
    return Sums(ctype, body, weights, [helper], arrays)


def _depthwise_sums(node: Node, weight: np.ndarray, x: Storage, name: str) -> Sums:
    """Return the sums of a depthwise convolution; the channels of a tap are side by side in map and weights."""
    op = node.op
    assert isinstance(op, Conv2d)
    channels, _, height, width = weight.shape
    ctype = _accumulator(node, weight.reshape(channels, -1), x)
    weights = weight[:, 0].transpose(1, 2, 0)
    kind = c_type_of(weights)
    corner = x.pixel(times("row", op.stride[0]), times("column", op.stride[1]))
    products = [
        f"({ctype})from[channel + {(ky * op.dilation[0] * x.pitch + kx * op.dilation[1]) * channels}]"
        f" * {name}_weights[channel + {(ky * width + kx) * channels}]"
        for ky in range(height)
        for kx in range(width)
    ]
    body = [f"const {x.ctype} *from = {_plus('x', corner)};"]
    body += loop("channel", channels, [*_joined("sums[channel] = ", products)])
    scratch = [Scratch("sums", ctype, channels)]
    return Sums(ctype, body, table(kind, f"{name}_weights", weights), [], scratch)


def _joined(start: str, terms: list[str]) -> list[str]:
    """Return the lines of a sum, one term in each."""
    lines = [f"{start}{terms[0]}", *(f"    + {term}" for term in terms[1:])]
    return [*lines[:-1], f"{lines[-1]};"]


def _accumulator(node: Node, rows: np.ndarray, x: Storage) -> str:
    """Return the C type of sums, which holds every partial sum of these weights in any order.

    Raises
    ------
    ExportError: 64 bits are not enough.
    """
    most = max(abs(x.dtype.low), abs(x.dtype.high))
    bound = most * max(int(total) for total in np.abs(rows).astype(object).sum(axis=1))
    if bound >= 1 << 63:
        raise ExportError(f"{node} has sums of up to {integer(bound)}, which do not fit into 64 bits")
    return accumulator(bound)


def _plus(base: str, offset: str) -> str:
    return base if offset == "0" else f"{base} + {offset}"
