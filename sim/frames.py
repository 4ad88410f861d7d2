"""Images as frames of the protocol, and what has to come back: the same at the pins of every link."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from nnhw.protocol import DELIMITER, PAYLOAD_LIMIT_BYTES, Command, DeviceIdentity, Frame

from .harness import BenchFailure

TOKEN = 0x5A
"""Of the RESET that begins the session."""


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
