"""The interface of a link: bytes in both directions, and a clock."""

from __future__ import annotations

from typing import Protocol

from nnhw.errors import ClosedError


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
    """

    @property
    def name(self) -> str: ...

    @property
    def flow_controlled(self) -> bool: ...

    @property
    def bytes_per_s(self) -> float: ...

    @property
    def slack_s(self) -> float: ...

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
