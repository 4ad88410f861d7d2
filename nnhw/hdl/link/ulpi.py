# amaranth: UnusedElaboratable=no
"""USB of high speed: a serial port behind a PHY chip, which takes and gives a byte in each cycle of its clock.

At a port of full speed the device has that, and the PHY takes a byte every 40 cycles.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from amaranth.build import Platform
from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.linked_engine import LinkedEngine, flash_pins
from nnhw.hdl.link.usb import SerialPort, cross
from nnhw.links.ulpi import PHY_CLOCK_HZ

_FIFO_BYTES = 16
"""Depth of the queues between clocks: a byte takes one cycle, and a place is free again some six cycles later."""

_LINE_J = 0b01
"""State of the wires at rest, at full speed, once the pull-up is on. Source: ULPI 1.1, table 7."""
_INPUTS = {"clk": In(1), "data": In(8), "dir": In(1), "nxt": In(1)}
_OUTPUTS = {"data_out": Out(8), "driven": Out(1), "stp": Out(1)}


class UlpiSerial(SerialPort):
    """A serial port behind a PHY, all of it in the domain `usb`, of 60 MHz.

    Members
    -------
    data: In(8). data_out: Out(8), for the same pins while `driven` is 1.
    dir, nxt: In(1). stp: Out(1). All in the domain `usb`. Source: ULPI 1.1, 3.

    Timing: a byte takes a cycle of `usb` on the wire, 40 at full speed. The first millisecond after a reset belongs to
    the PHY.
    """

    packet_bytes: ClassVar[int] = 512
    has_both: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__({**{name: _INPUTS[name] for name in ("data", "dir", "nxt")}, **_OUTPUTS})

    def bus(self, m: Module) -> Any:
        """See `SerialPort.bus`."""
        return SimpleNamespace(
            data=SimpleNamespace(i=self.data, o=self.data_out, oe=self.driven),
            dir=SimpleNamespace(i=self.dir),
            nxt=SimpleNamespace(i=self.nxt),
            stp=SimpleNamespace(o=self.stp),
            # With such a pin LUNA waits a millisecond for the PHY. It would drive the reset of `usb` there, which
            # cannot end while the PHY in reset stops the clock.
            rst=SimpleNamespace(o=Signal()),
        )

    def steer(self, m: Module, device: Any) -> None:
        """See `SerialPort.steer`: keep to full speed until the wires have once shown the pull-up.

        Before that they look like a reset, and LUNA would begin to chirp while the PHY is still starting. Its first
        write of a register would then meet the chirp, and both would wait for each other for ever.
        """
        attached = Signal()
        with m.If(device.utmi.line_state == _LINE_J):
            m.d.usb += attached.eq(1)
        m.d.comb += device.full_speed_only.eq(~attached)


class UlpiDevice(wiring.Component):
    """A device behind a PHY of the USB.

    Members
    -------
    ulpi_clk: In(1), clock of the PHY, 60 MHz, in any relation to that of `sync`.
    ulpi_data, ulpi_dir, ulpi_nxt, ulpi_data_out, ulpi_driven, ulpi_stp: see `UlpiSerial`.
    ulpi_rst: Out(1), resets the PHY while `sync` is in reset.
    hurry: see `SerialPort`; it may be set before the device is elaborated.
    cs, clk, copi, cipo: if the device reads its flash: the flash's pins, see `FlashReader`.
    """

    def __init__(self, device: LinkedEngine) -> None:
        self.device, self.hurry = device, 1
        pins = {f"ulpi_{name}": member for name, member in (_INPUTS | _OUTPUTS | {"rst": Out(1)}).items()}
        super().__init__({**pins, **flash_pins(device.flash_offset)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains += ClockDomain("usb", local=True)
        # Kept, so that place and route finds it by its name.
        clock = Signal(name="ulpi_clock", attrs={"keep": 1})
        if isinstance(platform, Platform):
            platform.add_clock_constraint(clock, PHY_CLOCK_HZ)
        m.submodules.reset_usb = ResetSynchronizer(ResetSignal("sync"), domain="usb")
        m.d.comb += [
            clock.eq(self.ulpi_clk),  # type: ignore[attr-defined]
            ClockSignal("usb").eq(clock),
            self.ulpi_rst.eq(ResetSignal("sync")),  # type: ignore[attr-defined]
        ]
        m.submodules.serial = serial = UlpiSerial()
        serial.hurry = self.hurry
        m.submodules.device = device = self.device
        m.d.comb += [getattr(serial, name).eq(getattr(self, f"ulpi_{name}")) for name in ("data", "dir", "nxt")]
        m.d.comb += [getattr(self, f"ulpi_{name}").eq(getattr(serial, name)) for name in _OUTPUTS]
        cross(m, serial, device, _FIFO_BYTES)
        device.connect_flash(m, self)
        return m
