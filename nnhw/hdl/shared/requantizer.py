"""A requantizer whose constants come with each sum: multiply, add, shift, round ties to even, clamp."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.cycles import factor_digits, factor_levels


@dataclass(frozen=True)
class Term:
    """A partial sum on its way through the tree: `value << shift`, and `carry << shift` that is not in it yet."""

    value: Value
    shift: int
    carry: Value


def low_bits(array: ArrayConfig) -> int:
    """Return the low bits of the result that are complete in front of the last level."""
    return 1 << factor_levels(array)


def number_bits(array: ArrayConfig) -> int:
    """Return the bits of sum * factor + addend."""
    return max(array.sum_bits + array.factor_bits, array.addend_bits) + 1


class Requantizer(wiring.Component):
    """One code a cycle.

    Members
    -------
    sum: in. factor: in, in the cycle before.
    addend_low: in, its `low_bits`, `factor_levels` cycles behind the sum. addend_high: in, the rest, a cycle later.
    shift, even, parity, low, high: in, fields of the descriptor.
    code: out.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        code = signed(array.activation_bits)
        low = min(low_bits(array), array.addend_bits)
        super().__init__(
            {
                "sum": In(signed(array.sum_bits)),
                "factor": In(array.factor_bits),
                "addend_low": In(low),
                "addend_high": In(max(array.addend_bits - low, 1)),
                "shift": In(2),
                "even": In(1),
                "parity": In(1),
                "low": In(code),
                "high": In(code),
                "code": Out(code),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        number = self._number(m)
        self._finish(m, number)
        return m

    def _register(self, m: Module, name: str, value: Value, shape: Shape | None = None) -> Signal:
        register = Signal(value.shape() if shape is None else shape, name=name, reset_less=True)
        m.d.sync += register.eq(value)
        return register

    def _digits(self, m: Module) -> list[Value]:
        """Return the digits: 0, 1, 2 as they are, and 3 for -1.

        A digit of two bits b1 b0 and the carry c from below carries where b1 and (b0 or c): which is what a carry
        chain does that adds b1 and (b1 and b0).
        """
        count = factor_digits(self.array)
        bits = Cat(self.factor, self.factor[-1].replicate(2 * count - len(self.factor)))
        pairs = [bits[2 * k : 2 * k + 2] for k in range(count)]
        ones, both = Cat(pair[1] for pair in pairs), Cat(pair.all() for pair in pairs)
        carries = (ones + both) ^ ones ^ both
        # 3 and 4 become -1 and 0; a carry changes the digit by one, so that -1 keeps the pattern 3.
        return [self._register(m, f"digit_{k}", (pair + carries[k])[:2]) for k, pair in enumerate(pairs)]

    def _number(self, m: Module) -> Value:
        """Return sum * factor + addend."""
        terms = []
        once, twice = self.sum, self.sum << 1
        for k, digit in enumerate(self._digits(m)):
            multiple = Mux(digit[1], Mux(digit[0], ~once, twice), Mux(digit[0], once, 0))
            value = self._register(m, f"product_{k}", multiple, signed(len(twice)))
            terms.append(Term(value, 2 * k, self._register(m, f"negative_{k}", digit.all())))
        for level in range(factor_levels(self.array) - 1):
            terms = self._level(m, level, terms)
        return self._last(m, *terms)

    def _level(self, m: Module, level: int, terms: list[Term]) -> list[Term]:
        """Add neighbours; the lower one's bits below the higher one pass by."""
        sums = []
        for index in range(0, len(terms), 2):
            low, name = terms[index], f"tree_{level}_{index}"
            carry = self._register(m, f"carry_{level}_{index}", low.carry)
            if index + 1 == len(terms):
                sums.append(Term(self._register(m, name, low.value), low.shift, carry))
                continue
            high = terms[index + 1]
            distance = high.shift - low.shift
            total = _add(low.value.shift_right(distance), high.value, high.carry)
            value = Cat(low.value[:distance], total).as_signed()
            sums.append(Term(self._register(m, name, value), low.shift, carry))
        return sums

    def _last(self, m: Module, low: Term, high: Term) -> Value:
        """Add the last two terms, and the addend in two pieces: its low bits one cycle early."""
        distance, bits = high.shift, number_bits(self.array)
        upper = _add(low.value.shift_right(distance), high.value, high.carry)
        upper = self._register(m, "upper", upper, signed(bits - distance))
        rest: Value = Const(0, distance + 1)
        addend_low: Value = self.addend_low
        addend_high: Value = self.addend_high.as_signed()
        if self.array.addend_bits <= distance:
            addend_low = Cat(addend_low, addend_low[-1].replicate(distance - len(addend_low)))
            addend_high = self._register(m, "sign", addend_low[-1]).replicate(bits - distance).as_signed()
        rest = Cat(Const(1, 1), low.value[:distance]) + Cat(low.carry, addend_low)
        rest = self._register(m, "rest", rest[1:], unsigned(distance + 1))
        total = _add(upper, addend_high, rest[-1])[: bits - distance]
        return self._register(m, "number", Cat(rest[:-1], total).as_signed(), signed(bits))

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
        tie = self._register(m, "tie", self.even & whole & (taken[0] ^ self.parity))
        quotient = self._register(m, "quotient", taken.as_signed())
        negative = self._register(m, "negative_later", negative)

        rounded = self._register(m, "rounded", (quotient - tie)[: bits + 1].as_signed())
        fits = self._register(m, "fits_later", fits)
        negative = self._register(m, "negative_last", negative)
        below = self._register(m, "below", Mux(fits, (rounded - self.low)[-1], negative))
        above = self._register(m, "above", Mux(fits, (self.high - rounded)[-1], ~negative))
        kept = self._register(m, "kept", rounded[:bits])
        m.d.comb += self.code.eq(Mux(below, self.low, Mux(above, self.high, kept.as_signed())))


def _add(a: Value, b: Value, carry: Value) -> Value:
    """Return a + b + carry, one bit wider than they are: a carry is one more bit at the lower end."""
    total = Cat(Const(1, 1), a).as_signed() + Cat(carry, b).as_signed()
    return total[1:].as_signed()


def _select(index: Value, choices: list[Value]) -> Value:
    """Return the choice of an index; the last one for those behind."""
    chosen = choices[-1]
    for number in reversed(range(len(choices) - 1)):
        chosen = Mux(index == number, choices[number], chosen)
    return chosen
