"""A device behind its byte streams: every command, every kind of damage, stalls on both sides."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nnhw.hdl.link.device import Device
from nnhw.protocol import Command, Counters, DeviceIdentity, Frame, Reason
from tests.hdl.link.engines import AddOne, SumEngine
from tests.hdl.link.wire import IDENTITY, data_frames, decode, encode, results
from tests.hdl.streams import Result, run_stream

STALLS = [("none", "none"), ("alternating", "none"), ("none", "alternating"), ("random", "random"), ("bursts", "bursts")]
RESET = encode(Command.RESET, 9)
# Delimiters mean nothing between frames: a pause, for what a RESET would otherwise overtake.
PAUSE = 60 * b"\0"
RESET_DONE = Frame(Command.RESET_DONE, 9)


def exchange(
    engine: Any, sent: bytes, expected_bytes: int, pattern: tuple[str, str] = ("none", "none"), limit_cycles: int = 8000
) -> tuple[list[Frame], Result]:
    """Send bytes to a device with an engine; return its frames, and what the harness saw."""
    identity = DeviceIdentity(IDENTITY.model_hash, *_sizes(engine), IDENTITY.clock_hz)
    result = run_stream(Device(engine, identity), list(sent), expected_bytes, pattern, limit_cycles=limit_cycles)
    assert not result.problems, "\n".join(result.problems)
    assert result.left == 0, f"{result.left} bytes were never taken"
    return decode(result.outputs), result


def _sizes(engine: Any) -> tuple[int, int]:
    return (engine.input_bytes, engine.output_bytes) if isinstance(engine, SumEngine) else (16, 16)


def wire_bytes(frames: list[Frame]) -> int:
    """Return how many bytes frames have on the wire."""
    return sum(len(encode(frame.command, frame.sequence, frame.payload)) for frame in frames)


def images(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Return images, a quarter of their bytes zero, so that COBS has to work."""
    rng = random.Random(seed)
    return [bytes(rng.choice((0, rng.randrange(256), 255, rng.randrange(256))) for _ in range(size)) for _ in range(count)]


def answer(sent: bytes, expected: list[Frame], engine: Any = None, pattern: tuple[str, str] = ("none", "none")) -> None:
    """Check that exactly these frames come back."""
    frames, _ = exchange(engine or SumEngine(12, 5), sent, wire_bytes(expected), pattern)
    assert frames == expected


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize(("input_bytes", "output_bytes", "size"), [(1, 1, 1), (12, 5, 7), (33, 3, 240), (7, 240, 240)])
def test_device_answers_images_back_to_back(
    input_bytes: int, output_bytes: int, size: int, pattern: tuple[str, str]
) -> None:
    engine = SumEngine(input_bytes, output_bytes)
    batch = images(9, input_bytes)
    sent = RESET + b"".join(data_frames(b"".join(batch), size))
    answer(sent, [RESET_DONE, *results(map(engine.expected, batch))], engine, pattern)


@pytest.mark.parametrize("output_bytes", [241, 480, 500])
def test_device_splits_long_outputs(output_bytes: int) -> None:
    engine = SumEngine(10, output_bytes)
    batch = images(3, 10)
    sent = RESET + b"".join(data_frames(b"".join(batch)))
    answer(sent, [RESET_DONE, *results(map(engine.expected, batch))], engine, ("none", "random"))


def test_device_keeps_a_byte_per_cycle() -> None:
    stream = b"".join(images(60, 16))
    frames, _ = exchange(AddOne(), RESET, wire_bytes([RESET_DONE]))
    assert frames == [RESET_DONE]
    sent = b"".join(data_frames(stream))
    expected = results(bytes((byte + 1) & 0xFF for byte in stream[low : low + 16]) for low in range(0, len(stream), 16))
    # The results are the longer way: 16 bytes in 24, and each frame takes 27 cycles to build.
    limit = max(len(sent) + 3 * len(sent) // 240, 27 * len(expected)) + 400
    frames, _ = exchange(AddOne(), sent, wire_bytes(expected), limit_cycles=limit)
    assert frames == expected


def test_device_takes_input_at_a_byte_per_cycle() -> None:
    engine = SumEngine(240, 1, pause=0)
    batch = images(8, 240)
    sent = b"".join(data_frames(b"".join(batch)))
    expected = results(map(engine.expected, batch))
    frames, _ = exchange(engine, sent, wire_bytes(expected), limit_cycles=len(sent) + 8 * 5 + 240 + 100)
    assert frames == expected


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
def test_device_identifies_itself(pattern: tuple[str, str]) -> None:
    expected = Frame(Command.IDENTITY, 77, IDENTITY.pack())
    answer(encode(Command.IDENTIFY, 77), [expected], None, pattern)


def test_device_counts() -> None:
    engine = SumEngine(12, 5)
    batch = images(3, 12)
    body = RESET + b"".join(data_frames(b"".join(batch)))
    broken = body[:-4] + bytes([body[-4] ^ 1]) + body[-3:]
    expected = [*results(map(engine.expected, batch))]
    status = 200 * b"\0" + encode(Command.STATUS, 5)
    sent = broken + PAUSE + body + status
    frames, result = exchange(engine, sent, 10**6, limit_cycles=1200)
    error = Frame(Command.ERROR, frames[1].sequence, bytes([Reason.DAMAGED]))
    assert frames[:-1] == [RESET_DONE, error, RESET_DONE, *expected]
    assert (frames[-1].command, frames[-1].sequence) == (Command.COUNTERS, 5)
    counters = Counters.unpack(frames[-1].payload)
    assert (counters.results, counters.bad_frames) == (3, 1)
    assert 200 < counters.cycles < 400
    assert 100 < counters.input_wait < counters.cycles
    assert counters.output_wait < 100
    assert not result.problems


def test_device_counts_output_waits() -> None:
    engine = SumEngine(12, 240, pause=0)
    batch = images(4, 12)
    sent = RESET + b"".join(data_frames(b"".join(batch)))
    head, _ = exchange(engine, sent + 3000 * b"\0" + encode(Command.STATUS), 10**6, ("none", "alternating"), limit_cycles=4000)
    counters = Counters.unpack(head[-1].payload)
    assert counters.output_wait > 300
    assert counters.input_wait + counters.output_wait < counters.cycles


def test_device_counters_carry_into_every_byte() -> None:
    sent = RESET + 70_000 * b"\0" + encode(Command.STATUS)
    frames, _ = exchange(SumEngine(12, 5, pause=0), sent, wire_bytes([RESET_DONE]) + 23, limit_cycles=71_000)
    counters = Counters.unpack(frames[-1].payload)
    assert counters.cycles % 12 == 0
    assert 70_000 - 24 <= counters.cycles <= 70_024
    # The engine waits in every one of these cycles; the two are read at different times.
    assert abs(counters.cycles - counters.input_wait) <= 36
    assert counters.output_wait == 0


DAMAGE = {
    "flipped": lambda frame: frame[:5] + bytes([frame[5] ^ 0x10]) + frame[6:],
    "cut": lambda frame: frame[:-6] + b"\0",
    "cut after the code": lambda frame: frame[:1] + b"\0",
    "inserted": lambda frame: frame[:4] + b"\x55" + frame[4:],
    "too long": lambda frame: frame[:-1] + 300 * b"\x41" + b"\0",
    "256 more": lambda frame: frame[:3] + 256 * b"\x41" + frame[3:],
    "zero inside": lambda frame: frame[:6] + b"\0" + frame[7:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_device_drops_damaged_frames_whole(damage: str) -> None:
    engine = SumEngine(12, 5)
    batch = images(2, 12)
    first, second = data_frames(b"".join(batch), 12)
    frames, _ = exchange(engine, RESET + first + DAMAGE[damage](second) + PAUSE + RESET + first + second, 10**6, limit_cycles=1500)
    reasons = [frame.payload for frame in frames if frame.command == Command.ERROR]
    assert reasons
    assert set(reasons) == {bytes([Reason.DAMAGED])}
    kept = [frame for frame in frames if frame.command != Command.ERROR]
    assert kept == [RESET_DONE, *results([engine.expected(batch[0])]), RESET_DONE, *results(map(engine.expected, batch))]


@pytest.mark.parametrize("order", [(0, 0), (1,), (0, 2), (0, 1, 1), (0, 255)], ids=str)
def test_device_drops_frames_out_of_sequence(order: tuple[int, ...]) -> None:
    engine = SumEngine(12, 5)
    image = images(1, 12)[0]
    taken = [number for place, number in enumerate(order) if number == place]
    sent = RESET + b"".join(encode(Command.DATA, number, image) for number in order)
    frames, _ = exchange(engine, sent, 10**6, limit_cycles=900)
    assert [frame.payload for frame in frames if frame.command == Command.ERROR] == [bytes([Reason.SEQUENCE])]
    kept = [frame for frame in frames if frame.command != Command.ERROR]
    assert kept == [RESET_DONE, *results([engine.expected(image) for _ in taken])]


@pytest.mark.parametrize("command", [0, 5, 6, 7, 8, 0x43, 0x83, 0xFF])
def test_device_rejects_an_unknown_command(command: int) -> None:
    frames, _ = exchange(SumEngine(12, 5), encode(command, 3, b"abc") + PAUSE + encode(Command.RESET, 4), 10**6, limit_cycles=300)
    assert [(frame.command, frame.payload) for frame in frames] == [
        (Command.ERROR, bytes([Reason.COMMAND])),
        (Command.RESET_DONE, b""),
    ]


@pytest.mark.parametrize("body", [b"", b"\3", b"\0\0\0\0", b"\3\1\0\0\0"], ids=bytes.hex)
def test_device_rejects_frames_that_are_too_short(body: bytes) -> None:
    """Four zero bytes are an empty message with its CRC, which holds."""
    from cobs import cobs

    sent = cobs.encode(body) + b"\0" + PAUSE + RESET
    frames, _ = exchange(SumEngine(12, 5), sent, 10**6, limit_cycles=300)
    assert [frame.command for frame in frames] == [Command.ERROR, Command.RESET_DONE]


def test_device_ignores_delimiters_and_survives_garbage() -> None:
    engine = SumEngine(12, 5)
    image = images(1, 12)[0]
    garbage = bytes(random.Random(3).randrange(1, 256) for _ in range(1000))
    sent = b"\0\0\0" + garbage + PAUSE + RESET + data_frames(image)[0]
    frames, _ = exchange(engine, sent, 10**6, limit_cycles=1500)
    assert [frame.command for frame in frames] == [Command.ERROR, Command.RESET_DONE, Command.RESULT]
    assert frames[-1:] == results([engine.expected(image)])


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("taken", [1, 11, 12, 30, 100])
def test_device_reset_empties_the_engine(taken: int, pattern: tuple[str, str]) -> None:
    engine = SumEngine(12, 200)
    before, after = images(2, 60)
    after = after[:12]
    sent = RESET + b"".join(data_frames((before * 2)[:taken])) + encode(Command.RESET, 10) + data_frames(after)[0]
    frames, _ = exchange(engine, sent, 10**6, pattern, limit_cycles=4000)
    at = frames.index(Frame(Command.RESET_DONE, 10))
    assert frames[0] == RESET_DONE
    assert frames[1:at] == results([engine.expected(before[:12])] * 9)[: at - 1]
    assert frames[at + 1 :] == results([engine.expected(after)])


def test_device_sequences_pass_256() -> None:
    engine = SumEngine(1, 1, pause=0)
    batch = images(520, 1)
    expected = [RESET_DONE, *results(map(engine.expected, batch))]
    frames, _ = exchange(engine, RESET + b"".join(data_frames(b"".join(batch), 1)), wire_bytes(expected), limit_cycles=9000)
    assert frames == expected


def test_device_answers_during_a_batch() -> None:
    engine = SumEngine(12, 5)
    batch = images(6, 12)
    parts = data_frames(b"".join(batch), 24)
    sent = RESET + parts[0] + encode(Command.STATUS, 1) + parts[1] + encode(Command.IDENTIFY, 2) + parts[2]
    frames, _ = exchange(engine, sent, 10**6, ("none", "random"), limit_cycles=2000)
    assert [frame for frame in frames if frame.command == Command.RESULT] == results(map(engine.expected, batch))
    assert [frame.sequence for frame in frames if frame.command in (Command.COUNTERS, Command.IDENTITY)] == [1, 2]
