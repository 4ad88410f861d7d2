"""USB of high speed by a PHY chip at the FPGA, which has the wires, clocks the gateware, and takes bytes (ULPI)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nnhw.links.base import BoardLink, LinkPort
from nnhw.protocol import PAYLOAD_LIMIT_BYTES, USB_FAST_BYTES_PER_S, WIRE_OVERHEAD_BYTES

PHY_CLOCK_HZ = 60_000_000
"""Clock of the PHY, a byte a cycle. Source: UTMI+ Low Pin Interface (ULPI) 1.1, 3.2."""
RESET_LEVELS = ("high", "low")
"""What holds a PHY in reset; see `Ulpi`."""
_PAUSE_CYCLES = 4
"""Cycles behind each frame in which the device takes no byte, see `nnhw.hdl.link.framing.receiver`."""


@dataclass(frozen=True)
class Ulpi(BoardLink):
    """USB of high speed by a ULPI PHY that gives the clock of 60 MHz: a serial port of a computer (CDC-ACM).

    Parameters
    ----------
    resource: its name in amaranth-boards; a board that has none there names pins instead.
    clk: pin of the package to which the PHY gives its clock.
    data: the eight pins of its data, the lowest bit first, separated by blanks.
    dir: pin of `DIR`, by which the PHY says that it drives the data.
    nxt: pin of `NXT`.
    stp: pin of `STP`.
    rst: pin of its reset.
    reset: level of the pin `rst` that holds the PHY in reset: 'high' (USB3300) or 'low' (USB3340 and most others); with
        `resource`, amaranth-boards knows it.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "ulpi"
    called: ClassVar[tuple[str, ...]] = ("usb",)
    title: ClassVar[str] = "USB port behind a ULPI PHY"
    has_port: ClassVar[bool] = True
    ports: ClassVar[tuple[LinkPort, ...]] = (
        LinkPort("clk", "i", "ulpi_clk", clocks=True),
        LinkPort("data", "io", "ulpi_data", "ulpi_driven", width=8),
        LinkPort("dir", "i", "ulpi_dir"),
        LinkPort("nxt", "i", "ulpi_nxt"),
        LinkPort("stp", "o", "ulpi_stp"),
        LinkPort("rst", "o", "ulpi_rst"),
    )
    speed_field: ClassVar[str] = "hz"
    speed_unit: ClassVar[str] = "bit/s"
    bits_per_byte: ClassVar[int] = 8
    # The eight pins of data carry both directions, as the wires of the USB do.
    half_duplex: ClassVar[bool] = True
    hz: ClassVar[int] = 480_000_000

    resource: str = ""
    clk: str = ""
    data: str = ""
    dir: str = ""
    nxt: str = ""
    stp: str = ""
    rst: str = ""
    reset: str = RESET_LEVELS[0]
    io_standard: str = ""

    @property
    def pin_clock_hz(self) -> int:
        return PHY_CLOCK_HZ

    @property
    def inverted(self) -> tuple[str, ...]:
        return ("rst",) if self.reset == "low" else ()

    def bytes_per_s(self, clock_hz: float) -> float:
        """See `BoardLink.bytes_per_s`: what bulk packets carry, or the bytes that the device takes, one a cycle."""
        frame = PAYLOAD_LIMIT_BYTES + WIRE_OVERHEAD_BYTES
        return min(USB_FAST_BYTES_PER_S, clock_hz * frame / (frame + _PAUSE_CYCLES))

    def clock_problem(self, clock_hz: float) -> str:
        """See `BoardLink.clock_problem`: the PHY has a clock of its own, so any clock of the design will do."""
        return ""

    def problems(self) -> list[str]:
        """See `BoardLink.problems`."""
        found = super().problems()
        if len(self.data.split()) > 8:
            found.append(f"field 'ulpi.data' must name eight pins, separated by blanks, but is {self.data!r}")
        if self.reset not in RESET_LEVELS:
            found.append(f"field 'ulpi.reset' must be 'high' or 'low', but is {self.reset!r}")
        return found
