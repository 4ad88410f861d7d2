"""A link to the byte streams of running hardware that is not a board: compiled RTL or a simulator."""

from __future__ import annotations

import math
from typing import Protocol

from nnhw.driver.links.base import HELD_WINDOW_BYTES, LINE_WINDOW_BYTES, LINE_WRITE_BYTES, closed_error
from nnhw.errors import LinkError, NnhwError

_SLACK_CYCLES = 200_000
"""Cycles by which simulated hardware may be late: buffered bytes go in first."""


class Hardware(Protocol):
    """Running hardware with a byte stream in and a byte stream out."""

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up."""

    def transfer(self, data: bytes, budget_cycles: int) -> bytes:
        """Send bytes and run the hardware; return the bytes that came once no more come, or the cycles are spent."""

    def close(self) -> None:
        """Free the hardware."""


class HardwareLink:
    """Bytes into and out of `Hardware`, whose cycles are also the link's clock.

    Parameters
    ----------
    hardware: the running hardware.
    clock_hz: cycles of the hardware that count as one second.
    name: of the link, for messages.
    bytes_per_s: rate in each direction.
    flow_controlled: bytes that the hardware cannot take yet wait; False at the pins of a line, which loses them.
    """

    def __init__(
        self,
        hardware: Hardware,
        clock_hz: int,
        name: str = "sim",
        bytes_per_s: float = math.inf,
        flow_controlled: bool = True,
    ) -> None:
        self.name = name
        self.bytes_per_s = bytes_per_s
        self.flow_controlled = flow_controlled
        self.window_bytes = HELD_WINDOW_BYTES if flow_controlled else LINE_WINDOW_BYTES
        self.write_bytes = None if flow_controlled else LINE_WRITE_BYTES
        self.hardware = hardware
        self._clock_hz = clock_hz
        self._waiting = bytearray()
        self._closed = False

    @property
    def slack_s(self) -> float:
        """Time for the engine to take the bytes that are buffered before a question. Real answers come much earlier."""
        return _SLACK_CYCLES / self._clock_hz

    def write(self, data: bytes) -> None:
        """Hold bytes until the next `read`."""
        self._waiting += data

    def read(self, timeout_s: float) -> bytes:
        """Run the hardware.

        Raises
        ------
        LinkError: it does not take its bytes, or is closed.
        """
        if self._closed:
            raise closed_error(self.name)
        data = bytes(self._waiting)
        self._waiting.clear()
        # The timeout covers the engine's time; bytes go in at one per cycle at best, or at the rate of the link.
        way_s = len(data) / self.bytes_per_s
        budget_cycles = math.ceil((timeout_s + way_s) * self._clock_hz) + 2 * len(data)
        try:
            return self.hardware.transfer(data, budget_cycles)
        except NnhwError as error:
            raise LinkError(f"link '{self.name}': {error}") from error

    def now(self) -> float:
        """Return the hardware's time.

        Raises
        ------
        LinkError: it is closed.
        """
        if self._closed:
            raise closed_error(self.name)
        return self.hardware.cycles / self._clock_hz

    def close(self) -> None:
        """Free the hardware."""
        self._closed = True
        self.hardware.close()
