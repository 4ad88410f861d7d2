"""The interface of a link: bytes in both directions, and a clock."""

from __future__ import annotations

import math
from typing import Protocol

from nnhw.errors import ClosedError

LINE_WINDOW_BYTES = 16_384
"""Window of a line without flow control: as many bytes as its buffers hold, some 50 ms at 3 Mbaud."""
LINE_WRITE_BYTES = 2048
"""Bytes written at once where `write` waits until the system has taken them: what comes meanwhile is read next."""
HELD_WINDOW_BYTES = 65_536
"""Window of what stands in for hardware: it runs without interruption as long as it has some."""
USB_LATENCY_S = 0.016
"""Longest pause that bytes on a USB are to bridge: until a busy computer runs the driver again, some frames of 1 ms."""
USB_WRITE_BYTES = LINE_WRITE_BYTES


def window_bytes(bytes_per_s: float, latency_s: float) -> int:
    """Return the bytes that must be on their way so that a link never waits for a host that looks every `latency_s`."""
    return math.ceil(bytes_per_s * latency_s)


def closed_error(name: str) -> ClosedError:
    """Return the error of a link that is used after it was closed."""
    return ClosedError(f"link '{name}': the device is closed; open it again")


class ByteLink(Protocol):
    """Bytes to and from one device.

    Members
    -------
    name: for messages.
    flow_controlled: bytes that the device cannot take yet wait, and are not lost.
    bytes_per_s: rate of the link in each direction; infinite where it is not known.
    slack_s: seconds by which the link itself may delay an answer.
    window_bytes: bytes that may be on their way in each direction: enough for its rate and latency, and few enough for
        its buffers.
    write_bytes: bytes after which results are read before more is written; None: `write` only holds them.
    """

    @property
    def name(self) -> str: ...

    @property
    def flow_controlled(self) -> bool: ...

    @property
    def bytes_per_s(self) -> float: ...

    @property
    def slack_s(self) -> float: ...

    @property
    def window_bytes(self) -> int: ...

    @property
    def write_bytes(self) -> int | None: ...

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
