"""A device whose engine runs programs: loading, what is refused, and images before, between and behind programs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from nnhw.driver.image import ProgramImage
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.protocol import (
    PAYLOAD_LIMIT_BYTES,
    Command,
    DeviceIdentity,
    Frame,
    ProgramState,
    ProgramStatus,
    Reason,
    Refusal,
)
from tests.hdl.link.bench import talk
from tests.hdl.link.engines import ProgramEngine
from tests.hdl.link.wire import IDENTITY, data_frames, decode, encode, results

ARRAY_ID = ProgramEngine.ARRAY_ID
RESET = encode(Command.RESET, 9)
RESET_DONE = Frame(Command.RESET_DONE, 9)
PAUSE = 80 * b"\0"
# An answer that is being built is lost to a RESET.
ASK = encode(Command.PROGRAM, 33) + PAUSE
STALLS = [("none", "none"), ("random", "random")]
SMALL = ProgramEngine.image(12, 5, 7)


def load_frames(data: bytes, size: int = PAYLOAD_LIMIT_BYTES, first: int = 0) -> bytes:
    """Return LOAD frames that carry bytes."""
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(encode(Command.LOAD, (first + number) % 256, part) for number, part in enumerate(parts))


def exchange(
    sent: bytes, pattern: tuple[str, str] = ("none", "none"), identity: DeviceIdentity = IDENTITY
) -> list[Frame]:
    """Send bytes to a new device; return its frames but TAKEN."""
    frames = decode(talk(LinkedEngine(ProgramEngine(), identity, ARRAY_ID), sent, pattern, quiet=300).data)
    return [frame for frame in frames if frame.command != Command.TAKEN]


def status(image: ProgramImage) -> Frame:
    """Return the answer of a device that has a program."""
    said = ProgramStatus(ProgramState.READY, Refusal.NONE, image.crc, image.output_bytes, ARRAY_ID)
    return Frame(Command.PROGRAM_STATUS, 33, said.pack())


def state_of(frame: Frame) -> tuple[ProgramState, Refusal]:
    assert (frame.command, frame.sequence) == (Command.PROGRAM_STATUS, 33)
    said = ProgramStatus.unpack(frame.payload)
    assert said.array_id == ARRAY_ID
    return said.state, said.reason


def images(count: int, size: int, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [bytes(rng.choice((0, rng.randrange(256))) for _ in range(size)) for _ in range(count)]


def answers(image: ProgramImage, batch: Sequence[bytes]) -> list[Frame]:
    return results(ProgramEngine.expected(image, one) for one in batch)


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize(
    ("inputs", "outputs", "rest", "size"),
    [(1, 1, 0, 1), (12, 5, 3, 7), (7, 240, 500, 240), (7, 241, 1020, 240), (3, 700, 0, 24)],
)
def test_device_runs_the_program_that_was_loaded(
    inputs: int, outputs: int, rest: int, size: int, pattern: tuple[str, str]
) -> None:
    """The identity says another length of the output, which must not matter."""
    image = ProgramEngine.image(
        inputs, outputs, 91, bytes(range(256)) * 3 + bytes(252) if rest == 1020 else bytes(rest)
    )
    batch = images(4, inputs)
    sent = RESET + load_frames(image.data, size) + PAUSE + ASK + RESET + b"".join(data_frames(b"".join(batch)))
    assert exchange(sent, pattern) == [RESET_DONE, status(image), RESET_DONE, *answers(image, batch)]


def test_device_says_that_it_is_empty_and_takes_no_image() -> None:
    frames = exchange(RESET + ASK + data_frames(bytes(12))[0] + PAUSE + ASK)
    assert frames[0] == RESET_DONE
    assert [state_of(frame) for frame in frames[1::2]] == [(ProgramState.EMPTY, Refusal.NONE)] * 2
    assert (frames[2].command, frames[2].payload) == (Command.ERROR, bytes([Reason.PROGRAM]))


def test_device_takes_no_image_while_loading() -> None:
    first, rest = load_frames(SMALL.data[:20]), SMALL.data[20:]
    frames = exchange(
        RESET
        + first
        + PAUSE
        + ASK
        + encode(Command.DATA, 1, bytes(12))
        + PAUSE
        + load_frames(rest, first=1)
        + PAUSE
        + ASK
    )
    assert state_of(frames[1])[0] is ProgramState.LOADING
    assert (frames[2].command, frames[2].payload) == (Command.ERROR, bytes([Reason.PROGRAM]))
    assert frames[3:] == [status(SMALL)]


def damaged(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("data", "state", "reason"),
    [
        (damaged(SMALL.data, 1), ProgramState.REFUSED, Refusal.NO_IMAGE),
        (bytes(30), ProgramState.REFUSED, Refusal.NO_IMAGE),
        (30 * b"\xff", ProgramState.REFUSED, Refusal.NO_IMAGE),
        (ProgramImage.pack(ARRAY_ID + 1, bytes(8), 4).data, ProgramState.REFUSED, Refusal.OTHER_ARRAY),
        (ProgramImage.pack(ARRAY_ID, bytes(1028), 4).data, ProgramState.REFUSED, Refusal.LENGTH),
        (damaged(SMALL.data, 13), ProgramState.REFUSED, Refusal.CHECKSUM),
        (damaged(SMALL.data, 18), ProgramState.REFUSED, Refusal.CHECKSUM),
        (damaged(SMALL.data, len(SMALL.data) - 1), ProgramState.REFUSED, Refusal.CHECKSUM),
        (SMALL.data[:-1], ProgramState.LOADING, Refusal.NONE),
        (b"x" + SMALL.data[:14], ProgramState.LOADING, Refusal.NONE),
    ],
    ids=["magic", "zeros", "ones", "array", "length", "header", "body", "crc", "short", "shorter"],
)
def test_device_refuses(data: bytes, state: ProgramState, reason: Refusal) -> None:
    """And takes no image, even where a good program was before."""
    sent = RESET + load_frames(SMALL.data) + RESET + load_frames(data) + PAUSE + ASK
    frames = exchange(sent + RESET + ASK + data_frames(bytes(12))[0] + PAUSE)
    said = [frame for frame in frames if frame.command == Command.PROGRAM_STATUS]
    # What was not whole is lost with the RESET.
    behind = ProgramState.EMPTY if state is ProgramState.LOADING else state
    assert [state_of(frame)[0] for frame in said] == [state, behind]
    if state is ProgramState.REFUSED:
        assert [state_of(frame)[1] for frame in said] == [reason] * 2
    assert (frames[-1].command, frames[-1].payload) == (Command.ERROR, bytes([Reason.PROGRAM]))


def test_device_keeps_its_program_over_a_reset() -> None:
    batch = images(3, 12)
    load = RESET + load_frames(SMALL.data) + PAUSE
    sent = (
        load
        + RESET
        + data_frames(b"".join(batch)[:20])[0]
        + PAUSE
        + RESET
        + ASK
        + b"".join(data_frames(b"".join(batch)))
    )
    frames = exchange(sent)
    assert frames == [*[RESET_DONE] * 2, *answers(SMALL, batch[:1]), RESET_DONE, status(SMALL), *answers(SMALL, batch)]


@pytest.mark.parametrize("after", [60, 150, 290, 330])
def test_device_cuts_outputs_behind_a_reset_in_the_middle_of_one(after: int) -> None:
    image = ProgramEngine.image(2, 300, 5)
    one = bytes([3, 4])
    sent = RESET + load_frames(image.data) + PAUSE + RESET + data_frames(one)[0] + after * b"\0"
    frames = exchange(sent + RESET + data_frames(one * 2)[0])
    assert frames[-5:] == [RESET_DONE, *answers(image, [one, one])]


def test_device_runs_one_program_after_the_other() -> None:
    other = ProgramEngine.image(3, 300, 1, b"abc")
    expected, sent = [], b""
    for image, size in ((SMALL, 12), (other, 3), (SMALL, 12)):
        batch = images(2, size, size)
        sent += RESET + load_frames(image.data) + PAUSE + ASK + RESET + data_frames(b"".join(batch))[0] + 2000 * b"\0"
        expected += [RESET_DONE, status(image), RESET_DONE, *answers(image, batch)]
    assert exchange(sent) == expected


def test_device_takes_load_frames_in_sequence_alone() -> None:
    parts = [encode(Command.LOAD, number, SMALL.data[8 * number : 8 * number + 8]) for number in range(3)]
    frames = exchange(RESET + parts[0] + parts[2] + PAUSE + parts[0] + PAUSE + parts[1] + parts[2] + PAUSE + ASK)
    wrong = [frame.payload for frame in frames if frame.command == Command.ERROR]
    assert wrong == [bytes([Reason.SEQUENCE])] * 2
    assert frames[-1] == status(SMALL)


def test_device_ignores_what_follows_a_program() -> None:
    frames = exchange(RESET + load_frames(SMALL.data + bytes(300)) + 400 * b"\0" + ASK)
    assert frames == [RESET_DONE, status(SMALL)]


@pytest.mark.parametrize("command", [0, 7, 0x45, 0x86])
def test_device_with_programs_rejects_an_unknown_command(command: int) -> None:
    frames = exchange(encode(command, 0, b"abc") + PAUSE)
    assert [(frame.command, frame.payload) for frame in frames] == [(Command.ERROR, bytes([Reason.COMMAND]))]


@pytest.mark.usefixtures("small_and_large")
def test_device_gives_the_last_byte_of_an_image_to_the_engine_before_a_program() -> None:
    """The engine does not take it until its answer has left; the LOAD frame behind it is taken before that."""
    image = ProgramEngine.image(5, 200, 3)
    sent = RESET + load_frames(image.data) + PAUSE + RESET + data_frames(bytes(range(6)))[0]
    frames = exchange(sent + load_frames(SMALL.data, first=1) + 1000 * b"\0" + ASK, ("none", "alternating"))
    assert frames == [RESET_DONE, RESET_DONE, *answers(image, [bytes(range(5))]), status(SMALL)]
