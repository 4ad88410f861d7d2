"""Frames on the byte stream, as the host sends and receives them; see `nnhw.protocol`."""

from __future__ import annotations

from collections.abc import Iterator

from cobs import cobs

from nnhw.errors import LinkError
from nnhw.protocol import DELIMITER, FRAME_LIMIT_BYTES, Frame

_WIRE_LIMIT_BYTES = FRAME_LIMIT_BYTES + 1


def encode_frame(frame: Frame, session: int = 0) -> bytes:
    """Return the bytes of a frame on the wire: COBS, then the delimiter. Frames of the host are of session 0."""
    return bytes(cobs.encode(frame.to_bytes(session))) + DELIMITER


class FrameReader:
    """Cuts a byte stream into frames.

    Parameters
    ----------
    session: session of the frames; a frame of another one counts as broken.

    Members
    -------
    frames, broken: number of good and of broken frames so far.
    """

    def __init__(self, session: int = 0) -> None:
        self._session = session
        self._rest = bytearray()
        self.frames = 0
        self.broken = 0

    def feed(self, data: bytes) -> Iterator[Frame | None]:
        """Add bytes; yield each frame that is complete, None for a broken one. Empty ones are skipped."""
        parts = (bytes(self._rest) + data).split(DELIMITER)
        # Bytes without a delimiter are garbage once they are longer than any frame: no more of them are kept than show
        # it.
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
