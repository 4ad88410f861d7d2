# amaranth: UnusedElaboratable=no
"""USB ports, each a CDC-ACM device of LUNA, and that of full speed at pins; the only module that imports luna-usb."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

from amaranth.build import Platform
from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Const,
    Elaboratable,
    Fragment,
    Module,
    Mux,
    ResetInserter,
    ResetSignal,
    Signal,
    Value,
    unsigned,
)
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out
from luna.gateware.interface.ulpi import UTMITranslator
from luna.gateware.usb.devices.acm import ACMRequestHandlers, USBSerialDevice
from luna.gateware.usb.request.standard import StandardRequestHandler
from luna.gateware.usb.usb2.descriptor import GetDescriptorHandlerBlock
from luna.gateware.usb.usb2.device import USBDevice
from luna.gateware.usb.usb2.endpoints.stream import USBStreamInEndpoint, USBStreamOutEndpoint
from luna.gateware.usb.usb2.request import StallOnlyRequestHandler
from luna.gateware.usb.usb2.reset import USBResetSequencer
from usb_protocol.emitters import DeviceDescriptorCollection
from usb_protocol.types import USBRequestType

from nnhw.hdl.link.linked_engine import LinkedEngine, flash_pins
from nnhw.protocol import USB_PRODUCT, USB_VENDOR

STATUS_ENDPOINT, DATA_ENDPOINT = 3, 4
"""Endpoints of the descriptors that LUNA makes for a serial port."""
BIT_HZ = 12_000_000
FULL_SPEED_BYTES = 64
"""Largest bulk packet of full speed. Source: USB 2.0, 5.8.3."""
_FIFO_BYTES = 4
"""Depth of the queues between clocks: a byte takes 8 cycles of the USB's, so more would wait for the same rate."""


# LUNA itself keeps packets and their numbers over a reset of the bus; USB 2.0, 9.1.1.5, has them begin anew. It names
# submodules by their classes, and those of one class by their addresses, with which no two builds would be equal: so
# each endpoint has a class of its own.
class _Outgoing(USBStreamInEndpoint):
    """The endpoint of bytes to the computer, which a reset of the bus empties."""

    def __init__(self, packet_bytes: int, bus_reset: Signal) -> None:
        super().__init__(endpoint_number=DATA_ENDPOINT, max_packet_size=packet_bytes)
        self._bus_reset = bus_reset

    def elaborate(self, platform: object) -> Any:
        return ResetInserter({"usb": self._bus_reset})(super().elaborate(platform))


class _Incoming(USBStreamOutEndpoint):
    """The endpoint of bytes from the computer, which a reset of the bus empties."""

    def __init__(self, packet_bytes: int, bus_reset: Signal) -> None:
        super().__init__(endpoint_number=DATA_ENDPOINT, max_packet_size=packet_bytes)
        self._bus_reset = bus_reset

    def elaborate(self, platform: object) -> Any:
        return ResetInserter({"usb": self._bus_reset})(super().elaborate(platform))


_CONFIGURATION, _QUALIFIER, _OTHER_SPEED = 2, 6, 7
"""Types of descriptors. Source: USB 2.0, table 9-5."""


class _Descriptors(Elaboratable):
    """Descriptors of a device of two speeds: what it is depends on the speed that it has.

    The first configuration is that of high speed, the second one that of full speed, and so are those of the other
    speed; a computer sees only the one that holds. Members: see `GetDescriptorHandlerBlock`.
    """

    def __init__(self, descriptors: DeviceDescriptorCollection, is_fast: Value) -> None:
        self._block, self._is_fast = GetDescriptorHandlerBlock(descriptors), is_fast
        self.value, self.length = Signal(16), self._block.length
        self.start, self.start_position = self._block.start, self._block.start_position
        self.tx, self.stall = self._block.tx, self._block.stall

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.block = self._block
        index, kind = self.value[:8], self.value[8:]
        m.d.comb += self._block.value.eq(self.value)
        with m.If((kind == _CONFIGURATION) | (kind == _OTHER_SPEED)):
            m.d.comb += self._block.value[:8].eq(Mux(index == 0, ~self._is_fast, 0xFF))
        return m


class _Requests(StandardRequestHandler):
    """The standard requests to a device of two speeds."""

    def __init__(self, descriptors: DeviceDescriptorCollection, is_fast: Value) -> None:
        super().__init__(descriptors)
        self._is_fast = is_fast

    def get_descriptor_handler_submodule(self) -> _Descriptors:
        """Return what answers to GET_DESCRIPTOR."""
        return _Descriptors(self.descriptors, self._is_fast)


def _serial_descriptors(packet_bytes: int) -> DeviceDescriptorCollection:
    """Return the descriptors of a serial port with bulk packets of a size.

    LUNA's own serial port gives its descriptors alone, and is no part of the design, of which Amaranth would warn.
    """
    names = {"manufacturer_string": "nnhw", "product_string": "neural network accelerator"}
    numbers = {"idVendor": USB_VENDOR, "idProduct": USB_PRODUCT, "max_packet_size": packet_bytes}
    return USBSerialDevice(bus=None, **numbers, **names).create_descriptors()


def _descriptors_of_both_speeds(packet_bytes: int) -> DeviceDescriptorCollection:
    """Return those of a serial port with bulk packets of a size at high speed. Source: USB 2.0, 9.6.2 and 9.6.4."""
    found = _serial_descriptors(packet_bytes)
    device, fast = (found.get_descriptor_bytes(kind) for kind in (1, _CONFIGURATION))
    slow = _serial_descriptors(FULL_SPEED_BYTES).get_descriptor_bytes(_CONFIGURATION)
    for index, (own, other) in enumerate(((fast, slow), (slow, fast))):
        found.add_descriptor(own, index=index)
        found.add_descriptor(bytes((other[0], _OTHER_SPEED)) + other[2:], index=index)
    found.add_descriptor(bytes((10, _QUALIFIER)) + device[2:8] + device[17:] + bytes(1))
    return found


class SerialPort(wiring.Component):
    """A serial port (CDC-ACM) for a computer, in the domain `usb`; what the wires are is told by those derived from it.

    Parameters
    ----------
    wires: members at the wires.

    Members
    -------
    i: stream of bytes to the computer. A packet ends where a zero byte, the end of a frame, is the last one that waits,
        and no other packet does.
    o: stream of bytes from it. While it stalls, the computer is told to send again: no byte is lost.
    packet_bytes: largest bulk packet; two are held in each direction. Source: USB 2.0, 5.8.3.
    has_both: the device has high speed where the computer has it, and full speed elsewhere.
    hurry: number by which LUNA's times for a reset, milliseconds, are divided; more than 1 for simulations alone.

    A reset of the bus empties both directions, and their packets begin with DATA0 again. At full speed a device of both
    speeds ends its packets one byte short of the largest: LUNA puts an empty packet behind one of the largest size
    where no byte follows, and knows one size alone. The computer's packets may have any size up to `packet_bytes`.
    """

    packet_bytes: ClassVar[int]
    has_both: ClassVar[bool] = False

    def __init__(self, wires: dict[str, Any]) -> None:
        self.hurry = 1
        super().__init__(
            {**wires, "i": In(stream.Signature(unsigned(8))), "o": Out(stream.Signature(unsigned(8)))},
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        device = USBDevice(bus=self.bus(m), handle_clocking=False)
        self._add_control(device)
        device.add_endpoint(USBStreamInEndpoint(endpoint_number=STATUS_ENDPOINT, max_packet_size=self.packet_bytes))
        bus_reset = device.reset_detected
        outgoing, incoming = _Outgoing(self.packet_bytes, bus_reset), _Incoming(self.packet_bytes, bus_reset)
        for endpoint in (outgoing, incoming):
            device.add_endpoint(endpoint)
        # Without a platform, so that synthesis gets what simulators run: for a UP5K LUNA counts in two DSP blocks.
        with _hurried(self.hurry):
            m.submodules.device = Fragment.get(device, None)
        waits, is_full = self._count_packets(m, device, outgoing)
        self._send(m, outgoing.stream, waits, is_full)
        self.steer(m, device)
        m.d.comb += [
            device.connect.eq(1),
            self.o.valid.eq(incoming.stream.valid),
            self.o.payload.eq(incoming.stream.payload),
            incoming.stream.ready.eq(self.o.ready),
        ]
        return m

    @abstractmethod
    def bus(self, m: Module) -> Any:
        """Return the wires in the form in which LUNA takes them."""

    def steer(self, m: Module, device: USBDevice) -> None:
        """Drive inputs of the device that depend on what the wires are."""

    def _add_control(self, device: USBDevice) -> None:
        """Add the endpoint of descriptors and requests."""
        if self.has_both:
            control = device.add_control_endpoint()
            control.add_request_handler(_Requests(_descriptors_of_both_speeds(self.packet_bytes), _is_fast(device)))
        else:
            descriptors = _serial_descriptors(self.packet_bytes)
            control = device.add_standard_control_endpoint(descriptors, avoid_blockram=False)
        control.add_request_handler(ACMRequestHandlers())
        unknown = (USBRequestType.VENDOR, USBRequestType.RESERVED)
        control.add_request_handler(StallOnlyRequestHandler(lambda setup: sum(setup.type == kind for kind in unknown)))

    def _count_packets(self, m: Module, device: USBDevice, endpoint: USBStreamInEndpoint) -> tuple[Signal, Value]:
        """Return whether a packet is complete of which the computer has not said yet that it has it.

        And whether the next byte is the last one of a packet of full speed, where the device has both.
        """
        packets, bus = endpoint.stream, endpoint.interface
        count, waits = Signal(range(self.packet_bytes)), Signal()
        with m.If(bus.handshakes_in.ack & bus.tokenizer.is_in & (bus.tokenizer.endpoint == DATA_ENDPOINT)):
            m.d.usb += waits.eq(0)
        with m.If(packets.valid & packets.ready):
            m.d.usb += count.eq(Mux(packets.last, 0, count + 1))
            with m.If(packets.last | (count == self.packet_bytes - 1)):
                m.d.usb += waits.eq(1)
        with m.If(device.reset_detected):
            m.d.usb += [count.eq(0), waits.eq(0)]
        return waits, ~_is_fast(device) & (count >= FULL_SPEED_BYTES - 2) if self.has_both else Const(0)

    def _send(self, m: Module, packets: Any, waits: Signal, is_full: Value) -> None:
        """Hold a byte until it is known whether another one follows.

        A packet with the last byte of a frame must not wait for more: results would. But while another packet waits for
        the computer, it cannot go yet, and more may join it: so there are few packets where results are short. LUNA
        follows a packet of the largest size that ends a frame by an empty one, without which a computer goes on
        waiting.
        """
        held, payload = Signal(), Signal(8)
        m.d.comb += [
            self.i.ready.eq(~held | packets.ready),
            packets.valid.eq(held & (self.i.valid | ((payload == 0) & ~waits))),
            packets.payload.eq(payload),
            packets.last.eq(~self.i.valid | is_full),
        ]
        with m.If(packets.valid & packets.ready):
            m.d.usb += held.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.usb += [held.eq(1), payload.eq(self.i.payload)]


def _is_fast(device: USBDevice) -> Value:
    """Return whether a device has agreed on high speed with the computer: only then it is terminated for it."""
    return ~device.utmi.term_select


class UsbSerial(SerialPort):
    """A serial port at two wires of full speed, all of it in the domains `usb`, of 12 MHz, and `usb_io`, of 48 MHz.

    Members
    -------
    d_p, d_n: In(1), asynchronous. d_p_out, d_n_out: Out(1), for both wires while `driven` is 1. pullup: Out(1).

    Timing: a byte takes 8 cycles of `usb` on the wire.
    """

    packet_bytes: ClassVar[int] = FULL_SPEED_BYTES

    def __init__(self) -> None:
        outputs = dict.fromkeys(("d_p_out", "d_n_out", "driven", "pullup"), Out(1))
        super().__init__({**dict.fromkeys(("d_p", "d_n"), In(1)), **outputs})

    def bus(self, m: Module) -> Any:
        """See `SerialPort.bus`."""
        d_p, d_n = (SimpleNamespace(i=wire, o=Signal(), oe=Signal()) for wire in (self.d_p, self.d_n))
        m.d.comb += [self.d_p_out.eq(d_p.o), self.d_n_out.eq(d_n.o), self.driven.eq(d_p.oe)]
        return SimpleNamespace(d_p=d_p, d_n=d_n, pullup=SimpleNamespace(o=self.pullup))


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
        cross(m, serial, device, _FIFO_BYTES)
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


_TIMES = (
    (UTMITranslator, ("_CYCLES_1_MILLISECONDS",)),
    (
        USBResetSequencer,
        (
            *("_CYCLES_200_MICROSECONDS", "_CYCLES_1_MILLISECONDS", "_CYCLES_2_MILLISECONDS"),
            *("_CYCLES_2P5_MILLISECONDS", "_CYCLES_3_MILLISECONDS"),
        ),
    ),
)
"""Times that LUNA keeps in its classes: of the PHY's start, and of a reset."""


@contextmanager
def _hurried(divisor: int) -> Iterator[None]:
    """Divide LUNA's times while it is elaborated, for which it has no parameter."""
    kept = [(kind, name, getattr(kind, name)) for kind, names in _TIMES for name in names]
    try:
        for kind, name, cycles in kept:
            setattr(kind, name, cycles // divisor)
        yield
    finally:
        for kind, name, cycles in kept:
            setattr(kind, name, cycles)


def cross(m: Module, serial: SerialPort, device: LinkedEngine, depth: int) -> None:
    """Add queues of `depth` bytes that take those of a port, in domain `usb`, to a device in `sync`, and back."""
    m.submodules.incoming = _queue(m, "usb", serial.o, "sync", device.i, depth)
    m.submodules.outgoing = _queue(m, "sync", device.o, "usb", serial.i, depth)


def _queue(m: Module, source: str, i: Any, sink: str, o: Any, depth: int) -> AsyncFIFO:
    """Return a queue that takes the bytes of a stream from one clock domain to another."""
    queue = AsyncFIFO(width=8, depth=depth, w_domain=source, r_domain=sink)
    m.d.comb += [
        queue.w_data.eq(i.payload),
        queue.w_en.eq(i.valid),
        i.ready.eq(queue.w_rdy),
        o.payload.eq(queue.r_data),
        o.valid.eq(queue.r_rdy),
        queue.r_en.eq(o.ready),
    ]
    return queue
