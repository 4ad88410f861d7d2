# amaranth: UnusedElaboratable=no
"""USB of full speed at pins of the FPGA: a CDC-ACM device of LUNA; the only module that imports luna-usb."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amaranth.build import Platform
from amaranth.hdl import ClockDomain, ClockSignal, Fragment, Module, ResetInserter, ResetSignal, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out
from luna.gateware.usb.devices.acm import ACMRequestHandlers, USBSerialDevice
from luna.gateware.usb.usb2.device import USBDevice
from luna.gateware.usb.usb2.endpoints.stream import USBStreamInEndpoint, USBStreamOutEndpoint
from luna.gateware.usb.usb2.request import StallOnlyRequestHandler
from usb_protocol.types import USBRequestType

from nnhw.hdl.link.linked_engine import LinkedEngine, flash_pins
from nnhw.protocol import USB_PRODUCT, USB_VENDOR

STATUS_ENDPOINT, DATA_ENDPOINT = 3, 4
"""Endpoints of the descriptors that LUNA makes for a serial port."""
PACKET_BYTES = 64
"""Largest bulk packet of full speed. Source: USB 2.0, 5.8.3."""
BIT_HZ = 12_000_000
_FIFO_BYTES = 4
"""Depth of the queues between clocks: a byte takes 8 cycles of the USB's, so more would wait for the same rate."""


# LUNA itself keeps packets and their numbers over a reset of the bus; USB 2.0, 9.1.1.5, has them begin anew. It names
# submodules by their classes, and those of one class by their addresses, with which no two builds would be equal: so
# each endpoint has a class of its own.
class _Outgoing(USBStreamInEndpoint):
    """The endpoint of bytes to the computer, which a reset of the bus empties."""

    def __init__(self, bus_reset: Signal) -> None:
        super().__init__(endpoint_number=DATA_ENDPOINT, max_packet_size=PACKET_BYTES)
        self._bus_reset = bus_reset

    def elaborate(self, platform: object) -> Any:
        return ResetInserter({"usb": self._bus_reset})(super().elaborate(platform))


class _Incoming(USBStreamOutEndpoint):
    """The endpoint of bytes from the computer, which a reset of the bus empties."""

    def __init__(self, bus_reset: Signal) -> None:
        super().__init__(endpoint_number=DATA_ENDPOINT, max_packet_size=PACKET_BYTES)
        self._bus_reset = bus_reset

    def elaborate(self, platform: object) -> Any:
        return ResetInserter({"usb": self._bus_reset})(super().elaborate(platform))


class UsbSerial(wiring.Component):
    """A serial port (CDC-ACM) for a computer, all of it in the domains `usb`, of 12 MHz, and `usb_io`, of 48 MHz.

    Members
    -------
    d_p, d_n: In(1), asynchronous. d_p_out, d_n_out: Out(1), for both wires while `driven` is 1. pullup: Out(1).
    i: stream of bytes to the computer. A packet ends where a zero byte, the end of a frame, is the last one that waits.
    o: stream of bytes from it. While it stalls, the computer is told to send again: no byte is lost.

    Timing: a byte takes 8 cycles of `usb` on the wire; two packets of 64 bytes are held in each direction.

    A reset of the bus empties both directions, and their packets begin with DATA0 again.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                **dict.fromkeys(("d_p", "d_n"), In(1)),
                **dict.fromkeys(("d_p_out", "d_n_out", "driven", "pullup"), Out(1)),
                "i": In(stream.Signature(unsigned(8))),
                "o": Out(stream.Signature(unsigned(8))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        device = USBDevice(bus=self._wires(m))
        self._add_control(device)
        device.add_endpoint(USBStreamInEndpoint(endpoint_number=STATUS_ENDPOINT, max_packet_size=PACKET_BYTES))
        outgoing, incoming = _Outgoing(device.reset_detected), _Incoming(device.reset_detected)
        for endpoint in (outgoing, incoming):
            device.add_endpoint(endpoint)
        # Without a platform, so that synthesis gets what simulators run: for a UP5K LUNA counts in two DSP blocks.
        m.submodules.device = Fragment.get(device, None)
        self._send(m, outgoing.stream)
        m.d.comb += [
            device.connect.eq(1),
            self.o.valid.eq(incoming.stream.valid),
            self.o.payload.eq(incoming.stream.payload),
            incoming.stream.ready.eq(self.o.ready),
        ]
        return m

    def _wires(self, m: Module) -> Any:
        """Return the pins in the form in which LUNA takes them."""
        d_p, d_n = (SimpleNamespace(i=wire, o=Signal(), oe=Signal()) for wire in (self.d_p, self.d_n))
        m.d.comb += [self.d_p_out.eq(d_p.o), self.d_n_out.eq(d_n.o), self.driven.eq(d_p.oe)]
        return SimpleNamespace(d_p=d_p, d_n=d_n, pullup=SimpleNamespace(o=self.pullup))

    def _add_control(self, device: USBDevice) -> None:
        """Add the endpoint of descriptors and requests.

        LUNA's own serial port gives its descriptors alone, and is no part of the design, of which Amaranth would warn.
        """
        names = {"manufacturer_string": "nnhw", "product_string": "neural network accelerator"}
        numbers = {"idVendor": USB_VENDOR, "idProduct": USB_PRODUCT, "max_packet_size": PACKET_BYTES}
        serial = USBSerialDevice(bus=None, **numbers, **names)
        control = device.add_standard_control_endpoint(serial.create_descriptors(), avoid_blockram=False)
        control.add_request_handler(ACMRequestHandlers())
        unknown = (USBRequestType.VENDOR, USBRequestType.RESERVED)
        control.add_request_handler(StallOnlyRequestHandler(lambda setup: sum(setup.type == kind for kind in unknown)))

    def _send(self, m: Module, packets: Any) -> None:
        """Hold a byte until it is known whether another one follows.

        A packet with the last byte of a frame must not wait for more: results would. LUNA follows one of exactly 64
        bytes by an empty packet, without which a computer goes on waiting.
        """
        held, payload = Signal(), Signal(8)
        m.d.comb += [
            self.i.ready.eq(~held | packets.ready),
            packets.valid.eq(held & (self.i.valid | (payload == 0))),
            packets.payload.eq(payload),
            packets.last.eq(~self.i.valid),
        ]
        with m.If(packets.valid & packets.ready):
            m.d.usb += held.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.usb += [held.eq(1), payload.eq(self.i.payload)]


class UsbDevice(wiring.Component):
    """A device at the wires of the USB.

    Members
    -------
    link_clock: In(1), clock of 48 MHz, in any relation to that of `sync`.
    usb_d_p, usb_d_n, usb_d_p_out, usb_d_n_out, usb_driven, usb_pullup: see `UsbSerial`.
    cs, clk, copi, cipo: if the device reads its flash: the flash's pins, see `FlashReader`.
    """

    def __init__(self, device: LinkedEngine) -> None:
        self.device = device
        super().__init__(
            {
                **dict.fromkeys(("link_clock", "usb_d_p", "usb_d_n"), In(1)),
                **dict.fromkeys(("usb_d_p_out", "usb_d_n_out", "usb_driven", "usb_pullup"), Out(1)),
                **flash_pins(device.flash_offset),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self._make_clocks(m, platform)
        m.submodules.serial = serial = UsbSerial()
        m.submodules.device = device = self.device
        m.d.comb += [
            serial.d_p.eq(self.usb_d_p),
            serial.d_n.eq(self.usb_d_n),
            self.usb_d_p_out.eq(serial.d_p_out),
            self.usb_d_n_out.eq(serial.d_n_out),
            self.usb_driven.eq(serial.driven),
            self.usb_pullup.eq(serial.pullup),
        ]
        m.submodules.incoming = _cross(m, "usb", serial.o, "sync", device.i)
        m.submodules.outgoing = _cross(m, "sync", device.o, "usb", serial.i)
        device.connect_flash(m, self)
        return m

    def _make_clocks(self, m: Module, platform: Any) -> None:
        """Add the domain of the wires, and that of the bits, a quarter as fast: a register that is clocked by it."""
        m.domains += [ClockDomain(name, local=True) for name in ("usb_io", "usb")]
        # It counts during the reset as well: the reset of `usb` ends with edges of that clock.
        # Kept, so that place and route finds it by its name.
        count, bit_clock = Signal(2, reset_less=True), Signal(name="usb_bit_clock", attrs={"keep": 1})
        m.d.usb_io += count.eq(count + 1)
        m.d.comb += [ClockSignal("usb_io").eq(self.link_clock), ClockSignal("usb").eq(bit_clock)]
        m.d.comb += bit_clock.eq(count[1])
        if isinstance(platform, Platform):
            platform.add_clock_constraint(bit_clock, BIT_HZ)
        for domain in ("usb_io", "usb"):
            m.submodules[f"reset_{domain}"] = ResetSynchronizer(ResetSignal("sync"), domain=domain)


def _cross(m: Module, source: str, i: Any, sink: str, o: Any) -> AsyncFIFO:
    """Return a queue that takes the bytes of a stream from one clock domain to another."""
    queue = AsyncFIFO(width=8, depth=_FIFO_BYTES, w_domain=source, r_domain=sink)
    m.d.comb += [
        queue.w_data.eq(i.payload),
        queue.w_en.eq(i.valid),
        i.ready.eq(queue.w_rdy),
        o.payload.eq(queue.r_data),
        o.valid.eq(queue.r_rdy),
        queue.r_en.eq(o.ready),
    ]
    return queue
