"""What the hardware of all requantizers has in common: ports, the walk over the channels, constants, delays."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.encoding import bits_for_range
from nnhw.engines.requantize import Requantizer
from nnhw.hdl.memory import block_ram, logic_rom


class RequantizerUnit(wiring.Component):
    """From raw sums to codes, `drain` of them in a move, in the order of the channels, over and over.

    Parameters
    ----------
    requantizer: what to compute.
    raw: (lowest, highest) raw sum; gives `i_sums` its shape.
    drain: lanes; divides the channels.

    Members
    -------
    ce: In(1), the pipeline moves in this cycle: all registers take their next values; with 0 it stands still.
    i_valid: In(1), there are sums. i_sums: in, raw sums [drain].
    o_valid: Out(1), there are codes. o_codes: out, codes [drain] as bit patterns.

    Timing: codes follow their sums by `requantizer.latency` moves.
    """

    def __init__(self, requantizer: Requantizer, raw: tuple[int, int], drain: int) -> None:
        self.drain = drain
        self.code = requantizer.code
        self.latency = requantizer.latency
        self.depth = requantizer.outputs // drain
        self.raw_range = raw
        bits, is_signed = bits_for_range(*raw)
        self.raw_shape = signed(bits) if is_signed else unsigned(bits)
        super().__init__(
            {
                "ce": In(1),
                "i_valid": In(1),
                "i_sums": In(data.ArrayLayout(self.raw_shape, drain)),
                "o_valid": Out(1),
                "o_codes": Out(data.ArrayLayout(unsigned(requantizer.code.bits), drain)),
            }
        )

    def register(self, m: Module, name: str, value: Value, shape: ShapeLike | None = None) -> Signal:
        """Return `value` one move later."""
        register = Signal(value.shape() if shape is None else shape, name=name, reset_less=True)
        with m.If(self.ce):
            m.d.sync += register.eq(value)
        return register

    def delay(self, m: Module, name: str, value: Value, moves: int) -> Value:
        """Return `value` as it was `moves` moves ago."""
        for move in range(moves):
            value = self.register(m, f"{name}_{move + 1}", value)
        return value

    def delay_all(self, m: Module, name: str, values: list[Value], moves: int) -> list[Value]:
        """Return the values [lanes] as they were `moves` moves ago; lanes with the same value share its registers."""
        if all(value is values[0] for value in values):
            return [self.delay(m, name, values[0], moves)] * len(values)
        return [self.delay(m, f"{name}_{lane}", value, moves) for lane, value in enumerate(values)]

    def walk(self, m: Module) -> Signal:
        """Drive `o_valid`; return the position of the arriving sums: their channels are position * drain and on."""
        position = Signal(range(self.depth))
        with m.If(self.ce & self.i_valid):
            m.d.sync += position.eq(Mux(position == self.depth - 1, 0, position + 1))
        valid: Value = self.i_valid
        for move in range(self.latency):
            register = Signal(name=f"valid_{move + 1}")
            with m.If(self.ce):
                m.d.sync += register.eq(valid)
            valid = register
        m.d.comb += self.o_valid.eq(valid)
        return position

    def constants(
        self, m: Module, name: str, rows: Sequence[int], bits: int, addresses: Sequence[Value], logic: bool
    ) -> list[Value]:
        """Return a constant for each lane, that of its channel, one move after the address.

        Parameters
        ----------
        rows: bit patterns, channel by channel: one for each channel, or a power of two of them.
        bits: bits of a pattern.
        addresses: of each lane: the position; or, with several patterns a channel, the position above the pattern's
            number, so that each lane has a memory of its own.
        logic: the memories are in logic; else in block RAM.
        """
        # Patterns of a channel.
        each = len(rows) // (self.depth * self.drain)
        # Equal in all channels: no memory, and no delay, as a constant is there at any time.
        if len(set(rows)) == 1:
            return [Const(rows[0], bits)] * self.drain
        if each > 1:
            own = [[rows[k + part] for k in range(lane * each, len(rows), self.drain * each) for part in range(each)]
                   for lane in range(self.drain)]  # fmt: skip
            return [
                self.memory(m, f"{name}_{lane}", words, bits, addresses[lane], logic) for lane, words in enumerate(own)
            ]
        words = pack_lanes(rows, bits, self.drain)
        word = self.memory(m, name, words, bits * self.drain, addresses[0], logic)
        return [word[lane * bits : (lane + 1) * bits] for lane in range(self.drain)]

    def memory(self, m: Module, name: str, words: Sequence[int], bits: int, address: Value, logic: bool) -> Value:
        """Add a read-only memory, in logic or in block RAM; return its word, one move after its address."""
        if len(words) == 1:
            return Const(words[0], bits)
        m.submodules[name] = memory = (logic_rom if logic else block_ram)(len(words), bits, words)
        reader = memory.read_port()
        m.d.comb += [reader.addr.eq(address), reader.en.eq(self.ce)]
        return reader.data

    def emit(self, m: Module, lane: int, index: Value) -> None:
        """Drive the code of a lane from its index, which is in range and counts from the lowest code."""
        m.d.comb += self.o_codes[lane].eq(Cat(index) if self.code.bipolar else index + self.code.low)

    def clamp(self, m: Module, lane: int, value: Value, ends: tuple[int, int], span: int) -> Value:
        """Return `value` clamped to 0..span, two moves later.

        Parameters
        ----------
        ends: (lowest, highest) value that there can be: a comparison that can never be true is left out.
        """
        bits = max(span.bit_length(), 1)
        below, above = (
            self.register(m, f"{name}_{lane}", flag) if occurs else Const(0, 1)
            for name, occurs, flag in (("below", ends[0] < 0, value < 0), ("above", ends[1] > span, value > span))
        )
        kept = self.register(m, f"kept_{lane}", value[:bits], unsigned(bits))
        return self.register(m, f"index_{lane}", Mux(below, 0, Mux(above, span, kept)), unsigned(bits))


def pack_lanes(rows: Sequence[int], bits: int, lanes: int) -> list[int]:
    """Return words of `lanes` bit patterns each, the first in the lowest bits; Python integers of any width."""
    return [
        sum(row << (lane * bits) for lane, row in enumerate(rows[start : start + lanes]))
        for start in range(0, len(rows), lanes)
    ]
