"""A device behind its byte streams: every command, every kind of damage, stalls on both sides."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

from nnhw.errors import LinkError
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.protocol import Command, Counters, DeviceIdentity, Frame, Reason
from tests.hdl.link.bench import talk
from tests.hdl.link.engines import SumEngine
from tests.hdl.link.wire import IDENTITY, data_frames, decode, encode, results

STALLS = [
    ("none", "none"),
    ("alternating", "none"),
    ("none", "alternating"),
    ("random", "random"),
    ("bursts", "bursts"),
]
RESET = encode(Command.RESET, 9)
# Delimiters mean nothing between frames: a pause, for what a RESET would otherwise overtake.
PAUSE = 60 * b"\0"
RESET_DONE = Frame(Command.RESET_DONE, 9)


def exchange(engine: Any, sent: bytes, pattern: tuple[str, str] = ("none", "none")) -> tuple[list[Frame], int]:
    """Send bytes to a device with an engine; return its frames but TAKEN, and the cycle in which the last byte came."""
    identity = DeviceIdentity(IDENTITY.model_hash, *_sizes(engine), IDENTITY.clock_hz)
    result = talk(LinkedEngine(engine, identity), sent, pattern)
    frames = decode(result.data)
    _check_taken(frames)
    return [frame for frame in frames if frame.command != Command.TAKEN], result.last_cycle


def _check_taken(frames: list[Frame]) -> None:
    """TAKEN frames count up from the last RESET; several may be one, and one may come twice."""
    last = 0
    for frame in frames:
        if frame.command == Command.RESET_DONE:
            last = 0
        if frame.command == Command.TAKEN:
            assert (frame.sequence - last) % 256 <= 8
            assert (frame.sequence, last) != (0, 0), "a TAKEN from before the RESET"
            assert frame.payload == b""
            last = frame.sequence


def _sizes(engine: Any) -> tuple[int, int]:
    return (engine.input_bytes, engine.output_bytes) if isinstance(engine, SumEngine) else (16, 16)


def images(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Return images, a quarter of their bytes zero, so that COBS has to work."""
    rng = random.Random(seed)
    return [
        bytes(rng.choice((0, rng.randrange(256), 255, rng.randrange(256))) for _ in range(size)) for _ in range(count)
    ]


def answer(sent: bytes, expected: list[Frame], engine: Any = None, pattern: tuple[str, str] = ("none", "none")) -> None:
    """Check that exactly these frames come back."""
    frames, _ = exchange(engine or SumEngine(12, 5), sent, pattern)
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


def test_device_takes_input_at_a_byte_per_cycle() -> None:
    """Four cycles of pause for each frame; the engine gives one byte an image, and takes none in that cycle."""
    engine = SumEngine(240, 1, pause=0)
    batch = images(8, 240)
    sent = b"".join(data_frames(b"".join(batch)))
    frames, cycles = exchange(engine, sent)
    assert frames == results(map(engine.expected, batch))
    # The last frame's payload moves behind its last byte, then its result is built and sent.
    assert cycles <= len(sent) + 4 * len(batch) + 240 + 30


def test_device_gives_output_at_a_byte_per_cycle() -> None:
    engine = SumEngine(1, 240, pause=0)
    batch = images(8, 1)
    sent = b"".join(data_frames(b"".join(batch)))
    frames, cycles = exchange(engine, sent)
    assert frames == results(map(engine.expected, batch))
    assert cycles <= len(batch) * (240 + 15) + 240 + 80


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
def test_device_identifies_itself(pattern: tuple[str, str]) -> None:
    expected = Frame(Command.IDENTITY, 77, IDENTITY.pack())
    answer(encode(Command.IDENTIFY, 77), [expected], None, pattern)


def test_device_sends_frames_of_the_session_that_the_last_reset_began() -> None:
    """Session 0 behind the start; nothing but a RESET that arrives whole begins another one."""
    from cobs import cobs

    reset = encode(Command.RESET, 200)
    damaged = reset[:2] + bytes([reset[2] ^ 1]) + reset[3:]
    sent = [
        encode(Command.IDENTIFY, 77),
        RESET,
        encode(Command.STATUS, 33),
        damaged,
        reset,
        encode(Command.IDENTIFY, 5),
    ]
    data = bytes(talk(LinkedEngine(SumEngine(12, 5), IDENTITY), PAUSE.join(sent)).data)
    parts = [cobs.decode(part) for part in data.split(b"\0")[:-1]]
    sessions = [[session for session in range(256) if _is_frame(part, session)] for part in parts]
    assert sessions == [[0], [9], [9], [9], [200], [200]]


def _is_frame(data: bytes, session: int) -> bool:
    try:
        Frame.from_bytes(data, session)
    except LinkError:
        return False
    return True


def test_device_counts() -> None:
    engine = SumEngine(12, 5)
    batch = images(3, 12)
    body = RESET + b"".join(data_frames(b"".join(batch)))
    broken = body[:-4] + bytes([body[-4] ^ 1]) + body[-3:]
    expected = [*results(map(engine.expected, batch))]
    status = 200 * b"\0" + encode(Command.STATUS, 5)
    sent = broken + PAUSE + body + status
    frames, _ = exchange(engine, sent)
    error = Frame(Command.ERROR, frames[1].sequence, bytes([Reason.DAMAGED]))
    assert frames[:-1] == [RESET_DONE, error, RESET_DONE, *expected]
    assert (frames[-1].command, frames[-1].sequence) == (Command.COUNTERS, 5)
    counters = Counters.unpack(frames[-1].payload)
    assert (counters.results, counters.bad_frames) == (3, 1)
    assert 200 < counters.cycles < 400
    assert 100 < counters.input_wait < counters.cycles
    assert counters.output_wait < 100


@pytest.mark.usefixtures("small_and_large")
def test_device_counts_output_waits() -> None:
    engine = SumEngine(12, 240, pause=0)
    batch = images(4, 12)
    sent = RESET + b"".join(data_frames(b"".join(batch)))
    frames, _ = exchange(engine, sent + 1500 * b"\0" + encode(Command.STATUS), ("none", "alternating"))
    counters = Counters.unpack(frames[-1].payload)
    assert counters.output_wait > 300
    assert counters.input_wait + counters.output_wait < counters.cycles


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
    frames, _ = exchange(engine, RESET + first + DAMAGE[damage](second) + PAUSE + RESET + first + second)
    reasons = [frame.payload for frame in frames if frame.command == Command.ERROR]
    assert reasons
    assert set(reasons) == {bytes([Reason.DAMAGED])}
    kept = [frame for frame in frames if frame.command != Command.ERROR]
    assert kept == [
        RESET_DONE,
        *results([engine.expected(batch[0])]),
        RESET_DONE,
        *results(map(engine.expected, batch)),
    ]


def test_device_drops_a_frame_that_is_too_long_with_a_crc_that_holds() -> None:
    """Its length, modulo 256, is the one of a frame with an image, and the bytes there look like one's header."""
    from cobs import cobs

    engine, image = SumEngine(12, 5), images(1, 12)[0]
    header = bytes([Command.DATA, 0])
    body = header + bytes(254) + header + image
    sent = RESET + cobs.encode(body + zlib.crc32(body).to_bytes(4, "little")) + b"\0" + PAUSE
    answer(sent, [RESET_DONE, Frame(Command.ERROR, 0, bytes([Reason.DAMAGED]))], engine)


@pytest.mark.parametrize("bit", [0, 15, 16, 31])
def test_device_drops_a_frame_whose_crc_register_ends_one_bit_off(bit: int) -> None:
    """The register is compared in halves."""
    from cobs import cobs

    engine, body = SumEngine(12, 5), bytes([Command.DATA, 0]) + images(1, 12)[0]
    wrong = zlib.crc32(body) ^ crc_change(1 << bit)
    sent = RESET + cobs.encode(body + wrong.to_bytes(4, "little")) + b"\0" + PAUSE + encode(Command.RESET, 10)
    answer(sent, [RESET_DONE, Frame(Command.ERROR, 0, bytes([Reason.DAMAGED])), Frame(Command.RESET_DONE, 10)], engine)


def crc_change(state: int) -> int:
    """Return what has to change in a CRC so that the register behind it changes by `state`."""
    for _ in range(32):
        carried = state >> 31
        state = (state ^ 0xEDB88320 * carried) << 1 & 0xFFFFFFFF | carried
    return state


@pytest.mark.parametrize("order", [(0, 0), (1,), (0, 2), (0, 1, 1), (0, 255), (0, 129), (64,)], ids=str)
def test_device_drops_frames_out_of_sequence(order: tuple[int, ...]) -> None:
    engine = SumEngine(12, 5)
    image = images(1, 12)[0]
    taken = [number for place, number in enumerate(order) if number == place]
    sent = RESET + b"".join(encode(Command.DATA, number, image) for number in order)
    frames, _ = exchange(engine, sent)
    assert [frame.payload for frame in frames if frame.command == Command.ERROR] == [bytes([Reason.SEQUENCE])]
    kept = [frame for frame in frames if frame.command != Command.ERROR]
    assert kept == [RESET_DONE, *results([engine.expected(image) for _ in taken])]


@pytest.mark.parametrize("command", [0, 5, 6, 7, 8, 0x43, 0x83, 0xFF])
def test_device_rejects_an_unknown_command(command: int) -> None:
    frames, _ = exchange(SumEngine(12, 5), encode(command, 3, b"abc") + PAUSE + encode(Command.RESET, 4))
    assert [(frame.command, frame.payload) for frame in frames] == [
        (Command.ERROR, bytes([Reason.COMMAND])),
        (Command.RESET_DONE, b""),
    ]


@pytest.mark.parametrize(
    "body", [b"", b"\3", b"\0\0\0\0", b"\2" + zlib.crc32(b"\2").to_bytes(4, "little")], ids=bytes.hex
)
def test_device_rejects_frames_that_are_too_short(body: bytes) -> None:
    """The last two are messages of no byte and of one, whose CRC holds."""
    from cobs import cobs

    sent = cobs.encode(body) + b"\0" + PAUSE + RESET
    frames, _ = exchange(SumEngine(12, 5), sent)
    assert [frame.command for frame in frames] == [Command.ERROR, Command.RESET_DONE]


def test_device_ignores_delimiters_and_survives_garbage() -> None:
    engine = SumEngine(12, 5)
    image = images(1, 12)[0]
    garbage = bytes(random.Random(3).randrange(1, 256) for _ in range(1000))
    sent = b"\0\0\0" + garbage + PAUSE + RESET + data_frames(image)[0]
    frames, _ = exchange(engine, sent)
    assert [frame.command for frame in frames] == [Command.ERROR, Command.RESET_DONE, Command.RESULT]
    assert frames[-1:] == results([engine.expected(image)])


@pytest.mark.usefixtures("small_and_large")
@pytest.mark.parametrize("pattern", [STALLS[0], STALLS[3]], ids="-".join)
@pytest.mark.parametrize("taken", [1, 12, 30, 100])
def test_device_reset_empties_the_engine(taken: int, pattern: tuple[str, str]) -> None:
    engine = SumEngine(12, 200)
    before, after = images(2, 60)
    after = after[:12]
    sent = RESET + b"".join(data_frames((before * 2)[:taken])) + encode(Command.RESET, 10) + data_frames(after)[0]
    frames, _ = exchange(engine, sent, pattern)
    at = frames.index(Frame(Command.RESET_DONE, 10))
    assert frames[0] == RESET_DONE
    assert frames[1:at] == results([engine.expected(before[:12])] * 9)[: at - 1]
    assert frames[at + 1 :] == results([engine.expected(after)])


def test_device_sequences_pass_256() -> None:
    engine = SumEngine(1, 1, pause=0)
    batch = images(520, 1)
    expected = [RESET_DONE, *results(map(engine.expected, batch))]
    frames, _ = exchange(engine, RESET + b"".join(data_frames(b"".join(batch), 1)))
    assert frames == expected


@pytest.mark.usefixtures("small_and_large")
def test_device_answers_during_a_batch() -> None:
    engine = SumEngine(12, 5)
    batch = images(6, 12)
    parts = data_frames(b"".join(batch), 24)
    sent = RESET + parts[0] + encode(Command.STATUS, 1) + parts[1] + encode(Command.IDENTIFY, 2) + parts[2]
    frames, _ = exchange(engine, sent, ("none", "random"))
    assert [frame for frame in frames if frame.command == Command.RESULT] == results(map(engine.expected, batch))
    assert [frame.sequence for frame in frames if frame.command in (Command.COUNTERS, Command.IDENTITY)] == [1, 2]
