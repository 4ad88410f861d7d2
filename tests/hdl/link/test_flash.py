"""Programs in flash: the reader alone, and a device that finds a good one, a bad one, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nnhw.hdl.link.flash import MOST_HZ, PAUSE_S, FlashReader, half_cycles
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.link.uart import UartDevice
from nnhw.protocol import Command, DeviceIdentity, Frame, ProgramState, ProgramStatus, Refusal
from sim.simulator import Simulator
from sim.stalls import stalls
from tests.hdl.link.bench import talk
from tests.hdl.link.chips import FlashChip
from tests.hdl.link.engines import ProgramEngine
from tests.hdl.link.test_program import ASK, PAUSE, RESET, RESET_DONE, SMALL, answers, load_frames, state_of, status
from tests.hdl.link.wire import IDENTITY, data_frames, decode

OFFSET = 0x20
CLOCK_HZ = 1_000_000
CONTENT = bytes(place * 37 % 256 for place in range(400))


def read(
    clock_hz: int, count: int, pattern: str = "none", restart_at: Sequence[int] = ()
) -> tuple[bytes, FlashChip, int]:
    """Return the first bytes that a reader gives (since the last restart), its chip, and the cycles until then."""
    reader = FlashReader(OFFSET, clock_hz)
    chip = FlashChip(CONTENT, round(30e-6 * clock_hz), reader.half_cycles)
    data, cycles = bytearray(), 0

    async def bench(ctx: Any) -> None:
        nonlocal cycles
        opening, held, restarts = stalls(pattern, 1), None, list(restart_at)
        while len(data) < count or restarts:
            ready, restart = next(opening), bool(restarts) and cycles == restarts[0]
            ctx.set(reader.o.ready, ready)
            ctx.set(reader.restart, restart)
            valid, byte = ctx.get(reader.o.valid), ctx.get(reader.o.payload)
            assert held is None or (valid, byte) == (1, held)
            held = byte if valid and not ready and not restart else None
            if valid and ready:
                data.append(byte)
            if restart:
                restarts.pop(0)
                data.clear()
            await ctx.tick()
            cycles += 1
        ctx.set(reader.end, 1)
        ctx.set(reader.restart, 1)
        assert ctx.get(reader.busy)
        await ctx.tick()
        for _ in range(600):
            assert [ctx.get(pin) for pin in (reader.busy, reader.o.valid, reader.cs)] == [0, 0, 0]
            await ctx.tick()

    simulator = Simulator(reader)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.add_testbench(chip.at(reader), background=True)
    simulator.run()
    return bytes(data), chip, cycles


@pytest.mark.parametrize(
    ("clock_hz", "pattern"),
    [
        *((200_000, pattern) for pattern in ("none", "alternating", "random", "bursts", "rare")),
        *((12_000_000, "random"), (48_000_000, "none"), (30_000_000, "bursts"), (100_000_000, "none")),
    ],
)
def test_reader_gives_the_bytes_of_the_flash(clock_hz: int, pattern: str) -> None:
    data, chip, cycles = read(clock_hz, 40, pattern)
    assert data == CONTENT[OFFSET : OFFSET + 40]
    assert chip.reads == [OFFSET]
    half = half_cycles(clock_hz)
    assert clock_hz / (2 * half) <= MOST_HZ
    assert cycles >= 2 * PAUSE_S * clock_hz + 2 * half * 8 * (1 + 4 + 40)
    if pattern == "none":
        assert cycles <= 4 * PAUSE_S * clock_hz + 400 * half + 2 * half * 8 * (1 + 4 + 40)


@pytest.mark.parametrize("at", [(0,), (70,), (150,), (200, 420), (500,), (900, 901, 902), (1000,)])
def test_reader_begins_anew(at: tuple[int, ...]) -> None:
    data, chip, _ = read(CLOCK_HZ, 40, restart_at=at)
    assert data == CONTENT[OFFSET : OFFSET + 40]
    assert set(chip.reads) == {OFFSET}


def exchange(
    chip: FlashChip, sent: bytes, pattern: tuple[str, str] = ("none", "none"), quiet: int = 300
) -> list[Frame]:
    """Send bytes to a new device with a flash; return its frames but TAKEN."""
    identity = DeviceIdentity(IDENTITY.model_hash, 12, 5, CLOCK_HZ)
    device = LinkedEngine(ProgramEngine(), identity, ProgramEngine.ARRAY_ID, OFFSET)
    frames = decode(talk(device, sent, pattern, quiet, chip.at(device)).data)
    return [frame for frame in frames if frame.command != Command.TAKEN]


def in_flash(data: bytes) -> bytes:
    """Return the content of a flash with an image behind a bitstream."""
    return bytes(OFFSET) + data


def reading(size: int) -> bytes:
    """Return delimiters for as long as a device reads so many bytes."""
    return (400 + 16 * (size + 6)) * b"\0"


def test_device_starts_with_the_program_in_flash() -> None:
    chip = FlashChip(in_flash(SMALL.data))
    batch = [bytes(range(12)), bytes(range(40, 52))]
    frames = exchange(chip, ASK + reading(len(SMALL.data)) + ASK + b"".join(data_frames(b"".join(batch))))
    assert state_of(frames[0]) == (ProgramState.EMPTY, Refusal.NONE)
    assert frames[1:] == [status(SMALL), *answers(SMALL, batch)]
    assert chip.reads == [OFFSET]
    assert not chip.selected
    # The reader ends with the image: it looks at no byte, or one, that follows.
    assert 8 * len(SMALL.data) <= chip.bits <= 8 * len(SMALL.data) + 8


def test_device_reads_its_flash_once() -> None:
    """A RESET when the program is there does not begin anew."""
    chip = FlashChip(in_flash(SMALL.data))
    frames = exchange(chip, reading(len(SMALL.data)) + RESET + reading(len(SMALL.data)) + ASK)
    assert frames == [RESET_DONE, status(SMALL)]
    assert chip.reads == [OFFSET]


@pytest.mark.parametrize("at", [1, 200, 300, 500])
def test_device_reads_its_flash_anew_when_it_is_reset_before_the_end(at: int) -> None:
    chip = FlashChip(in_flash(SMALL.data))
    frames = exchange(chip, at * b"\0" + RESET + reading(len(SMALL.data)) + ASK)
    assert frames == [RESET_DONE, status(SMALL)]


def damaged(place: int) -> bytes:
    return SMALL.data[:place] + bytes([SMALL.data[place] ^ 4]) + SMALL.data[place + 1 :]


@pytest.mark.parametrize(
    ("content", "reason", "most_bytes"),
    [
        (b"", Refusal.NO_IMAGE, 17),
        (in_flash(bytes(200)), Refusal.NO_IMAGE, 17),
        (in_flash(damaged(2)), Refusal.NO_IMAGE, 17),
        (in_flash(damaged(5)), Refusal.OTHER_ARRAY, 17),
        (in_flash(damaged(11)), Refusal.LENGTH, 17),
        (in_flash(damaged(17)), Refusal.CHECKSUM, 25),
        (in_flash(damaged(23)), Refusal.CHECKSUM, 25),
        (in_flash(SMALL.data[:15]), Refusal.CHECKSUM, 25),
        (in_flash(SMALL.data[:10]), Refusal.LENGTH, 17),
    ],
    ids=["absent", "zeros", "magic", "array", "length", "body", "crc", "short", "shorter"],
)
def test_device_says_what_is_wrong_in_flash(content: bytes, reason: Refusal, most_bytes: int) -> None:
    """It takes no image, and a program over the link all the same."""
    chip = FlashChip(content)
    wait = reading(len(SMALL.data))
    load = RESET + load_frames(SMALL.data) + PAUSE + ASK
    frames = exchange(chip, wait + ASK + data_frames(bytes(12))[0] + PAUSE + load + data_frames(bytes(12), first=1)[0])
    assert state_of(frames[0]) == (ProgramState.REFUSED, reason)
    assert frames[1].command == Command.ERROR
    assert frames[2:] == [RESET_DONE, status(SMALL), *answers(SMALL, [bytes(12)])]
    assert chip.bits <= 8 * most_bytes
    assert not chip.selected


def test_uart_device_has_the_pins_of_its_flash() -> None:
    chip = FlashChip(in_flash(SMALL.data))
    engine = ProgramEngine()
    identity = DeviceIdentity(IDENTITY.model_hash, 12, 5, CLOCK_HZ)
    device = UartDevice(LinkedEngine(engine, identity, ProgramEngine.ARRAY_ID, OFFSET), 16)

    async def bench(ctx: Any) -> None:
        await ctx.tick().repeat(len(reading(len(SMALL.data))))
        assert ctx.get(engine.program.state) == ProgramState.READY

    simulator = Simulator(device)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.add_testbench(chip.at(device), background=True)
    simulator.run()
    assert chip.reads == [OFFSET]


def test_device_without_flash_chip_is_refused() -> None:
    """Nothing answers: the pin stays low."""
    identity = DeviceIdentity(IDENTITY.model_hash, 12, 5, CLOCK_HZ)
    device = LinkedEngine(ProgramEngine(), identity, ProgramEngine.ARRAY_ID, OFFSET)
    (frame,) = decode(talk(device, reading(16) + ASK).data)
    assert state_of(frame) == (ProgramState.REFUSED, Refusal.NO_IMAGE)


@pytest.mark.parametrize("at", [1, 150, 350, 420, 431, 432, 433, 434, 435, 436, 500])
def test_device_prefers_the_program_of_the_link(at: int) -> None:
    """Whenever the load comes, before the flash is read, in the middle, or behind it."""
    chip = FlashChip(in_flash(SMALL.data))
    mine = ProgramEngine.image(12, 30, 200, bytes(20))
    sent = at * b"\0" + load_frames(mine.data) + PAUSE + ASK + RESET + reading(len(SMALL.data)) + ASK
    frames = exchange(chip, sent)
    assert frames == [status(mine), RESET_DONE, status(mine)]
    assert not chip.selected


@pytest.mark.usefixtures("small_and_large")
def test_device_takes_a_load_in_two_parts_during_the_reading() -> None:
    chip = FlashChip(in_flash(SMALL.data))
    mine = ProgramEngine.image(12, 30, 200, bytes(200))
    sent = 440 * b"\0" + RESET + load_frames(mine.data, 100) + PAUSE + ASK
    assert exchange(chip, sent, ("none", "random")) == [RESET_DONE, status(mine)]


def test_status_of_a_device_that_reads_is_loading() -> None:
    chip = FlashChip(in_flash(ProgramEngine.image(12, 5, 7, bytes(200)).data))
    frames = exchange(chip, reading(20) + ASK)
    assert ProgramStatus.unpack(frames[0].payload).state is ProgramState.LOADING
