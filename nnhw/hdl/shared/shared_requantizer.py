"""The requantizer of a shared engine, whose constants come with each sum: multiply, add, shift, round, clamp."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.cycles import factor_levels
from nnhw.hdl.partial_products import Term, add_neighbours, digit_multiple
from nnhw.hdl.shared.step_memory import StepLookup, step_ports


def low_bits(array: ArrayConfig) -> int:
    """Return how many of the lowest bits of the result are complete before the last level of the tree."""
    return 1 << factor_levels(array)


def number_bits(array: ArrayConfig) -> int:
    """Return the width of sum * factor + addend, in bits."""
    return max(array.sum_bits + array.factor_bits, array.addend_bits) + 1


class SharedRequantizer(wiring.Component):
    """One code a cycle.

    Members
    -------
    sum: in. digits: in, of its factor; see `nnhw.engines.shared.records.recode`.
    addend_low: in, its `low_bits`, `factor_levels` cycles behind the sum. addend_high: in, the rest, a cycle later.
    tie_code: in, with that; and not_pivot: only where the array tells ties that round away from zero.
    shift, even, parity: in, fields of the descriptor. not_low, not_high, not_pivot: in, complements of others.
    write, row, entry, stepped, ranks: in, only where the array has a step memory: see `StepLookup`.
    code: out.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        code = signed(array.activation_bits)
        super().__init__(
            {name: In(bits) for name, (_, bits, _) in self.pieces(array).items()}
            | {
                "sum": In(signed(array.sum_bits)),
                "shift": In(2),
                "even": In(1),
                "parity": In(1),
                "not_low": In(code),
                "not_high": In(code),
                "code": Out(code),
            }
            | ({"not_pivot": In(code)} if array.tie_bits else {})
            | step_ports(array)
        )

    @staticmethod
    def pieces(array: ArrayConfig) -> dict[str, tuple[int, int, int]]:
        """Return (lowest bit, bits, cycles behind the sum) of each piece of a lane's constants."""
        low, end, levels = low_bits(array), array.stored_addend_bits, factor_levels(array)
        return {
            "digits": (end, 2 * array.digits, 0),
            "addend_low": (0, low, levels),
            "addend_high": (low, end - low, levels + 1),
            **tie_piece(array, levels + 1),
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        number = self._number(m)
        self._finish(m, number)
        return m

    def _register(self, m: Module, name: str, value: Value, shape: Shape | None = None) -> Signal:
        register = Signal(value.shape() if shape is None else shape, name=name, reset_less=True)
        m.d.sync += register.eq(value)
        return register

    def _number(self, m: Module) -> Value:
        """Return sum * factor + addend."""
        terms = []
        once, twice = self.sum, self.sum << 1
        for k in range(self.array.digits):
            multiple = digit_multiple(self.digits[2 * k : 2 * k + 2], once, twice)
            terms.append(Term(self._register(m, f"product_{k}", multiple, signed(len(twice))), 2 * k))
        for level in range(factor_levels(self.array) - 1):
            terms = self._level(m, level, terms)
        return self._last(m, *terms)

    def _level(self, m: Module, level: int, terms: list[Term]) -> list[Term]:
        """Return the sums of neighbours; the bits of the lower one below the higher one pass by the adder."""

        def add(index: int, low: Term, high: Term) -> Value:
            distance = high.shift - low.shift
            total = low.value.shift_right(distance) + high.value
            return self._register(m, f"tree_{level}_{index}", Cat(low.value[:distance], total).as_signed())

        return add_neighbours(terms, add, lambda index, term: self._register(m, f"tree_{level}_{index}", term.value))

    def _last(self, m: Module, low: Term, high: Term) -> Value:
        """Return the sum of the last two terms and the addend, whose low bits are added a cycle before the others."""
        distance, bits = high.shift, number_bits(self.array)
        upper = self._register(m, "upper", low.value.shift_right(distance) + high.value, signed(bits - distance))
        rest = self._register(m, "rest", low.value[:distance] + self.addend_low, unsigned(distance + 1))
        total = _add(upper, self.addend_high.as_signed(), rest[-1])[: bits - distance]
        # Of bits below all shifts, and below those that tell ties or places, only whether there is a one matters.
        told = self.array.tie_bits[1] if self.array.tie_bits else 0
        if self.array.step_memory is not None:
            told = max(told, self.array.step_memory.low_bits)
        passed = min(distance, max(self.array.shifts[0] - told, 0))
        below = Cat(rest[:passed].any(), Const(0, passed - 1)) if passed else Const(0, 0)
        return self._register(m, "number", Cat(below, rest[passed:-1], total).as_signed(), signed(bits))

    def _finish(self, m: Module, number: Value) -> None:
        """Shift, round and clamp: four registers, and the choice of the code behind them."""
        array, shifts = self.array, self.array.shifts
        bits, last = array.activation_bits, len(number) - 1
        windows = [Cat(number[min(shift + k, last)] for k in range(bits)) for shift in shifts]
        taken = self._register(m, "taken", _select(self.shift, windows), unsigned(bits))
        borders = [min(shift + bits - 1, last) for shift in shifts] + [last]
        edges = [0, *(min(shift, last + 1) for shift in shifts)]
        same, zero = (
            [
                self._register(m, f"{name}_{k}", Cat(number[place] ^ sign for place in range(low, high)) == 0)
                for k, (low, high) in enumerate(pairwise(ends))
            ]
            for name, ends, sign in (("same", borders, number[-1]), ("zero", edges, Const(0, 1)))
        )
        negative = self._register(m, "negative", number[-1])

        whole = _select(self.shift, [Cat(*zero[: k + 1]).all() for k in range(len(shifts))])
        fits = self._register(m, "fits", _select(self.shift, [Cat(*same[k:]).all() for k in range(len(shifts))]))
        ties = self.even & whole & (taken[0] ^ self.parity)
        if array.tie_bits:
            at_pivot = (taken.as_signed() + self.not_pivot)[-1]
            ties |= at_pivot & _select(self.shift, self._lasting_ties(m, number))
        tie = self._register(m, "tie", ties)
        quotient = self._register(m, "quotient", taken.as_signed())
        negative = self._register(m, "negative_later", negative)

        rounded = self._register(m, "rounded", (quotient - tie)[: bits + 1].as_signed())
        fits = self._register(m, "fits_later", fits)
        negative = self._register(m, "negative_last", negative)
        # A carry chain that subtracts takes a further cell for each bit that it has to invert: hence complements.
        below = self._register(m, "below", Mux(fits, _add(rounded, self.not_low, Const(1))[-1], negative))
        above = self._register(m, "above", ~Mux(fits, (rounded + self.not_high)[-1], negative))
        kept = self._register(m, "kept", rounded[:bits])
        border = Mux(below, ~self.not_low, ~self.not_high).as_signed()
        code = Mux(below | above, border, kept.as_signed())
        m.d.comb += self.code.eq(code if array.step_memory is None else self._look_up(m, number, code))

    def _look_up(self, m: Module, number: Value, word: Value) -> Value:
        """Return the code of steps whose word of ranks is the code of the line, or that code, `LOOKUP_CYCLES` later."""
        assert self.array.step_memory is not None
        m.submodules.lookup = lookup = StepLookup(self.array)
        low, nothing = self.array.step_memory.low_bits, Const(0, self.array.step_memory.low_bits)
        below = [Cat(nothing, number)[shift : shift + low] for shift in self.array.shifts]
        for name in step_ports(self.array):
            m.d.comb += getattr(lookup, name).eq(getattr(self, name))
        m.d.comb += [lookup.low.eq(self._register(m, "low", _select(self.shift, below))), lookup.word.eq(word)]
        return lookup.code

    def _lasting_ties(self, m: Module, number: Value) -> list[Value]:
        """Return, for each shift, whether the fraction bits that tell a tie are all 0."""
        assert self.array.tie_bits is not None
        least, most = self.array.tie_bits
        tells = [self.tie_code > bits - least for bits in range(least, most + 1)]
        mask = self._register(m, "told", Cat(*tells), unsigned(most - least + 1))
        found = []
        for index, shift in enumerate(self.array.shifts):
            places = [(number[shift - bit], mask[max(bit - least, 0)]) for bit in range(1, min(most, shift) + 1)]
            one = Cat(value & told for value, told in places).any()
            found.append(self._register(m, f"near_{index}", mask[0] & ~one))
        return found


def tie_piece(array: ArrayConfig, delay: int) -> dict[str, tuple[int, int, int]]:
    """Return the piece of a lane's constants that says by which fraction bits ties are told; empty if none are."""
    return {"tie_code": (array.line_bits, array.tie_code_bits, delay)} if array.tie_bits else {}


def _add(a: Value, b: Value, carry: Value) -> Value:
    """Return a + b + carry, one bit wider than they are."""
    # One more column at the lower end, 1 + carry, makes the carry that comes in.
    total = Cat(Const(1, 1), a).as_signed() + Cat(carry, b).as_signed()
    return total[1:].as_signed()


def _select(index: Value, choices: list[Value]) -> Value:
    """Return choices[index], or the last choice if there are not so many."""
    chosen = choices[-1]
    for number in reversed(range(len(choices) - 1)):
        chosen = Mux(index == number, choices[number], chosen)
    return chosen
