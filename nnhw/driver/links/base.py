"""The interface of a link: bytes in both directions, and a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from nnhw.errors import ClosedError
from nnhw.protocol import USB_BYTES_PER_S, USB_FAST_BYTES_PER_S

LINE_WINDOW_BYTES = 16_384
"""Window of a line without flow control: as many bytes as its buffers hold, some 50 ms at 3 Mbaud."""
LINE_WRITE_BYTES = 2048
"""Bytes written at once where `write` waits until the system has taken them: what comes meanwhile is read next."""
HELD_WINDOW_BYTES = 65_536
"""Window of what stands in for hardware: it runs without interruption as long as it has some."""


def window_bytes(bytes_per_s: float, latency_s: float) -> int:
    """Return the bytes that must be on their way so that a link never waits for a host that looks every `latency_s`."""
    return math.ceil(bytes_per_s * latency_s)


@dataclass(frozen=True)
class UsbFlow:
    """How much the driver of a USB port keeps on its way.

    Parameters
    ----------
    bytes_per_s: rate of both directions together.
    latency_s: longest pause that bytes on their way are to bridge: until the driver runs again.
    write_bytes: bytes after which results are read before more is written.
    """

    bytes_per_s: float
    latency_s: float
    write_bytes: int

    @property
    def window_bytes(self) -> int:
        """Bytes on their way."""
        return window_bytes(self.bytes_per_s, self.latency_s)


USB_FLOWS = {
    "usb": UsbFlow(USB_BYTES_PER_S, 0.016, LINE_WRITE_BYTES),
    "ulpi": UsbFlow(USB_FAST_BYTES_PER_S, 0.001, 16_384),
}
"""Of USB ports, by kind of the link.

At full speed, 16 ms are what a busy computer may take until it runs the driver again. At high speed it is eight
micro-frames: results of more bytes would not fit the buffers of a system's port (64 KiB in Linux), and a device that
cannot get rid of its results takes no images, so that writing would come to no end. A call for each 2 KiB would last
longer than these do on the bus.
"""


def closed_error(name: str) -> ClosedError:
    """Return the error of a link that is used after it was closed."""
    return ClosedError(f"link '{name}': the device is closed; open it again")


class ByteLink(Protocol):
    """Bytes to and from one device."""

    @property
    def name(self) -> str:
        """Name of the link, for messages."""

    @property
    def flow_controlled(self) -> bool:
        """Whether bytes that the device cannot take yet wait instead of being lost."""

    @property
    def bytes_per_s(self) -> float:
        """Rate in each direction, in bytes per second; infinite where it is not known."""

    @property
    def slack_s(self) -> float:
        """Seconds by which the link itself may delay an answer."""

    @property
    def window_bytes(self) -> int:
        """Bytes that may be on their way in each direction: enough for rate and latency, few enough for the buffers."""

    @property
    def write_bytes(self) -> int | None:
        """Bytes after which results are read before more is written; None: `write` only holds them."""

    def write(self, data: bytes) -> None:
        """Send bytes, or hold them until the next `read`.

        Raises
        ------
        LinkError: the link is gone.
        """

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes that have come; without any, wait for some at most `timeout_s` seconds; empty if none came.

        Raises
        ------
        LinkError: the link is gone.
        """

    def now(self) -> float:
        """Return the link's time in seconds, from any origin; it advances while `read` waits."""

    def close(self) -> None:
        """Free the link. Closing again does nothing."""
