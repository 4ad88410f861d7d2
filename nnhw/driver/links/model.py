"""A device in Python: it speaks the same protocol as the gateware, and computes with a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nnhw.driver.framing import FrameReader, encode_frame
from nnhw.driver.links.base import HELD_WINDOW_BYTES, closed_error
from nnhw.driver.links.model_program import ProgramChain, ProgramMemory
from nnhw.protocol import ANSWER, PAYLOAD_LIMIT_BYTES, SEQUENCES, Command, Counters, DeviceIdentity, Frame, Reason

Compute = Callable[[np.ndarray], np.ndarray]
"""uint8 [N, input_bytes] -> uint8 [N, output_bytes]."""


class ModelBoard:
    """The gateware's side of the protocol in Python; as it has no time, counters of cycles stay 0.

    Parameters
    ----------
    identity: the answer to IDENTIFY.
    compute: computes the outputs of all images that are complete.
    memory: program memory of a shared engine; None: the engine runs no programs.
    image_bytes: bytes of an input, where those of the identity are not the engine's.
    """

    def __init__(
        self,
        identity: DeviceIdentity,
        compute: Compute,
        memory: ProgramMemory | ProgramChain | None = None,
        image_bytes: int | None = None,
    ) -> None:
        self.identity = identity
        self.memory = memory
        self._image_bytes = image_bytes or identity.input_bytes
        self._compute = compute
        self._reader = FrameReader()
        self._session = 0
        self._counters = Counters(0, 0, 0, 0, 0)
        self._taken = 0
        self._input = bytearray()

    def exchange(self, data: bytes) -> bytes:
        """Take bytes from the host, and return the device's answer to them."""
        out = b"".join(self._act(frame) for frame in self._reader.feed(data))
        return out + self._results()

    def _act(self, frame: Frame | None) -> bytes:
        if frame is None:
            return self._drop(Reason.DAMAGED)
        if frame.command == Command.RESET:
            self._reset(frame.sequence)
            return self._answer(frame)
        if frame.command == Command.IDENTIFY:
            return self._answer(frame, self.identity.pack())
        if frame.command == Command.STATUS:
            before = self._results()
            return before + self._answer(frame, self._counters.pack())
        if frame.command == Command.DATA:
            return self._take(frame)
        if self.memory is not None and frame.command == Command.LOAD:
            return self._take(frame)
        if self.memory is not None and frame.command == Command.PROGRAM:
            return self._answer(frame, self.memory.status.pack())
        return self._drop(Reason.COMMAND)

    def _answer(self, frame: Frame, payload: bytes = b"") -> bytes:
        return self._encode(Frame(frame.command | ANSWER, frame.sequence, payload))

    def _encode(self, frame: Frame) -> bytes:
        return encode_frame(frame, self._session)

    def _take(self, frame: Frame) -> bytes:
        is_load = frame.command == Command.LOAD
        if self.memory is not None and not is_load and not self.memory.ready:
            return self._drop(Reason.PROGRAM)
        if frame.sequence != self._taken % SEQUENCES:
            # Frames of images and programs count together; one that is lost shows at the next.
            return self._drop(Reason.SEQUENCE)
        self._taken += 1
        if self.memory is not None and is_load:
            self.memory.take(frame.payload)
        else:
            self._input += frame.payload
        return self._encode(Frame(Command.TAKEN, self._taken % SEQUENCES))

    def _drop(self, reason: Reason) -> bytes:
        before = self._results()
        self._counters = replace(self._counters, bad_frames=(self._counters.bad_frames + 1) % 256)
        return before + self._encode(Frame(Command.ERROR, 0, bytes([reason])))

    def _reset(self, token: int) -> None:
        self._session = token
        self._taken = 0
        self._input.clear()
        if self.memory is not None:
            self.memory.reset()
        self._counters = Counters(0, 0, 0, 0, self._counters.bad_frames)

    def _results(self) -> bytes:
        """Return the RESULT frames of all images that are complete, and take them from the input."""
        size = self._image_bytes
        count = len(self._input) // size
        if not count:
            return b""
        images = np.frombuffer(bytes(self._input[: count * size]), np.uint8).reshape(count, size)
        del self._input[: count * size]
        return b"".join(self._result(output.tobytes()) for output in self._compute(images))

    def _result(self, output: bytes) -> bytes:
        frames = []
        for start in range(0, len(output), PAYLOAD_LIMIT_BYTES):
            sequence = self._counters.results % SEQUENCES
            frames.append(self._encode(Frame(Command.RESULT, sequence, output[start : start + PAYLOAD_LIMIT_BYTES])))
            self._counters = replace(self._counters, results=(self._counters.results + 1) % (1 << 16))
        return b"".join(frames)


class ModelLink:
    """A link to a `ModelBoard`. Its clock advances only by waiting, which takes no real time."""

    flow_controlled = True
    bytes_per_s = math.inf
    slack_s = 0.1
    window_bytes = HELD_WINDOW_BYTES
    write_bytes: int | None = None

    def __init__(self, board: ModelBoard, name: str = "model") -> None:
        self.board = board
        self.name = name
        self._waiting = bytearray()
        self._time_s = 0.0
        self._closed = False

    def write(self, data: bytes) -> None:
        """Send bytes.

        Raises
        ------
        LinkError: it is closed.
        """
        if self._closed:
            raise closed_error(self.name)
        self._waiting += self.board.exchange(data)

    def read(self, timeout_s: float) -> bytes:
        """Return what has come; advance the clock if that is nothing.

        Raises
        ------
        LinkError: it is closed.
        """
        if self._closed:
            raise closed_error(self.name)
        if not self._waiting:
            self._time_s += timeout_s
        data = bytes(self._waiting)
        self._waiting.clear()
        return data

    def now(self) -> float:
        """Return the clock."""
        return self._time_s

    def close(self) -> None:
        """Close the link; reading and writing raise ClosedError from now on."""
        self._closed = True
