"""Hardware of lane arithmetic: the dot product of one cell. All that depends on the number formats is in this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from amaranth.hdl import Cat, Const, Module, Signal, Value

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.inner_product import InnerProduct
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
    """Add the raw sum of all lanes, with registers behind every level of adders.

    Integer products are not made lane by lane: for each bit of the narrower factor (a plane), the other factors of all
    lanes are added where that bit is set; the sums of the planes are joined last. So a lane costs little more than one
    adder cell for each bit and plane, and its gate is in the same cell.

    Parameters
    ----------
    m: the module to add the logic to.
    arithmetic: the number formats; they say what a raw sum is.
    activations, weights: bit patterns [lanes].
    ce: 1 bit; the registers take their next values in cycles in which it is 1. Such a cycle is called a move.
    cells: the family's cells, for adders with gates.

    Returns
    -------
    The raw sum, `arithmetic.tree_levels(lanes)` moves after the factors.
    """
    tree = _Tree(m, ce, cells)
    # The product of two signs is +1 where they are equal: the raw sum counts these lanes.
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
        # A weight of -1 adds the complement, one less than the negative: `LaneArithmetic.offsets` makes up for that.
        rows = [_ternary_row(number, weight) for number, weight in zip(numbers, weights, strict=True)]
        return tree.total(_first_level(rows, tree.add, lambda x: x))
    # A bipolar weight of -1, the bit 0, adds the complement, which `LaneArithmetic.offsets` makes up for as well.
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
    """Add the raw sum of all lanes, with products made in DSP blocks; for the parameters see `dot_product`.

    Returns
    -------
    The raw sum, `arithmetic.dsp_levels(lanes)` moves after the factors.
    """
    a = [as_number(pattern, arithmetic.activation) for pattern in activations]
    b = [as_number(pattern, arithmetic.weight) for pattern in weights]
    m.submodules.products = products = DspProducts(len(a), a[0].shape(), b[0].shape())
    m.d.comb += products.ce.eq(ce)
    m.d.comb += [port.eq(value) for port, value in zip(products.i_a, a, strict=True)]
    m.d.comb += [port.eq(value) for port, value in zip(products.i_b, b, strict=True)]
    terms: list[Value] = list(products.o)
    return _Tree(m, ce, cells).reduce(terms) if len(terms) > 1 else terms[0]


def paired_dot_product(
    m: Module,
    pairs: InnerProduct,
    activations: list[Value],
    weights: list[Value],
    ce: Value,
    cells: Cells,
    dsp: bool,
) -> Value:
    """Add the sum of the products of pairs of lanes, see `nnhw.engines.inner_product`; for the rest see `dot_product`.

    Parameters
    ----------
    dsp: products are made in DSP blocks.

    Returns
    -------
    The sum, with what is to be taken away from it, `pairs.dsp_levels(lanes)` or `pairs.tree_levels(lanes)` moves after
    activations and weights.
    """
    tree = _Tree(m, ce, cells)
    centered = [_centered(pattern, pairs.lanes.activation) for pattern in activations]
    numbers = [pattern.as_signed() for pattern in weights]
    bits = pairs.factors.activation.bits
    # The second factor of a pair has the weight of its first lane.
    sums = [
        tree.add(centered[lane ^ swapped], numbers[lane ^ 1 ^ swapped], bits)
        for swapped in range(2)
        for lane in range(0, len(centered), 2)
    ]
    factors = tree.register(sums)
    half = len(factors) // 2
    product = dsp_dot_product if dsp else dot_product
    return product(m, pairs.factors, factors[:half], factors[half:], ce, cells)


def crossed_dot_product(m: Module, pairs: InnerProduct, activations: list[Value], ce: Value, cells: Cells) -> Value:
    """Add the sum of the products of neighbouring activations; return it after `pairs.crossed_levels(lanes)` moves."""
    centered: list[Value] = [_centered(pattern, pairs.lanes.activation) for pattern in activations]
    return dot_product(m, pairs.crossed, centered[::2], centered[1::2], ce, cells)


def wait(m: Module, value: Value, levels: int, needed: int, ce: Value) -> Value:
    """Return a value that is there after `levels` moves after so many as `needed`, behind registers."""
    for stage in range(levels, needed):
        later = Signal(value.shape(), name=f"wait_{stage}", reset_less=True)
        with m.If(ce):
            m.d.sync += later.eq(value)
        value = later
    return value


def as_number(pattern: Value, dtype: IntType) -> Value:
    """Return the number that a bit pattern stands for; a bipolar bit becomes -1 or +1, a signed number of two bits."""
    if dtype.bipolar:
        # 01 is +1, 11 is -1: the low bit is always set, the sign is the inverted bit.
        return Cat(Const(1, 1), ~pattern).as_signed()
    return pattern.as_signed() if dtype.signed else pattern.as_unsigned()


class _Tree:
    """A tree of adders of two operands, with registers behind each level.

    Parameters
    ----------
    m: the module to add the logic to.
    ce: enables all registers.
    cells: the family's adders.
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
        """Return registers of the values, the next level of the tree."""
        # Data needs no reset: the valid bit that goes beside it has one.
        terms = [
            Signal(value.shape(), name=f"sum_{self.levels}_{index}", reset_less=True)
            for index, value in enumerate(values)
        ]
        with self.m.If(self.ce):
            self.m.d.sync += [term.eq(value) for term, value in zip(terms, values, strict=True)]
        self.levels += 1
        return list(terms)

    def total(self, first: list[Value], add: Callable[[Value, Value], Value] | None = None) -> Value:
        """Register the results of the first level, and return the sum of all of them."""
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
    """Return `pair` of each two neighbouring lanes, and `single` of a last lane without a neighbour."""
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
    """Return an activation as a signed number of as many bits; an unsigned one of n bits less 2**(n - 1)."""
    # Inverting the top bit subtracts half of the range.
    return pattern.as_signed() if dtype.signed else Cat(pattern[:-1], ~pattern[-1]).as_signed()


def _ternary_row(number: Value, weight: Value) -> Value:
    """Return the number for a weight of +1, its complement for -1, zero for 0."""
    # In two's complement 01 is +1 and 11 is -1: the low bit says that the weight is not zero.
    sign, set_ = (weight[-1], weight[0])
    bits = len(number)
    return ((number.as_unsigned() ^ sign.replicate(bits)) & set_.replicate(bits)).as_signed()


def _tables(tree: _Tree, activations: list[Value], weights: list[Value]) -> Value:
    """Return the sum of products of two signed factors of two bits each, each product looked up.

    A product lies in -2..4, which takes four bits. With 2 added it is an unsigned number of three bits, with 2
    subtracted a signed one. So the first half of the lanes adds 2 and the second half subtracts 2, which cancels; of an
    odd number of lanes the middle one is exact. The registers behind the products take the place of those in which the
    sums of planes are joined elsewhere, so `LaneArithmetic.tree_levels` holds.
    """
    # Lanes of equal excess are neighbours, so that in most adders of the tree both operands are signed, or neither is.
    half = len(activations) // 2
    excess = [2] * half + [0] * (len(activations) - 2 * half) + [-2] * half
    terms = tree.register([_product(*factors) for factors in zip(activations, weights, excess, strict=True)])
    # Not `Cells.add`, whose operands are both signed or both unsigned: where the halves meet there is one of each.
    return tree.reduce(terms if len(terms) > 1 else tree.register(terms), lambda x, y: x + y)


def _product(a: Value, w: Value, excess: int) -> Value:
    """Return the product of two signed factors of two bits and `excess`, which is -2, 0 or 2."""
    table = _table(excess)
    signed = min(table) < 0
    bits = max(table).bit_length() + signed
    # As gates: a multiplexer with a constant becomes registers that a factor resets, and each reset takes its own tile.
    minterms = [Cat(a, w) == index for index in range(len(table))]
    ones = [[minterms[index] for index, product in enumerate(table) if product >> bit & 1] for bit in range(bits)]
    number = Cat(*(Cat(*terms).any() for terms in ones))
    return number.as_signed() if signed else number


def _chained_tables(tree: _Tree, activations: list[Value], weights: list[Value]) -> Value:
    """Return what `_tables` does, for families whose carry chains compute a function of two signals for each operand.

    The lowest bit of a product is the AND of the factors' lowest bits, which the first adder's cells compute. Each
    product has 2 added; their total is subtracted at the end, in the level in which planes are joined elsewhere.
    """
    rows = [_table_row(a, w) for a, w in zip(activations, weights, strict=True)]
    first = _first_level(
        rows, lambda x, y: tree.cells.add_ands(tree.m, x, y), lambda x: Cat(bit & gate for bit, gate in x)
    )
    total, excess = tree.total(first), 2 * len(rows)
    # The excess ends in so many zeros: the bits of the total below pass by the subtractor.
    low = (excess & -excess).bit_length() - 1
    high = total[low:] - (excess >> low)
    return tree.register([Cat(total[:low], high).as_signed()])[0]


def _table_row(a: Value, w: Value) -> list[tuple[Value, Value]]:
    """Return the bits of a product of two signed factors of two bits plus 2, each an AND of two signals."""
    product = _product(a, w, 2)
    return [(a[0], w[0]), *((bit, Const(1, 1)) for bit in product[1:])]


def _table(excess: int) -> list[int]:
    """Return product + `excess` of all patterns of two signed factors of two bits, at index a + 4 * w."""
    numbers = (0, 1, -2, -1)
    return [excess + numbers[index & 3] * numbers[index >> 2] for index in range(16)]


def _planes(
    tree: _Tree, arithmetic: LaneArithmetic, activations: list[Value], weights: list[Value], cells: Cells
) -> Value:
    """Return the sum of products: the wide factors are added once for each bit (plane) of the narrow ones."""
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
    # The top bit of a two's complement number counts negative. A bipolar one does not: `gate` adds where it is +1.
    return _join(tree, totals, bit_type.signed and not bit_type.bipolar)


def _join(tree: _Tree, sums: list[Value], negative: bool) -> Value:
    """Return the sum of 2**k * sums[k]; with `negative`, the last one is subtracted instead.

    Neighbours are joined level by level: at each level `shift` is how much more the higher one of two weighs, as a
    power of two. A last sum without a neighbour keeps its sign until it is joined.
    """
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
            # The lowest `shift` bits have no counterpart in `high`: they pass by the adder.
            upper = tree.cells.add_few(low >> shift, high, last and negative)
            number = Cat(low[:shift], upper)
            joined.append(number.as_signed() if upper.shape().signed else number)
        negative = negative and len(couples[-1]) == 1
        sums = tree.register(joined)
        shift *= 2
    return -sums[0] if negative else sums[0]
