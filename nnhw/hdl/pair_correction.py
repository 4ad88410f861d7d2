"""Subtracts from sums of products of pairs of lanes what they have too much, see `nnhw.engines.inner_product`."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.encoding import pack_words
from nnhw.engines.inner_product import InnerProduct
from nnhw.engines.matmul import MatmulConfig
from nnhw.hdl.arithmetic import crossed_dot_product, wait
from nnhw.hdl.cells import cells_of
from nnhw.hdl.memory import logic_rom


class PairCorrection(wiring.Component):
    """Adds the products of neighbouring activations, and takes them from sums that leave an array.

    Members
    -------
    ce: In(1), the registers move on in this cycle (a move). cells_ce: In(1), a copy of it for the array's cells.
    i_lanes: in, activations [simd] as bit patterns, as the cells whose sums leave first see them.
    i_valid, i_last: In(1), there is a beat, and it is the last one of its fold, whose activations were at `i_lanes`
        `config.crossed_levels` moves ago.
    i_end: In(1), `i_last`, a move later where a fold has several beats.
    i_leaves, i_sums: in, `i_leaves` is 1 in the move at whose end `i_sums` become the next sums [drain] to leave.
    o_leaves, o_sums: out, the same of the sums without what they have too much.

    Timing: corrected sums leave `config.crossed_wait` + 1 moves later. What is taken from the sums of a fold is there
    when the first of them has waited, and stays until the next fold ends.
    """

    def __init__(self, config: MatmulConfig) -> None:
        self.config = config
        self.pairs = InnerProduct(config.arithmetic)
        self.bits = config.raw_bits[0]
        sums = config.drain * self.bits
        super().__init__(
            {
                "ce": In(1),
                "cells_ce": In(1),
                "i_lanes": In(config.simd * config.activation.bits),
                "i_valid": In(1),
                "i_last": In(1),
                "i_end": In(1),
                "i_leaves": In(1),
                "i_sums": In(sums),
                "o_leaves": Out(1),
                "o_sums": Out(sums),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits, cells = self.bits, cells_of(platform)
        crossed = self._crossed(m, platform)
        soon, leaves, sums = self._late(m)
        constants = self._constants(m, soon)
        difference, corrected = Signal(len(sums), reset_less=True), Signal(len(sums), reset_less=True)
        m.d.comb += self.o_sums.eq(corrected)
        with m.If(self.ce):
            m.d.sync += self.o_leaves.eq(leaves)
        for lane in range(self.config.drain):
            part = slice(lane * bits, (lane + 1) * bits)
            less = cells.add_few(constants[part], crossed, minus=True)[:bits]
            whole = cells.add(m, sums[part], difference[part], bits)
            with m.If(self.ce):
                m.d.sync += [difference[part].eq(less), corrected[part].eq(whole)]
        return m

    def _crossed(self, m: Module, platform: object) -> Signal:
        """Return the sum of the products of neighbouring activations of the last fold that has ended."""
        config, ce, cells = self.config, self.cells_ce, cells_of(platform)
        width = config.activation.bits
        activations: list[Value] = [self.i_lanes[lane * width : (lane + 1) * width] for lane in range(config.simd)]
        m.submodules.products = inner = Module()
        term = crossed_dot_product(inner, self.pairs, activations, ce, cells)
        term = wait(inner, term, self.pairs.crossed_levels(config.simd), config.crossed_levels, ce)
        if config.steps > 1:
            more, total = Signal(), Signal(self.bits, reset_less=True)
            following = cells.accumulate(m, total, more, term)
            with m.If(ce & self.i_valid):
                m.d.sync += [more.eq(~self.i_last), total.eq(following)]
            term = total
        crossed = Signal(self.bits, reset_less=True)
        with m.If(ce & self.i_end):
            m.d.sync += crossed.eq(term)
        return crossed

    def _late(self, m: Module) -> tuple[Value, Value, Value]:
        """Return `i_leaves` one move before the sums, `i_leaves`, and `i_sums`, after as many moves as they wait."""
        soon, leaves, sums = self.i_leaves, self.i_leaves, self.i_sums
        for stage in range(self.config.crossed_wait):
            later, waiting = Signal(len(sums), name=f"late_{stage}", reset_less=True), Signal(name=f"leaves_{stage}")
            with m.If(self.ce):
                m.d.sync += [later.eq(sums), waiting.eq(leaves)]
            soon, leaves, sums = leaves, waiting, later
        return soon, leaves, sums

    def _constants(self, m: Module, soon: Value) -> Value:
        """Return the constants of the sums that leave next, one after another [drain]; see `InnerProduct.constants`.

        Parameters
        ----------
        soon: 1 a move before sums leave, in which their constants are read.
        """
        bits, drain = self.bits, self.config.drain
        words = pack_words(self.pairs.constants(self.config.weights).reshape(-1, drain) & ((1 << bits) - 1), bits)
        if len(words) == 1:
            return Const(words[0], drain * bits)
        index = Signal(range(len(words)))
        m.submodules.constants = memory = logic_rom(len(words), drain * bits, words)
        reader = memory.read_port()
        m.d.comb += [reader.addr.eq(index), reader.en.eq(self.ce)]
        with m.If(self.ce & soon):
            m.d.sync += index.eq(Mux(index == len(words) - 1, 0, index + 1))
        return reader.data
