"""Images as frames of the protocol, and what has to come back: the same at the pins of every link."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cobs import cobs
from cocotb.utils import get_sim_time

from nnhw.protocol import DELIMITER, PAYLOAD_LIMIT_BYTES, Command, DeviceIdentity, Frame

from .harness import BenchFailure

TOKEN = 0x5A
"""Of the RESET that begins the session."""


class Answers:
    """The frames that a device sends, of the bytes on its wire.

    Members
    -------
    frames: in their order, without TAKEN. taken: sequence number of the last TAKEN. last_ns: when the last byte came,
    of those that fill nothing.
    """

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.taken = 0
        self.last_ns = 0.0
        self._received = bytearray()
        self._session = 0

    def take(self, byte: int) -> None:
        """Take a byte. Zeros between frames fill."""
        if not byte and not self._received:
            return
        self.last_ns = get_sim_time("ns")
        if byte:
            self._received.append(byte)
            return
        data, self._received = cobs.decode(bytes(self._received)), bytearray()
        if data[0] == Command.RESET_DONE:
            self._session = data[1]
        frame = Frame.from_bytes(data, self._session)
        if frame.command == Command.TAKEN:
            self.taken = frame.sequence
        else:
            self.frames.append(frame)

    @property
    def is_between(self) -> bool:
        """Whether no frame has begun."""
        return not self._received

    @property
    def has_error(self) -> bool:
        """Whether the device has reported a bad frame."""
        return any(frame.command == Command.ERROR for frame in self.frames)

    def drop_errors(self) -> None:
        """Forget the reports of bad frames."""
        self.frames = [frame for frame in self.frames if frame.command != Command.ERROR]


def read_plan() -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return the plan that NNHW_PLAN names, the images and their outputs: uint8 [frames, bytes] both."""
    plan = json.loads(Path(os.environ["NNHW_PLAN"]).read_text(encoding="utf-8"))
    with np.load(plan["arrays"], allow_pickle=False) as stored:
        return plan, stored["input"], stored["output"]


def conclude(plan: Mapping[str, Any], frames: int, mismatches: int, cycles: int, faults: int, pin: str) -> None:
    """Write what a bench found; a wrong output at a pin fails it."""
    document = {"frames": frames, "mismatches": mismatches, "cycles": cycles, "faults": faults}
    Path(plan["result"]).write_text(json.dumps(document), encoding="utf-8")
    if mismatches:
        raise BenchFailure(f"{pin}: {mismatches} of {frames} images have a wrong output")


def data_frames(data: bytes) -> Iterable[Frame]:
    """Yield the DATA frames of a byte stream."""
    for number, start_ in enumerate(range(0, len(data), PAYLOAD_LIMIT_BYTES)):
        yield Frame(Command.DATA, number % 256, data[start_ : start_ + PAYLOAD_LIMIT_BYTES])


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return a frame on the wire with another byte in it, or without its last bytes; it ends as a frame does."""
    place = rng.randrange(2, len(data) - 1)
    if rng.random() < 0.5:
        return data[:place] + DELIMITER
    return data[:place] + bytes([data[place] ^ 0x10 or 1]) + data[place + 1 :]


def judge(answers: list[Frame], image_bytes: int, outputs: np.ndarray, per_image: int) -> int:
    """Return the images whose output differs.

    Raises
    ------
    BenchFailure: an answer that does not belong here: identity, reset, command, sequence or count.
    """
    identity, reset, *results = answers
    told = DeviceIdentity.unpack(identity.payload)
    if (identity.command, told.input_bytes, told.output_bytes) != (Command.IDENTITY, image_bytes, outputs.shape[1]):
        raise BenchFailure(
            f"the device says {told}, but an image has {image_bytes} bytes, an output {outputs.shape[1]}"
        )
    if (reset.command, reset.sequence) != (Command.RESET_DONE, TOKEN):
        raise BenchFailure(f"the answer to RESET {TOKEN:#x} is {reset}")
    for number, answer in enumerate(results):
        if (answer.command, answer.sequence) != (Command.RESULT, number % 256):
            raise BenchFailure(f"result {number} is {answer}")
    if len(results) != per_image * len(outputs):
        raise BenchFailure(f"{len(results)} results came, expected {per_image * len(outputs)}")
    seen = b"".join(answer.payload for answer in results)
    if len(seen) != outputs.size:
        raise BenchFailure(f"{len(seen)} output bytes came, expected {outputs.size}")
    return int((np.frombuffer(seen, np.uint8).reshape(outputs.shape) != outputs).any(axis=1).sum())
