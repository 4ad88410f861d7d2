"""The receiver of a PDM microphone: its clock, and the filter that makes samples of its bits."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import cdc, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.sensors.i2s import SAMPLE_BITS, sample_of
from nnhw.sensors.pdm import DECIMATION, GAIN_LOG2, ORDER, WORD_SHIFT


class PdmReceiver(wiring.Component):
    """Makes a sample of each 128 bits, as `nnhw.sensors.pdm.filtered` and `LogMelConfig.samples` say.

    Parameters
    ----------
    bit_cycles: clock cycles of a bit, 8 or more.
    gain_log2: logarithm of the gain, 0 to 8.

    Members
    -------
    data: In(1), asynchronous: the microphone's bit, which changes where `clk` falls.
    clk: Out(1), a register, high at the start.
    sample, take: Out(16), Out(1): a sample, with a strobe, once in 128 * bit_cycles cycles.

    Timing: a bit is read in the cycle in front of the rise of `clk`, two cycles behind the pin.
    """

    def __init__(self, bit_cycles: int, gain_log2: int = 0) -> None:
        self.bit_cycles = bit_cycles
        self.gain_log2 = gain_log2
        ports = {"sample": Out(signed(SAMPLE_BITS)), "take": Out(1)}
        super().__init__({"data": In(1), "clk": Out(1, init=1), **ports})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # One bit more than the largest number has, as that number is a power of two.
        shape = signed(GAIN_LOG2 + 2)
        line, elapsed, tick = Signal(), Signal(range(self.bit_cycles)), Signal()
        place, complete = Signal(range(DECIMATION)), Signal()
        m.submodules.synchronizer = cdc.FFSynchronizer(self.data, line)
        m.d.comb += tick.eq(elapsed == self.bit_cycles - 1)
        m.d.sync += [elapsed.eq(Mux(tick, 0, elapsed + 1)), complete.eq(tick & (place == DECIMATION - 1))]
        with m.If(tick | (elapsed == self.bit_cycles // 2 - 1)):
            m.d.sync += self.clk.eq(tick)
        # A CIC filter: integrators at the rate of the bits, then as many differences at that of the samples. The sums
        # overflow all the time, which the differences undo, as both are modulo the same power of two.
        sums = [Signal(shape, name=f"sum_{number}") for number in range(ORDER)]
        with m.If(tick):
            m.d.sync += [place.eq(place + 1), sums[0].eq(sums[0] + Mux(line, 1, -1))]
            m.d.sync += [sums[number].eq(sums[number] + sums[number - 1]) for number in range(1, ORDER)]
        self._differences(m, complete, sums[-1])
        return m

    def _differences(self, m: Module, complete: Signal, total: Signal) -> None:
        """Subtract the sample before, three times, a cycle each; `complete` says that `total` is that of a sample."""
        value = total
        for number in range(ORDER):
            before, result, done = Signal.like(total), Signal.like(total), Signal(name=f"done_{number}")
            m.d.sync += done.eq(complete)
            with m.If(complete):
                m.d.sync += [result.eq(value - before), before.eq(value)]
            value, complete = result, done
        m.d.comb += [self.sample.eq(sample_of(value << WORD_SHIFT, self.gain_log2)), self.take.eq(complete)]
