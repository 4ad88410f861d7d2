"""The SPI port of an FTDI chip with an MPSSE, at the pins that a board shares between the chip, flash and FPGA."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from nnhw.links.base import BoardLink, LinkPort

CYCLES_PER_BYTE = 6
"""Fewest cycles of the design's clock per byte: 4 pass until a byte has crossed into it and left the register again."""
BASE_HZ = 60_000_000
"""Clock of the MPSSE of chips of the H series, which is divided by 2, 4, 6, and so on.

Source: FTDI, AN_108, command processor for MPSSE, commands 0x86 and 0x8A.
"""


@dataclass(frozen=True)
class Ftdi(BoardLink):
    """SPI from a computer by an FT2232H or FT232H, at the pins of the flash: mode 0, highest bit first.

    The flash's select is the FPGA's as well, the other way round: the FPGA listens while the flash is not selected.

    Parameters
    ----------
    hz: highest frequency of its clock.
    resource: its name in amaranth-boards; a board that has none there names pins instead.
    cs: pin of the package that selects the flash, active low; the FPGA listens, and drives `cipo`, while it is high.
    sck: pin of the clock.
    copi: pin to which the computer sends.
    cipo: pin on which the computer listens.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "ftdi"
    title: ClassVar[str] = "SPI port of an FTDI chip"
    has_port: ClassVar[bool] = True
    speed_field: ClassVar[str] = "hz"
    speed_unit: ClassVar[str] = "bit/s"
    bits_per_byte: ClassVar[int] = 8
    shares_flash: ClassVar[bool] = True
    ports: ClassVar[tuple[LinkPort, ...]] = (
        LinkPort("cs", "i", "ftdi_cs"),
        LinkPort("sck", "i", "ftdi_sck", clocks=True),
        LinkPort("copi", "i", "ftdi_copi"),
        LinkPort("cipo", "o", "ftdi_cipo", "ftdi_listens"),
    )

    hz: int
    resource: str = ""
    cs: str = ""
    sck: str = ""
    copi: str = ""
    cipo: str = ""
    io_standard: str = ""

    def rates(self, clock_hz: float) -> tuple[int, ...]:
        """See `BoardLink.rates`: the fastest that chip, board and clock have in common, and half of it."""
        most = min(self.hz, 8 * clock_hz / CYCLES_PER_BYTE)
        divisor = 2 * max(1, math.ceil(BASE_HZ / 2 / most))
        return BASE_HZ // divisor, BASE_HZ // (2 * divisor)

    def clock_problem(self, clock_hz: float) -> str:
        """See `BoardLink.clock_problem`: the chip divides its clock as far down as any design needs."""
        return ""
