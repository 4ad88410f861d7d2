"""Hardware of the channelwise engine."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import encode, pack_words
from nnhw.hdl.arithmetic import as_number, dot_product, dsp_dot_product
from nnhw.hdl.cells import Cells, cells_of
from nnhw.hdl.delivery import deliver, result_buffer
from nnhw.hdl.memory import block_ram, logic_rom


class ChannelwiseEngine(wiring.Component):
    """A pipeline: operands, a tree over the taps of one beat, a ring of running results, a requantizer.

    All of it moves in the cycles in which the output buffer has room (`ce`), else it stands still.

    Timing: see `nnhw.engines.channelwise.ChannelwiseConfig`.
    """

    def __init__(self, config: ChannelwiseConfig) -> None:
        self.config = config
        raw = config.raw
        self.is_number = not raw.bipolar  # a maximum of bipolar elements stays one bit: the OR of theirs
        self.raw_shape = signed(raw.bits) if raw.signed and self.is_number else unsigned(raw.bits)
        o_lane = self.raw_shape if config.requantizer is None else unsigned(config.requantizer.code.bits)
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(unsigned(config.activation.bits), config.i_lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(o_lane, config.lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        buffer = result_buffer(m, self.o)
        self._ce = ce = buffer.i.ready
        m.d.comb += self.i.ready.eq(ce)
        elements, valid = [self.i.payload[lane] for lane in range(config.i_lanes)], Value.cast(self.i.valid)
        weights: list[Value] = []
        if config.op == "dot":
            weights = self._weights(m, valid)
            elements = [self._register(m, f"element_{lane}", value) for lane, value in enumerate(elements)]
        # The ring makes its own valid bit, so this shift register ends in front of it.
        moves = config.raw_latency - (config.steps > 1)
        valids = [valid]
        for move in range(moves):
            valids.append(self._register(m, f"valid_{move}", valids[-1], reset_less=False))
        results = [
            self._tree(m, lane, elements[lane :: config.lanes], weights[lane :: config.lanes], cells_of(platform))
            for lane in range(config.lanes)
        ]
        valid = valids[-1]
        if config.steps > 1:
            valid, results = self._ring(m, valids[-2], valid, results)
        if config.requantizer is not None and not self.is_number:
            results = [as_number(result, config.raw) for result in results]
        deliver(m, buffer, config.requantizer, config.raw, valid, results)
        return m

    def _register(self, m: Module, name: str, value: Value, reset_less: bool = True) -> Signal:
        """Return `value` one move later."""
        register = Signal(value.shape(), name=name, reset_less=reset_less)
        with m.If(self._ce):
            m.d.sync += register.eq(value)
        return register

    def _count(self, m: Module, name: str, advance: Value, total: int) -> tuple[Signal, Value]:
        """Count the moves in which `advance` is 1, modulo `total`; return the count, and whether it is `total` - 1."""
        count = Signal(range(total), name=name)
        last = count == total - 1
        with m.If(self._ce & advance):
            m.d.sync += count.eq(Mux(last, 0, count + 1))
        return count, last

    def _weights(self, m: Module, valid: Value) -> list[Value]:
        """Add the weight memory; return the weights [i_lanes] of a beat one move after it."""
        config = self.config
        assert config.weight is not None
        # One word for each beat of a window: [step, chunk], the lanes of a word as in the beat, row lane outermost.
        shape = (config.chunks, config.lanes, config.steps, config.row_lanes)
        patterns = encode(config.factors, config.weight).reshape(shape).transpose(2, 0, 3, 1)
        depth, bits = config.steps * config.chunks, config.weight.bits
        words = pack_words(patterns.reshape(depth, config.i_lanes), bits)
        address, _ = self._count(m, "address", valid, depth)
        memory = (logic_rom if config.logic_weights else block_ram)(depth, config.i_lanes * bits, words)
        m.submodules.weights = memory
        reader = memory.read_port()
        m.d.comb += [reader.addr.eq(address), reader.en.eq(self._ce)]
        return [reader.data[lane * bits : (lane + 1) * bits] for lane in range(config.i_lanes)]

    def _tree(self, m: Module, lane: int, elements: list[Value], weights: list[Value], cells: Cells) -> Value:
        """Return the raw result of the taps of one beat in one channel, `config.tree_levels` moves later."""
        config = self.config
        if config.op == "dot":
            inner = Module()
            m.submodules[f"lane_{lane}"] = inner
            make = dsp_dot_product if config.dsp else dot_product
            return make(inner, config.arithmetic, elements, weights, self._ce, cells)
        # Bipolar elements stay bits: their raw sum counts the ones, their maximum is an OR.
        terms = elements if config.activation.bipolar else [as_number(x, config.activation) for x in elements]
        for level in range(config.tree_levels):
            pairs = [terms[index : index + 2] for index in range(0, len(terms), 2)]
            results = [self._combine(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
            terms = [self._register(m, f"tree_{lane}_{level}_{index}", result) for index, result in enumerate(results)]
        return terms[0]

    def _combine(self, a: Value, b: Value) -> Value:
        """Return the sum or the maximum of two raw results."""
        if self.config.op != "max":
            return a + b
        return Mux(a > b, a, b) if self.is_number else a | b

    def _ring(self, m: Module, before: Value, valid: Value, terms: list[Value]) -> tuple[Value, list[Value]]:
        """Add the running results: one for each channel of a pixel, combined with the terms of each further beat.

        Parameters
        ----------
        before, valid: there is a beat whose terms come in the next move; whose terms are here in this one.
        terms: sums or maxima of the taps of this beat, one for each lane.

        Returns
        -------
        (the results are those of complete windows, results of all lanes), one move after the terms.
        """
        config, bits = self.config, self.raw_shape.width
        _, row_end = self._count(m, "chunk", valid, config.chunks)
        _, window_end = self._count(m, "step", valid & row_end, config.steps)
        # High while the first beat of each channel passes: it begins a result instead of adding to one.
        first = Signal(init=1)
        with m.If(self._ce & valid & row_end):
            m.d.sync += first.eq(window_end)
        result = Signal(config.lanes * bits, name="result", reset_less=True)
        old = self._memory(m, before, valid, result) if config.ring_in_memory else self._registers(m, valid, result)
        for lane, term in enumerate(terms):
            span = slice(lane * bits, (lane + 1) * bits)
            number = old[span].as_signed() if self.raw_shape.signed else old[span]
            with m.If(self._ce & valid):
                m.d.sync += result[span].eq(Mux(first, term, self._combine(term, number)))
        done = self._register(m, "done", valid & window_end, reset_less=False)
        lanes = [result[lane * bits : (lane + 1) * bits] for lane in range(config.lanes)]
        return done, [lane.as_signed() if self.raw_shape.signed else lane for lane in lanes]

    def _registers(self, m: Module, valid: Value, result: Signal) -> Value:
        """Return the running result of the channel that is in turn, from a shift register of `chunks` results."""
        ring = [result] + [Signal.like(result, name=f"ring_{index}") for index in range(1, self.config.chunks)]
        with m.If(self._ce & valid):
            m.d.sync += [after.eq(before) for before, after in pairwise(ring)]
        return ring[-1]

    def _memory(self, m: Module, before: Value, valid: Value, result: Signal) -> Value:
        """Return the running result of the channel that is in turn, from a memory of `chunks` words.

        A word is read in the move before its terms are there, and written one move after the new result is. With 4
        chunks or more it is written before it is read again, and never in the same move.
        """
        chunks = self.config.chunks
        m.submodules.ring = memory = block_ram(chunks, len(result))
        writer, reader = memory.write_port(), memory.read_port()
        address, _ = self._count(m, "read_address", before, chunks)
        here = self._register(m, "address", address)
        m.d.comb += [
            reader.addr.eq(address),
            reader.en.eq(self._ce),
            writer.addr.eq(self._register(m, "write_address", here)),
            writer.data.eq(result),
            writer.en.eq(self._ce & self._register(m, "written", valid, reset_less=False)),
        ]
        return reader.data
