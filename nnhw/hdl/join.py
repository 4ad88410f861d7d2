"""Hardware of joins: weighted sum, concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.hdl.arithmetic import as_number
from nnhw.hdl.delivery import deliver, result_buffer

Term = tuple[Value, int]
"""A number of the adder tree, and its sign: +1 if it is to be added, -1 if it is to be subtracted."""


class JoinEngine(wiring.Component):
    """Weighted sum: takes a beat of every input at once; each signed digit of a factor is a term of one adder tree.

    Members
    -------
    i0, i1, ...: streams of the summands. o: stream of codes, or of raw sums without a requantizer.

    Timing: see `nnhw.engines.join.SumConfig`; one addition between two registers.
    """

    def __init__(self, config: SumConfig) -> None:
        self.config = config
        self.raw_shape = signed(config.raw.bits) if config.raw.signed else unsigned(config.raw.bits)
        code = config.requantizer.code if config.requantizer else None
        o_lane = self.raw_shape if code is None else unsigned(code.bits)
        members: dict[str, Any] = {
            f"i{index}": In(stream.Signature(data.ArrayLayout(unsigned(element.bits), config.lanes)))
            for index, element in enumerate(config.inputs)
        }
        super().__init__({**members, "o": Out(stream.Signature(data.ArrayLayout(o_lane, config.lanes)))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        inputs = [getattr(self, f"i{index}") for index in range(len(config.inputs))]
        buffer = result_buffer(m, self.o)
        ce = buffer.i.ready
        valid = taken_together(m, ce, inputs, config.tree_levels)
        sums = [self._tree(m, ce, lane, inputs) for lane in range(config.lanes)]
        deliver(m, buffer, config.requantizer, config.raw, valid, sums)
        return m

    def _tree(self, m: Module, ce: Value, lane: int, inputs: list[Any]) -> Value:
        """Return the sum of one lane, `tree_levels` moves later."""
        config = self.config
        numbers = [as_number(i.payload[lane], element) for i, element in zip(inputs, config.inputs, strict=True)]
        terms: list[Term] = [(numbers[index].shift_left(shift), sign) for index, shift, sign in config.terms]
        for level in range(config.tree_levels):
            last = level == config.tree_levels - 1
            sums = [_add(terms[index : index + 2], last) for index in range(0, len(terms), 2)]
            terms = []
            for index, (value, sign) in enumerate(sums):
                width = min(len(value), self.raw_shape.width)  # sums are modulo 2**raw: higher bits change nothing
                shape = self.raw_shape if last else Shape(width, value.shape().signed)
                register = Signal(shape, name=f"sum_{lane}_{level}_{index}", reset_less=True)
                with m.If(ce):
                    m.d.sync += register.eq(value)
                terms.append((register, sign))
        return terms[0][0]


def taken_together(m: Module, ce: Value, inputs: Sequence[Any], levels: int) -> Value:
    """Take a beat of every input at once; return whether there was one, `levels` moves later.

    Parameters
    ----------
    ce: the pipeline moves in this cycle: only then beats are taken.
    inputs: streams.
    levels: register stages of the pipeline beside which the valid bit goes.
    """
    # No input is ready before all have a beat: so none is ahead of the others, and no beat waits in between.
    take = Signal()
    m.d.comb += take.eq(ce & Cat(*(i.valid for i in inputs)).all())
    m.d.comb += [i.ready.eq(take) for i in inputs]
    valid: Value = take
    for level in range(levels):
        register = Signal(name=f"valid_{level}")
        with m.If(ce):
            m.d.sync += register.eq(valid)
        valid = register
    return valid


def _add(terms: list[Term], last: bool) -> Term:
    """Return the sum of one or two terms as a term.

    Two that are both to be subtracted are added, and their sum is to be subtracted; the `last` of the tree is negated.
    """
    (value, sign), *others = terms
    for other, other_sign in others:
        if sign == other_sign:
            value = value + other
        else:
            value, sign = (value - other if sign > 0 else other - value), 1
    return (-value, 1) if last and sign < 0 else (value, sign)


class Concatenation(wiring.Component):
    """Concatenation: a register that is filled from the inputs in turn, with `chunks[k]` beats of input k.

    Members
    -------
    i0, i1, ...: streams to join. o: stream of all their beats.

    Timing: one beat a cycle, which leaves one cycle after it came in.
    """

    def __init__(self, config: ConcatConfig) -> None:
        self.config = config
        beat = stream.Signature(data.ArrayLayout(unsigned(config.bits), config.lanes))
        super().__init__({**{f"i{index}": In(beat) for index in range(len(config.chunks))}, "o": Out(beat)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        inputs = [getattr(self, f"i{index}") for index in range(len(config.chunks))]
        turn = Signal(len(inputs), init=1)  # one bit for the input whose turn it is
        # `count` is the beat of the input in turn; `last` has a bit for each input, of which `turn` selects one.
        count, move, taken = Signal(range(max(config.chunks))), Signal(), Signal()
        last = Cat(*(count == chunks - 1 for chunks in config.chunks))
        # The first inputs may be constants, which are always there: they wait for the frame to which they belong, whose
        # other beats come from the input behind them.
        behind = inputs[config.constants].valid
        offered = [i.valid & behind if index < config.constants else i.valid for index, i in enumerate(inputs)]
        m.d.comb += [move.eq(~self.o.valid | self.o.ready), taken.eq((Cat(*offered) & turn).any())]
        for index, (i, bit) in enumerate(zip(inputs, turn, strict=True)):
            m.d.comb += i.ready.eq(move & bit & behind if index < config.constants else move & bit)
        with m.If(move):
            m.d.sync += self.o.valid.eq(taken)
            for i, bit in zip(inputs, turn, strict=True):
                with m.If(bit):
                    m.d.sync += self.o.payload.eq(i.payload)
        with m.If(move & taken):
            m.d.sync += count.eq(count + 1)
            with m.If((last & turn).any()):
                m.d.sync += [count.eq(0), turn.eq(turn.rotate_left(1))]
        return m
