"""The serial port of a board: 8 data bits, no parity, 1 stop bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nnhw.links.base import BoardLink, Port
from nnhw.protocol import BITS_PER_UART_BYTE

LIMIT = 0.02
"""A line may be so much faster or slower than a whole number of cycles a bit."""
SHORTEST_CYCLES = 8
"""Clock cycles of a bit, at least."""


@dataclass(frozen=True)
class Uart(BoardLink):
    """The serial port to the host.

    Parameters
    ----------
    baud: its speed, in bits a second.
    resource: its name in amaranth-boards; a board that has none there names pins instead.
    rx: pin of the package to which the host sends.
    tx: pin of the package on which the host listens.
    io_standard: of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "uart"
    title: ClassVar[str] = "serial port"
    ports: ClassVar[tuple[Port, ...]] = (Port("rx", "i"), Port("tx", "o"))

    baud: int
    resource: str = ""
    rx: str = ""
    tx: str = ""
    io_standard: str = ""

    @property
    def speed(self) -> dict[str, int]:
        """See `BoardLink`."""
        return {"baud": self.baud}

    @property
    def bytes_per_s(self) -> float:
        """See `BoardLink`."""
        return self.baud / BITS_PER_UART_BYTE

    def clocks_per_bit(self, clock_hz: int) -> int:
        """Return the whole number of clock cycles nearest to one bit, 1 or more."""
        return max(1, round(clock_hz / self.baud))

    def clock_problem(self, clock_hz: int) -> str:
        """See `BoardLink`: a bit must have enough cycles, and nearly a whole number of them."""
        divisor = self.clocks_per_bit(clock_hz)
        error = clock_hz / divisor / self.baud - 1
        if divisor >= SHORTEST_CYCLES and abs(error) <= LIMIT:
            return ""
        near = clock_hz / max(divisor, SHORTEST_CYCLES)
        return (
            f"UART: {self.baud} baud from a clock of {clock_hz} Hz needs {clock_hz / self.baud:.2f} cycles per bit; "
            f"it must be {SHORTEST_CYCLES} or more and within {LIMIT:.0%} of a whole number; use {near:.0f} baud or "
            "another clock"
        )
