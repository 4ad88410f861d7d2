"""Hardware of the pairwise engine: product, maximum and minimum of two streams."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.pairwise import PairConfig, number_bits
from nnhw.hdl.arithmetic import as_number
from nnhw.hdl.cells import Cells, cells_of
from nnhw.hdl.cells.base import gated
from nnhw.hdl.delivery import deliver, result_buffer
from nnhw.hdl.dsp import DspProducts
from nnhw.hdl.join import taken_together


class PairwiseEngine(wiring.Component):
    """Takes a beat of both inputs at once; results leave through a buffer.

    Members
    -------
    i0, i1: streams of the operands. o: stream of codes, or of raw results without a requantizer.

    Timing: see `nnhw.engines.pairwise.PairConfig`.
    """

    def __init__(self, config: PairConfig) -> None:
        self.config = config
        raw, code = config.raw, config.requantizer.code if config.requantizer else None
        is_number = code is None and raw.signed and not raw.bipolar
        o_lane = signed(raw.bits) if is_number else unsigned((code or raw).bits)
        super().__init__(
            {
                "i0": In(stream.Signature(data.ArrayLayout(unsigned(config.left.bits), config.lanes))),
                "i1": In(stream.Signature(data.ArrayLayout(unsigned(config.right.bits), config.lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(o_lane, config.lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        inputs: list[Any] = [self.i0, self.i1]
        buffer = result_buffer(m, self.o)
        ce = buffer.i.ready
        valid = taken_together(m, ce, inputs, config.levels)
        pairs = [
            (as_number(self.i0.payload[lane], config.left), as_number(self.i1.payload[lane], config.right))
            for lane in range(config.lanes)
        ]
        if config.op == "product":
            results = products(m, ce, cells_of(platform), config, pairs)
        else:
            results = [_extreme(m, ce, config, lane, *pair) for lane, pair in enumerate(pairs)]
        deliver(m, buffer, config.requantizer, config.raw, valid, results)
        return m


def _extreme(m: Module, ce: Value, config: PairConfig, lane: int, left: Value, right: Value) -> Value:
    """Return the maximum or the minimum of two numbers, one move later."""
    raw = config.raw
    # Of a bipolar result the number, -1 or +1, takes two bits.
    shape = signed(number_bits(raw)) if raw.signed else unsigned(raw.bits)
    result = Signal(shape, name=f"extreme_{lane}", reset_less=True)
    chosen = left > right if config.op == "maximum" else left < right
    with m.If(ce):
        m.d.sync += result.eq(Mux(chosen, left, right))
    # A bipolar result that leaves as it is is one bit, 1 for +1: the inverted sign.
    return ~result[-1] if raw.bipolar and config.requantizer is None else result


def products(
    m: Module, ce: Value, cells: Cells, config: PairConfig, pairs: list[tuple[Value, Value]], name: str = "product"
) -> list[Value]:
    """Return the products of pairs of numbers, as many moves later as `PairConfig.levels` says.

    Parameters
    ----------
    ce: the registers move.
    cells: of which products in logic are made.
    config: how they are made.
    name: of the registers.
    """
    if not config.dsp:
        return [_Product(m, ce, cells, f"{name}_{lane}").of(*pair) for lane, pair in enumerate(pairs)]
    left, right = pairs[0]
    m.submodules[f"{name}s"] = unit = DspProducts(len(pairs), left.shape(), right.shape())
    m.d.comb += unit.ce.eq(ce)
    for lane, (a, b) in enumerate(pairs):
        m.d.comb += [unit.i_a[lane].eq(a), unit.i_b[lane].eq(b)]
    return list(unit.o)


class _Product:
    """A product in logic: for each bit of the narrower factor, a row, the other factor is added where the bit is set.

    The first level adds pairs of rows, with the gates in the cells of the adders as far as the family allows; each
    further level adds pairs of sums. Registers follow each level.

    Parameters
    ----------
    m: the module to add the logic to.
    ce: enables all registers.
    cells: the family's adders.
    name: prefix of the registers' names.
    """

    def __init__(self, m: Module, ce: Value, cells: Cells, name: str) -> None:
        self.m, self.ce, self.cells, self.name = m, ce, cells, name
        self.levels = 0

    def of(self, left: Value, right: Value) -> Value:
        """Return the product of two numbers, as many moves later as `PairConfig.levels` says."""
        # Of two factors of one width, the unsigned one has no row that is subtracted.
        narrow, wide = sorted((left, right), key=lambda number: (len(number), number.shape().signed))
        terms = [self._rows(wide, narrow, bit) for bit in range(0, len(narrow), 2)]
        # The highest row of a signed factor counts negative: where it has no partner, the next level subtracts it.
        negative = narrow.shape().signed and len(narrow) % 2 == 1
        # A signed number of one bit is 0 or -1: then there is no further level that could subtract.
        if len(narrow) == 1 and negative:
            terms, negative = [-terms[0]], False
        terms, shift = self._register(terms), 2
        while len(terms) > 1:
            rest = terms[len(terms) - len(terms) % 2 :]
            pairs = list(zip(terms[::2], terms[1::2], strict=False))
            sums = [_shifted_sum(low, high, shift, negative and not rest and high is terms[-1]) for low, high in pairs]
            terms, shift, negative = self._register([*sums, *rest]), 2 * shift, negative and bool(rest)
        return terms[0]

    def _rows(self, wide: Value, narrow: Value, bit: int) -> Value:
        """Return row `bit` plus twice the next row, in units of row `bit`; a last row alone as it is."""
        if bit + 1 == len(narrow):
            return gated(wide, narrow[bit])
        # The lowest bit of the lower row has no counterpart: it passes by the adder.
        upper_bits = wide[1:].as_signed() if wide.shape().signed else wide[1:]
        if bit + 2 == len(narrow) and narrow.shape().signed:
            upper = gated(upper_bits, narrow[bit]) - gated(wide, narrow[bit + 1])
        else:
            upper = self.cells.add_gated(self.m, (upper_bits, narrow[bit]), (wide, narrow[bit + 1]))
        total = Cat(wide[0] & narrow[bit], upper)
        return total.as_signed() if upper.shape().signed else total

    def _register(self, values: list[Value]) -> list[Value]:
        """Return registers of the values, the next level of the tree."""
        terms = [
            Signal(value.shape(), name=f"{self.name}_{self.levels}_{index}", reset_less=True)
            for index, value in enumerate(values)
        ]
        with self.m.If(self.ce):
            self.m.d.sync += [term.eq(value) for term, value in zip(terms, values, strict=True)]
        self.levels += 1
        return list(terms)


def _shifted_sum(low: Value, high: Value, shift: int, minus: bool) -> Value:
    """Return low + (high << shift), or low - (high << shift); the lowest `shift` bits pass by the adder."""
    above = low[shift:].as_signed() if low.shape().signed else low[shift:]
    upper = above - high if minus else above + high
    total = Cat(low[:shift], upper)
    return total.as_signed() if upper.shape().signed else total
