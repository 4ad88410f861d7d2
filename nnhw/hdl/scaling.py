"""Hardware of the requantizers that multiply: a pipelined multiply-add, shifts, a clamp."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as iterate

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Value, signed, unsigned

from nnhw.engines.encoding import bits_for_range
from nnhw.engines.requantize import (
    DSP_PIECE_BITS,
    FUSED_FACTOR_BITS,
    HIGH_SHIFT,
    ConstantProduct,
    DoubleScaler,
    Scaler,
    index_span,
    lower_bits,
    pieces,
)
from nnhw.hdl.partial_products import Term, add_neighbours, digit_multiple
from nnhw.hdl.requantizer import RequantizerUnit
from nnhw.hdl.shared.multiply_add import MultiplyAdd


class MultiplyAddUnit(RequantizerUnit):
    """What all multiplying requantizers have in common: `raw * multiplier + addend`, with constants of each channel.

    In logic, each radix-4 digit of a multiplier selects -1, 0, 1 or 2 times the sum, with one LUT4 a bit. A digit of -1
    gives the complement, and signed sums get a bias that makes them unsigned; the addend makes up for both.

    Members
    -------
    dsp: products are made in DSP blocks.
    logic: the channels' constants are in logic; else in block RAM.
    """

    dsp: bool
    logic: bool

    def multiply_add(
        self, m: Module, product: ConstantProduct, raws: list[Value], addresses: list[Value]
    ) -> list[Value]:
        """Return the result of each lane, `product.bits` bits in two's complement, `product.latency` moves later.

        Parameters
        ----------
        product: the constants, and how they are multiplied.
        raws: sums [drain], in the same move as their addresses.
        addresses: addresses [drain] of the constants: the position, or with several segments Cat(segment, position).
        """
        if product.fused:
            return self._fused(m, product, raws, addresses)
        if product.is_addition:
            return self._additions(m, product, raws)
        make = self._dsp_products if product.dsp else self._logic_products
        lanes = make(m, product, raws, addresses)
        # Addends are read just in time for the last addition, so that only an address has to be delayed.
        wait = 1 + product.dsp + sum(product.level_moves)
        late = self.delay_all(m, "addend_address", addresses, wait)
        rows = [value % (1 << product.bits) for value in self._addends(product)]
        addends = self.constants(m, "addends", rows, product.bits, late, self.logic)
        results = []
        for lane, operands in enumerate(lanes):
            for level, moves in enumerate(product.level_moves):
                operands = self._tree_level(m, f"tree_{lane}_{level}", operands, product.bits, moves)
            value = Cat(Const(0, operands[0].shift), operands[0].value)
            results.append(self._add(m, f"result_{lane}", value, addends[lane], product.bits, product.moves))
        return [result.as_signed() for result in results]

    def _additions(self, m: Module, product: ConstantProduct, raws: list[Value]) -> list[Value]:
        """Return the results where nothing is multiplied: the sums plus one number, the same for all channels."""
        addend = Const(int(product.addend.flat[0]) % (1 << product.bits), product.bits)
        results = []
        for lane, raw in enumerate(raws):
            number = raw if self.raw_shape.signed else Cat(raw, Const(0, 1))
            value = extend(number, product.bits)
            results.append(self._add(m, f"result_{lane}", value, addend, product.bits, product.moves).as_signed())
        return results

    def _fused(self, m: Module, product: ConstantProduct, raws: list[Value], addresses: list[Value]) -> list[Value]:
        """Return the results, each made by one DSP block that multiplies and adds; see `multiply_add`."""
        factors, summands = ([int(value) for value in values.ravel()] for values in product.constants)
        words = self.constants(m, "multipliers", factors, product.multiplier_bits, addresses, self.logic)
        late = self.delay_all(m, "addend_address", addresses, 2)
        addends = self.constants(m, "addends", summands, product.bits, late, self.logic)
        results = []
        for lane, (arriving, word, addend) in enumerate(zip(raws, words, addends, strict=True)):
            raw: Value = self.register(m, f"raw_{lane}", arriving, signed(product.raw_bits))
            m.submodules[f"multiply_add_{lane}"] = unit = MultiplyAdd(is_signed=not product.is_magnitude)
            # Of a negative multiplier the block gets the magnitude, and the sum's complement; see `is_magnitude`.
            if product.is_magnitude:
                raw = (raw.as_unsigned() ^ word[-1].replicate(len(raw))).as_signed()
                word = word[:FUSED_FACTOR_BITS]
            m.d.comb += [unit.ce.eq(self.ce), unit.a.eq(raw), unit.b.eq(word.as_signed())]
            m.d.comb += unit.addend.eq(addend.as_signed())
            results.append(unit.o[: product.bits].as_signed())
        return results

    def _tree_level(self, m: Module, name: str, operands: list[Term], width: int, moves: int) -> list[Term]:
        """Return the sums of neighbouring operands, `moves` moves later, modulo 2**width.

        The bits of the lower operand below the lowest one of the higher operand pass by the adder.
        """

        def add(number: int, low: Term, high: Term) -> Value:
            distance, most = high.shift - low.shift, width - low.shift
            # The bits that the sum can need, and no more than the result has above this place.
            bits = min(max(len(low.value), len(high.value) + distance) + 1, most)
            return self._add(m, f"{name}_{number}", low.value, Cat(Const(0, distance), high.value), bits, moves)

        return add_neighbours(
            operands, add, lambda number, operand: self.delay(m, f"{name}_{number}", operand.value, moves)
        )

    def _add(self, m: Module, name: str, a: Value, b: Value, bits: int, moves: int) -> Value:
        """Return a + b modulo 2**bits after one move, or after two: then the lower bits are added first."""
        if moves == 1:
            return self.register(m, name, (a + b)[:bits], unsigned(bits))
        low_bits = lower_bits(bits)
        low = self.register(m, f"{name}_low", a[:low_bits] + b[:low_bits], unsigned(low_bits + 1))
        if bits <= low_bits:
            return self.register(m, name, low[:bits], unsigned(bits))
        tops = [self.register(m, f"{name}_{k}", value[low_bits:bits]) for k, value in (("a", a), ("b", b))]
        low_later = self.register(m, f"{name}_done", low[:low_bits])
        # A carry into an adder is one more bit at its lower end.
        total = Cat(Const(1, 1), tops[0]) + Cat(low[low_bits], tops[1])
        top = self.register(m, f"{name}_top", total[1 : bits - low_bits + 1], unsigned(bits - low_bits))
        return Cat(low_later, top)

    def _logic_products(
        self, m: Module, product: ConstantProduct, raws: list[Value], addresses: list[Value]
    ) -> list[list[Term]]:
        """Return the partial products of each lane, one for each digit that is not 0 in all channels."""
        digits = product.digits
        used = np.flatnonzero(digits.any(axis=(0, 1))).tolist() or [0]
        # Two bits for each digit: 00, 01 and 10 for 0, 1 and 2, 11 for -1.
        patterns = (digits[..., used] & 3).reshape(-1, len(used)).tolist()
        rows = [sum(digit << (2 * k) for k, digit in enumerate(row)) for row in patterns]
        words = self.constants(m, "multipliers", rows, 2 * len(used), addresses, self.logic)
        lanes = []
        for lane, arriving in enumerate(raws):
            raw = self.register(m, f"factor_{lane}", arriving, unsigned(self.raw_shape.width))
            # Inverting the sign adds 2**(n - 1) and makes the sum unsigned; `_addends` takes that back.
            number = Cat(raw[:-1], ~raw[-1]) if self.raw_shape.signed else raw
            lanes.append(
                [
                    Term(self._times(m, f"product_{lane}_{k}", number, words[lane][2 * k : 2 * k + 2]), 2 * digit)
                    for k, digit in enumerate(used)
                ]
            )
        return lanes

    def _times(self, m: Module, name: str, number: Value, digit: Value) -> Value:
        """Return digit * number, one move later, in one bit more than the number has; for -1 the complement."""
        multiple = digit_multiple(digit, Cat(number, Const(0, 1)), Cat(Const(0, 1), number))
        return self.register(m, name, multiple, unsigned(len(number) + 1))

    def _addends(self, product: ConstantProduct) -> list[int]:
        """Return the addends of all channels, corrected for the partial products in logic.

        A partial product of digit -1 is the complement of the sum x in n + 1 bits, and -x = ~x + 1 - 2**(n + 1). A
        signed sum enters with its sign inverted, which is 2**(n - 1) too much.
        """
        addends = [int(value) for value in product.addend.ravel()]
        if product.dsp:
            return addends
        bits = self.raw_shape.width
        bias = (1 << (bits - 1)) if self.raw_shape.signed else 0
        digits = product.digits.reshape(len(addends), -1).tolist()
        negative = [sum(4**k for k, digit in enumerate(row) if digit == -1) for row in digits]
        return [
            addend + ones * (1 - (1 << (bits + 1))) - bias * multiplier
            for addend, ones, multiplier in zip(addends, negative, product.multiplier.ravel().tolist(), strict=True)
        ]

    def _dsp_products(
        self, m: Module, product: ConstantProduct, raws: list[Value], addresses: list[Value]
    ) -> list[list[Term]]:
        """Return the products of the pieces of both factors, lowest first: factors and products are in registers.

        They are plain multiplications, from which synthesis makes DSP blocks.
        """
        bits = product.multiplier_bits
        rows = [value & ((1 << bits) - 1) for value in product.multiplier.ravel().tolist()]
        words = self.constants(m, "multipliers", rows, bits, addresses, self.logic)
        lanes = []
        for lane, arriving in enumerate(raws):
            raw = self.register(m, f"raw_{lane}", arriving, signed(product.raw_bits))
            lefts, rights = (
                [self.register(m, f"{name}_{lane}_{k}", piece) for k, piece in enumerate(cut(value))]
                for name, value in (("factor", raw), ("multiplier", words[lane]))
            )
            operands = []
            for (i, left), (j, right) in iterate(enumerate(lefts), enumerate(rights)):
                value, shift = self.register(m, f"product_{lane}_{i}_{j}", left * right), (i + j) * DSP_PIECE_BITS
                operands.append(Term(extend(value, product.bits - shift), shift))
            lanes.append(sorted(operands, key=lambda operand: operand.shift))
        return lanes


def cut(value: Value) -> list[Value]:
    """Return the pieces of a two's complement factor as signed numbers, lowest first, each `DSP_PIECE_BITS` higher."""
    last = (pieces(len(value)) - 1) * DSP_PIECE_BITS
    low = [
        Cat(value[start : start + DSP_PIECE_BITS], Const(0, 1)).as_signed() for start in range(0, last, DSP_PIECE_BITS)
    ]
    return [*low, value[last:].as_signed()]


def extend(value: Value, bits: int) -> Value:
    """Return the lowest `bits` bits of a two's complement number, extended by its sign if it is narrower."""
    return value[:bits] if bits <= len(value) else Cat(value, value[-1].replicate(bits - len(value)))


class ScalerUnit(MultiplyAddUnit):
    """Hardware of `Scaler`: multiply, add, shift, clamp; with several segments, the choice of one in front of it."""

    def __init__(self, scaler: Scaler, raw: tuple[int, int], drain: int) -> None:
        self.scaler = scaler
        self.logic = scaler.logic
        super().__init__(scaler, raw, drain)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        position = self.walk(m)
        raws: list[Value] = [self.i_sums[lane] for lane in range(self.drain)]
        addresses: list[Value] = [position] * self.drain
        product = self.scaler.product
        if self.scaler.segments > 1:
            raws, addresses = self._select(m, raws, position)
            product = replace(product, multiplier=pad(product.multiplier), addend=pad(product.addend))
        low, high = product.range
        ends = (low >> self.scaler.shift) - self.scaler.even, high >> self.scaler.shift
        for lane, result in enumerate(self.multiply_add(m, product, raws, addresses)):
            number = self._number(m, lane, result)
            index = self.clamp(m, lane, number, ends, self.scaler.span)
            self.emit(m, lane, index + self.scaler.floor if self.scaler.floor else index)
        return m

    def _number(self, m: Module, lane: int, result: Value) -> Value:
        """Return the result without its fraction; with `even` two moves later, one less for ties that round down."""
        shift = self.scaler.shift
        number = result.shift_right(shift)
        if not self.scaler.even:
            return number
        down = self.register(m, f"tie_{lane}", (result[:shift] == 0) & (number[0] ^ self.scaler.parity))
        kept = self.register(m, f"number_{lane}", number, signed(len(number) + 1))
        return self.register(m, f"rounded_{lane}", kept - down, signed(len(number) + 1))

    def _select(self, m: Module, raws: list[Value], position: Value) -> tuple[list[Value], list[Value]]:
        """Return (sums, addresses of their constants), two moves later; the low part of an address is the segment."""
        low, high = self.raw_range
        # Borders beyond all sums are moved to the nearest place that means the same, which takes fewer bits.
        borders = np.clip(self.scaler.borders, low, high + 1)
        bits = bits_for_range(low, int(max(high, borders.max())))[0]
        inner = borders.shape[1]
        rows = [
            sum((border & ((1 << bits) - 1)) << (k * bits) for k, border in enumerate(row)) for row in borders.tolist()
        ]
        words = self.constants(m, "borders", rows, bits * inner, [position] * self.drain, self.logic)
        raws = [self.register(m, f"compared_{lane}", raw, self.raw_shape) for lane, raw in enumerate(raws)]
        addresses = []
        later = self.delay(m, "position", position, 2)
        for lane, (word, raw) in enumerate(zip(words, raws, strict=True)):
            steps = [word[k * bits : (k + 1) * bits] for k in range(inner)]
            reached = [raw >= (step.as_signed() if self.raw_shape.signed else step) for step in steps]
            segment = self.register(m, f"segment_{lane}", sum(reached[1:], reached[0]), range(inner + 1))
            addresses.append(Cat(segment, later))
        return [self.register(m, f"selected_{lane}", raw, self.raw_shape) for lane, raw in enumerate(raws)], addresses


def pad(values: np.ndarray) -> np.ndarray:
    """Return [outputs, segments] with the last column repeated until the segments are a power of two."""
    missing = (1 << (values.shape[1] - 1).bit_length()) - values.shape[1]
    return np.pad(values, ((0, 0), (0, missing)), mode="edge")


class DoubleScalerUnit(MultiplyAddUnit):
    """Hardware of `DoubleScaler`: multiply, add, keep the high part, shift right by the channel's shift, clamp."""

    def __init__(self, scaler: DoubleScaler, raw: tuple[int, int], drain: int) -> None:
        self.scaler = scaler
        self.logic = scaler.logic
        super().__init__(scaler, raw, drain)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        position = self.walk(m)
        raws: list[Value] = [self.i_sums[lane] for lane in range(self.drain)]
        product = self.scaler.product
        results = self.multiply_add(m, product, raws, [position] * self.drain)
        address = self.delay(m, "rounding_address", position, product.latency - 1)
        rounded = self._round(m, [result.shift_right(HIGH_SHIFT) for result in results], address)
        shifted = self._shift(m, rounded, self.register(m, "shift_address", address))
        for lane, value in enumerate(shifted):
            self.emit(m, lane, self.clamp(m, lane, value, self.scaler.index_range, index_span(self.code)))
        return m

    def _round(self, m: Module, highs: list[Value], address: Value) -> list[Value]:
        """Return the numbers that the shift then only has to cut, one move later.

        They are high + 2**(shift - 1) - 1, and 1 more unless high is negative, which rounds half away from zero; and
        the offset of the codes, shifted left. A carry into an adder is one more bit at its lower end.
        """
        scaler = self.scaler
        shifts, offset = [int(shift) for shift in scaler.shift], scaler.offset - scaler.code.low
        adds = [max((1 << shift >> 1) - 1, 0) + (offset << shift) for shift in shifts]
        low, high = scaler.high_range
        bits = bits_for_range(min(low + min(adds), low, *adds, -1), max(high + max(adds) + 1, high, *adds))[0]
        rows = [(add & ((1 << bits) - 1)) << 1 | (shift > 0) for add, shift in zip(adds, shifts, strict=True)]
        words = self.constants(m, "rounding", rows, bits + 1, [address] * self.drain, self.logic)
        sums = []
        for lane, (word, value) in enumerate(zip(words, highs, strict=True)):
            carry = word[0] & ~value[-1]
            total = Cat(Const(1, 1), extend(value, bits)) + Cat(carry, word[1:])
            sums.append(self.register(m, f"rounded_{lane}", total[1 : bits + 1].as_signed(), signed(bits)))
        return sums

    def _shift(self, m: Module, values: list[Value], address: Value) -> list[Value]:
        """Return the values shifted right by their channel's shift, one move for each bit of the spread."""
        least, bits = int(self.scaler.shift.min()), self.scaler.spread_bits
        values = [value.shift_right(least) for value in values]
        if not bits:
            return values
        # What the shift has beyond the least one comes from a memory, read while the sum is rounded.
        words = self.constants(
            m, "shifts", [int(shift) - least for shift in self.scaler.shift], bits, [address] * self.drain, self.logic
        )
        for bit in reversed(range(bits)):
            moved = [
                Mux(word[bit], value.shift_right(1 << bit), value) for word, value in zip(words, values, strict=True)
            ]
            values = [self.register(m, f"shifted_{bit}_{lane}", value) for lane, value in enumerate(moved)]
            words = [self.register(m, f"shift_{bit}_{lane}", word) for lane, word in enumerate(words)]
        return values
