"""The first level of adders, with the gates of its operands in the cells of the carry chain.

Both families have one bit of an adder a logic cell. What else fits into the cell differs:

- iCE40: a carry is made of two signals and the carry below, beside the LUT4 of the cell, which sees the same three and
  one more. So one operand may be gated behind the adder: where its gate is closed, the LUT passes the other operand.
- ECP5: a carry is made of the LUT4's own result, where that is 0, of its first two inputs. So both operands may be
  functions of two inputs each.

On ECP5 adders of three bits and more are chains, too, where yosys takes LUTs for those of up to four bits: a chain
takes a logic cell for each bit and one for the carry that comes in (see `nnhw.flow.implementation.carries`).
"""

from __future__ import annotations

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Instance, Module, Mux, Shape, Signal, Value, signed, unsigned


def family_of(platform: object) -> str | None:
    """Return the family of an Amaranth platform, 'ice40' or 'ecp5'; None in simulation and for other families."""
    device = str(getattr(platform, "device", "")).lower()
    for prefix, family in (("ice40", "ice40"), ("lfe5", "ecp5")):
        if device.startswith(prefix):
            return family
    return None


Operand = tuple[Value, Value]
"""A number and a bit."""


def add_gated(m: Module, x: Operand, y: Operand, family: str | None) -> Value:
    """Return the sum of two numbers, each taken where its bit is set, one bit wider than they are."""
    if family == "ecp5":
        return _ecp5_chain(m, x, y, lambda a, b, c, d: (a & b) ^ (c & d))
    first = gated(*x)
    if family == "ice40":
        return Mux(y[1], first + y[0], first)
    return first + gated(*y)


def add_inverted(m: Module, x: Operand, y: Operand, family: str | None) -> Value:
    """Return the sum of two signed numbers, each complemented where its bit is set, one bit wider than they are."""
    if family == "ecp5":
        return _ecp5_chain(m, x, y, lambda a, b, c, d: a ^ b ^ c ^ d)
    bits = len(x[0])
    if family == "ice40":
        # With u = x or ~x: u + y, or ~(~u + y + 1) = u - y - 1 = u + ~y.
        u = (x[0].as_unsigned() ^ (x[1] ^ y[1]).replicate(bits)).as_signed()
        total = (Cat(Const(1, 1), u).as_signed() + Cat(y[1], y[0]).as_signed())[1:]
        return (total ^ y[1].replicate(bits + 1)).as_signed()
    first, second = ((number.as_unsigned() ^ bit.replicate(bits)).as_signed() for number, bit in (x, y))
    return first + second


CHAINED_BITS = 3
"""Bits of a sum from which on a carry chain of ECP5 takes fewer logic cells than LUTs."""


def add(m: Module, x: Value, y: Value, family: str | None, bits: int | None = None) -> Value:
    """Return the sum of two numbers, both signed or both unsigned, one bit wider than the wider of them.

    Parameters
    ----------
    bits: the lowest ones, if no more are wanted.
    """
    bits = max(len(x), len(y)) + 1 if bits is None else bits
    if family != "ecp5" or bits < CHAINED_BITS:
        total = x + y
    else:
        one = Const(1, 1)
        total = _ecp5_chain(m, (x, one), (y, one), lambda a, b, c, d: (a & b) ^ (c & d))
    return total if bits == len(total) else total[:bits]


def add_in_gates(x: Value, y: Value, minus: bool = False) -> Value:
    """Return the sum, or the difference, of two numbers of few bits, made of gates and not of a carry chain.

    On iCE40 a carry that leaves a chain takes a logic cell, and every chain begins at the first cell of a tile. Sums of
    up to four bits take no more LUTs as gates: in 32 lanes of 2 x 2 bits on a shared engine 64 fewer, and 40 chains.
    """
    shape = (x - y if minus else x + y).shape()
    bits, carry = list[Value](), Const(minus, 1)
    for index in range(shape.width):
        a, b = _bit(x, index), _bit(y, index) ^ Const(minus, 1)
        bits.append(a ^ b ^ carry)
        carry = (a & b) | (carry & (a ^ b))
    return Cat(bits).as_signed() if shape.signed else Cat(bits)


def add_ands(m: Module, x: list[Operand], y: list[Operand]) -> Value:
    """Return the sum of two numbers of so many bits, each of which is set where both signals of a pair are; on ECP5."""
    zero = (Const(0, 1),) * 4
    columns = [(*first, *second) for first, second in zip(x, y, strict=True)] + [zero]
    return _ecp5_columns(m, columns, lambda a, b, c, d: (a & b) ^ (c & d), unsigned(len(columns)))


def accumulate(m: Module, total: Value, more: Value, term: Value, family: str | None) -> Value:
    """Return a total and a term, or the term alone without `more`, modulo the bits of the total."""
    if family != "ecp5":
        return Mux(more, total + term, term)
    fill = term[-1] if term.shape().signed else Const(0, 1)
    columns = [
        (bit, more, term[index] if index < len(term) else fill, Const(1, 1))
        for index, bit in enumerate(total.as_unsigned())
    ]
    return _ecp5_columns(m, columns, lambda a, b, c, d: (a & b) ^ (c & d), unsigned(len(total)))


def gated(number: Value, gate: Value) -> Value:
    """Return the number or zero."""
    row = number.as_unsigned() & gate.replicate(len(number))
    return row.as_signed() if number.shape().signed else row


def _ecp5_chain(m: Module, x: Operand, y: Operand, propagate: Callable[[int, int, int, int], int]) -> Value:
    """Return the sum of two numbers, one bit wider than they are; see `_ecp5_columns`."""
    is_signed = x[0].shape().signed
    bits = max(len(x[0]), len(y[0])) + 1
    columns = [
        (_bit(x[0], index), x[1], _bit(y[0], index), y[1]) if is_signed or index < bits - 1 else (Const(0, 1),) * 4
        for index in range(bits)
    ]
    return _ecp5_columns(m, columns, propagate, signed(bits) if is_signed else unsigned(bits))


def _ecp5_columns(
    m: Module,
    columns: list[tuple[Value, Value, Value, Value]],
    propagate: Callable[[int, int, int, int], int],
    o: Shape,
) -> Value:
    """Add a chain of CCU2C, two bits each.

    Parameters
    ----------
    columns: of each bit, a bit of x, its gate, a bit of y and its gate.
    propagate: the sum bit of a column, without carry. With both inputs of y at 0 it has to be what x contributes.
    o: shape of the sum, a bit for each column.

    Source: yosys `techlibs/lattice/ccu2c_sim.vh`.
    """
    table = sum(
        propagate(index & 1, index >> 1 & 1, index >> 2 & 1, index >> 3 & 1) << index for index in range(1 << 4)
    )
    total = Signal(o)
    padded = len(columns) + len(columns) % 2
    columns = columns + [(Const(0, 1),) * 4] * (padded - len(columns))
    carry: Value = Const(0, 1)
    for low in range(0, padded, 2):
        following, sums = Signal(), Signal(2)
        ports = {
            f"i_{name}{half}": value
            for half in range(2)
            for name, value in zip("ABCD", columns[low + half], strict=True)
        }
        m.submodules += Instance(
            "CCU2C",
            p_INIT0=Const(table, 16),
            p_INIT1=Const(table, 16),
            p_INJECT1_0="NO",
            p_INJECT1_1="NO",
            i_CIN=carry,
            o_S0=sums[0],
            o_S1=sums[1],
            o_COUT=following,
            **ports,
        )
        m.d.comb += total[low : low + 2].eq(sums)
        carry = following
    return total


def _bit(number: Value, index: int) -> Value:
    """Return a bit of a number, extended by its sign where it has one."""
    if index < len(number):
        return number[index]
    return number[-1] if number.shape().signed else Const(0, 1)
