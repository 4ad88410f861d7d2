"""The engine of `LogMelConfig`: one multiplier that computes window, DFT and powers in sequence."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.dsp import DspProducts
from nnhw.hdl.memory import block_ram
from nnhw.sensors.log_mel import (
    COSINE_ONE,
    DFT_SHIFT,
    LOG_STEPS_LOG2,
    MANTISSA_BITS,
    WEIGHT_BITS,
    WINDOW_SHIFT,
    LogMelConfig,
)

SAMPLE_BITS, CODE_BITS, SUM_BITS = 16, 8, DFT_SHIFT + 16
"""Bits of a sample, of a code, and of a sum of products; shifted down by `DFT_SHIFT`, a sum has those of a sample."""


class Products(wiring.Component):
    """The multiplier behind three memories: samples, samples times window, and cosines; products are added up.

    Parameters
    ----------
    window: samples of a window.

    Members
    -------
    sample, take: In(16), In(1): a new sample, which takes the place of the oldest one.
    issue: In(1): the factors that `index` and `angle` name begin. windowing: they are a sample and its window;
        squaring: both are `root`; neither: they are a windowed sample and a cosine. Both stay while products are
        pending.
    index, angle: In, numbers of the sample, from the oldest on, and of the cosine.
    root: In(16).
    clear: In(1): the sum becomes 0.
    total: Out, the sum. pending: Out(1): a product has begun that is not in the sum yet.

    Timing: a product is in the sum, or in the memory of windowed samples, four cycles after `issue`.
    """

    def __init__(self, config: LogMelConfig) -> None:
        self.config = config
        self.address = range(config.window)
        members = {"sample": In(signed(SAMPLE_BITS)), "take": In(1), "issue": In(1), "windowing": In(1)}
        members |= {"squaring": In(1), "index": In(self.address), "angle": In(self.address)}
        members |= {"root": In(signed(SAMPLE_BITS)), "clear": In(1), "total": Out(signed(SUM_BITS)), "pending": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        window = self.config.window
        m.submodules.samples = samples = block_ram(window, SAMPLE_BITS)
        m.submodules.windowed = windowed = block_ram(window, SAMPLE_BITS)
        words = [int(one) & 0xFFFF for one in self.config.cosine]
        m.submodules.cosines = cosines = block_ram(window, SAMPLE_BITS, words)
        m.submodules.product = product = DspProducts(1, signed(SAMPLE_BITS), signed(SAMPLE_BITS))
        oldest, done = Signal(self.address), Signal(self.address)
        given, kept, table = samples.read_port(), windowed.read_port(), cosines.read_port()
        newest, result = samples.write_port(), windowed.write_port()
        # Where products are: factors behind the memories, behind the input registers, behind the multiplier.
        stages = Signal(3)
        m.d.sync += stages.eq(Cat(self.issue, stages))
        cosine = table.data.as_signed()
        m.d.comb += [
            newest.addr.eq(oldest),
            newest.data.eq(self.sample),
            newest.en.eq(self.take),
            given.addr.eq((oldest + self.index)[: len(oldest)]),
            kept.addr.eq(self.index),
            table.addr.eq(self.angle),
            product.ce.eq(1),
            product.i_a[0].eq(
                Mux(self.squaring, self.root, Mux(self.windowing, given.data.as_signed(), kept.data.as_signed()))
            ),
            product.i_b[0].eq(
                Mux(self.squaring, self.root, Mux(self.windowing, (COSINE_ONE - cosine)[:16].as_signed(), cosine))
            ),
            result.addr.eq(done),
            result.data.eq(product.o[0][WINDOW_SHIFT:]),
            result.en.eq(stages[2] & self.windowing),
            self.pending.eq(stages.any()),
        ]
        # The memory of samples is a ring, whose size is a power of two: addresses wrap by themselves.
        with m.If(self.take):
            m.d.sync += oldest.eq(oldest + 1)
        with m.If(self.clear):
            m.d.sync += [self.total.eq(0), done.eq(0)]
        with m.Elif(stages[2]):
            m.d.sync += done.eq(done + 1)
            with m.If(~self.windowing):
                m.d.sync += self.total.eq(self.total + product.o[0])
        return m


class BandEnergies(wiring.Component):
    """Adds powers to the two bands in whose filters a bin lies, and takes the logarithm of bands that are complete.

    Members
    -------
    power: In(32), with `start`: the power of the next bin, the first one after the last of a window.
    start: In(1), strobe. busy: Out(1): from the cycle after `start` until the bin is done.
    code, write: Out(8), Out(1): a code, with a strobe; all bands of a window in order.
    last: Out(1): the next bin, or the one that is at work, is the last one of a window.

    Timing: a bin takes WEIGHT_BITS + 2 cycles, and up to the bits of an energy more where a band is complete.
    """

    def __init__(self, config: LogMelConfig) -> None:
        self.config = config
        super().__init__(
            {
                **{"power": In(32), "start": In(1), "busy": Out(1)},
                **{"code": Out(signed(CODE_BITS)), "write": Out(1), "last": Out(1)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bits = self.config, self.config.energy_bits
        weights, ends = config.filters
        words = [int(weight) | int(end) << WEIGHT_BITS for weight, end in zip(weights, ends, strict=True)]
        m.submodules.filters = filters = block_ram(len(words), WEIGHT_BITS + 1, words)
        entry = filters.read_port()
        number, is_first = Signal(range(len(words))), Signal(init=1)
        power, rising, falling = Signal(bits), Signal(bits), Signal(bits)
        left, exponent = Signal(WEIGHT_BITS), Signal(range(bits), init=bits - 1)
        upper, weight = Signal(), Signal(WEIGHT_BITS)
        total = Signal(bits)
        m.d.comb += [
            entry.addr.eq(number),
            self.last.eq(number == len(words) - 1),
            total.eq(Mux(upper, rising, falling) + power),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [power.eq(self.power), upper.eq(0), left.eq((1 << WEIGHT_BITS) - 1)]
                    m.d.sync += weight.eq(entry.data)
                    m.next = "ADD"
            with m.State("ADD"):
                # 16 - t is 1 and the bits that t lacks: so each bit of t adds the power, shifted, to one of the two.
                m.d.comb += self.busy.eq(1)
                with m.If(upper):
                    m.d.sync += rising.eq(total)
                with m.Else():
                    m.d.sync += falling.eq(total)
                m.d.sync += [upper.eq(weight[0]), weight.eq(weight >> 1), left.eq(left >> 1)]
                with m.If(~left.all()):
                    m.d.sync += power.eq(power << 1)
                with m.If(left == 0):
                    m.next = "ENDS"
            with m.State("ENDS"):
                m.d.comb += self.busy.eq(1)
                m.d.sync += [number.eq(Mux(self.last, 0, number + 1)), exponent.eq(bits - 1)]
                m.next = "IDLE"
                with m.If(entry.data[WEIGHT_BITS]):
                    m.next = "NORMALIZE"
            with m.State("NORMALIZE"):
                m.d.comb += self.busy.eq(1)
                with m.If(falling[-1] | (exponent == 0)):
                    m.next = "WRITE"
                with m.Else():
                    m.d.sync += [falling.eq(falling << 1), exponent.eq(exponent - 1)]
            with m.State("WRITE"):
                m.d.comb += [self.busy.eq(1), self.write.eq(~is_first)]
                # `number` is that of the next bin: 0 behind the last one of a window.
                m.d.sync += [falling.eq(rising), rising.eq(0), is_first.eq(0)]
                with m.If(number == 0):
                    m.d.sync += [falling.eq(0), is_first.eq(1)]
                m.next = "IDLE"
        m.d.comb += self.code.eq(self._code(exponent, falling[bits - 1 - MANTISSA_BITS : bits - 1]))
        return m

    def _code(self, exponent: Signal, mantissa: object) -> object:
        fractions = Array([Const(one, unsigned(4)) for one in self.config.fractions])
        code = (exponent << LOG_STEPS_LOG2) + fractions[mantissa] - self.config.offset
        return Mux(code > self.config.high, self.config.high, Mux(code < self.config.low, self.config.low, code))


class LogMelEngine(wiring.Component):
    """Log-mel features of samples as they come, equal to `LogMelConfig.features`.

    Parameters
    ----------
    config: what to compute.

    Members
    -------
    sample, take: In(16), In(1): a sample, with a strobe; they cannot wait.
    code, write: Out(8), Out(1): a code, with a strobe: `bands` of them for each `hop` samples.
    done: Out(1), strobe: all codes of a window have come.

    Timing: `config.step_cycles` at most from the last sample of a window to `done`; the next sample must not come
    within window + 6 cycles after it, see `LogMelConfig.problems`.
    """

    def __init__(self, config: LogMelConfig) -> None:
        self.config = config
        super().__init__(
            {
                **{"sample": In(signed(SAMPLE_BITS)), "take": In(1)},
                **{"code": Out(signed(CODE_BITS)), "write": Out(1), "done": Out(1)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, first = self.config, self.config.bins[0]
        m.submodules.products = products = Products(config)
        m.submodules.energies = energies = BandEnergies(config)
        waiting = Signal(range(config.hop), init=config.hop - 1)
        start, issued = Signal(), Signal()
        index, angle, turn = (Signal(config.window.bit_length() - 1) for _ in range(3))
        # Whether the imaginary part is at work: it comes behind the real one.
        imaginary = Signal()
        root = products.total[DFT_SHIFT:].as_signed()
        m.d.comb += [
            products.sample.eq(self.sample),
            products.take.eq(self.take),
            products.index.eq(index),
            products.angle.eq(angle),
            issued.eq(index == config.window - 1),
            energies.power.eq(products.total[:32]),
            self.code.eq(energies.code),
            self.write.eq(energies.write),
        ]
        m.d.sync += start.eq(self.take & (waiting == 0))
        with m.If(self.take):
            m.d.sync += waiting.eq(Mux(waiting == 0, config.hop - 1, waiting - 1))
        roots = [Signal(signed(SAMPLE_BITS), name=f"root_{part}") for part in range(2)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += products.clear.eq(1)
                m.d.sync += [index.eq(0), angle.eq(0), turn.eq(first), imaginary.eq(0)]
                with m.If(start):
                    m.next = "WINDOW"
            with m.State("WINDOW"):
                m.d.comb += [products.windowing.eq(1), products.issue.eq(1)]
                m.d.sync += [index.eq(index + 1), angle.eq(angle + 1)]
                with m.If(issued):
                    m.next = "WINDOWED"
            with m.State("WINDOWED"):
                m.d.comb += products.windowing.eq(1)
                with m.If(~products.pending):
                    m.d.sync += angle.eq(0)
                    m.next = "TRANSFORM"
            with m.State("TRANSFORM"):
                m.d.comb += products.issue.eq(1)
                m.d.sync += [index.eq(index + 1), angle.eq(angle + turn)]
                with m.If(issued):
                    m.next = "TRANSFORMED"
            with m.State("TRANSFORMED"):
                with m.If(~products.pending):
                    m.d.comb += products.clear.eq(1)
                    # Three quarters of a turn ahead, the table of cosines gives sines.
                    m.d.sync += [imaginary.eq(~imaginary), angle.eq(3 * config.window // 4)]
                    with m.If(imaginary):
                        m.d.sync += roots[1].eq(root)
                        m.next = "SQUARE"
                    with m.Else():
                        m.d.sync += roots[0].eq(root)
                        m.next = "TRANSFORM"
            with m.State("SQUARE"):
                m.d.comb += [products.squaring.eq(1), products.issue.eq(1)]
                m.next = "SQUARED"
            with m.State("SQUARED"):
                m.d.comb += products.squaring.eq(1)
                with m.If(~products.pending):
                    m.d.sync += imaginary.eq(~imaginary)
                    m.next = "SQUARE"
                    with m.If(imaginary):
                        m.d.comb += energies.start.eq(1)
                        m.next = "BANDS"
            with m.State("BANDS"):
                m.d.comb += products.clear.eq(1)
                m.d.sync += [angle.eq(0), turn.eq(turn + 1)]
                m.next = "NEXT"
            with m.State("NEXT"):
                with m.If(~energies.busy):
                    m.next = "TRANSFORM"
                    with m.If(turn == config.bins[-1] + 1):
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
        m.d.comb += products.root.eq(Mux(imaginary, roots[1], roots[0]))
        return m
