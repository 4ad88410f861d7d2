"""SPI peripheral: mode 0, highest bit first, its pins sampled by the clock of the design."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import cdc, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.exchange import EXCHANGE, ExchangeDevice, take_byte
from nnhw.hdl.link.linked_engine import LinkedEngine


class SpiPeripheral(wiring.Component):
    """Sends bytes to an SPI controller and receives bytes from it, both at once.

    While no byte waits in `i`, zeros are sent: they are delimiters, which mean nothing between frames. Which byte is
    sent is decided before its first bit. It leaves `i` with its last bit, so one that `cs` cuts off is sent again; a
    byte from the controller that is cut off is dropped.

    Members
    -------
    cs: In(1), active low, sck, copi: In(1). Asynchronous to the clock.
    cipo: Out(1), a register.
    selected: Out(1), the inverse of `cs`, not clocked: the pin of `cipo` is to be driven.
    irq: Out(1), a register: a byte waits to be read.
    i, o, overrun: see `EXCHANGE`.

    Timing
    ------
    `sck` has at most a sixth of the clock's frequency, and each of its levels lasts 2 cycles or more: a bit is on
    `cipo` at the latest 3 cycles after the rising edge with which the controller samples the bit before. From the
    falling edge of `cs` to the first edge of `sck` there are 4 cycles or more; `cs` stays high for 4 cycles or more.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cs": In(1, init=1),
                "sck": In(1),
                "copi": In(1),
                "cipo": Out(1),
                "selected": Out(1),
                "irq": Out(1),
                **EXCHANGE,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cs, sck, copi, before = Signal(init=1), Signal(), Signal(), Signal()
        m.submodules.cs_synchronizer = cdc.FFSynchronizer(self.cs, cs, init=1)
        m.submodules.sck_synchronizer = cdc.FFSynchronizer(self.sck, sck)
        m.submodules.copi_synchronizer = cdc.FFSynchronizer(self.copi, copi)
        # `filling`: the byte that is being sent is a zero that fills a gap; nothing leaves `i` with it.
        bit, filling = Signal(3), Signal(init=1)
        outgoing, incoming = Signal(8), Signal(7)
        rising, last = Signal(), Signal()
        m.d.sync += [before.eq(sck), self.irq.eq(self.i.valid)]
        m.d.comb += [
            self.selected.eq(~self.cs),
            self.cipo.eq(outgoing[-1]),
            rising.eq(sck & ~before & ~cs),
            last.eq(rising & (bit == 7)),
            self.i.ready.eq(last & ~filling),
        ]
        with m.If(rising):
            m.d.sync += [bit.eq(bit + 1), incoming.eq(Cat(copi, incoming)), outgoing.eq(outgoing << 1)]
        take_byte(m, self, last, Cat(copi, incoming))
        # The next byte is chosen in the cycle behind the last bit, when the one before has left the stream.
        choose = Signal()
        m.d.sync += choose.eq(last)
        with m.If(cs | choose):
            m.d.sync += [outgoing.eq(Mux(self.i.valid, self.i.payload, 0)), filling.eq(~self.i.valid)]
        # A byte that `cs` cuts off ends here: the next transfer begins with the first bit of a byte.
        with m.If(cs):
            m.d.sync += bit.eq(0)
        return m


class SpiDevice(ExchangeDevice):
    """A device at an SPI port.

    Members
    -------
    spi_cs, spi_sck, spi_copi: In(1), asynchronous. spi_cipo, spi_selected, spi_irq: Out(1). See `SpiPeripheral`.
    """

    def __init__(self, device: LinkedEngine) -> None:
        inputs = {"spi_cs": In(1, init=1), "spi_sck": In(1), "spi_copi": In(1)}
        super().__init__(device, inputs | {"spi_cipo": Out(1), "spi_selected": Out(1), "spi_irq": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = SpiPeripheral()
        self.connect(m, port)
        m.d.comb += [getattr(port, name).eq(getattr(self, f"spi_{name}")) for name in ("cs", "sck", "copi")]
        m.d.comb += [getattr(self, f"spi_{name}").eq(getattr(port, name)) for name in ("cipo", "selected", "irq")]
        return m
