"""Hardware of layer and RMS normalization."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed

from nnhw.engines.normalize import QUOTIENT_BITS, NormConfig
from nnhw.hdl.cells.base import gated
from nnhw.hdl.pairwise import products
from nnhw.hdl.rows import RowEngine
from nnhw.ir.ops.normalization import MOST_FRACTION_BITS, RECIPROCAL_BITS, ROOT_BITS


class NormEngine(RowEngine):
    """Sums and squares in front of the buffer; the spread, its root, and products with the root behind it.

    Timing: see `nnhw.engines.normalize.NormConfig`.
    """

    def __init__(self, config: NormConfig) -> None:
        self.config = config
        super().__init__(config, config.raw, config.requantizer)

    def collect(self, take: Value, first: Value) -> Sequence[Value]:
        """Return the sum of the squares of a row, and its sum if it has a centre."""
        config, numbers, beat = self.config, self.incoming(), (take, first)
        pairs = [(number, number) for number in numbers]
        squares = products(self.m, Const(1, 1), self.cells, config.squares, pairs, "square")
        squared_beat = tuple(
            self.later(f"squared_{index}", flag, config.squares.levels) for index, flag in enumerate(beat)
        )
        squared = self.summed("sum_of_squares", squares, config.squared, squared_beat)
        return [squared, self.summed("sum", numbers, config.total, beat)] if config.op.centered else [squared]

    def solve(self, collected: Sequence[Value]) -> Sequence[Value]:
        """Return the reciprocal root, further places by which products are shifted down, and with a centre the sum."""
        config, squared, *totals = self.config, *collected
        loaded = config.collect_levels + 1
        squared = self.kept("squared", squared, self.step == loaded - 1)
        totals = [self.kept("total", total, self.step == config.total_levels) for total in totals]
        shifting = loaded + config.spread_steps + 1
        dividing = shifting + config.most_shifts
        spread, down = self._spread(self._terms(squared, totals, loaded), loaded, shifting)
        # A spread of 0 has no reciprocal root, and gets some number as one: each distance, and so each product, is 0.
        return [self._root(spread[-ROOT_BITS:], dividing), down, *totals]

    def _terms(self, squared: Value, totals: Sequence[Value], loaded: int) -> Value:
        """Return what each bit of the length and of the sum adds to the spread: the sum of squares, or less the sum.

        The highest bits come first, in step `loaded` + 1.
        """
        m, config = self.m, self.config
        # The spread is length * sum of squares - sum * sum: two products whose factors come bit by bit, side by side.
        term = gated(squared, self._bits_of(config.length, loaded))
        if totals:
            total, bits = totals[0], Signal(config.spread_steps)
            sign = (self.step == loaded) if config.total.signed else Const(0, 1)
            with m.If(self.step == loaded - 1):
                # The sum is there before the sum of squares, which takes a multiplier more: so it can be loaded here.
                m.d.sync += bits.eq(total)
            with m.Else():
                m.d.sync += bits.eq(bits << 1)
            part = gated(total, bits[-1])
            # In two's complement the highest bit of a number counts negative: its product is added, not subtracted.
            minus = ~sign
            inverted = part.as_unsigned() ^ minus.replicate(len(part))
            inverted = inverted if config.total.signed else Cat(inverted, minus)
            # A subtraction adds the inverted number and 1: the 1 comes in as a carry, in front of the lowest bit.
            term = (Cat(minus, term) + Cat(minus, inverted).as_signed())[1:].as_signed()
        register = Signal(term.shape(), reset_less=True)
        m.d.sync += register.eq(term)
        return register

    def _bits_of(self, constant: int, first: int) -> Value:
        """Return the lowest bits of a constant in the steps from a first one on, the highest of them first."""
        count = self.config.spread_steps
        places = [place for place in range(count) if constant >> place & 1]
        return Cat(*(self.step == first + count - 1 - place for place in places)).any() if places else Const(0, 1)

    def _spread(self, term: Value, loaded: int, shifting: int) -> tuple[Value, Value]:
        """Return the spread at its highest bits, and how many places of two bits it could have been shifted more."""
        m, config = self.m, self.config
        spread = Signal(config.spread_bits, reset_less=True)
        down = Signal(range(config.most_shifts + 1), reset_less=True)
        adding = self.span("adding", loaded + 1, config.spread_steps)
        moving = self.span("moving", shifting, config.most_shifts)
        bit = self._bits_of(config.op.epsilon, loaded + 1)
        with m.If(self.step == loaded):
            m.d.sync += [spread.eq(config.op.epsilon >> config.spread_steps), down.eq(config.most_shifts)]
        with m.Elif(adding):
            m.d.sync += spread.eq(Cat(bit, spread[:-1]) + term)
        with m.Elif(moving & ~spread[-2:].any()):
            m.d.sync += [spread.eq(spread << 2), down.eq(down - 1)]
        return spread, down

    def _root(self, mantissa: Value, first: int) -> Value:
        """Return the root of a quotient, whose bits come from step `first` on: two of them give one bit of the root."""
        m = self.m
        dividing = self.span("dividing", first, QUOTIENT_BITS)
        bit = self.divided(dividing, self.step == first - 1, (1 << RECIPROCAL_BITS) - 1, mantissa)
        pair, odd, paired = Signal(2, reset_less=True), Signal(), Signal()
        root, remainder = Signal(RECIPROCAL_BITS, reset_less=True), Signal(RECIPROCAL_BITS + 1, reset_less=True)
        m.d.sync += [pair.eq(Cat(bit, pair[0])), odd.eq(dividing & ~odd), paired.eq(dividing & odd)]
        # The digit-by-digit square root: with root r, the next bit is 1 if 4 r + 1 can be subtracted from the remainder
        # that two more bits have joined.
        rest = Signal(signed(len(remainder) + 3))
        grown = Cat(pair, remainder)
        m.d.comb += rest.eq(grown - Cat(Const(1, 2), root))
        with m.If(self.step == first):
            m.d.sync += [root.eq(0), remainder.eq(0)]
        with m.Elif(paired):
            m.d.sync += [root.eq(Cat(~rest[-1], root[:-1])), remainder.eq(Mux(rest[-1], grown, rest))]
        return root

    def apply(self, numbers: Sequence[Value], constants: Sequence[Value]) -> Sequence[Value]:
        """Return the results: the length times each number, less the sum, times the root, shifted and rounded."""
        config, root, down, *totals = self.config, *constants
        distances = [self._scaled(lane, number) for lane, number in enumerate(numbers)]
        moves = config.scale_levels
        if totals:
            total = self.moved_by("held_total", totals[0], moves)
            distances = [
                self.moved(f"distance_{lane}", number - total, shape=signed(config.distance.bits))
                for lane, number in enumerate(distances)
            ]
            moves += 1
        else:
            # The tree of shifted numbers has more bits than its result, the odd part of the length times a number.
            cut = [number[: config.distance.bits] for number in distances]
            distances = [number.as_signed() if config.distance.signed else number for number in cut]
        root = self.moved_by("held_root", root, moves)
        pairs = [(distance, root) for distance in distances]
        results = [
            product.shift_left(config.even_bits)
            for product in products(self.m, self.ce, self.cells, config.factor, pairs, "product")
        ]
        down = self.moved_by("held_down", down, moves + config.factor.levels)
        return self.rounded(results, MOST_FRACTION_BITS - config.op.fraction_bits, down, config.most_shifts, config.raw)

    def _scaled(self, lane: int, number: Value) -> Value:
        """Return a number times the length, or its odd part, `scale_levels` moves later."""
        # The highest digit comes first: it is positive, so the first of each pair is what the other is subtracted from.
        terms = [(number.shift_left(shift), sign) for shift, sign in reversed(self.config.factor_digits)]
        for level in range(self.config.scale_levels):
            sums = []
            for index in range(0, len(terms), 2):
                (value, sign), *others = terms[index : index + 2]
                for other, other_sign in others:
                    value = value + other if sign == other_sign else value - other
                sums.append((self.moved(f"scaled_{lane}_{level}_{index}", value), sign))
            terms = sums
        return terms[0][0]
