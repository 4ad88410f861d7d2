"""The SPI port: bytes both ways at its pins, and what becomes of broken transfers."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from nnhw.errors import InputError
from nnhw.hdl.link.devices import DEVICES, device_at
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.link.spi import SpiDevice
from nnhw.links import LINKS, Spi
from nnhw.protocol import Command, Frame
from tests.hdl.link.engines import HangingEngine, SumEngine
from tests.hdl.link.spi_pins import SpiPins
from tests.hdl.link.wire import IDENTITY, data_frames, decode, encode, results

IDENTIFY = encode(Command.IDENTIFY, 6)
IDENTIFIED = Frame(Command.IDENTITY, 6, IDENTITY.pack())


def device(engine: object = None) -> SpiDevice:
    return SpiDevice(LinkedEngine(engine or SumEngine(12, 5), IDENTITY))  # type: ignore[arg-type]


def frames_of(data: bytes) -> list[Frame]:
    """Return the frames between fillers."""
    return decode(b"".join(part + b"\0" for part in data.split(b"\0") if part))


@pytest.mark.parametrize("bit_cycles", [5, 6, 7, 8, 20])
def test_spi_device_answers_images_through_its_pins(bit_cycles: int) -> None:
    engine = SumEngine(12, 5)
    pins = SpiPins(device(engine), bit_cycles)
    images = [bytes(range(start, start + 12)) for start in (0, 7, 99)]
    received = b""
    for frame in (encode(Command.RESET, 4), *data_frames(b"".join(images), 13)):
        received += pins.exchange(frame) + pins.exchange(bytes(60))
    frames = [frame for frame in frames_of(received) if frame.command != Command.TAKEN]
    assert frames == [Frame(Command.RESET_DONE, 4), *results(map(engine.expected, images))]


@pytest.mark.parametrize(("pause", "seed"), [(0, 1), (3, 2), (7, 3)])
def test_spi_device_answers_whatever_the_transfers_are(pause: int, seed: int) -> None:
    """In pieces of any length, with pauses, and with bits of one more byte, which is cut off; the engine stalls."""
    rng, engine = random.Random(seed), SumEngine(12, 5, pause)
    pins = SpiPins(device(engine), bit_cycles=rng.randrange(5, 9))
    images = [rng.randbytes(12) for _ in range(6)]
    stream = encode(Command.RESET, 4) + b"".join(data_frames(b"".join(images), 17)) + IDENTIFY + bytes(200)
    received = b""
    while stream:
        size = rng.randrange(1, 20)
        received += pins.exchange(stream[:size], cut_bits=rng.choice((0, 0, 1, 5, 7)))
        stream = stream[size:]
        pins.rest(rng.choice((1, 5, 30, 300)))
    frames = [frame for frame in frames_of(received) if frame.command != Command.TAKEN]
    frames.sort(key=lambda frame: frame.command == Command.IDENTITY)
    assert frames == [Frame(Command.RESET_DONE, 4), *results(map(engine.expected, images)), IDENTIFIED]


@pytest.mark.parametrize("bits", [1, 4, 7])
def test_spi_device_sends_a_byte_again_that_was_cut_off(bits: int) -> None:
    pins = SpiPins(device())
    received = pins.exchange(IDENTIFY) + pins.exchange(bytes(3))
    for _ in range(50):
        pins.exchange(b"", cut_bits=bits)
        received += pins.exchange(b"\0")
    assert frames_of(received) == [IDENTIFIED]


def test_spi_device_takes_nothing_of_a_byte_that_was_cut_off() -> None:
    pins = SpiPins(device())
    received = pins.exchange(IDENTIFY[:4], cut_bits=5) + pins.exchange(IDENTIFY[4:]) + pins.exchange(bytes(60))
    assert frames_of(received) == [IDENTIFIED]


def test_spi_device_raises_its_interrupt_line_while_bytes_wait() -> None:
    pins = SpiPins(device())
    assert not pins.irq
    pins.exchange(IDENTIFY)
    pins.rest(200)
    assert pins.irq
    pins.exchange(bytes(80))
    assert not pins.irq


def test_spi_device_bears_zeros_while_a_frame_waits_for_its_engine() -> None:
    engine = SumEngine(60, 5, byte_cycles=200)
    pins = SpiPins(device(engine))
    images = [bytes(range(start, start + 60)) for start in (0, 7)]
    received = pins.exchange(encode(Command.RESET, 4) + bytes(20))
    received += pins.exchange(b"".join(data_frames(b"".join(images), 60))) + pins.exchange(bytes(500))
    frames = [frame for frame in frames_of(received) if frame.command != Command.TAKEN]
    assert frames == [Frame(Command.RESET_DONE, 4), *results(map(engine.expected, images))]


def test_spi_device_reports_bytes_that_found_no_room() -> None:
    pins = SpiPins(device(HangingEngine()))
    received = pins.exchange(b"".join(data_frames(bytes(range(1, 61)), 20)))
    received += pins.exchange(30 * b"\0") + pins.exchange(encode(Command.RESET, 2)) + pins.exchange(bytes(60))
    frames = frames_of(received)
    assert Command.ERROR in [frame.command for frame in frames]
    assert frames[-1] == Frame(Command.RESET_DONE, 2)


def test_every_link_has_its_gateware() -> None:
    assert DEVICES.keys() == LINKS.keys()


def test_device_at_spi_pins_rejects_a_slow_clock() -> None:
    slow: Any = SimpleNamespace(identity=IDENTITY)
    with pytest.raises(InputError) as caught:
        device_at(Spi(10_000_000), slow)
    assert str(caught.value) == (
        "SPI: a clock of 10000000 Hz needs 6 or more cycles of the design's clock per bit, and at 48000000 Hz there "
        "are 4.80; lower spi.hz to 8000000, or use a faster clock"
    )
