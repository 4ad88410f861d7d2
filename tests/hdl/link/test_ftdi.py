"""The link of an FTDI chip at the pins of the flash: driver, USB, chip, wires, flash and gateware, all simulated."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nnhw.driver.sending import Pace
from nnhw.driver.session import Session
from nnhw.hdl.link.ftdi import FtdiDevice
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.links import Ftdi
from nnhw.protocol import DeviceIdentity, ProgramState, program_image
from sim.ft2232h import COPI, SCK, SELECT
from tests.hdl.link.chips import SharedFlash
from tests.hdl.link.engines import ProgramEngine, SumEngine
from tests.hdl.link.ftdi_pins import FtdiPins, link_at
from tests.hdl.link.wire import IDENTITY
from tests.marks import covering

CONTENT = bytes(range(64))
OUTPUTS = SCK | COPI | SELECT
# Images whose bytes are commands of a flash: erase, write, program, sleep, wake up.
COMMANDS = bytes((0xC7, 0x60, 0x06, 0x02, 0xB9, 0xAB, 0x01, 0x20, 0xD8, 0x9F, 0x03, 0x66))


def sums(inputs: int = 60) -> tuple[SumEngine, FtdiDevice]:
    engine = SumEngine(inputs, 5, pause=0)
    return engine, device_of(engine)


def device_of(engine: SumEngine) -> FtdiDevice:
    identity = DeviceIdentity(IDENTITY.model_hash, engine.input_bytes, engine.output_bytes, 48_000_000)
    return FtdiDevice(LinkedEngine(engine, identity))


def run(session: Session, engine: SumEngine, images: np.ndarray) -> None:
    """Run images, and compare their outputs; without the patience that a real system needs."""
    session.link.slack_s = 0.003  # type: ignore[misc]
    outputs = session.run(images, 5, Pace(0.003, 16384, False))
    assert [bytes(output) for output in outputs] == [engine.expected(bytes(image)) for image in images]


@pytest.mark.parametrize(("clock_hz", "hz"), [(48_000_000, 30e6), (24_000_000, 30e6)])
def test_ftdi_device_answers_the_driver_and_the_flash_hears_nothing(clock_hz: int, hz: float) -> None:
    engine, device = sums()
    flash = SharedFlash(CONTENT)
    # Awake, as a device leaves it that has read a program: even then no command reaches it.
    flash.awake = True
    pins = FtdiPins(device, flash, clock_hz)
    link, _, _ = link_at(pins, hz)
    images = np.frombuffer(COMMANDS * 5 * 8, np.uint8).reshape(8, 60).copy()
    run(Session(link), engine, images)
    link.close()
    assert (flash.commands, flash.edges, flash.content, pins.clashes) == ([], 0, CONTENT, 0)


def test_ftdi_device_bears_zeros_while_a_frame_waits_for_its_engine() -> None:
    engine = SumEngine(240, 5, pause=0, byte_cycles=40)
    link, _, _ = link_at(FtdiPins(device_of(engine), SharedFlash(CONTENT)))
    session = Session(link)
    images = np.random.default_rng(3).integers(0, 256, (3, 240)).astype(np.uint8)
    link.slack_s = 0.003
    outputs = session.run(images, 5, Pace(0.1, 16384, stepwise=True))
    assert [bytes(output) for output in outputs] == [engine.expected(bytes(image)) for image in images]
    assert session.resets == 1
    assert session.counters().bad_frames == 0


@pytest.mark.parametrize("seed", covering([1, 2], [1]))
def test_ftdi_device_bears_bits_too_many_and_too_few(seed: int) -> None:
    rng = random.Random(seed)
    engine, device = sums()
    pins = FtdiPins(device, SharedFlash(CONTENT))
    pins.stray = lambda: rng.random() < 0.005
    link, _, _ = link_at(pins)
    images = np.random.default_rng(seed).integers(0, 256, (8, 60)).astype(np.uint8)
    run(Session(link, max_retries=10), engine, images)
    assert pins.strays


class Programmer:
    """What programmers such as `iceprog` do: hold the FPGA in reset, wake the flash, and write."""

    def __init__(self, pins: FtdiPins, holds: bool = True) -> None:
        self._pins, self._holds = pins, holds

    def tell(self, command: bytes, answer_bytes: int = 0) -> bytes:
        """Select the flash, say something, and read what it answers."""
        pins = self._pins
        pins.drive(0, OUTPUTS)
        answer = pins.shift(command + bytes(answer_bytes), 166_666)[len(command) :]
        pins.drive(SELECT, OUTPUTS)
        pins.rest(1_000_000)
        return answer

    def write(self, data: bytes) -> bytes:
        """Erase, program and read back; return the identity of the flash and what it has."""
        self._pins.configured = not self._holds
        self._pins.drive(SELECT, OUTPUTS)
        self.tell(bytes((SharedFlash.WAKE_UP,)))
        identity = self.tell(bytes((SharedFlash.IDENTIFY,)), 3)
        self.tell(bytes((SharedFlash.WRITE_ENABLE,)))
        self.tell(bytes((SharedFlash.ERASE,)))
        self.tell(bytes((SharedFlash.WRITE_ENABLE,)))
        self.tell(bytes((SharedFlash.PROGRAM, 0, 0, 0)) + data)
        found = self.tell(bytes((SharedFlash.READ, 0, 0, 0)), len(data))
        self.tell(bytes((SharedFlash.SLEEP,)))
        self._pins.drive(0, 0)
        return identity + found


@pytest.mark.parametrize("holds", [True, False], ids=["in reset", "running"])
def test_flash_is_programmed_beside_an_ftdi_device(holds: bool) -> None:
    """In front of a batch, and behind one; with the FPGA in reset, as programmers do it, and without."""
    engine, device = sums()
    flash = SharedFlash(CONTENT)
    pins = FtdiPins(device, flash)
    images = np.frombuffer(COMMANDS * 5 * 4, np.uint8).reshape(4, 60).copy()
    for data in (bytes(range(100, 130)), bytes(range(130, 164))):
        assert Programmer(pins, holds).write(data) == SharedFlash.IDENTITY + data
        assert flash.content[: len(data)] == data
        if holds:
            engine, device = sums()
            pins.configured = True
            pins.replace(device)
        link, _, _ = link_at(pins)
        run(Session(link), engine, images)
        link.close()
        assert flash.content[: len(data)] == data
    assert pins.clashes == 0


def test_device_loads_its_program_from_the_flash_before_the_driver_has_the_pins() -> None:
    identity = DeviceIdentity(IDENTITY.model_hash, 60, 5, 48_000_000)
    image = program_image(ProgramEngine.ARRAY_ID, bytes((60, 5, 0, 7)) + bytes(20), 5)
    flash = SharedFlash(bytes(0x20) + image)
    pins = FtdiPins(FtdiDevice(LinkedEngine(ProgramEngine(), identity, ProgramEngine.ARRAY_ID, 0x20)), flash)
    pins.longest_rest_ps = 50_000_000
    link, _, _ = link_at(pins)
    assert flash.commands == [SharedFlash.WAKE_UP, SharedFlash.READ]
    edges, pins.longest_rest_ps, link.slack_s = flash.edges, 2_000_000, 0.003
    assert Session(link).program_status().state == ProgramState.READY
    assert (flash.edges - edges, pins.clashes) == (0, 0)


def test_link_rates_follow_chip_board_and_clock() -> None:
    pins = {"cs": "16", "sck": "15", "copi": "14", "cipo": "17"}
    link = Ftdi(30_000_000, **pins)
    assert link.rates(48e6) == (30_000_000, 15_000_000)
    assert link.rates(20e6) == (15_000_000, 7_500_000)
    assert link.rates(12e6) == (15_000_000, 7_500_000)
    assert link.rates(6e6) == (7_500_000, 3_750_000)
    assert Ftdi(12_000_000, **pins).rates(48e6) == (10_000_000, 5_000_000)
    assert not link.clock_problem(1e6)
