"""Hardware of a softmax: powers of the distances from the greatest element, and their shares."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Mux, Signal, Value, unsigned

from nnhw.engines.encoding import pack_words
from nnhw.engines.softmax import LOGIC_POWERS, PowersConfig, SharesConfig
from nnhw.hdl.memory import block_ram, logic_rom
from nnhw.hdl.pairwise import products
from nnhw.hdl.rows import RowEngine, number_shape
from nnhw.ir.ops.normalization import MOST_FRACTION_BITS, RECIPROCAL_BITS
from nnhw.ir.types import IntType


class PowersEngine(RowEngine):
    """The greatest element in front of the buffer, a table of powers behind it.

    Timing: see `nnhw.engines.softmax.PowersConfig`.
    """

    def __init__(self, config: PowersConfig) -> None:
        self.config = config
        super().__init__(config, config.element, None)

    def collect(self, take: Value, first: Value) -> Sequence[Value]:
        """Return the greatest element of a row."""
        config, numbers = self.config, self.incoming()
        if config.masked:
            numbers = [self.later(f"number_{lane}", number) for lane, number in enumerate(numbers)]
            kept = self._kept("collected", take)
            numbers = [Mux(flag, number, config.source.low) for flag, number in zip(kept, numbers, strict=True)]
        levels = config.collect_levels - 1
        valid, first = (self.later(f"beat_{index}", flag, levels) for index, flag in enumerate((take, first)))
        term = self.joined("greatest", numbers, lambda a, b: Mux(a > b, a, b))
        greatest = Signal(number_shape(config.source), reset_less=True)
        with self.m.If(valid & (first | (term > greatest))):
            self.m.d.sync += greatest.eq(term)
        return [greatest]

    def solve(self, collected: Sequence[Value]) -> Sequence[Value]:
        """Return the greatest element."""
        return [self.kept("found", collected[0], self.step == self.config.collect_levels)]

    def apply(self, numbers: Sequence[Value], constants: Sequence[Value]) -> Sequence[Value]:
        """Return the powers of the distances."""
        powers = [self._power(lane, constants[0] - number) for lane, number in enumerate(numbers)]
        if not self.config.masked:
            return powers
        kept = [
            self.moved_by(f"kept_{lane}", flag, self.config.latency - 2)
            for lane, flag in enumerate(self._kept("applied", self.read))
        ]
        return [power & flag.replicate(len(power)) for power, flag in zip(powers, kept, strict=True)]

    def _kept(self, name: str, advance: Value) -> list[Value]:
        """Return for each lane whether a mask keeps its element, one cycle after `advance`, the cycle of its beat."""
        config, m = self.config, self.m
        words = pack_words(config.flags, 1)
        make = logic_rom if len(words) <= LOGIC_POWERS else block_ram
        m.submodules[name] = memory = make(len(words), config.lanes, words)
        reader = memory.read_port()
        m.d.comb += [reader.addr.eq(self.count(f"{name}_beat", advance, len(words))), reader.en.eq(advance)]
        return list(reader.data)

    def _power(self, lane: int, distance: Value) -> Value:
        """Return the power of the distance of one lane."""
        config, m = self.config, self.m
        words = config.words.tolist()
        shape = unsigned(max(1, config.span.bit_length()))
        # A removed element may be greater than the greatest one: its distance wraps, and its power is gated afterwards.
        distance = self.moved(f"distance_{lane}", distance, shape=shape)
        if config.clamped:
            last = len(words) - 1
            shape = unsigned(max(1, last.bit_length()))
            distance = self.moved(f"clamped_{lane}", Mux(distance > last, last, distance), shape=shape)
        make = logic_rom if config.in_logic else block_ram
        m.submodules[f"powers_{lane}"] = memory = make(len(words), config.element.bits, words)
        reader = memory.read_port()
        m.d.comb += [reader.addr.eq(distance), reader.en.eq(self.ce)]
        return reader.data


class SharesEngine(RowEngine):
    """The sum of powers in front of the buffer, products with its reciprocal behind it.

    Timing: see `nnhw.engines.softmax.SharesConfig`.
    """

    def __init__(self, config: SharesConfig) -> None:
        self.config = config
        super().__init__(config, config.raw, config.requantizer)

    def collect(self, take: Value, first: Value) -> Sequence[Value]:
        """Return the sum of a row."""
        return [self.summed("sum", self.incoming(), self.config.total, (take, first))]

    def solve(self, collected: Sequence[Value]) -> Sequence[Value]:
        """Return the reciprocal of the sum, and further places by which products are shifted down."""
        m, config = self.m, self.config
        loaded = config.collect_levels + 1
        dividing = loaded + config.most_shifts
        divisor = Signal(config.total.bits, reset_less=True)
        down = Signal(range(config.most_shifts + 1), reset_less=True)
        moving = self.span("moving", loaded, config.most_shifts)
        with m.If(self.step == loaded - 1):
            m.d.sync += [divisor.eq(collected[0]), down.eq(config.most_shifts)]
        with m.Elif(moving & ~divisor[-1]):
            m.d.sync += [divisor.eq(divisor << 1), down.eq(down - 1)]
        running = self.span("dividing", dividing, RECIPROCAL_BITS)
        bit = self.divided(running, self.step == dividing - 1, (1 << config.total.bits - 1) - 1, divisor)
        quotient = Signal(RECIPROCAL_BITS, reset_less=True)
        with m.If(running):
            m.d.sync += quotient.eq(Cat(bit, quotient[:-1]))
        return [quotient, down]

    def apply(self, numbers: Sequence[Value], constants: Sequence[Value]) -> Sequence[Value]:
        """Return the shares: each power times the reciprocal, shifted, rounded, and at most the greatest share."""
        config, (factor, down) = self.config, constants
        pairs = [(number, factor) for number in numbers]
        results = products(self.m, self.ce, self.cells, config.factor, pairs, "product")
        down = self.moved_by("held_down", down, config.factor.levels)
        base = 2 * MOST_FRACTION_BITS - config.op.bits
        shares = self.rounded(results, base, down, config.most_shifts, IntType(0, 1 << config.op.bits))
        if not config.clamped:
            return shares
        high, shape = config.op.high, number_shape(config.raw)
        return [
            self.moved(f"share_{lane}", Mux(share > high, high, share), shape=shape)
            for lane, share in enumerate(shares)
        ]
