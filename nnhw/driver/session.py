"""One conversation with a device: questions, and batches of images that survive a bad link."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from nnhw.driver.framing import FrameReader, encode_frame
from nnhw.driver.links.base import ByteLink
from nnhw.errors import LinkError
from nnhw.protocol import (
    DELIMITER,
    PAYLOAD_LIMIT_BYTES,
    REASON_TEXT,
    Command,
    Counters,
    DeviceIdentity,
    Frame,
    Reason,
)

Progress = Callable[[int, int], None]
"""Called with images finished and images in all."""

_DISCARD_LIMIT_BYTES = 1 << 20
_WRITE_BYTES = 2048


class BatchError(LinkError):
    """A batch that the link did not let end.

    Parameters
    ----------
    finished: images that are done.
    results: their results: bytes from `Session`, values from `Device`.
    """

    def __init__(self, message: str, finished: int, results: np.ndarray) -> None:
        super().__init__(message)
        self.finished = finished
        self.results = results


class _Fault(Exception):
    """Something on the link that a reset may cure."""


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


class Session:
    """Speaks the protocol over a link.

    Parameters
    ----------
    link: bytes to and from the device.
    max_retries: attempts in a row without progress, after the first, before a batch or a question is given up.
    tokens: for RESET, 0 to 255; must differ from one to the next.
    """

    def __init__(self, link: ByteLink, max_retries: int = 3, tokens: Iterator[int] | None = None) -> None:
        self.link = link
        self._max_retries = max_retries
        self._tokens = tokens if tokens is not None else itertools.count(secrets.randbelow(256))
        self._reader = FrameReader()
        self._in_step = False
        self._sent = self._taken = self._results = 0

    def reset(self) -> None:
        """Empty the device and agree on sequence numbers, discarding all that was on its way.

        Raises
        ------
        LinkError: no answer, or nothing but garbage.
        """
        came = broken = 0
        for _ in range(self._max_retries + 1):
            self._reader = FrameReader()
            token = next(self._tokens) % 256
            # The delimiter ends what a host before may have left unfinished.
            self.link.write(DELIMITER + encode_frame(Frame(Command.RESET, token)))
            for data in self._listen(self.link.slack_s):
                came += len(data)
                if Frame(Command.RESET_DONE, token) in list(self._reader.feed(data)):
                    self._sent = self._taken = self._results = 0
                    self._in_step = True
                    return
            broken += self._reader.broken
        what = "nothing came" if not came else f"{came} bytes came, {broken} broken frames among them, but no answer"
        raise LinkError(
            f"link '{self.link.name}': the device does not answer: {what}, in {self._max_retries + 1} attempts of "
            f"{self.link.slack_s:.3g} s; is the accelerator loaded ('nnhw program'), the port the right one, "
            "and the baud rate that of the build?"
        )

    def _listen(self, duration_s: float) -> Iterator[bytes]:
        """Yield what comes until the time is over, or too much came."""
        deadline, came = self.link.now() + duration_s, 0
        while came < _DISCARD_LIMIT_BYTES:
            data = self.link.read(max(0.0, deadline - self.link.now()))
            came += len(data)
            if data:
                yield data
            if self.link.now() >= deadline:
                return

    def identify(self) -> DeviceIdentity:
        """Return what the device says about itself.

        Raises
        ------
        LinkError: no answer, or another protocol version.
        """
        return DeviceIdentity.unpack(self._ask(Command.IDENTIFY, Command.IDENTITY))

    def counters(self) -> Counters:
        """Return what the device has counted.

        Raises
        ------
        LinkError: no answer.
        """
        return Counters.unpack(self._ask(Command.STATUS, Command.COUNTERS))

    def _ask(self, question: Command, answer: Command) -> bytes:
        fault = _Fault()
        for number in range(self._max_retries + 1):
            if not self._in_step:
                self.reset()
            try:
                return self._ask_once(question, answer, number)
            except _Fault as error:
                fault, self._in_step = error, False
        raise LinkError(
            f"link '{self.link.name}': no answer to {question.name} in {self._max_retries + 1} attempts ({fault}); "
            "check the cable and the baud rate"
        )

    def _ask_once(self, question: Command, answer: Command, number: int) -> bytes:
        self.link.write(encode_frame(Frame(question, number)))
        for data in self._listen(self.link.slack_s):
            for frame in self._reader.feed(data):
                if frame is not None and (frame.command, frame.sequence) == (answer, number):
                    return frame.payload
                self._expect_taken(frame)
        raise _Fault("silence")

    def _expect_taken(self, frame: Frame | None) -> None:
        """Note how many frames are taken; any other frame at this place is a fault."""
        if frame is None:
            raise _Fault("a damaged frame came")
        if frame.command == Command.ERROR and len(frame.payload) == 1 and frame.payload[0] in list(Reason):
            raise _Fault(f"the device reports {REASON_TEXT[Reason(frame.payload[0])]}")
        if frame.command != Command.TAKEN:
            raise _Fault(f"a frame came that nobody asked for (command {frame.command:#04x})")
        taken = self._taken + (frame.sequence - self._taken) % 256
        if taken > self._sent:
            raise _Fault(f"the device took {taken} frames of {self._sent}")
        self._taken = taken

    def run(
        self, images: np.ndarray, output_bytes: int, pace: Pace, progress: Progress = lambda finished, total: None
    ) -> np.ndarray:
        """Send images and return their outputs.

        A fault is followed by RESET, and the batch goes on from the first image without an answer.

        Parameters
        ----------
        images: uint8 [N, input_bytes].

        Returns
        -------
        uint8 [N, output_bytes].

        Raises
        ------
        BatchError: the link is gone, or faults came too often in a row.
        """
        images = np.ascontiguousarray(images, dtype=np.uint8)
        outputs = np.zeros((len(images), output_bytes), np.uint8)
        finished = failures = 0
        while finished < len(images):
            try:
                if not self._in_step:
                    self.reset()
                for output in self._attempt(images[finished:], output_bytes, pace):
                    outputs[finished] = np.frombuffer(output, np.uint8)
                    finished, failures = finished + 1, 0
                    progress(finished, len(images))
            except _Fault as fault:
                failures, self._in_step = failures + 1, False
                if failures > self._max_retries:
                    why = f"{failures} faults without an image between them, the last: {fault}"
                    self._give_up(why, outputs, finished)
            except LinkError as error:
                self._in_step = False
                self._give_up(str(error), outputs, finished, error)
            except BaseException:
                # Ctrl-C, or the caller's own: what is on its way must not meet the next batch.
                self._in_step = False
                raise
        return outputs

    def _give_up(self, why: str, outputs: np.ndarray, finished: int, cause: Exception | None = None) -> None:
        why = why.removeprefix(f"link '{self.link.name}': ")
        raise BatchError(
            f"link '{self.link.name}': batch stopped after {finished} of {len(outputs)} images: {why} "
            "(the finished results are in the exception's 'results')",
            finished,
            outputs[:finished],
        ) from cause

    def _attempt(self, images: np.ndarray, output_bytes: int, pace: Pace) -> Iterator[bytes]:
        """Send images from a device in step; yield their outputs.

        Raises
        ------
        _Fault: anything but the frames that have to come.
        """
        sender = _Sender(images.reshape(-1).data, images.shape[1], pace)
        output = bytearray()
        deadline = self.link.now() + pace.patience_s
        while sender.answered < len(images):
            frames = sender.due(self._sent, self._taken, None if self.link.flow_controlled else _WRITE_BYTES)
            if frames:
                self._sent += len(frames)
                self.link.write(b"".join(map(encode_frame, frames)))
            more = sender.may_send(self._sent, self._taken)
            data = self.link.read(0.0 if more else max(0.0, deadline - self.link.now()))
            if data or more:
                deadline = self.link.now() + pace.patience_s
            elif self.link.now() >= deadline:
                raise _Fault(f"silence for {pace.patience_s:.3g} s")
            for frame in self._reader.feed(data):
                if frame is None or frame.command != Command.RESULT:
                    self._expect_taken(frame)
                    continue
                output += self._result(frame, output_bytes - len(output))
                if len(output) == output_bytes:
                    sender.answer()
                    yield bytes(output)
                    output.clear()

    def _result(self, frame: Frame, missing: int) -> bytes:
        if frame.sequence != self._results % 256:
            raise _Fault(f"result {frame.sequence} came, not {self._results % 256}")
        if len(frame.payload) != min(missing, PAYLOAD_LIMIT_BYTES):
            raise _Fault(f"a result of {len(frame.payload)} bytes came, not {min(missing, PAYLOAD_LIMIT_BYTES)}")
        self._results += 1
        return frame.payload


class _Sender:
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
        _Fault: for an image that is not sent.
        """
        self.answered += 1
        if self.answered * self._image_bytes > self._position:
            raise _Fault("a result came for an image that is not sent")

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
