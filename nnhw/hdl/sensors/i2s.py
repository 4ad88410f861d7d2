"""The receiver of an I2S microphone, which makes the microphone's clocks."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import cdc, wiring
from amaranth.lib.wiring import In, Out

WORD_BITS, SAMPLE_BITS, SLOT_BITS = 24, 16, 32
"""Bits of a microphone's word, of a sample, and of a slot: 64 bit clocks are a frame, as such microphones ask for."""


class I2sReceiver(wiring.Component):
    """Takes the left slot of each I2S frame: 24 bits, the highest first, one bit clock behind the edge of `ws`.

    A sample of 16 bits is the word without its lowest 8 - gain_log2 bits, saturated.

    Parameters
    ----------
    half_cycles: clock cycles of half a bit clock, 4 or more.
    gain_log2: logarithm of the gain, 0 to 8.

    Members
    -------
    sd: In(1), asynchronous: the microphone's data, which change where `bclk` falls.
    bclk, ws: Out(1): registers. `ws` is 0 in the left slot, and changes where `bclk` falls.
    sample, take: Out(16), Out(1): a sample, with a strobe, once in 128 * half_cycles cycles.

    Timing: a bit is read in the cycle in which the next one begins, two cycles behind the pin. The first sample is of
    the first slot that begins after the reset.
    """

    def __init__(self, half_cycles: int, gain_log2: int = 0) -> None:
        self.half_cycles = half_cycles
        self.gain_log2 = gain_log2
        super().__init__(
            {
                **{"sd": In(1), "bclk": Out(1), "ws": Out(1, init=1)},
                **{"sample": Out(signed(SAMPLE_BITS)), "take": Out(1)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line, elapsed = Signal(), Signal(range(self.half_cycles))
        # Bits 0 to 31 are the left slot, and the start is in the right one.
        place, word = Signal(range(2 * SLOT_BITS), init=SLOT_BITS), Signal(WORD_BITS)
        tick, falls = Signal(), Signal()
        m.submodules.synchronizer = cdc.FFSynchronizer(self.sd, line)
        m.d.comb += [tick.eq(elapsed == self.half_cycles - 1), falls.eq(tick & self.bclk)]
        m.d.sync += elapsed.eq(Mux(tick, 0, elapsed + 1))
        with m.If(tick):
            m.d.sync += self.bclk.eq(~self.bclk)
        with m.If(falls):
            m.d.sync += [place.eq(place + 1), self.ws.eq((place + 1)[5])]
            with m.If((place >= 1) & (place <= WORD_BITS)):
                m.d.sync += word.eq(Cat(line, word))
        m.d.sync += self.take.eq(falls & (place == WORD_BITS + 1))
        m.d.comb += self.sample.eq(sample_of(word.as_signed(), self.gain_log2))
        return m


def sample_of(word: Value, gain_log2: int) -> Value:
    """Return the sample of 16 bits of a word of 24 bits or more, see `LogMelConfig.samples`."""
    kept = word >> (WORD_BITS - SAMPLE_BITS - gain_log2)
    most = (1 << (SAMPLE_BITS - 1)) - 1
    return Mux(kept > most, most, Mux(kept < ~most, ~most, kept))
