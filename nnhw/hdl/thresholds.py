"""Hardware of thresholds: raw sums become codes as they drain."""

from __future__ import annotations

import numpy as np
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.encoding import bits_for_range, pack_words
from nnhw.engines.matmul import MatmulConfig
from nnhw.hdl.memory import block_ram, logic_rom


class ThresholdUnit(wiring.Component):
    """Comparators for `drain` sums a cycle; their thresholds come from a ROM that is walked in drain order.

    Members
    -------
    ce: in, the pipeline moves.
    i_valid, i_sums: in, raw sums [drain].
    o_codes: out, their codes [drain] as bit patterns, in the same cycle.
    """

    def __init__(self, config: MatmulConfig) -> None:
        if config.thresholds is None:
            raise ValueError("a threshold unit needs thresholds")
        self.config = config
        self.thresholds = config.thresholds
        bits, is_signed = config.raw_bits
        self.raw_shape = signed(bits) if is_signed else unsigned(bits)
        self.raw_range = low, high = config.arithmetic.raw_range(config.weights)
        self._steps = np.clip(config.thresholds.steps, low, high + 1)
        super().__init__(
            {
                "ce": In(1),
                "i_valid": In(1),
                "i_sums": In(data.ArrayLayout(self.raw_shape, config.drain)),
                "o_codes": Out(data.ArrayLayout(unsigned(config.thresholds.code.bits), config.drain)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self.config.folds * self.config.drains
        index, primed, advance = Signal(range(depth)), Signal(), Signal()
        m.d.comb += advance.eq(self.ce & (self.i_valid | ~primed))  # the ROM is one word ahead of the sums
        with m.If(advance):
            m.d.sync += [index.eq(Mux(index == depth - 1, 0, index + 1)), primed.eq(1)]
        words = self._words()
        bits = self._lane_bits * self.config.drain
        make = logic_rom if self.config.logic_thresholds else block_ram
        m.submodules.rom = rom = make(depth, bits, words)
        reader = rom.read_port()
        m.d.comb += [reader.addr.eq(index), reader.en.eq(advance)]
        for lane in range(self.config.drain):
            word = reader.data[lane * self._lane_bits : (lane + 1) * self._lane_bits]
            m.d.comb += self.o_codes[lane].eq(self._code(m, lane, word))
        return m

    @property
    def _any_descending(self) -> bool:
        return bool(self.thresholds.descending.any())

    @property
    def _levels(self) -> int:
        return int(self.thresholds.steps.shape[1])

    @property
    def _compare_bits(self) -> int:
        """Bits of a threshold: those of a sum, and one more only where a threshold lies above every sum."""
        low, high = int(self._steps.min()), int(self._steps.max())
        return max(self.raw_shape.width, bits_for_range(min(low, self.raw_range[0]), high)[0])

    @property
    def _lane_bits(self) -> int:
        return self._levels * self._compare_bits + self._any_descending

    def _words(self) -> list[int]:
        """Return the ROM: word k holds the thresholds of the sums that leave in move k of a vector."""
        lanes = pack_words(self._steps & ((1 << self._compare_bits) - 1), self._compare_bits)
        if self._any_descending:
            shift = self._levels * self._compare_bits
            lanes = [lane | (int(down) << shift) for lane, down in zip(lanes, self.thresholds.descending, strict=True)]
        drain, bits = self.config.drain, self._lane_bits
        return [
            sum(lane << (position * bits) for position, lane in enumerate(lanes[start : start + drain]))
            for start in range(0, len(lanes), drain)
        ]

    def _code(self, m: Module, lane: int, word: Value) -> Value:
        """Return the code of one sum: how many thresholds it reaches, counted from the low or the high end."""
        total = Signal(range(self._levels + 1), name=f"count_{lane}")
        reached = []
        for level in range(self._levels):
            threshold = word[level * self._compare_bits : (level + 1) * self._compare_bits]
            number = threshold.as_signed() if self.raw_shape.signed else threshold.as_unsigned()
            reached.append(self.i_sums[lane] >= number)
        m.d.comb += total.eq(sum(reached[1:], reached[0]))
        index: Value = total
        if self._any_descending:
            down = word[-1]
            index = Mux(down, self._levels - total, total) if self._levels > 1 else total ^ down
        code = self.thresholds.code
        return Cat(index) if code.bipolar else (index + code.low)
