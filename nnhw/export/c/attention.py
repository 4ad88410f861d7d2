"""Products of two computed matrices, integer softmax, integer normalization and constants as values, in C."""

from __future__ import annotations

import numpy as np

from nnhw.ir import Node
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax, MatrixProduct
from nnhw.ir.ops.normalization import RECIPROCAL_BITS

from .c_text import Scratch, accumulator, c_type_of, indented, integer, loop, loops, table
from .moves import strided
from .value_storage import Storage, c_strides


def matrix_product(node: Node, sources: list[Storage], y: Storage) -> list[str]:
    """Return the body of the matrix product of x_0 and x_1, one sum at a time."""
    op = node.op
    assert isinstance(op, MatrixProduct)
    left, right = sources
    shape = node.type.shape
    inner = op.sides(left.type.shape, op.transpose_left)[1]
    bound = inner * max(abs(left.dtype.low), abs(left.dtype.high)) * max(abs(right.dtype.low), abs(right.dtype.high))
    ctype = accumulator(bound)
    rows, columns = len(shape) - 2, len(shape) - 1
    left_row, left_step = _matrix_strides(left, op.transpose_left)
    right_step, right_column = _matrix_strides(right, op.transpose_right)
    lead = shape[:-2]
    first = _place(left, [*strided(left.strides()[:-2], lead), *_terms(rows, left_row, shape)])
    second = _place(right, [*strided(right.strides()[:-2], lead), *_terms(columns, right_column, shape)])
    body = [
        f"const {left.ctype} *left = x_0 + {first};",
        f"const {right.ctype} *right = x_1 + {second};",
        f"{ctype} sum = 0;",
        *loop("k", inner, [f"sum += ({ctype})left[k * {left_step}] * right[k * {right_step}];"]),
        f"y[{_place(y, strided(y.strides(), shape))}] = ({y.ctype})sum;",
    ]
    return _over(shape, body)


def integer_softmax(
    node: Node, powers: np.ndarray, keep: np.ndarray, x: Storage, y: Storage, name: str
) -> tuple[list[str], list[str], list[Scratch]]:
    """Return the body of an integer softmax, its tables, and its scratch array, the powers of one row."""
    op, shape = node.op, node.type.shape
    assert isinstance(op, IntegerSoftmax)
    count, step = shape[op.axis], x.strides()[op.axis]
    kept = np.broadcast_to(keep, keep.shape or (1,))
    masked = not bool(kept.all())
    tables = table("uint16_t", f"{name}_powers", powers)
    taken = ""
    if masked:
        full = np.ones((1,) * (len(shape) - kept.ndim) + kept.shape, np.int64) * kept
        strides = [0 if size == 1 else stride for size, stride in zip(full.shape, c_strides(full.shape), strict=True)]
        outer = [f"i{axis} * {stride}" for axis, stride in enumerate(strides) if stride and axis != op.axis]
        taken = f"{name}_keep[{' + '.join([*outer, f'k * {strides[op.axis]}'])}]"
        tables += table("uint8_t", f"{name}_keep", full)
    # A masked element takes no part: neither in the maximum nor in the sum, and its power is 0.
    guard = [f"if (!{taken}) {{", "    continue;", "}"] if masked else []
    most = f"{op.high}u"
    power = [
        "power[k] = 0;",
        *guard,
        f"int64_t distance = (int64_t)greatest - from[k * {step}];",
        f"power[k] = {name}_powers[distance < {len(powers) - 1} ? distance : {len(powers) - 1}];",
        "total += power[k];",
    ]
    share = [
        "uint64_t share = ((uint64_t)power[k] * factor + half) >> shift;",
        f"into[k * {y.strides()[op.axis]}] = ({y.ctype})(share < {most} ? share : {most});",
    ]
    # `keep` leaves an element of each row (`IntegerSoftmax.infer`), so `total` is not 0.
    number = "int64_t" if x.ctype == "int64_t" else "int32_t"
    least = integer(x.dtype.low, number)
    body = [
        f"const {x.ctype} *from = x + {_row(x, op.axis)};",
        f"{y.ctype} *into = y + {_row(y, op.axis)};",
        f"{number} greatest = {least};",
        *loop("k", count, [*guard, f"greatest = from[k * {step}] > greatest ? from[k * {step}] : greatest;"]),
        "uint64_t total = 0;",
        *loop("k", count, power),
        f"int shift = bits_of(total) + {RECIPROCAL_BITS - 1};",
        "uint64_t factor = ((UINT64_C(1) << shift) - 1) / total;",
        f"shift -= {op.bits};",
        "uint64_t half = UINT64_C(1) << (shift - 1);",
        *loop("k", count, share),
    ]
    return _over(shape, body, op.axis), tables, [Scratch("power", "uint16_t", count)]


def integer_norm(node: Node, x: Storage, y: Storage) -> list[str]:
    """Return the body of an integer normalization."""
    op, shape = node.op, node.type.shape
    assert isinstance(op, IntegerNorm)
    count, step = shape[op.axis], x.strides()[op.axis]
    add = ["int64_t value = from[k * STEP];", "total += value;", "squares += value * value;"]
    result = f"rounded(({count} * (int64_t)from[k * {step}] - total) * factor, shift)"
    body = [
        f"const {x.ctype} *from = x + {_row(x, op.axis)};",
        f"{y.ctype} *into = y + {_row(y, op.axis)};",
        "int64_t total = 0, squares = 0;",
        *loop("k", count, [line.replace("STEP", str(step)) for line in add]),
        *([] if op.centered else ["total = 0;"]),
        f"int64_t spread = {count} * squares - total * total + {integer(op.epsilon, 'int64_t')};",
        "int shift;",
        "int64_t factor = reciprocal_root((uint64_t)(spread > 0 ? spread : 1), &shift);",
        f"shift -= {op.fraction_bits};",
        *loop("k", count, [f"into[k * {y.strides()[op.axis]}] = ({y.ctype}){result};"]),
    ]
    return _over(shape, body, op.axis)


def broadcast(values: np.ndarray, y: Storage, name: str) -> tuple[list[str], list[str]]:
    """Return the body that writes a constant to all places, and its table."""
    counts, ctype = y.type.shape, c_type_of(values)
    target = _place(y, strided(y.strides(), counts))
    source = " + ".join(strided(c_strides(counts), counts)) or "0"
    body = [f"y[{target}] = ({y.ctype}){name}_values[{source}];"]
    return ["(void)x;", *_over(counts, body)], table(ctype, f"{name}_values", values)


def _over(shape: tuple[int, ...], body: list[str], without: int = -1) -> list[str]:
    """Return loops over all axes of more than one element, except the axis `without`."""
    counts = [(f"i{axis}", count) for axis, count in enumerate(shape) if count > 1 and axis != without]
    return loops(counts, body) if counts else ["{", *indented(body), "}"]


def _matrix_strides(x: Storage, transposed: bool) -> tuple[int, int]:
    """Return the strides along the rows and columns of a matrix as the product reads it, transposed or not."""
    rows, columns = x.strides()[-2:]
    return (columns, rows) if transposed else (rows, columns)


def _terms(axis: int, stride: int, shape: tuple[int, ...]) -> list[str]:
    return [f"i{axis} * {stride}"] if shape[axis] > 1 else []


def _row(x: Storage, axis: int) -> str:
    """Return the offset of the first element along an axis."""
    terms = strided(x.strides(), x.type.shape)
    places = [place for place, count in enumerate(x.type.shape) if count > 1]
    return _place(x, [term for place, term in zip(places, terms, strict=True) if place != axis])


def _place(x: Storage, terms: list[str]) -> str:
    return " + ".join([*terms, *([str(x.base)] if x.base else [])]) or "0"
