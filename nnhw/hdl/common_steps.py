"""Hardware of steps that all channels share: a multiply-add, the rank of the number among the steps, one comparison."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Value, unsigned

from nnhw.engines.encoding import encode
from nnhw.engines.requantize import CommonSteps
from nnhw.hdl.ranks import place_in_word
from nnhw.hdl.scaling import MultiplyAddUnit


class CommonStepsUnit(MultiplyAddUnit):
    """See `CommonSteps`; each lane has memories of its own.

    Timing: the deepest stage is a block RAM's output, or a register if `registered`, and a comparison, or the sum of a
    word's bits.
    """

    def __init__(self, common: CommonSteps, raw: tuple[int, int], drain: int) -> None:
        self.common = common
        self.logic = common.logic
        super().__init__(common, raw, drain)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        position = self.walk(m)
        raws: list[Value] = [self.i_sums[lane] for lane in range(self.drain)]
        results = self.multiply_add(m, self.common.product, raws, [position] * self.drain)
        for lane, result in enumerate(results):
            count = self._count(m, lane, result.shift_right(self.common.drop))
            if self.common.counts_up:
                self.emit(m, lane, count + (int(self.common.codes[0]) - self.code.low))
            elif self.common.turn is not None:
                self.emit(m, lane, self._turned(m, lane, count, *self.common.turn))
            else:
                codes = encode(self.common.codes, self.code).tolist()
                m.d.comb += self.o_codes[lane].eq(self._read(m, f"codes_{lane}", codes, self.code.bits, count))
        return m

    def _turned(self, m: Module, lane: int, count: Value, turn: int, sign: int) -> Value:
        """Return the index of the code that is sign * |count - turn| above the one at the turn, one move later."""
        base, bits = int(self.common.codes[turn]) - self.code.low, self.code.bits
        up = count >= turn if sign > 0 else count < turn
        # One adder for both: base - turn + count, or base + turn - count, with -count = ~count + 1.
        start = Mux(up, (base - turn) % (1 << bits), (base + turn + 1) % (1 << bits))
        moved = Mux(up, count, ~count)
        return self.register(m, f"turned_{lane}", (start + moved)[:bits])

    def _count(self, m: Module, lane: int, number: Value) -> Value:
        """Return how many steps a number reaches, six moves later, eight if registered."""
        common, wait = self.common, 1 + self.common.registered
        word_start = common.ranked.word_bits
        word = self.register(m, f"word_{lane}", self._clamped(number.shift_right(word_start)))
        cell = self.register(m, f"cell_{lane}", number[common.cell_bits : word_start])
        below, has_step = self._rank(m, lane, word, cell)
        index = self.register(m, f"index_{lane}", below, unsigned(common.ranked.rank_bits))
        has_step = self.delay(m, f"has_step_{lane}", has_step, 1 + wait)
        step = self._read(m, f"places_{lane}", common.ranked.places().tolist(), common.cell_bits, index)
        step = self.delay(m, f"step_{lane}", step, wait - 1)
        place = self.delay(m, f"place_{lane}", number[: common.cell_bits], 2 + 2 * wait)
        reached = self.register(m, f"reached_{lane}", has_step & (place >= step))
        index = self.delay(m, f"index_late_{lane}", index, wait + 1)
        return self.register(m, f"count_{lane}", index + reached, unsigned(common.ranked.rank_bits))

    def _clamped(self, word: Value) -> Value:
        """Return the number of a word, or of the first or the last one: there are as many as bits can tell apart."""
        bits = self.common.words.bit_length() - 1
        outside = word.shift_right(bits)
        low, high = self.common.word_range
        if low < 0:
            kept = Mux(outside.any(), ~word[-1].replicate(bits), word[:bits])
            return kept if high >= self.common.words else Mux(word[-1], 0, word[:bits])
        return word[:bits] | outside.any().replicate(bits) if high >= self.common.words else word[:bits]

    def _rank(self, m: Module, lane: int, word: Value, cell: Value) -> tuple[Value, Value]:
        """Return how many steps lie below a cell, and whether it has one; a memory later, two moves if registered."""
        common = self.common
        cells, wait = 1 << common.cells_log2, 1 + common.registered
        words = common.ranked.ranks(common.words).tolist()
        ranks = self._read(m, f"ranks_{lane}", words, common.ranked.rank_bits + cells, word)
        ranks = self.delay(m, f"rank_{lane}", ranks, wait - 1)
        above = [self.delay(m, f"above_{lane}_{k}", cell > k, wait) for k in range(cells - 1)]
        cell = self.delay(m, f"cell_read_{lane}", cell, wait)
        inside, has_step = place_in_word(ranks[:cells], above, cell)
        return ranks[cells:] + inside, has_step

    def _read(self, m: Module, name: str, words: list[int], bits: int, address: Value) -> Value:
        """Return a memory's word, one move after its address."""
        return self.memory(m, name, words, bits, address, len(words) <= self.common.logic_words)
