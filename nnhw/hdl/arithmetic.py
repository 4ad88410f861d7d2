"""Hardware of lane arithmetic: the dot product of one cell. A number format touches this file only."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.ir.types import IntType


def dot_product(
    m: Module, arithmetic: LaneArithmetic, activations: list[Value], weights: list[Value], ce: Value
) -> Value:
    """Add the raw sum of all lanes, a register behind every level of adders.

    Parameters
    ----------
    m: the module to add the logic to.
    activations, weights: bit patterns of the lanes.
    ce: the pipeline moves.

    Returns
    -------
    The raw sum of the factors, `arithmetic.tree_levels(lanes)` moves later.
    """
    terms = [_term(arithmetic, a, w) for a, w in zip(activations, weights, strict=True)]
    level = 0
    while level == 0 or len(terms) > 1:
        pairs = [terms[index : index + 2] for index in range(0, len(terms), 2)]
        add = _add_counts if arithmetic.kind == "xnor" and len(terms) % 2 == 0 and _is_full(level, terms) else _add
        sums = [add(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        terms = [
            Signal(value.shape(), name=f"sum_{level}_{index}", reset_less=True) for index, value in enumerate(sums)
        ]
        with m.If(ce):
            m.d.sync += [term.eq(value) for term, value in zip(terms, sums, strict=True)]
        level += 1
    return terms[0]


def _is_full(level: int, terms: list[Value]) -> bool:
    """Return whether every term counts exactly 2**level lanes."""
    return all(len(term) == level + 1 for term in terms)


def _add(a: Value, b: Value) -> Value:
    return a + b


def _add_counts(a: Value, b: Value) -> Value:
    """Add two counts of 0..2**k, each of k + 1 bits.

    Only 2**k + 2**k reaches the top bit, so that bit is an AND. This keeps the carry of the chain below inside
    the chain (on iCE40 a carry that leaves its chain costs two more logic cells), and makes the first level two
    LUT4 for two lanes, XNOR included.
    """
    top = len(a) - 1
    low = a ^ b if top == 0 else (a + b)[: top + 1]
    return Cat(low, a[top] & b[top])


def _term(arithmetic: LaneArithmetic, activation: Value, weight: Value) -> Value:
    """Return the raw product of one lane; see the table in `nnhw.engines.arithmetic`."""
    if arithmetic.kind == "xnor":
        return ~(activation ^ weight)
    number = as_number(activation, arithmetic.activation)
    if arithmetic.kind == "select":
        widened = number.as_signed() if arithmetic.activation.signed else _zero_extended(number)
        return (widened.as_unsigned() ^ (~weight).replicate(len(widened))).as_signed()
    return number * as_number(weight, arithmetic.weight)


def _zero_extended(number: Value) -> Value:
    """Return the unsigned number with one more bit, so that its complement is a signed number."""

    return Cat(number, Const(0, 1))


def as_number(pattern: Value, dtype: IntType) -> Value:
    """Read a bit pattern as the number that it stands for (a bipolar one as two bits)."""
    if dtype.bipolar:
        return Cat(Const(1, 1), ~pattern).as_signed()
    return pattern.as_signed() if dtype.signed else pattern.as_unsigned()
