"""The SPI port of a board at which a microcontroller is the controller and the FPGA the peripheral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nnhw.links.base import BoardLink, LinkPort

CYCLES_PER_BIT = 6
"""Fewest cycles of the design's clock per bit: 3 pass until a bit is on its pin, the others are for the wires."""


@dataclass(frozen=True)
class Spi(BoardLink):
    """SPI pins for a microcontroller: mode 0, highest bit first, the FPGA is the peripheral.

    Parameters
    ----------
    hz: highest frequency of its clock.
    resource: its name in amaranth-boards; a board that has none there names pins instead.
    cs: pin of the package that selects the FPGA, active low.
    sck: pin of the clock.
    copi: pin to which the microcontroller sends.
    cipo: pin on which the microcontroller listens; driven only while `cs` is low.
    irq: pin that is high while bytes wait to be read.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "spi"
    title: ClassVar[str] = "SPI port"
    has_port: ClassVar[bool] = False
    speed_field: ClassVar[str] = "hz"
    speed_unit: ClassVar[str] = "bit/s"
    bits_per_byte: ClassVar[int] = 8
    ports: ClassVar[tuple[LinkPort, ...]] = (
        LinkPort("cs", "i", "spi_cs"),
        LinkPort("sck", "i", "spi_sck"),
        LinkPort("copi", "i", "spi_copi"),
        LinkPort("cipo", "o", "spi_cipo", "spi_selected"),
        LinkPort("irq", "o", "spi_irq"),
    )

    hz: int
    resource: str = ""
    cs: str = ""
    sck: str = ""
    copi: str = ""
    cipo: str = ""
    irq: str = ""
    io_standard: str = ""

    def clock_problem(self, clock_hz: float) -> str:
        """See `BoardLink.clock_problem`: the design samples the pins with its own clock, which takes cycles."""
        if clock_hz >= CYCLES_PER_BIT * self.hz:
            return ""
        most = f"{clock_hz // CYCLES_PER_BIT:.0f}"
        return (
            f"SPI: a clock of {self.hz} Hz needs {CYCLES_PER_BIT} or more cycles of the design's clock per bit, and at "
            f"{clock_hz:.0f} Hz there are {clock_hz / self.hz:.2f}; lower spi.hz to {most}, or use a "
            "faster clock"
        )
