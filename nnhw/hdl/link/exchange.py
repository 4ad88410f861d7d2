"""Ports that exchange a byte for each byte, such as SPI: zeros fill gaps both ways, and mean nothing between frames."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.linked_engine import LinkedEngine, flash_pins

EXCHANGE = {
    "i": In(stream.Signature(unsigned(8))),
    "o": Out(stream.Signature(unsigned(8))),
    "overrun": Out(1),
}
"""Members of a port. i: stream of bytes to the controller. o: stream of bytes from it. overrun: strobe, a byte was
lost, because the one before had not been taken."""


def take_byte(m: Module, port: Any, arrived: Value, byte: Value) -> None:
    """Hand a byte from the controller to the stream `o` of a port, unless it only fills a gap: a zero behind a zero.

    While a frame waits for the engine, the device takes no byte, but the controller sends zeros until an answer comes.
    These must be dropped here, because there is no room for them.

    Parameters
    ----------
    port: has the members `EXCHANGE`.
    arrived: strobe, `byte` is there.
    """
    # The first zero behind a frame is its delimiter, and is kept.
    fills, ended = Signal(), Signal(init=1)
    m.d.comb += fills.eq((byte == 0) & ended)
    with m.If(port.o.ready):
        m.d.sync += port.o.valid.eq(0)
    with m.If(arrived):
        m.d.sync += ended.eq(byte == 0)
    with m.If(arrived & ~fills):
        m.d.comb += port.overrun.eq(port.o.valid & ~port.o.ready)
        m.d.sync += [port.o.payload.eq(byte), port.o.valid.eq(1)]


class ExchangeDevice(wiring.Component):
    """A device at a port that exchanges bytes, such as SPI.

    Parameters
    ----------
    device: engine and protocol.
    pins: members at the pins of the link.

    Members
    -------
    cs, clk, copi, cipo, loading: pins of the flash, if the device reads one, see `FlashReader`.
    """

    def __init__(self, device: LinkedEngine, pins: dict[str, Any]) -> None:
        self.device = device
        super().__init__({**pins, **flash_pins(device.flash_offset)})

    def connect(self, m: Module, port: Any) -> None:
        """Put the device behind a port."""
        m.submodules.port = port
        m.submodules.device = device = self.device
        wiring.connect(m, port.o, device.i)
        wiring.connect(m, device.o, port.i)
        m.d.comb += device.overrun.eq(port.overrun)
        device.connect_flash(m, self)
