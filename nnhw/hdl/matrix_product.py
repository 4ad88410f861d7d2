"""Hardware of the matrix product engine: cells that add products of two streams."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.hdl.arithmetic import dot_product, dsp_dot_product
from nnhw.hdl.cells import Cells, cells_of
from nnhw.hdl.delivery import deliver, result_buffer
from nnhw.hdl.join import taken_together


class MatrixProductEngine(wiring.Component):
    """Takes a beat of both operands at once.

    Members
    -------
    i0, i1, o: streams: the left operand, the right one, the results.

    Timing: see `nnhw.engines.matrix_product.MatrixProductConfig`.
    """

    def __init__(self, config: MatrixProductConfig) -> None:
        self.config = config
        self.raw_shape = signed(config.raw.bits) if config.raw.signed else unsigned(config.raw.bits)
        o_lane = self.raw_shape if config.requantizer is None else unsigned(config.requantizer.code.bits)
        left, right = config.lanes
        super().__init__(
            {
                "i0": In(stream.Signature(data.ArrayLayout(unsigned(config.left.bits), left))),
                "i1": In(stream.Signature(data.ArrayLayout(unsigned(config.right.bits), right))),
                "o": Out(stream.Signature(data.ArrayLayout(o_lane, config.drain))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, cells = self.config, cells_of(platform)
        inputs: list[Any] = [self.i0, self.i1]
        buffer = result_buffer(m, self.o)
        ce = buffer.i.ready
        taken = taken_together(m, ce, inputs, 1 + config.tree_levels)
        # What comes waits in a register, which moves into the output of the memory in front where that is a block RAM.
        left, right = (self._register(m, f"operand_{side}", i.payload.as_value(), ce) for side, i in enumerate(inputs))
        sums = [self._cell(m, cell, left, right, ce, cells) for cell in range(config.cells)]
        step = Signal(range(config.steps))
        last = step == config.steps - 1
        with m.If(taken & ce):
            m.d.sync += step.eq(Mux(last, 0, step + 1))
        end: Value = taken & last
        if config.steps > 1:
            sums = self._accumulated(m, sums, taken & ce, step != 0, cells)
            end = self._register(m, "end", end, ce, reset_less=False)
        valid, drained = self._drain(m, sums, end, ce)
        deliver(m, buffer, config.requantizer, config.raw, valid, drained)
        return m

    def _register(self, m: Module, name: str, value: Value, ce: Value, reset_less: bool = True) -> Signal:
        """Return a value one move later."""
        register = Signal(value.shape(), name=name, reset_less=reset_less)
        with m.If(ce):
            m.d.sync += register.eq(value)
        return register

    def _cell(self, m: Module, cell: int, left: Value, right: Value, ce: Value, cells: Cells) -> Value:
        """Add the sum of a beat's products of one cell, `tree_levels` moves later."""
        config = self.config
        factors = [
            [beat.word_select(index * config.simd + lane, bits) for lane in range(config.simd)]
            for beat, index, bits in (
                (left, cell // config.spread, config.left.bits),
                (right, cell, config.right.bits),
            )
        ]
        m.submodules[f"cell_{cell}"] = inner = Module()
        add = dsp_dot_product if config.dsp else dot_product
        return add(inner, config.arithmetic, factors[0], factors[1], ce, cells)

    def _accumulated(self, m: Module, terms: list[Value], take: Value, more: Value, cells: Cells) -> list[Value]:
        """Return the sums of the terms of all beats of a sum, one move later; the first one replaces what was there."""
        sums = []
        for cell, term in enumerate(terms):
            total = Signal(self.raw_shape, name=f"sum_{cell}", reset_less=True)
            following = cells.accumulate(m, total, more, term)
            with m.If(take):
                m.d.sync += total.eq(following)
            sums.append(total)
        return sums

    def _drain(self, m: Module, sums: list[Value], end: Value, ce: Value) -> tuple[Value, list[Value]]:
        """Return whether there are results, and `drain` of them at a time: those of all cells are kept and shifted."""
        config = self.config
        held = [Signal(self.raw_shape, name=f"drain_{cell}", reset_less=True) for cell in range(config.cells)]
        # The next sums are complete when all of these have left, or later: `MatrixProductConfig` sees to that.
        left, valid = Signal(range(config.drains)), Signal()
        with m.If(ce):
            m.d.sync += [valid.eq(end | (left != 0)), left.eq(Mux(end, config.drains - 1, left - (left != 0)))]
            for cell, total in enumerate(sums):
                follower = held[(cell + config.drain) % config.cells]
                m.d.sync += held[cell].eq(Mux(end, total, follower))
        return valid, list(held[: config.drain])
