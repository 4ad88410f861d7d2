"""The lanes of the array: the factors that they take, their products, and their accumulators."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.cycles import lane_latency
from nnhw.hdl.arithmetic import dot_product, dsp_dot_product
from nnhw.hdl.cells import Cells, cells_of
from nnhw.hdl.dsp import DspProducts


class Lanes(wiring.Component):
    """All lanes of the array: each adds `simd` products to its sum in a step.

    In dense records, all lanes take the lowest `simd` codes of the word; in channelwise ones, lane k takes code k of a
    granule, and zeros for its other products. Factors have a register in front of the products, which DSP blocks have
    themselves.

    Members
    -------
    word: in, the word of this step, its codes in the lowest bits.
    outside: in, the word is border: all its codes are `border`.
    border, channelwise, source_slice: in, fields of the descriptor.
    part: in, which word of a granule it is, if granules take several.
    weights: in, a row of weights; in the same cycle as the word with DSP blocks, else one cycle later.
    step: in, the lanes take the word. position: in, with it: it is the last one of a position.
    finish: out, strobe: the sums are complete after the next edge.
    sums: out, sums [lanes].
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        super().__init__(
            {
                "word": In(array.word_bits),
                "outside": In(1),
                "border": In(signed(array.activation_bits)),
                "channelwise": In(1),
                "source_slice": In(range(max(array.slices, 2))),
                "part": In(range(max(array.parts, 2))),
                "weights": In(array.products * array.weight_bits),
                "step": In(1),
                "position": In(1),
                "finish": Out(1),
                "sums": Out(data.ArrayLayout(signed(array.sum_bits), array.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        array, latency = self.array, lane_latency(self.array)
        totals = (self._dsp if array.dsp else self._logic)(m, self._activations(m), cells_of(platform))
        # They go beside the products, as many cycles.
        flags = Cat(self.step & self.position, self._taken(m) & self.step.replicate(array.parts))
        for stage in range(latency):
            register = Signal(len(flags), name=f"flags_{stage}")
            m.d.sync += register.eq(flags)
            flags = register
        position, taken = flags[0], flags[1:]
        m.d.comb += self.finish.eq(position)
        each = array.lanes // array.parts
        for part, takes in enumerate(taken):
            # The next product begins a sum instead of being added to one.
            first = Signal(name=f"first_{part}", init=1)
            with m.If(takes | position):
                m.d.sync += first.eq(position)
            for lane in range(part * each, (part + 1) * each):
                with m.If(takes):
                    total, lane_sum = totals[lane], self.sums[lane]
                    m.d.sync += lane_sum.eq(Mux(first, total, lane_sum + total))
        return m

    def _activations(self, m: Module) -> list[list[Value]]:
        """Return the codes [lanes][simd] that the lanes take."""
        array, bits = self.array, self.array.activation_bits
        common = []
        for product in range(array.simd):
            code = Mux(self.outside, self.border, self.word[product * bits : (product + 1) * bits])
            # In channelwise records a lane has a single product: the other codes count as 0.
            common.append(self._register(m, f"common_{product}", code if not product else self._dense(code)))
        codes = []
        for lane, own in enumerate(self._own()):
            code = Mux(self.channelwise & ~self.outside, own, self._common_code())
            codes.append([self._register(m, f"code_{lane}", code), *common[1:]])
        # A lane of another part of a granule takes the same place of another word, in another step.
        return codes * array.parts

    def _common_code(self) -> Value:
        return Mux(self.outside, self.border, self.word[: self.array.activation_bits])

    def _dense(self, code: Value) -> Value:
        return code & (~self.channelwise).replicate(len(code))

    def _taken(self, m: Module) -> Signal:
        """Return one bit for each part of the lanes: it adds the products of this step."""
        taken = Signal(self.array.parts)
        for part in range(self.array.parts):
            m.d.comb += taken[part].eq(~self.channelwise | (self.part == part))
        return taken

    def _own(self) -> list[Value]:
        """Return the code of each lane of a part in a channelwise record."""
        array, bits = self.array, self.array.activation_bits
        word: Value = self.word
        if array.slices > 1:
            word = word.word_select(self.source_slice, array.granule_bits)
        return [word[lane * bits :][:bits] for lane in range(array.lanes // array.parts)]

    def _register(self, m: Module, name: str, code: Value) -> Value:
        """Return a code one cycle later, or as it is with DSP blocks, which have a register for it."""
        if self.array.dsp:
            return code.as_signed()
        register = Signal(signed(self.array.activation_bits), name=name, reset_less=True)
        m.d.sync += register.eq(code)
        return register

    def _weight(self, lane: int) -> list[Value]:
        """Return the weights [simd] of a lane: a row has the first weight of every lane, then the second ones, ..."""
        bits, lanes = self.array.weight_bits, self.array.lanes
        return [self.weights[(product * lanes + lane) * bits :][:bits] for product in range(self.array.simd)]

    def _dsp(self, m: Module, activations: list[list[Value]], cells: Cells) -> list[Value]:
        """Return the sum of each lane's products, made in DSP blocks: two neighbours may share a block."""
        array = self.array
        a, b = signed(array.activation_bits), signed(array.weight_bits)
        m.submodules.products = products = DspProducts(array.products, a, b)
        m.d.comb += products.ce.eq(1)
        totals = []
        for lane, codes in enumerate(activations):
            for product, (code, weight) in enumerate(zip(codes, self._weight(lane), strict=True)):
                index = lane * array.simd + product
                m.d.comb += [products.i_a[index].eq(code), products.i_b[index].eq(weight.as_signed())]
            terms = [products.o[lane * array.simd + product] for product in range(array.simd)]
            totals.append(_adders(m, f"total_{lane}", terms))
        return totals

    def _logic(self, m: Module, activations: list[list[Value]], cells: Cells) -> list[Value]:
        """Return the sum of each lane's products, made in logic; of `dsp_lanes` lanes in DSP blocks, equally late."""
        array = self.array
        arithmetic = LaneArithmetic(array.activation, array.weight)
        waits = arithmetic.tree_levels(array.simd) - arithmetic.dsp_levels(array.simd)
        totals = []
        for lane, codes in enumerate(activations):
            m.submodules[f"lane_{lane}"] = inner = Module()
            if lane < array.dsp_lanes:
                total = dsp_dot_product(inner, arithmetic, codes, self._weight(lane), Const(1), cells)
                totals.append(_later(inner, total, waits))
                continue
            totals.append(dot_product(inner, arithmetic, codes, self._weight(lane), Const(1), cells))
        return totals


def _later(m: Module, number: Value, cycles: int) -> Value:
    """Return a number some cycles later."""
    for cycle in range(cycles):
        register = Signal(number.shape(), name=f"late_{cycle}", reset_less=True)
        m.d.sync += register.eq(number)
        number = register
    return number


def _adders(m: Module, name: str, terms: list[Value]) -> Value:
    """Return the sum of terms, added in pairs, a register behind each adder."""
    while len(terms) > 1:
        sums = []
        for index in range(0, len(terms), 2):
            total = terms[index] + terms[index + 1]
            register = Signal(total.shape(), name=f"{name}_{len(terms)}_{index}", reset_less=True)
            m.d.sync += register.eq(total)
            sums.append(register)
        terms = sums
    return terms[0]
