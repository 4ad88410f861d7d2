"""The serial port of a board: 8 data bits, no parity, 1 stop bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from nnhw.links.base import BoardLink, LinkPort
from nnhw.protocol import BITS_PER_UART_BYTE

SHORTEST_CYCLES = 3
"""Fewest clock cycles of a bit: an edge is seen up to a cycle late, and a sample lies a cycle from either end."""
SHORT_CYCLES = 8
"""Bits of fewer clock cycles are short: sampling then takes more of the tolerance, and less is left to the divider."""
LIMIT, SHORT_LIMIT = 0.02, 0.01
"""By what part a rate may differ from the clock divided by a whole number; the latter for short bits."""
LEAST_RATIO = 1.5
"""Smallest ratio of two rates that the gateware can tell apart."""
ADAPTERS: Mapping[str, tuple[int, ...]] = {
    "ft2232h": (12_000_000, 8_000_000, 6_000_000, 4_800_000, 4_000_000, 3_000_000),
    "ft232h": (12_000_000, 8_000_000, 6_000_000, 4_800_000, 4_000_000, 3_000_000),
    "ft231x": (3_000_000,),
}
"""Chips between USB and a serial line, with the round rates that they make exactly, fastest first.

Source: FTDI, AN_120, aliasing VCP baud rates: 120 MHz / 10 / n, of the smaller chips 48 MHz / 16 / n; n is 1, 1.5, or 2
and more in eighths.
"""


@dataclass(frozen=True)
class Uart(BoardLink):
    """The serial port to the host.

    Parameters
    ----------
    baud: its speed in bits per second, one that any adapter and operating system can do.
    resource: its name in amaranth-boards; a board that has none there names pins instead.
    rx: pin of the package to which the host sends.
    tx: pin of the package on which the host listens.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    adapter: chip between USB and these pins: the fastest of its rates that the clock allows is used, and the driver
        falls back to `baud`; empty: only `baud` is used.
    """

    kind: ClassVar[str] = "uart"
    title: ClassVar[str] = "serial port"
    has_port: ClassVar[bool] = True
    ports: ClassVar[tuple[LinkPort, ...]] = (LinkPort("rx", "i"), LinkPort("tx", "o"))
    speed_field: ClassVar[str] = "baud"
    speed_unit: ClassVar[str] = "baud"
    bits_per_byte: ClassVar[int] = BITS_PER_UART_BYTE

    baud: int
    resource: str = ""
    rx: str = ""
    tx: str = ""
    io_standard: str = ""
    adapter: str = ""

    def rates(self, clock_hz: float) -> tuple[int, ...]:
        """See `BoardLink.rates`: the fastest of the adapter's rates that this clock can make, if any, and `baud`."""
        # One faster rate at most: the gateware can tell two rates apart, not three.
        return (*[rate for rate in self.faster_rates if _serves(clock_hz, rate)][:1], self.baud)

    @property
    def faster_rates(self) -> tuple[int, ...]:
        """Rates of the adapter that are enough above `baud`, fastest first; the clock decides which of them is used."""
        return tuple(rate for rate in ADAPTERS.get(self.adapter, ()) if rate >= LEAST_RATIO * self.baud)

    def problems(self) -> list[str]:
        """See `BoardLink.problems`."""
        known = ", ".join(f"'{name}'" for name in ADAPTERS)
        wrong = f"field 'uart.adapter' must be one of {known}, or left out, but is '{self.adapter}'"
        return super().problems() + [wrong] * (self.adapter not in ("", *ADAPTERS))

    def clock_problem(self, clock_hz: float) -> str:
        """See `BoardLink.clock_problem`: a bit must have enough cycles, and nearly a whole number of them."""
        if _serves(clock_hz, self.baud):
            return ""
        # The message proposes the rate of the nearest number of cycles that is allowed.
        divisor, cycles = max(clocks_per_bit(clock_hz, self.baud), SHORTEST_CYCLES), clock_hz / self.baud
        return (
            f"UART: {self.baud} baud from a clock of {clock_hz:.0f} Hz needs {cycles:.2f} cycles per bit; it "
            f"must be {SHORTEST_CYCLES} or more and within {_limit(divisor):.0%} of a whole number; use "
            f"{clock_hz / divisor:.0f} baud or another clock"
        )


def clocks_per_bit(clock_hz: float, baud: int) -> int:
    """Return the whole number of clock cycles nearest to one bit, 1 or more."""
    return max(1, round(clock_hz / baud))


def _limit(divisor: int) -> float:
    """Return by what part a rate may differ from clock / divisor."""
    return LIMIT if divisor >= SHORT_CYCLES else SHORT_LIMIT


def _serves(clock_hz: float, baud: int) -> bool:
    """Return whether a clock, divided by a whole number, is near enough to a rate."""
    divisor = clocks_per_bit(clock_hz, baud)
    return divisor >= SHORTEST_CYCLES and abs(clock_hz / divisor / baud - 1) <= _limit(divisor)
