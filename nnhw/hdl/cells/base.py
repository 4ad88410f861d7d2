"""What a family may build from its own cells, in the plain form: any synthesis takes it, and simulators run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amaranth.hdl import Cat, Const, Instance, Module, Mux, Signal, Value, unsigned
from amaranth.lib import io
from amaranth.lib.memory import Memory

from nnhw.families import Family
from nnhw.families.pll import PllSettings
from nnhw.hdl.names import TABLE_ATTRIBUTE

if TYPE_CHECKING:
    from nnhw.hdl.dsp import DspProducts
    from nnhw.hdl.memory import LargeRam
    from nnhw.hdl.shared.multiply_add import MultiplyAdd

Operand = tuple[Value, Value]
"""A number, and the bit that gates or inverts it."""


class Cells:
    """The plain form of everything that a family may have cells for.

    Members
    -------
    family: whose cells these are; None: the plain form.
    gates_both_operands: the cells of a carry chain can compute each bit of both operands from two signals.
    """

    family: Family | None = None
    gates_both_operands = False

    @property
    def lut_ram_words(self) -> int:
        """Words of one memory in writable LUTs, which deeper ones take several of; 0: the family has none."""
        return self.family.lut_ram.words if self.family else 0

    @property
    def writes_single_bits(self) -> bool:
        """Whether a write to block RAM can change single bits of a word and keep the others."""
        return self.family is None or self.family.block_ram.write_mask_bits == 1

    def has_large_ram(self, platform: object) -> bool:
        """Return whether the device of a platform has large RAMs."""
        if self.family is None or self.family.large_ram is None:
            return False
        device = str(getattr(platform, "device", "")).lower()
        return any(name in device for name in self.family.large_ram.devices)

    def add_gated(self, m: Module, x: Operand, y: Operand) -> Value:
        """Return the sum of two numbers, each of which counts as 0 where its bit is 0, one bit wider than they are."""
        return gated(*x) + gated(*y)

    def add_inverted(self, m: Module, x: Operand, y: Operand) -> Value:
        """Return the sum of two signed numbers, each complemented where its bit is 1, one bit wider than they are."""
        first, second = ((number.as_unsigned() ^ bit.replicate(len(number))).as_signed() for number, bit in (x, y))
        return first + second

    def add(self, m: Module, x: Value, y: Value, bits: int | None = None) -> Value:
        """Return the sum of two numbers, both signed or both unsigned, one bit wider than the wider of them.

        Parameters
        ----------
        bits: return only so many of the lowest bits; None: all.
        """
        total = x + y
        return total if bits is None or bits == len(total) else total[:bits]

    def add_ands(self, m: Module, x: Sequence[Operand], y: Sequence[Operand]) -> Value:
        """Return the sum of two unsigned numbers, whose bits, lowest first, are the ANDs of pairs of signals."""
        first, second = (Cat(bit & gate for bit, gate in number) for number in (x, y))
        return first + second

    def add_few(self, x: Value, y: Value, minus: bool = False) -> Value:
        """Return x + y, or x - y with `minus`, where there are few such sums: one in an adder tree, not one a lane."""
        return x - y if minus else x + y

    def accumulate(self, m: Module, total: Value, more: Value, term: Value) -> Value:
        """Return `total + term`, or `term` alone where `more` is 0, modulo the bits of the total."""
        return Mux(more, total + term, term)

    def multiply(self, m: Module, unit: DspProducts) -> None:
        """Add the multipliers of `unit`, registered as in DSP blocks: at both inputs, and behind the product."""
        for lane in range(unit.lanes):
            a, b = Signal(unit.a, reset_less=True), Signal(unit.b, reset_less=True)
            product = Signal(unit.product, reset_less=True)
            m.d.comb += unit.o[lane].eq(product)
            with m.If(unit.ce):
                m.d.sync += [a.eq(unit.i_a[lane]), b.eq(unit.i_b[lane]), product.eq(a * b)]

    def multiply_add(self, m: Module, unit: MultiplyAdd) -> None:
        """Add the product and the sum of `unit`, registered as in a DSP block: the result has a latency of 4 moves.

        The addend has one register before the sum, so it comes 2 moves after the factors.
        """
        a, b = Signal.like(unit.a, reset_less=True), Signal.like(unit.b, reset_less=True)
        factor = b if unit.is_signed else b.as_unsigned()
        products = [Signal(unit.o.shape(), name=f"product_{index}", reset_less=True) for index in range(2)]
        addend = Signal.like(unit.addend, reset_less=True)
        with m.If(unit.ce):
            m.d.sync += [a.eq(unit.a), b.eq(unit.b), products[0].eq(a * factor), products[1].eq(products[0])]
            m.d.sync += [addend.eq(unit.addend), unit.o.eq(products[1] + addend)]

    def lookup_table(
        self, m: Module, name: str, content: int, index: Sequence[Value | None], spare: Sequence[Value] = ()
    ) -> Value:
        """Add a table of 16 bits, read in the same cycle; return the bit at an index.

        A family's table is a cell that synthesis leaves as it is, so that its content can be replaced after place and
        route (`nnhw.flow.implementation.contents`).

        Parameters
        ----------
        name: of the cell, in families that make one.
        content: 16 bits; bit k is the entry of index k.
        index: its 4 bits, the lowest first; None: a bit that is always 0.
        spare: other bits, which a cell may read where `index` has none; the result does not depend on them.
        """
        if self.family is None:
            return in_logic(content, index)
        kind, models = self.family.tools.table, self.family.models
        output, *inputs = models.luts[kind]
        bit = Signal(name=f"{name}_bit")
        m.submodules[name] = Instance(
            kind,
            ("a", TABLE_ATTRIBUTE, 1),
            ("p", models.init, Const(content, 16)),
            ("o", output, bit),
            *(("i", port, _or_zero(value)) for port, value in zip(inputs, index, strict=True)),
        )
        return bit

    def large_ram(self, m: Module, unit: LargeRam, word: Signal) -> None:
        """Add a memory of one port that behaves as large RAMs do: a write changes the word at the output.

        Parameters
        ----------
        word: driven with what the RAM shows, from the edge after an access until the next access.
        """
        m.submodules.memory = memory = Memory(shape=unsigned(unit.bits), depth=unit.depth, init=())
        writer, reader = memory.write_port(), memory.read_port()
        m.d.comb += [
            writer.en.eq(unit.write),
            writer.addr.eq(unit.addr),
            writer.data.eq(unit.i_data),
            # A write reads as well: whoever still needs the word before must have kept it, as with the real RAM.
            reader.en.eq(unit.read | unit.write),
            reader.addr.eq(unit.addr),
            word.eq(reader.data),
        ]

    def large_rams(
        self, m: Module, addr: Value, i_data: Value, write: Value, select: Value, nibbles: Value | None = None
    ) -> Value:
        """Add large RAMs side by side; return the word that was read, from the next edge until the next access.

        Parameters
        ----------
        addr: of the word.
        i_data: word to write; its bits are a multiple of one RAM's.
        select: there is an access in this cycle.
        write: the access is a write; else it is a read.
        nibbles: one bit for each four bits of the word: write these; None: write all.

        Raises
        ------
        NotImplementedError: the family has no large RAMs.
        """
        raise NotImplementedError

    def pll(
        self, m: Module, settings: PllSettings, port: io.PortLike, clock: Signal, lock: Signal, source: str
    ) -> Value | None:
        """Add the PLL that makes the design's clock.

        Parameters
        ----------
        settings: input and output frequency, and the dividers between them.
        port: the oscillator's pin.
        clock, lock: driven with the clock, and with whether it is stable.
        source: how the oscillator reaches the PLL, not 'none'; see `nnhw.boards.InputClock`.

        Returns
        -------
        The oscillator's clock, for other uses; None where it reaches the PLL alone.

        Raises
        ------
        NotImplementedError: this is the plain form, which has no PLL.
        """
        raise NotImplementedError

    def flash_clock(self, m: Module, clk: Any) -> bool:
        """Drive the configuration flash's clock with `clk`, where that takes a cell; return whether it does."""
        return False


def in_logic(content: int, index: Sequence[Value | None]) -> Value:
    """Return a bit of a table of 16 bits that synthesis may make part of any logic; see `Cells.lookup_table`."""
    return Const(content, 16).bit_select(Cat(_or_zero(bit) for bit in index), 1)


def _or_zero(bit: Value | None) -> Value:
    return Const(0, 1) if bit is None else bit


def gated(number: Value, gate: Value) -> Value:
    """Return the number where the gate is 1, else zero."""
    row = number.as_unsigned() & gate.replicate(len(number))
    return row.as_signed() if number.shape().signed else row


def bit_of(number: Value, index: int) -> Value:
    """Return bit `index` of a number; beyond its width the sign bit, or 0 if it is unsigned."""
    if index < len(number):
        return number[index]
    return number[-1] if number.shape().signed else Const(0, 1)


def extended(number: Value, bits: int) -> Value:
    """Return a number extended to `bits` bits, with its sign bit, or with zeros if it is unsigned."""
    fill = number[-1] if number.shape().signed else Const(0, 1)
    return Cat(number, fill.replicate(bits - len(number)))
