"""SPI peripheral that is clocked by its controller, at pins that it shares with the flash."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Module, ResetSignal, Signal
from amaranth.lib import cdc, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.exchange import EXCHANGE, ExchangeDevice, take_byte
from nnhw.hdl.link.linked_engine import LinkedEngine


class ClockedSpiPeripheral(wiring.Component):
    """Sends bytes to an SPI controller and receives bytes from it, both at once, at rates near those of the clock.

    The shift registers run at `sck`, so the clock of the design sees whole bytes only. While no byte waits in `i`,
    zeros are sent: they are delimiters, which mean nothing between frames. A byte that `deselect` cuts off is lost in
    both directions, which shows as a damaged frame; between bytes `deselect` loses nothing.

    Members
    -------
    deselect: In(1), asynchronous: the transfer is over, and the next bit begins a byte. It may last any time.
    sck, copi: In(1). cipo: Out(1), a register of the clock `sck`.
    i, o, overrun: see `EXCHANGE`.

    Timing
    ------
    Mode 0. A bit is on `cipo` from the rising edge of `sck` on with which the controller samples the bit before, so the
    way there and back may take nearly a whole period. A byte takes `nnhw.links.ftdi.CYCLES_PER_BYTE` cycles of `sync`
    or more. As many bytes as come from the controller are sent to it, if `sync` is as fast as `sck`, else half as many
    at worst: a byte crosses in 4 cycles of `sync` and 3 of `sck` at most.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "deselect": In(1),
                "sck": In(1),
                "copi": In(1),
                "cipo": Out(1),
                **EXCHANGE,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sck = ClockDomain(async_reset=True, local=True)
        m.d.comb += [ClockSignal("sck").eq(self.sck), ResetSignal("sck").eq(self.deselect)]
        last = self._count_bits(m)
        self._receive(m, last)
        self._send(m, last)
        return m

    def _count_bits(self, m: Module) -> Signal:
        """Return a flag of the domain `sck`: its next edge ends a byte. The count is all that `deselect` resets."""
        bit, last = Signal(3), Signal()
        m.d.sck += bit.eq(bit + 1)
        m.d.comb += last.eq(bit == 7)
        return last

    def _receive(self, m: Module, last: Signal) -> None:
        """Hand a byte to `sync` with a flag that changes: it stays until the next one is complete."""
        incoming, received = Signal(7, reset_less=True), Signal(8, reset_less=True)
        arrived, arrived_here, seen = Signal(reset_less=True), Signal(), Signal(reset_less=True)
        m.d.sck += incoming.eq(Cat(self.copi, incoming))
        with m.If(last):
            m.d.sck += [received.eq(Cat(self.copi, incoming)), arrived.eq(~arrived)]
        # Only this flag crosses the clocks through a synchronizer: the byte itself does not change for eight bits.
        m.submodules.arrived = cdc.FFSynchronizer(arrived, arrived_here)
        m.d.sync += seen.eq(arrived_here)
        take_byte(m, self, arrived_here != seen, received)

    def _send(self, m: Module, last: Signal) -> None:
        """Hold a byte until the shift register has taken it, at the end of the byte before."""
        held, outgoing = Signal(8, reset_less=True), Signal(8, reset_less=True)
        offered, offered_there = Signal(reset_less=True), Signal()
        taken, taken_here = Signal(reset_less=True), Signal()
        m.submodules.offered = cdc.FFSynchronizer(offered, offered_there, o_domain="sck")
        m.submodules.taken = cdc.FFSynchronizer(taken, taken_here)
        m.d.comb += [self.cipo.eq(outgoing[-1]), self.i.ready.eq(offered == taken_here)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [held.eq(self.i.payload), offered.eq(~offered)]
        # Without a byte, zeros follow: they fill the gap.
        m.d.sck += outgoing.eq(outgoing << 1)
        with m.If(last):
            m.d.sck += [outgoing.eq(0), taken.eq(offered_there)]
            with m.If(offered_there != taken):
                m.d.sck += outgoing.eq(held)


class FtdiDevice(ExchangeDevice):
    """A device at the pins of the flash, to which an FTDI chip talks while the flash is not selected.

    Members
    -------
    ftdi_cs, ftdi_sck, ftdi_copi: In(1), asynchronous; `ftdi_cs` is 0 while the flash is selected. ftdi_cipo: Out(1).
        See `ClockedSpiPeripheral`.
    ftdi_listens: Out(1), the flash is not selected, not clocked: the pin of `ftdi_cipo` is to be driven. It is 0 while
        the device itself reads the flash, which is at the same pins; `loading` says that they are to be driven then.
    """

    def __init__(self, device: LinkedEngine) -> None:
        inputs = {"ftdi_cs": In(1, init=1), "ftdi_sck": In(1), "ftdi_copi": In(1)}
        super().__init__(device, inputs | {"ftdi_cipo": Out(1), "ftdi_listens": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = ClockedSpiPeripheral()
        self.connect(m, port)
        loading = 0 if self.device.flash_offset is None else self.device.loading  # type: ignore[attr-defined]
        m.d.comb += [
            # What the device itself says to the flash is no transfer, nor is a level of a pin that nobody drives then.
            port.deselect.eq(~self.ftdi_cs | loading),
            port.sck.eq(self.ftdi_sck),
            port.copi.eq(self.ftdi_copi),
            self.ftdi_cipo.eq(port.cipo),
            self.ftdi_listens.eq(self.ftdi_cs & ~loading if self.device.flash_offset is not None else self.ftdi_cs),
        ]
        return m
