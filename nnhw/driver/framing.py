"""Frames on the byte stream, host side."""

from __future__ import annotations

from collections.abc import Iterator

from cobs import cobs

from nnhw.errors import LinkError
from nnhw.protocol import DELIMITER, FRAME_LIMIT_BYTES, Frame

_WIRE_LIMIT_BYTES = FRAME_LIMIT_BYTES + 1


def encode_frame(frame: Frame, session: int = 0) -> bytes:
    """Return a frame as it goes over the wire; those of the host are of session 0."""
    return bytes(cobs.encode(frame.to_bytes(session))) + DELIMITER


class FrameReader:
    """Cuts a byte stream into frames.

    Parameters
    ----------
    session: of the frames; those of another one are broken.

    Members
    -------
    frames, broken: how many of each there were.
    """

    def __init__(self, session: int = 0) -> None:
        self._session = session
        self._rest = bytearray()
        self.frames = 0
        self.broken = 0

    def feed(self, data: bytes) -> Iterator[Frame | None]:
        """Take bytes; yield each frame that is complete, None for one that is broken. Empty ones mean nothing."""
        parts = (bytes(self._rest) + data).split(DELIMITER)
        # Garbage without a delimiter is kept only so far as it takes to know that it is garbage.
        self._rest = bytearray(parts.pop()[: _WIRE_LIMIT_BYTES + 1])
        for part in parts:
            if part:
                yield self._decode(part)

    def _decode(self, part: bytes) -> Frame | None:
        try:
            frame = Frame.from_bytes(cobs.decode(part), self._session) if len(part) <= _WIRE_LIMIT_BYTES else None
        except (cobs.DecodeError, LinkError):
            frame = None
        if frame is None:
            self.broken += 1
        else:
            self.frames += 1
        return frame
