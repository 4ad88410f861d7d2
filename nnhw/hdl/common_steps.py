"""Hardware of steps that all channels share: a multiply-add, the rank of the number among the steps, one comparison."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Value, unsigned

from nnhw.engines.encoding import encode
from nnhw.engines.requantize import CommonSteps
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
            else:
                codes = encode(self.common.codes, self.code).tolist()
                m.d.comb += self.o_codes[lane].eq(self._read(m, f"codes_{lane}", codes, self.code.bits, count))
        return m

    def _count(self, m: Module, lane: int, number: Value) -> Value:
        """Return how many steps a number reaches, eight moves later, ten if registered."""
        common = self.common
        cells, wait = 1 << common.cells_log2, 1 + common.registered
        place, cell = number[: common.cell_bits], number[common.cell_bits : common.cell_bits + common.cells_log2]
        above = number.shift_right(common.cell_bits + common.cells_log2)
        word = self.clamp(m, lane, above, common.word_range, common.words - 1)
        place, cell = (self.delay(m, f"{name}_{lane}", value, 2) for name, value in (("place", place), ("cell", cell)))
        ranks = self._read(m, f"ranks_{lane}", common.ranks().tolist(), common.rank_bits + cells, word)
        ranks = self.delay(m, f"rank_{lane}", ranks, wait - 1)
        lower = [self.delay(m, f"lower_{lane}_{k}", cell > k, wait) for k in range(cells - 1)]
        cell = self.delay(m, f"cell_read_{lane}", cell, wait)
        inside = sum((ranks[k] & lower[k] for k in range(1, cells - 1)), ranks[0] & lower[0])
        steps = self.register(m, f"inside_{lane}", inside, unsigned((cells - 1).bit_length()))
        below = self.register(m, f"below_word_{lane}", ranks[cells:])
        has_step = self.register(m, f"has_step_{lane}", ranks[:cells].bit_select(cell, 1))
        index = self.register(m, f"rank_sum_{lane}", below + steps, unsigned(common.rank_bits))
        has_step = self.delay(m, f"has_step_late_{lane}", has_step, 1 + wait)
        step = self._read(m, f"places_{lane}", common.places().tolist(), common.cell_bits, index)
        step = self.delay(m, f"step_{lane}", step, wait - 1)
        place = self.delay(m, f"place_read_{lane}", place, 2 * wait + 2)
        # A carry is whether a place reaches a step: no LUT stands between the two and the chain.
        reached = self.register(m, f"reached_{lane}", has_step & (place >= step))
        index = self.delay(m, f"index_late_{lane}", index, wait + 1)
        return self.register(m, f"count_{lane}", Cat(index, Const(0, 1)) + reached, unsigned(common.rank_bits))

    def _read(self, m: Module, name: str, words: list[int], bits: int, address: Value) -> Value:
        """Return a memory's word, one move after its address."""
        return self.memory(m, name, words, bits, address, len(words) <= self.common.logic_words)
