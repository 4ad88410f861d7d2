"""The host's side of the protocol: questions to a device, and batches of images that survive a bad link."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from nnhw.driver.framing import FrameReader, encode_frame
from nnhw.driver.links.base import ByteLink, closed_error
from nnhw.driver.sending import Fault, Pace, Sender
from nnhw.errors import LinkError, OtherDeviceError
from nnhw.protocol import (
    DELIMITER,
    FRAME_LIMIT_BYTES,
    PAYLOAD_LIMIT_BYTES,
    REASON_TEXT,
    SEQUENCES,
    SESSIONS,
    Command,
    Counters,
    DeviceIdentity,
    Frame,
    ProgramState,
    ProgramStatus,
    Reason,
    other_version,
    result_frames,
)

Progress = Callable[[int, int], None]
"""A function called with the number of images finished, and of all images."""

# Tokens of RESET. One counter for all sessions of this process, so that a token is not used again soon; it starts at
# random, so that two processes that use a device one after the other hardly have the same.
_TOKENS = itertools.count(secrets.randbelow(SESSIONS))
# A device that sends garbage without end is given up after so many bytes.
_DISCARD_LIMIT_BYTES = 1 << 20
_KEPT = "(the finished results are in the exception's 'results')"
# Frames of a program that are sent and not taken, at most: so few that they fit the buffers of a line.
_LOAD_WINDOW = 32
# Questions for a program's state before it counts as incomplete. The last bytes of a program need less time from the
# link to the engine than one answer, so the first questions may be early.
_LOADED_QUESTIONS = 64


class BatchError(LinkError):
    """A batch that ended early because the link failed.

    Parameters
    ----------
    finished: number of images whose results are kept.
    results: their results: bytes from `Session`, values from `Device`.
    """

    def __init__(self, message: str, finished: int, results: np.ndarray) -> None:
        super().__init__(message)
        self.finished = finished
        self.results = results


class Session:
    """Speaks the protocol over a link.

    After every RESET the device is asked for its identity, before anything else. From then on the CRC of every frame
    shows that it belongs to this session, so none can come from a device that was restarted or reprogrammed since.

    It serves the process that made it. A process forked from that one has the same session and sequence numbers, and
    reads the same port: each would take answers to the other for its own.

    Parameters
    ----------
    link: bytes to and from the device.
    max_retries: attempts in a row without progress, after the first, before a batch or a question is given up.

    Members
    -------
    resets: number of RESETs that were answered; each sets the device's counters to 0, except that of bad frames.
    accept: called with the device's identity after each RESET and when a batch begins; raises LinkError if it is the
        wrong device.
    guard: called when a batch begins and after each RESET in it, before an image is sent; raises LinkError if the
        device does not have the program that it must have.
    closed: may be set by any thread; whatever runs then ends with ClosedError.
    """

    def __init__(self, link: ByteLink, max_retries: int = 3) -> None:
        self.link = link
        self.accept: Callable[[DeviceIdentity], None] = lambda identity: None
        self.guard: Callable[[], None] = lambda: None
        self.closed = False
        self._max_retries = max_retries
        self._process = os.getpid()
        self._reader = FrameReader()
        self._in_step = self._identified = False
        self._sent = self._taken = self._results = 0
        self.resets = 0

    def reset(self) -> None:
        """Empty the device, and start a new session with sequence numbers from 0; whatever was on its way is discarded.

        Raises
        ------
        LinkError: no answer, nothing but garbage, or a device of protocol version 1, which has no sessions.
        """
        came = broken = 0
        self._in_step = self._identified = False
        for _ in range(self._max_retries + 1):
            # 1 to 255: session 0 is that of a device which no RESET has reached.
            token = 1 + next(_TOKENS) % (SESSIONS - 1)
            self._reader, without_session = FrameReader(token), FrameReader()
            done = Frame(Command.RESET_DONE, token)
            # The delimiter ends a frame that another host may have left unfinished.
            self.link.write(DELIMITER + encode_frame(Frame(Command.RESET, token)))
            for data in self._listen(self.link.slack_s):
                came += len(data)
                if done in list(self._reader.feed(data)):
                    self._sent = self._taken = self._results = 0
                    self._in_step = True
                    self.resets += 1
                    return
                if done in list(without_session.feed(data)):
                    # The right answer with a plain CRC: the device is of version 1, which had no sessions.
                    raise other_version("1")
            broken += self._reader.broken
        what = "nothing came" if not came else f"{came} bytes came, {broken} broken frames among them, but no answer"
        raise LinkError(
            f"link '{self.link.name}': the device does not answer: {what}, in {self._max_retries + 1} attempts of "
            f"{self.link.slack_s:.3g} s; is the accelerator loaded ('nnhw program'), the port the right one, "
            "and the baud rate that of the build?"
        )

    def _listen(self, duration_s: float) -> Iterator[bytes]:
        """Yield bytes as they come, until the time is over, or too many came."""
        deadline, came = self.link.now() + duration_s, 0
        while came < _DISCARD_LIMIT_BYTES:
            self.check_open()
            data = self.link.read(max(0.0, deadline - self.link.now()))
            came += len(data)
            if data:
                yield data
            if self.link.now() >= deadline:
                return

    @property
    def forked(self) -> bool:
        """Whether this process is not the one that opened the session."""
        return os.getpid() != self._process

    def check_open(self) -> None:
        """Raise ClosedError if the device is closed, and LinkError in a process that was forked since it was opened."""
        if self.forked:
            raise LinkError(
                f"link '{self.link.name}': the device belongs to process {self._process}, which opened it, but this is "
                f"process {os.getpid()}, which was forked from it; open a device in this process, or start processes "
                "with multiprocessing's 'spawn' method"
            )
        if self.closed:
            raise closed_error(self.link.name)

    def identify(self) -> DeviceIdentity:
        """Return the device's identity, once `accept` has accepted it.

        Raises
        ------
        LinkError: no answer, another protocol version, or not accepted.
        """
        return DeviceIdentity.unpack(self._ask(Command.IDENTIFY, Command.IDENTITY))

    def counters(self) -> Counters:
        """Return the device's counters.

        Raises
        ------
        LinkError: no answer.
        """
        return Counters.unpack(self._ask(Command.STATUS, Command.COUNTERS))

    def program_status(self) -> ProgramStatus:
        """Return the state of the device's program.

        Raises
        ------
        LinkError: no answer, or the device's engine runs no programs.
        """
        return ProgramStatus.unpack(self._ask(Command.PROGRAM, Command.PROGRAM_STATUS))

    def load(self, image: bytes, progress: Progress = lambda finished, total: None) -> ProgramStatus:
        """Send a program; return its state on the device.

        A fault is followed by RESET, after which the program is sent again from its first byte.

        Parameters
        ----------
        progress: called with bytes taken and bytes in all.

        Raises
        ------
        LinkError: the link is gone, or there were too many faults without further progress.
        """
        furthest = failures = 0
        while True:
            try:
                self.reset()
                self.identify()
                for taken in self._attempt_load(image):
                    if taken > furthest:
                        furthest, failures = taken, 0
                        progress(taken, len(image))
                status = self._loaded()
            except Fault as fault:
                failures += 1
                if failures > self._max_retries:
                    raise LinkError(
                        f"link '{self.link.name}': the program could not be loaded: {failures} faults without getting "
                        f"further than {furthest} of {len(image)} bytes, the last: {fault}; "
                        "check the cable and the baud rate"
                    ) from None
            else:
                return status
            finally:
                # The next attempt and the first image both need a RESET: sequence numbers count the frames of programs,
                # too.
                self._in_step = False

    def _attempt_load(self, image: bytes) -> Iterator[int]:
        """Send a program after a RESET; yield the number of its bytes that are taken, whenever it grows.

        Raises
        ------
        Fault: a frame came that must not come, or none in time.
        """
        parts = [image[at : at + PAYLOAD_LIMIT_BYTES] for at in range(0, len(image), PAYLOAD_LIMIT_BYTES)]
        patience_s = self.link.slack_s + 2 * _LOAD_WINDOW * FRAME_LIMIT_BYTES / self.link.bytes_per_s
        deadline = self.link.now() + patience_s
        while self._taken < len(parts):
            self.check_open()
            due = range(self._sent, min(len(parts), self._taken + _LOAD_WINDOW))
            frames = (Frame(Command.LOAD, number % SEQUENCES, parts[number]) for number in due)
            self.link.write(b"".join(map(encode_frame, frames)))
            self._sent += len(due)
            before = self._taken
            for frame in self._reader.feed(self.link.read(max(0.0, deadline - self.link.now()))):
                self._expect_taken(frame)
            if self._taken > before:
                deadline = self.link.now() + patience_s
                yield min(self._taken * PAYLOAD_LIMIT_BYTES, len(image))
            elif self.link.now() >= deadline:
                raise Fault(f"silence for {patience_s:.3g} s")

    def _loaded(self) -> ProgramStatus:
        """Ask for the program's state until it is complete.

        Raises
        ------
        Fault: the device still waits for bytes after `_LOADED_QUESTIONS` questions.
        """
        for number in range(_LOADED_QUESTIONS):
            status = ProgramStatus.unpack(self._ask_once(Command.PROGRAM, Command.PROGRAM_STATUS, number))
            if status.state != ProgramState.LOADING:
                return status
        raise Fault("the device waits for more bytes than were sent")

    def _ask(self, question: Command, answer: Command) -> bytes:
        fault = Fault()
        for number in range(self._max_retries + 1):
            if not self._in_step:
                self.reset()
            try:
                if question == Command.IDENTIFY:
                    return self._identify_once(number)
                if not self._identified:
                    self._identify_once(number)
                return self._ask_once(question, answer, number)
            except Fault as error:
                fault, self._in_step = error, False
            except BaseException:
                # The answer may still come, and must not be taken for that to the next question.
                self._in_step = False
                raise
            if fault.reason == Reason.COMMAND:
                raise LinkError(
                    f"link '{self.link.name}': the device does not know the command {question.name}; "
                    "build the accelerator again with this nnhw, and load it with 'nnhw program'"
                )
        raise LinkError(
            f"link '{self.link.name}': no answer to {question.name} in {self._max_retries + 1} attempts ({fault}); "
            "check the cable and the baud rate"
        )

    def _identify_once(self, number: int) -> bytes:
        """Return the payload with the identity, once `accept` has accepted it."""
        payload = self._ask_once(Command.IDENTIFY, Command.IDENTITY, number)
        self._identify_by(payload)
        return payload

    def _identify_by(self, payload: bytes) -> None:
        self._identified = False
        self.accept(DeviceIdentity.unpack(payload))
        self._identified = True

    def _ask_once(self, question: Command, answer: Command, number: int) -> bytes:
        self.link.write(encode_frame(Frame(question, number)))
        for data in self._listen(self.link.slack_s):
            for frame in self._reader.feed(data):
                if frame is not None and (frame.command, frame.sequence) == (answer, number):
                    return frame.payload
                self._expect_taken(frame)
        raise Fault("silence")

    def _expect_taken(self, frame: Frame | None) -> None:
        """Take a TAKEN frame, which says how many frames the device has taken; any other frame is a fault."""
        if frame is None:
            raise Fault("a damaged frame came")
        if frame.command == Command.ERROR and len(frame.payload) == 1 and frame.payload[0] in list(Reason):
            reason = Reason(frame.payload[0])
            raise Fault(f"the device reports {REASON_TEXT[reason]}", reason)
        if frame.command != Command.TAKEN:
            raise Fault(f"a frame came that nobody asked for (command {frame.command:#04x})")
        # One TAKEN may stand for several frames, of which fewer than 256 are on their way.
        taken = self._taken + (frame.sequence - self._taken) % SEQUENCES
        if taken > self._sent:
            raise Fault(f"the device took {taken} frames of {self._sent}")
        self._taken = taken

    def run(
        self,
        images: np.ndarray,
        output_bytes: int,
        pace: Pace,
        progress: Progress = lambda finished, total: None,
        starts: np.ndarray | None = None,
        first: int = 0,
    ) -> np.ndarray:
        """Send images and return their outputs.

        A fault is followed by RESET, and the batch goes on from the first image without an answer, if the device is
        still the same. If it is another one, no output of the batch is kept.

        Parameters
        ----------
        images: uint8 [N, input_bytes].
        output_bytes: bytes of the output of an image.
        starts: int [N], for images that are steps of sequences: index of the first step of each one's sequence, from
            which the batch goes on after a RESET, as that clears the device's state. None: images are independent.
        first: index of the first image to send; those before were sent earlier, and the device has their state.

        Returns
        -------
        uint8 [N - first, output_bytes].

        Raises
        ------
        BatchError: the link is gone, or there were too many faults in a row.
        """
        images = np.ascontiguousarray(images, dtype=np.uint8)
        outputs = np.zeros((len(images) - first, output_bytes), np.uint8)
        at = best = first
        failures = 0
        while best < len(images):
            try:
                ask = self._in_step
                if not ask:
                    at = best if starts is None else int(starts[best])
                    self.reset()
                    self.identify()
                self.guard()
                for output in self._attempt(images[at:], output_bytes, pace, ask):
                    at += 1
                    # Images that are sent again only to bring the state back have their results already.
                    if at > best:
                        outputs[best - first] = np.frombuffer(output, np.uint8)
                        best, failures = at, 0
                        progress(best - first, len(outputs))
            except Fault as fault:
                failures, self._in_step = failures + 1, False
                if failures > self._max_retries:
                    why = f"{failures} faults without an image between them, the last: {fault}"
                    self._give_up(f"{why} {_KEPT}", outputs[: best - first], best - first, len(outputs))
            except OtherDeviceError as error:
                self._in_step = False
                why = f"{error}; no result of this batch is kept"
                self._give_up(why, outputs[:0], best - first, len(outputs), error)
            except LinkError as error:
                self._in_step = False
                self._give_up(f"{error} {_KEPT}", outputs[: best - first], best - first, len(outputs), error)
            except BaseException:
                # Ctrl-C, or an exception of `progress`: answers that are still on their way must not meet the next
                # batch.
                self._in_step = False
                raise
        return outputs

    def _give_up(
        self, why: str, kept: np.ndarray, finished: int, total: int, cause: Exception | None = None
    ) -> NoReturn:
        why = why.removeprefix(f"link '{self.link.name}': ")
        stopped = f"link '{self.link.name}': batch stopped after {finished} of {total} images: {why}"
        raise BatchError(stopped, len(kept), kept) from cause

    def _attempt(self, images: np.ndarray, output_bytes: int, pace: Pace, ask: bool) -> Iterator[bytes]:
        """Send images to a device whose sequence numbers are known; yield their outputs.

        Parameters
        ----------
        ask: ask for the device's identity in front of the images, without waiting; no output counts before the answer.

        Raises
        ------
        Fault: a frame came that must not come, or none in time.
        """
        sender = Sender(images.reshape(-1).data, images.shape[1], pace, result_frames(output_bytes))
        output = bytearray()
        deadline = self.link.now() + pace.patience_s
        if ask:
            self.link.write(encode_frame(Frame(Command.IDENTIFY, 0)))
        while sender.answered < len(images):
            self.check_open()
            frames = sender.due(self._sent, self._taken, self.link.write_bytes)
            if frames:
                self._sent += len(frames)
                self.link.write(b"".join(map(encode_frame, frames)))
            more = sender.may_send(self._sent, self._taken)
            data = self.link.read(0.0 if more else max(0.0, deadline - self.link.now()))
            if data or more:
                deadline = self.link.now() + pace.patience_s
            elif self.link.now() >= deadline:
                raise Fault(f"silence for {pace.patience_s:.3g} s")
            for frame in self._reader.feed(data):
                if ask and frame is not None and frame.command == Command.IDENTITY:
                    self._identify_by(frame.payload)
                    ask = False
                    continue
                if ask or frame is None or frame.command != Command.RESULT:
                    self._expect_taken(frame)
                    continue
                output += self._result(frame, output_bytes - len(output))
                sender.answer()
                if len(output) == output_bytes:
                    yield bytes(output)
                    output.clear()

    def _result(self, frame: Frame, missing: int) -> bytes:
        if frame.sequence != self._results % SEQUENCES:
            raise Fault(f"result {frame.sequence} came, not {self._results % SEQUENCES}")
        if len(frame.payload) != min(missing, PAYLOAD_LIMIT_BYTES):
            raise Fault(f"a result of {len(frame.payload)} bytes came, not {min(missing, PAYLOAD_LIMIT_BYTES)}")
        self._results += 1
        return frame.payload
