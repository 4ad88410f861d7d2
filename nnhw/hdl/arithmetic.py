"""Hardware of lane arithmetic: the dot product of one cell. A number format touches this file only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from amaranth.hdl import Cat, Const, Module, Signal, Value

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.hdl.cells import PLAIN, Cells
from nnhw.hdl.cells.base import gated
from nnhw.hdl.dsp import DspProducts
from nnhw.ir.types import BIT, IntType

Lane = TypeVar("Lane")


def dot_product(
    m: Module,
    arithmetic: LaneArithmetic,
    activations: list[Value],
    weights: list[Value],
    ce: Value,
    cells: Cells = PLAIN,
) -> Value:
    """Add the raw sum of all lanes, a register behind every level of adders.

    Products are not made lane by lane: for each bit of the narrower factor the other factors of all lanes are added
    where that bit is set, and the sums of these planes are joined last. So every lane costs little more than one adder
    cell a bit, and its gate is in the same cell.

    Parameters
    ----------
    m: the module to add the logic to.
    activations, weights: bit patterns of the lanes.
    ce: the pipeline moves.
    cells: what the first level is made of.

    Returns
    -------
    The raw sum of the factors, `arithmetic.tree_levels(lanes)` moves later.
    """
    tree = _Tree(m, ce, cells)
    if arithmetic.kind == "xnor":
        return _count(tree, [~(a ^ w) for a, w in zip(activations, weights, strict=True)])
    if arithmetic.activation.bits == 1 and arithmetic.weight == BIT:
        return _count(tree, [a & w for a, w in zip(activations, weights, strict=True)])
    if arithmetic.has_tables:
        return (_chained_tables if cells.gates_both_operands else _tables)(tree, activations, weights)
    if arithmetic.kind in ("gate", "product"):
        return _planes(tree, arithmetic, activations, weights, cells)
    numbers = [_centered(activation, arithmetic.activation) for activation in activations]
    if arithmetic.kind == "ternary":
        rows = [_ternary_row(number, weight) for number, weight in zip(numbers, weights, strict=True)]
        return tree.total(_first_level(rows, tree.add, lambda x: x))
    lanes = list(zip(numbers, [~weight[0] for weight in weights], strict=True))
    return tree.total(
        _first_level(
            lanes,
            lambda x, y: cells.add_inverted(m, x, y),
            lambda x: (x[0].as_unsigned() ^ x[1].replicate(len(x[0]))).as_signed(),
        )
    )


def dsp_dot_product(
    m: Module,
    arithmetic: LaneArithmetic,
    activations: list[Value],
    weights: list[Value],
    ce: Value,
    cells: Cells = PLAIN,
) -> Value:
    """Add the raw sum of all lanes, their products made in DSP blocks; see `dot_product`.

    Returns
    -------
    The raw sum of the factors, `arithmetic.dsp_levels(lanes)` moves later.
    """
    a = [as_number(pattern, arithmetic.activation) for pattern in activations]
    b = [as_number(pattern, arithmetic.weight) for pattern in weights]
    m.submodules.products = products = DspProducts(len(a), a[0].shape(), b[0].shape())
    m.d.comb += products.ce.eq(ce)
    m.d.comb += [port.eq(value) for port, value in zip(products.i_a, a, strict=True)]
    m.d.comb += [port.eq(value) for port, value in zip(products.i_b, b, strict=True)]
    terms: list[Value] = list(products.o)
    return _Tree(m, ce, cells).reduce(terms) if len(terms) > 1 else terms[0]


def as_number(pattern: Value, dtype: IntType) -> Value:
    """Read a bit pattern as the number that it stands for (a bipolar one as two bits)."""
    if dtype.bipolar:
        return Cat(Const(1, 1), ~pattern).as_signed()
    return pattern.as_signed() if dtype.signed else pattern.as_unsigned()


class _Tree:
    """Adders in pairs, each level in registers.

    Parameters
    ----------
    m: the module to add the logic to.
    ce: the registers move.
    cells: what the adders are made of.
    """

    def __init__(self, m: Module, ce: Value, cells: Cells) -> None:
        self.m = m
        self.ce = ce
        self.cells = cells
        self.levels = 0

    def add(self, x: Value, y: Value, bits: int | None = None) -> Value:
        """Return the sum of two numbers; see `Cells.add`."""
        return self.cells.add(self.m, x, y, bits)

    def register(self, values: list[Value]) -> list[Value]:
        """Return registers of the values."""
        terms = [
            Signal(value.shape(), name=f"sum_{self.levels}_{index}", reset_less=True)
            for index, value in enumerate(values)
        ]
        with self.m.If(self.ce):
            self.m.d.sync += [term.eq(value) for term, value in zip(terms, values, strict=True)]
        self.levels += 1
        return list(terms)

    def total(self, first: list[Value], add: Callable[[Value, Value], Value] | None = None) -> Value:
        """Register the results of the first level and return the sum of all."""
        return self.reduce(self.register(first), add)

    def reduce(self, terms: list[Value], add: Callable[[Value, Value], Value] | None = None) -> Value:
        """Return the sum of registered terms."""
        add = add or self.add
        while len(terms) > 1:
            pairs = [terms[index : index + 2] for index in range(0, len(terms), 2)]
            terms = self.register([add(*pair) if len(pair) == 2 else pair[0] for pair in pairs])
        return terms[0]


def _first_level(
    lanes: list[Lane], pair: Callable[[Lane, Lane], Value], single: Callable[[Lane], Value]
) -> list[Value]:
    """Return the sums of neighbouring lanes, and a last lane alone."""
    couples = [lanes[index : index + 2] for index in range(0, len(lanes), 2)]
    return [pair(*couple) if len(couple) == 2 else single(couple[0]) for couple in couples]


def _add_counts(tree: _Tree, a: Value, b: Value) -> Value:
    """Add two counts; one of k + 1 bits is at most 2**k.

    Only 2**k + 2**k reaches the top bit, so that bit is an AND. This keeps the carry of the chain below inside
    the chain (on iCE40 a carry that leaves its chain costs two more logic cells), and makes the first level two
    LUT4 for two lanes, XNOR or AND included.
    """
    if len(a) != len(b):
        return tree.add(a, b)
    top = len(a) - 1
    low = a ^ b if top == 0 else tree.add(a, b, top + 1)
    return Cat(low, a[top] & b[top])


def _count(tree: _Tree, bits: list[Value]) -> Value:
    """Return how many bits are set."""

    def add_counts(a: Value, b: Value) -> Value:
        return _add_counts(tree, a, b)

    return tree.total(_first_level(bits, add_counts, lambda bit: bit), add_counts)


def _centered(pattern: Value, dtype: IntType) -> Value:
    """Return an activation as a signed number; an unsigned one less half of its range: its top bit inverted."""
    return pattern.as_signed() if dtype.signed else Cat(pattern[:-1], ~pattern[-1]).as_signed()


def _ternary_row(number: Value, weight: Value) -> Value:
    """Return the number, its complement or zero."""
    sign, set_ = (weight[-1], weight[0])
    bits = len(number)
    return ((number.as_unsigned() ^ sign.replicate(bits)) & set_.replicate(bits)).as_signed()


def _tables(tree: _Tree, activations: list[Value], weights: list[Value]) -> Value:
    """Return the sum of products of two signed factors of two bits each, each product looked up.

    A product is -2 to 4, two more than that are three bits, and two less with the top bit inverted. So the products of
    one half of the lanes are two too much, those of the other half two too little; between them one is exact. The
    register behind the products is in place of the one where planes are joined elsewhere.
    """
    half = len(activations) // 2
    excess = [2] * half + [0] * (len(activations) - 2 * half) + [-2] * half
    terms = tree.register([_product(*factors) for factors in zip(activations, weights, excess, strict=True)])
    return tree.reduce(terms if len(terms) > 1 else tree.register(terms), lambda x, y: x + y)


def _product(a: Value, w: Value, excess: int) -> Value:
    """Return the product of two signed factors of two bits and `excess`, which is -2, 0 or 2."""
    table = _table(excess)
    signed = min(table) < 0
    bits = max(table).bit_length() + signed
    # Said with gates: of a multiplexer with a constant synthesis makes registers that one factor resets, one tile each.
    minterms = [Cat(a, w) == index for index in range(len(table))]
    ones = [[minterms[index] for index, product in enumerate(table) if product >> bit & 1] for bit in range(bits)]
    number = Cat(*(Cat(*terms).any() for terms in ones))
    return number.as_signed() if signed else number


def _chained_tables(tree: _Tree, activations: list[Value], weights: list[Value]) -> Value:
    """Return the same as `_tables`, where a carry chain takes a function of two signals as a bit of either operand.

    The lowest bit of a product is an AND, which is in the carry chain of the first adder. All products are two too
    much, which is subtracted from the sum of all, in the level that joins planes elsewhere.
    """
    rows = [_table_row(a, w) for a, w in zip(activations, weights, strict=True)]
    first = _first_level(
        rows, lambda x, y: tree.cells.add_ands(tree.m, x, y), lambda x: Cat(bit & gate for bit, gate in x)
    )
    total, excess = tree.total(first), 2 * len(rows)
    low = (excess & -excess).bit_length() - 1
    high = total[low:] - (excess >> low)
    return tree.register([Cat(total[:low], high).as_signed()])[0]


def _table_row(a: Value, w: Value) -> list[tuple[Value, Value]]:
    """Return the bits of a product of two signed factors of two bits and of 2, each an AND of two signals."""
    product = _product(a, w, 2)
    return [(a[0], w[0]), *((bit, Const(1, 1)) for bit in product[1:])]


def _table(excess: int) -> list[int]:
    """Return the products of all patterns of two signed factors of two bits, each with `excess`."""
    numbers = (0, 1, -2, -1)
    return [excess + numbers[index & 3] * numbers[index >> 2] for index in range(16)]


def _planes(
    tree: _Tree, arithmetic: LaneArithmetic, activations: list[Value], weights: list[Value], cells: Cells
) -> Value:
    """Return the sum of products, added plane by plane of the narrower factor."""
    narrow, wide = (activations, weights), (weights, activations)
    types = (arithmetic.activation, arithmetic.weight)
    by_weight = arithmetic.weight.bits < arithmetic.activation.bits
    (bits, numbers), (bit_type, number_type) = (wide, types[::-1]) if by_weight else (narrow, types)
    values = [as_number(pattern, number_type) for pattern in numbers]
    sums = []
    for plane in range(len(bits[0])):
        lanes = [(value, pattern[plane]) for value, pattern in zip(values, bits, strict=True)]
        sums.append(
            _first_level(
                lanes,
                lambda x, y: cells.add_gated(tree.m, x, y),
                lambda x: gated(*x),
            )
        )
    levels = [_Tree(tree.m, tree.ce, tree.cells) for _ in sums]
    totals = [level.total(terms) for level, terms in zip(levels, sums, strict=True)]
    return _join(tree, totals, bit_type.signed and not bit_type.bipolar)


def _join(tree: _Tree, sums: list[Value], negative: bool) -> Value:
    """Return the sum of 2**k * sums[k]; with `negative`, the last one is subtracted instead."""
    shift = 1
    while len(sums) > 1:
        couples = [sums[index : index + 2] for index in range(0, len(sums), 2)]
        joined = []
        for couple in couples:
            last = couple is couples[-1]
            if len(couple) == 1:
                joined.append(couple[0])
                continue
            low, high = couple
            # The bits below the other sum's pass by the adder.
            upper = tree.cells.add_few(low >> shift, high, last and negative)
            number = Cat(low[:shift], upper)
            joined.append(number.as_signed() if upper.shape().signed else number)
        negative = negative and len(couples[-1]) == 1
        sums = tree.register(joined)
        shift *= 2
    return -sums[0] if negative else sums[0]
