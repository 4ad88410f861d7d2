"""USB of full speed at pins of the FPGA itself: no chip lies between the computer and the gateware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nnhw.links.base import BoardLink, LinkPort
from nnhw.protocol import USB_BYTES_PER_S

CLOCK_SOURCES = ("oscillator", "design")
"""Where the clock of 48 MHz may come from; see `Usb`."""


@dataclass(frozen=True)
class Usb(BoardLink):
    """USB of full speed at pins of the FPGA: a serial port of a computer (CDC-ACM), without any chip between.

    Parameters
    ----------
    clock: source of its clock of 48 MHz: 'oscillator', if that of the board has this frequency; 'design', if the
        design runs at 48 MHz, and at nothing else.
    resource: its name in amaranth-boards; a board that has none there names pins instead.
    d_p: pin of the package at D+.
    d_n: pin of the package at D-.
    pullup: pin that pulls D+ up, which tells the computer that a device is there.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "usb"
    title: ClassVar[str] = "USB port"
    has_port: ClassVar[bool] = True
    ports: ClassVar[tuple[LinkPort, ...]] = (
        LinkPort("d_p", "io", "usb_d_p", "usb_driven"),
        LinkPort("d_n", "io", "usb_d_n", "usb_driven"),
        LinkPort("pullup", "o", "usb_pullup"),
    )
    speed_field: ClassVar[str] = "hz"
    speed_unit: ClassVar[str] = "bit/s"
    bits_per_byte: ClassVar[int] = 8
    # D+ and D- are one pair of wires: host and device take turns on it.
    half_duplex: ClassVar[bool] = True
    # Four samples of each of the 12 Mbit/s: the gateware finds the bits by their edges, as USB sends no clock.
    own_clock_hz: ClassVar[int] = 48_000_000
    hz: ClassVar[int] = 12_000_000

    clock: str
    resource: str = ""
    d_p: str = ""
    d_n: str = ""
    pullup: str = ""
    io_standard: str = ""

    @property
    def clock_source(self) -> str:
        return self.clock

    def bytes_per_s(self, clock_hz: float) -> float:
        """See `BoardLink.bytes_per_s`: what bulk packets carry, which is a fifth less than the bits on the wire."""
        return USB_BYTES_PER_S

    def clock_problem(self, clock_hz: float) -> str:
        """See `BoardLink.clock_problem`: the design may have to run at the clock of the USB."""
        if self.clock != "design" or clock_hz == self.own_clock_hz:
            return ""
        return (
            f"USB: on this board the design's clock is that of the USB, which needs {self.own_clock_hz} Hz, given "
            f"{clock_hz:.0f} Hz; use --clock {self.own_clock_hz / 1e6:g}"
        )

    def problems(self) -> list[str]:
        """See `BoardLink.problems`."""
        known = " or ".join(map(repr, CLOCK_SOURCES))
        wrong = f"field 'usb.clock' must be {known}, but is {self.clock!r}" if self.clock not in CLOCK_SOURCES else ""
        return [*super().problems(), *filter(None, (wrong,))]
