"""A device: an engine behind the link, with byte streams or with serial pins."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.processor import Link
from nnhw.hdl.link.uart import UartReceiver, UartTransmitter, clocks_per_bit
from nnhw.protocol import DeviceIdentity


class Device(wiring.Component):
    """Link and engine in one clock domain.

    Parameters
    ----------
    engine: component with byte streams `i` and `o`, images in and outputs out, back to back.
    identity: what the device says about itself.

    Members
    -------
    i, o: streams of bytes from and to the host.
    overrun: In(1), strobe, a byte from the host was lost before `i`.
    """

    def __init__(self, engine: wiring.Component, identity: DeviceIdentity) -> None:
        self.engine = engine
        self.identity = identity
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "o": Out(stream.Signature(unsigned(8))),
                "overrun": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = Link(self.identity)
        m.submodules.engine = ResetInserter(link.reset_engine)(self.engine)
        wiring.connect(m, wiring.flipped(self.i), link.i)
        wiring.connect(m, link.o, wiring.flipped(self.o))
        wiring.connect(m, link.o_engine, self.engine.i)
        wiring.connect(m, self.engine.o, link.i_engine)
        m.d.comb += link.overrun.eq(self.overrun)
        return m


class UartDevice(wiring.Component):
    """A device at a serial line.

    Parameters
    ----------
    device: the device; its identity names the clock.
    baud: bits per second.

    Members
    -------
    rx: In(1), not synchronous. tx: Out(1).

    Raises
    ------
    InputError: no whole number of clock cycles comes near enough to one bit.
    """

    def __init__(self, device: Device, baud: int) -> None:
        self.device = device
        self._divisor = clocks_per_bit(device.identity.clock_hz, baud)
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(self._divisor)
        m.submodules.transmitter = transmitter = UartTransmitter(self._divisor)
        m.submodules.device = device = self.device
        wiring.connect(m, receiver.o, device.i)
        wiring.connect(m, device.o, transmitter.i)
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            device.overrun.eq(receiver.overrun),
        ]
        return m
