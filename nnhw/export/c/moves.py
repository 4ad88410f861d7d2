"""Operators in C that choose, combine or move elements: pooling, sums of values, borders, and copies by strides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnhw.ir import Node
from nnhw.ir.ops import ArgMax, Concat, MaxPool2d, Permute, Slice, SumPool2d, Upsample

from .c_text import BYTES, Scratch, accumulator, integer, loop, loops, table
from .sums import Sums
from .value_storage import Storage, c_strides


def max_pool(node: Node, x: Storage, y: Storage) -> list[str]:
    """Return the body of a max pooling; the maximum of packed bipolar values is their OR."""
    op = node.op
    assert isinstance(op, MaxPool2d)
    padded = any(op.before + op.after)
    target = f"y + {y.pixel('row', 'column')}"
    take = "into[cell] = (uint8_t)(into[cell] | from[cell]);"
    if not x.bits:
        take = "into[cell] = from[cell] > into[cell] ? from[cell] : into[cell];"
    # The least code, over which anything wins; as a bit, 0 stands for -1.
    first = "0" if x.bits else integer(x.dtype.low, x.ctype if x.ctype == "int64_t" else "int32_t")
    rows = f"row * {op.stride[0]} - {op.before[0]} + ky" if padded else f"row * {op.stride[0]} + ky"
    columns = f"column * {op.stride[1]} - {op.before[1]} + kx" if padded else f"column * {op.stride[1]} + kx"
    window = [f"const {x.ctype} *from = x + {x.pixel(rows, columns)};", *loop("cell", x.cells, [take])]
    if padded:
        outside = f"{rows} < 0 || {rows} >= {x.height} || {columns} < 0 || {columns} >= {x.width}"
        window = [f"if ({outside}) {{", "    continue;", "}", *window]
    inner = loops([("ky", op.kernel[0]), ("kx", op.kernel[1])], window)
    start = loop("cell", x.cells, [f"into[cell] = {first};"])
    return loops([("row", y.height), ("column", y.width)], [f"{y.ctype} *into = {target};", *start, *inner])


def pooled_sums(node: Node, x: Storage) -> Sums:
    """Return the sums of a sum pooling."""
    op = node.op
    assert isinstance(op, SumPool2d)
    taps = op.kernel[0] * op.kernel[1]
    ctype = accumulator(taps * max(abs(x.dtype.low), abs(x.dtype.high)))
    place = x.pixel(f"row * {op.stride[0]} + ky", f"column * {op.stride[1]} + kx")
    add = [f"const {x.ctype} *from = x + {place};", *loop("channel", x.channels, ["sums[channel] += from[channel];"])]
    body = loop("channel", x.channels, ["sums[channel] = 0;"])
    body += loops([("ky", op.kernel[0]), ("kx", op.kernel[1])], add)
    return Sums(ctype, body, [], [], [Scratch("sums", ctype, x.channels)])


def weighted_sums(node: Node, sources: list[Storage], factors: tuple[int, ...]) -> Sums:
    """Return the sums of each pixel of a weighted sum of values."""
    bound = sum(abs(k) * max(abs(x.dtype.low), abs(x.dtype.high)) for k, x in zip(factors, sources, strict=True))
    ctype = accumulator(bound)
    body = [f"const {x.ctype} *from_{k} = x_{k} + {x.pixel('row', 'column')};" for k, x in enumerate(sources)]
    terms = [f"({ctype})from_{k}[channel]{_factor(factor, ctype)}" for k, factor in enumerate(factors)]
    body += loop("channel", sources[0].channels, [f"sums[channel] = {' + '.join(terms)};"])
    return Sums(ctype, body, [], [], [Scratch("sums", ctype, sources[0].channels)])


def pair_sums(node: Node, sources: list[Storage], name: str) -> Sums:
    """Return the products, maxima or minima of two values, pixel by pixel; axes of size 1 are repeated.

    Values that are neither maps nor vectors are in C order: for a smaller one a table says which element is read.
    """
    bound = max(abs(node.type.int_dtype.low), abs(node.type.int_dtype.high))
    ctype = accumulator(max(bound, *(max(abs(x.dtype.low), abs(x.dtype.high)) for x in sources)))
    full = Storage.of(node.type)
    body, elements, tables = [], [], list[str]()
    shape = node.type.shape
    for k, x in enumerate(sources):
        places = [place if size > 1 else "0" for place, size in (("row", x.height), ("column", x.width))]
        if len(shape) not in (1, 3) and x.type.shape != shape and x.count > 1:
            order = np.broadcast_to(np.arange(x.count).reshape(x.type.shape), shape)
            tables += table("uint32_t", f"{name}_order_{k}", order)
            places = ["0", f"{name}_order_{k}[column]"]
        body.append(f"const {x.ctype} *from_{k} = x_{k} + {x.pixel(*places)};")
        elements.append(f"({ctype})from_{k}[{'channel' if x.channels > 1 else '0'}]")
    left, right = elements
    compared = {"maximum": ">", "minimum": "<"}.get(node.op.name)
    result = f"{left} {compared} {right} ? {left} : {right}" if compared else f"{left} * {right}"
    body += loop("channel", full.channels, [f"sums[channel] = {result};"])
    return Sums(ctype, body, tables, [], [Scratch("sums", ctype, full.channels)])


def _factor(factor: int, ctype: str) -> str:
    text = integer(factor, ctype)
    return "" if factor == 1 else f" * ({text})" if factor < 0 else f" * {text}"


def load(shape: Storage, y: Storage) -> list[str]:
    """Return the body that copies codes in C order, bipolar ones as -1 and +1, into a storage of any layout."""
    plane = shape.height * shape.width
    place = f"row * {shape.width} + column" if plane > 1 else "0"
    source = f"x[channel * {plane} + {place}]" if plane > 1 else "x[channel]"
    into = [f"{y.ctype} *into = y + {y.pixel('row', 'column')};"]
    if y.bits:
        body = [*into, *packed_bits(y.channels, f"(unsigned)({source} > 0)")]
    else:
        body = [*into, *loop("channel", y.channels, [f"into[channel] = {source};"])]
    return loops([("row", y.height), ("column", y.width)], body)


def packed_bits(channels: int, bit: str, before: Sequence[str] = ()) -> list[str]:
    """Return the loops that pack a bit per channel, an expression in `channel`, into the bytes at `into`.

    Parameters
    ----------
    before: statements that the expression needs, for each channel.
    """
    whole, rest = divmod(channels, 8)
    lines: list[str] = []
    if whole:
        flags = ["int channel = cell * 8 + place;", *before, f"flags[place] = (uint8_t){bit};"]
        lines += loop("cell", whole, ["uint8_t flags[8];", *loop("place", 8, flags), "into[cell] = packed(flags);"])
    if rest:
        inner = [f"int channel = {whole * 8} + place;", *before, f"bits |= {bit} << place;"]
        lines += ["unsigned bits = 0;", *loop("place", rest, inner), f"into[{whole}] = (uint8_t)bits;"]
    return lines


def copied(counts: tuple[int, ...], x: tuple[int, list[str]], y: tuple[int, list[str]]) -> list[str]:
    """Return loops over axes of `counts` elements that copy x to y.

    Parameters
    ----------
    x, y: offset of the first element, and terms of the other offsets, as expressions in i0, i1, ..
    """
    source, target = (
        " + ".join([t for t in [*terms, str(base) if base else ""] if t]) or "0" for base, terms in (x, y)
    )
    body = [f"y[{target}] = x[{source}];"]
    return loops([(f"i{axis}", count) for axis, count in enumerate(counts) if count > 1], body)


def strided(strides: list[int] | tuple[int, ...], counts: tuple[int, ...], form: str = "{}") -> list[str]:
    """Return the offset along each axis as an expression in its index; axes of one element are left out."""
    return [
        f"{form.format(f'i{axis}')} * {stride}" if stride != 1 else form.format(f"i{axis}")
        for axis, (stride, count) in enumerate(zip(strides, counts, strict=True))
        if count > 1
    ]


def sliced(op: Slice, x: Storage, y: Storage) -> list[str]:
    """Return the body of a slice."""
    counts = y.type.shape
    base = x.base + op.start * x.strides()[op.axis]
    return copied(counts, (base, strided(x.strides(), counts)), (y.base, strided(y.strides(), counts)))


def permuted(op: Permute, x: Storage, y: Storage) -> list[str]:
    """Return the body of a permute."""
    counts, strides = y.type.shape, x.strides()
    source = strided([strides[axis] for axis in op.axes], counts)
    return copied(counts, (x.base, source), (y.base, strided(y.strides(), counts)))


def upsampled(op: Upsample, x: Storage, y: Storage) -> list[str]:
    """Return the body of an upsampling."""
    counts, strides = y.type.shape, x.strides()
    factors = (1, *op.factor)
    source = [
        (f"i{axis} / {factor}" if factor > 1 else f"i{axis}") + (f" * {stride}" if stride != 1 else "")
        for axis, (factor, stride, count) in enumerate(zip(factors, strides, counts, strict=True))
        if count > 1
    ]
    return copied(counts, (x.base, source), (y.base, strided(y.strides(), counts)))


def joined(op: Concat, sources: list[Storage], y: Storage) -> list[str]:
    """Return the body of a concatenation of x_0, x_1, .."""
    lines, start = [], 0
    for number, x in enumerate(sources):
        counts = x.type.shape
        base = y.base + start * y.strides()[op.axis]
        part = copied(counts, (x.base, strided(x.strides(), counts)), (base, strided(y.strides(), counts)))
        cast = f"({y.ctype})" if x.ctype != y.ctype else ""
        lines += [line.replace("= x[", f"= {cast}x_{number}[") for line in part]
        start += counts[op.axis]
    return lines


def reshaped(x: Storage, y: Storage) -> list[str]:
    """Return the body of a copy in C order from one shape to another one."""
    if _linear(x):
        counts = y.type.shape
        return copied(counts, (x.base, strided(c_strides(counts), counts)), (y.base, strided(y.strides(), counts)))
    counts = x.type.shape
    if _linear(y):
        return copied(counts, (x.base, strided(x.strides(), counts)), (y.base, strided(c_strides(counts), counts)))
    order = c_strides(y.type.shape)
    linear = " + ".join(strided(c_strides(counts), counts)) or "0"
    target = [
        f"{linear_part} * {stride}"
        for linear_part, stride in (
            (f"({linear}) / {place} % {size}", stride)
            for place, size, stride in zip(order, y.type.shape, y.strides(), strict=True)
        )
    ]
    return copied(counts, (x.base, strided(x.strides(), counts)), (y.base, target))


def _linear(storage: Storage) -> bool:
    """Whether the elements of a storage are in C order, so that a reshape does not move them."""
    return storage.in_c_order and (
        len(storage.type.shape) == 3 or list(c_strides(storage.type.shape)) == storage.strides()
    )


def arg_max(op: ArgMax, x: Storage, y: Storage) -> list[str]:
    """Return the body of an argmax of integers; of equal ones, the first wins."""
    shape, strides = x.type.shape, x.strides()
    counts = (*shape[: op.axis], *shape[op.axis + 1 :])
    outer = [stride for axis, stride in enumerate(strides) if axis != op.axis]
    target = list(y.strides())
    if op.keepdim:
        del target[op.axis]
    source = " + ".join([*strided(outer, counts), str(x.base)] if x.base else strided(outer, counts)) or "0"
    place = " + ".join([*strided(target, counts), *([str(y.base)] if y.base else [])]) or "0"
    step = strides[op.axis]
    body = [
        f"const {x.ctype} *from = x + {source};",
        "int best = 0;",
        *loop("k", shape[op.axis], [f"best = from[k * {step}] > from[best * {step}] ? k : best;"]),
        f"y[{place}] = ({y.ctype})best;",
    ]
    return loops([(f"i{axis}", count) for axis, count in enumerate(counts) if count > 1], body)


def filled(y: Storage, value: int) -> list[str]:
    """Return the statements that fill a whole storage with one value."""
    # memset sets bytes: of wider elements it only makes zeros.
    if value == 0 or BYTES[y.ctype] == 1:
        return [f"memset(y, {value & 255}, {y.bytes});"]
    return loop("i", y.count, [f"y[i] = {integer(value, y.ctype)};"])


def bordered(x: Storage, inner: Storage) -> list[str]:
    """Return the body that copies the rows of a map into the inner part of a padded one of the same element type."""
    if x.ctype == inner.ctype:
        size = x.width * x.cells * BYTES[x.ctype]
        copy = f"memcpy(y + {inner.pixel('row', '0')}, x + {x.pixel('row', '0')}, {size});"
        return loop("row", x.height, [copy])
    move = [f"y[{inner.pixel('row', 'column')} + channel] = ({inner.ctype})x[{x.pixel('row', 'column')} + channel];"]
    return loops([("row", x.height), ("column", x.width), ("channel", x.channels)], move)
