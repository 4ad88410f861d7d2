"""What the driver needs of a link: bytes both ways, and a clock."""

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
    flow_controlled: bytes wait for the device instead of being lost when it cannot take them.
    bytes_per_s: what the link moves in each direction; infinite where nothing is known.
    slack_s: how late an answer may be on the link's own account.
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
        """Return what has come; wait for it at most so long; empty if nothing came.

        Raises
        ------
        LinkError: the link is gone.
        """

    def now(self) -> float:
        """Return the time in seconds, from any origin; it moves while `read` waits."""

    def close(self) -> None:
        """Free the link. Closing twice is no mistake."""
