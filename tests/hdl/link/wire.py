"""What travels over the link, made and taken apart with the host's own tools."""

from __future__ import annotations

from collections.abc import Iterable

from cobs import cobs

from nnhw.protocol import PAYLOAD_LIMIT_BYTES, Command, DeviceIdentity, Frame

IDENTITY = DeviceIdentity("3f1c09a5b77e2d84", 12, 5, 48_000_000)


def encode(command: int, sequence: int = 0, payload: bytes = b"") -> bytes:
    """Return one frame as it goes over the wire."""
    return cobs.encode(Frame(command, sequence, payload).to_bytes()) + b"\0"


def data_frames(stream: bytes, size: int = PAYLOAD_LIMIT_BYTES, first: int = 0) -> list[bytes]:
    """Return DATA frames that carry a stream."""
    parts = [stream[start : start + size] for start in range(0, len(stream), size)]
    return [encode(Command.DATA, (first + number) % 256, part) for number, part in enumerate(parts)]


def decode(received: Iterable[int]) -> list[Frame]:
    """Take apart what a device sent since it started; every byte has to belong to a proper frame of its session."""
    data, session, frames = bytes(received), 0, []
    assert not data or data.endswith(b"\0"), f"ends inside a frame: {data[-20:].hex()}"
    for part in map(cobs.decode, data.split(b"\0")[:-1]):
        if part[0] == Command.RESET_DONE:
            session = part[1]
        frames.append(Frame.from_bytes(part, session))
    return frames


def results(outputs: Iterable[bytes]) -> list[Frame]:
    """Return the RESULT frames of outputs."""
    parts = [out[low : low + PAYLOAD_LIMIT_BYTES] for out in outputs for low in range(0, len(out), PAYLOAD_LIMIT_BYTES)]
    return [Frame(Command.RESULT, number % 256, part) for number, part in enumerate(parts)]
