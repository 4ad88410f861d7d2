"""What of a batch is on its way, and how fast it may go."""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.protocol import PAYLOAD_LIMIT_BYTES, Command, Frame, Reason


class Fault(Exception):
    """Something on the link that a reset may cure.

    Parameters
    ----------
    reason: what the device reported, if it did.
    """

    def __init__(self, message: str = "", reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Pace:
    """How fast images may be sent, and how long to wait for them.

    Parameters
    ----------
    patience_s: without any sign of progress.
    window_bytes: image bytes sent and not answered, at most; two images are always allowed.
    stepwise: send a frame only when all before it are taken.
    """

    patience_s: float
    window_bytes: int
    stepwise: bool


class Sender:
    """What of a batch is sent and answered.

    Parameters
    ----------
    stream: all bytes of the images.
    image_bytes: of one.
    """

    def __init__(self, stream: memoryview, image_bytes: int, pace: Pace) -> None:
        self._stream = stream
        self._image_bytes = image_bytes
        self._window = max(pace.window_bytes, 2 * image_bytes)
        self._stepwise = pace.stepwise
        self._position = 0
        self.answered = 0

    def answer(self) -> None:
        """Note an answer.

        Raises
        ------
        Fault: for an image that is not sent.
        """
        self.answered += 1
        if self.answered * self._image_bytes > self._position:
            raise Fault("a result came for an image that is not sent")

    def may_send(self, sent: int, taken: int) -> bool:
        """Return whether the next frame may go."""
        if self._position >= len(self._stream):
            return False
        if self._stepwise:
            return sent == taken
        return self._position - self.answered * self._image_bytes < self._window

    def due(self, sent: int, taken: int, limit_bytes: int | None) -> list[Frame]:
        """Return the frames that may go now, at least one if any."""
        frames: list[Frame] = []
        start = self._position
        while self.may_send(sent + len(frames), taken) and (
            limit_bytes is None or self._position - start < limit_bytes
        ):
            payload = bytes(self._stream[self._position : self._position + PAYLOAD_LIMIT_BYTES])
            frames.append(Frame(Command.DATA, (sent + len(frames)) % 256, payload))
            self._position += len(payload)
        return frames
