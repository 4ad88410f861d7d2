"""Sending the images of a batch: which frames may be sent next, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.protocol import PAYLOAD_LIMIT_BYTES, SEQUENCES, WINDOW_FRAMES, Command, Frame, Reason


class Fault(Exception):
    """A fault on the link after which RESET and another attempt may succeed.

    Parameters
    ----------
    reason: reason that the device reported; None: it reported none.
    """

    def __init__(self, message: str = "", reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Pace:
    """How fast images may be sent, and how long to wait for them.

    Parameters
    ----------
    patience_s: seconds without any progress after which the batch has a fault.
    window_bytes: bytes of images sent and not answered, at most; two images are always allowed.
    stepwise: send a frame only when all before it are taken.
    """

    patience_s: float
    window_bytes: int
    stepwise: bool


class Sender:
    """The images of a batch, with how far they are sent and answered.

    At most `WINDOW_FRAMES` frames of each direction are on their way, so that a sequence number tells which one comes.

    Parameters
    ----------
    stream: all bytes of the images.
    image_bytes: bytes of one image.
    image_results: RESULT frames of one image.
    """

    def __init__(self, stream: memoryview, image_bytes: int, pace: Pace, image_results: int = 1) -> None:
        self._stream = stream
        self._image_bytes, self._image_results = image_bytes, image_results
        # A frame of many small images would fill the window of results at once, and the line would be idle until they
        # come: four such frames fit.
        images = max(1, WINDOW_FRAMES // (4 * image_results))
        self._payload_bytes = min(PAYLOAD_LIMIT_BYTES, images * image_bytes)
        # With a single image on its way, the engine would be idle while its result comes back and the next one is
        # sent.
        self._window = max(pace.window_bytes, 2 * image_bytes)
        self._stepwise = pace.stepwise
        self._position = self._results = 0

    @property
    def answered(self) -> int:
        """Number of images all of whose RESULT frames came."""
        return self._results // self._image_results

    def answer(self) -> None:
        """Note that the next RESULT frame came.

        Raises
        ------
        Fault: its image has not been sent.
        """
        self._results += 1
        if self._missing(self._position) < 0:
            raise Fault("a result came for an image that is not sent")

    def _missing(self, position: int) -> int:
        """Return how many RESULT frames are still to come when this many bytes are sent."""
        return position // self._image_bytes * self._image_results - self._results

    def may_send(self, sent: int, taken: int) -> bool:
        """Return whether the next frame may be sent.

        Parameters
        ----------
        sent, taken: number of frames sent to the device, and taken by it.
        """
        if self._position >= len(self._stream) or sent - taken >= (1 if self._stepwise else WINDOW_FRAMES):
            return False
        end = min(self._position + self._payload_bytes, len(self._stream))
        # The results of a single image may be more: while some are missing, it is not complete.
        if self._missing(end) > WINDOW_FRAMES and self._missing(self._position):
            return False
        return self._stepwise or self._position - self.answered * self._image_bytes < self._window

    def due(self, sent: int, taken: int, limit_bytes: int | None) -> list[Frame]:
        """Return the frames that may be sent now.

        Parameters
        ----------
        sent, taken: number of frames sent to the device, and taken by it.
        limit_bytes: after so many bytes no further frame is added, but one is always allowed; None: no limit.
        """
        frames: list[Frame] = []
        start = self._position
        while self.may_send(sent + len(frames), taken) and (
            limit_bytes is None or self._position - start < limit_bytes
        ):
            payload = bytes(self._stream[self._position : self._position + self._payload_bytes])
            frames.append(Frame(Command.DATA, (sent + len(frames)) % SEQUENCES, payload))
            self._position += len(payload)
        return frames
