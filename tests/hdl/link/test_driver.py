"""The driver on the gateware itself: the same device object as on a board, the bytes answered by the simulated RTL."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import numpy as np
import pytest

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.driver import Device as HostDevice
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.hardware import HardwareLink
from nnhw.driver.links.model import ModelBoard
from nnhw.driver.links.model_program import ProgramMemory
from nnhw.engines.shared import ArrayConfig, SharedConfig
from nnhw.engines.timing import Schedule
from nnhw.flow.virtual.virtual_board import SimulatedHardware
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.ir import IntType
from nnhw.protocol import Command, DeviceIdentity, Frame, ProgramState, ProgramStatus
from tests.hdl.link.bench import talk
from tests.hdl.link.engines import ProgramEngine, SumEngine
from tests.hdl.link.wire import IDENTITY, data_frames, decode, encode

CLOCK_HZ = 48_000_000


def make_accelerator(inputs: int, outputs: int) -> Accelerator:
    """Return an accelerator whose formats are the bytes of a `SumEngine`."""
    return Accelerator(
        name="sum",
        model_hash=IDENTITY.model_hash + "00",
        board="none",
        stages=(),
        input_format=InputFormat((inputs,), IntType(0, 255), 1),
        output_format=OutputFormat((outputs,), IntType(0, 255), 1, 1, np.zeros(outputs, np.int64)),
        schedule=Schedule(8 * (inputs + outputs), 4 * (inputs + outputs)),
    )


class Harmful(HardwareLink):
    """Loses a byte, flips a bit and repeats a piece of what goes out, each once."""

    def __init__(self, hardware: SimulatedHardware, clock_hz: int) -> None:
        super().__init__(hardware, clock_hz)
        self.plan = [
            lambda data: data[:7] + data[8:],
            lambda data: data[:9] + b"\x55" + data[10:],
            lambda data: data * 2,
        ]

    def write(self, data: bytes) -> None:
        if self.plan and len(data) > 30:
            data = self.plan.pop()(data)
        super().write(data)


@pytest.mark.parametrize("kind", [HardwareLink, Harmful])
@pytest.mark.parametrize(("inputs", "outputs"), [(12, 5), (30, 250)])
def test_driver_runs_the_gateware(kind: type[HardwareLink], inputs: int, outputs: int) -> None:
    accelerator, engine = make_accelerator(inputs, outputs), SumEngine(inputs, outputs)
    identity = DeviceIdentity(accelerator.model_hash, inputs, outputs, CLOCK_HZ)
    link = kind(SimulatedHardware(LinkedEngine(engine, identity)), CLOCK_HZ)
    codes = np.random.default_rng(1).integers(0, 256, (6, inputs))
    with HostDevice(link, accelerator) as device:
        assert device.identity == identity
        for batch in (codes, codes[::-1]):
            expected = [list(engine.expected(bytes(image.tolist()))) for image in batch]
            assert device.infer_codes(batch).tolist() == expected
        assert (device.status().bad_frames > 0) is (kind is Harmful)
        assert 0 < device.status().input_wait < device.status().cycles
    assert not getattr(link, "plan", [])


@pytest.mark.parametrize("seed", range(6))
def test_model_board_answers_as_the_gateware_does(seed: int) -> None:
    """The same frames, good and bad, to both: the same answers in the same order, when there is time between."""
    rng = random.Random(seed)
    engine = SumEngine(12, 5)
    sent = [encode(Command.RESET, 1)]
    for _ in range(12):
        image = rng.randbytes(12)
        good = data_frames(image, first=rng.randrange(3))[0]
        parts = {
            "data": good,
            "identify": encode(Command.IDENTIFY, rng.randrange(256)),
            "reset": encode(Command.RESET, rng.randrange(256)),
            "damaged": good[:5] + b"\x55" + good[6:],
            "unknown": encode(rng.choice([0, 5, 0x83]), 1, image),
        }
        sent.append(parts[rng.choice(["data", "data", *parts])])
        if rng.random() < 0.2:
            sent.append(sent[-1])

    def compute(frames: np.ndarray) -> np.ndarray:
        return np.array([list(engine.expected(frame.tobytes())) for frame in frames], np.uint8)

    board = ModelBoard(IDENTITY, compute)
    model = decode(b"".join(map(board.exchange, sent)))
    gateware = decode(talk(LinkedEngine(engine, IDENTITY), (400 * b"\0").join(sent), quiet=600).data)
    assert [_essence(frame) for frame in gateware] == [_essence(frame) for frame in model]


ARRAY = ArrayConfig(4, 2, 8, 8, 64, 128, 4, 24, 12, 24, (8,))


def make_shared(inputs: int, outputs: int) -> Accelerator:
    """Return an accelerator for a `ProgramEngine`, which has 1024 bytes of memory as the array has."""
    stage = Stage("all.shared", "all", "", SharedConfig(ARRAY, ()), (INPUT,), Stream(1, outputs, IntType(0, 255)))
    return dataclasses.replace(make_accelerator(inputs, outputs), stages=(stage,))


def make_program_device(accelerator: Accelerator) -> LinkedEngine:
    identity = DeviceIdentity(accelerator.device_hash, *accelerator.device_bytes, CLOCK_HZ)
    return LinkedEngine(ProgramEngine(ARRAY.id), identity, ARRAY.id)


@pytest.mark.parametrize("kind", [HardwareLink, Harmful])
def test_driver_loads_programs_into_the_gateware(kind: type[HardwareLink]) -> None:
    """Two networks on the same hardware, one behind the other."""
    hardware = SimulatedHardware(make_program_device(make_shared(12, 5)))
    for inputs, outputs, rest in ((12, 5, 500), (7, 300, 0)):
        program = ProgramEngine.image(inputs, outputs, 9, bytes(rest), ARRAY.id)
        link = kind(hardware, CLOCK_HZ)
        codes = np.random.default_rng(1).integers(0, 256, (4, inputs))
        expected = [list(ProgramEngine.expected(program, bytes(image.tolist()))) for image in codes]
        device = HostDevice(link, make_shared(inputs, outputs), program=program)
        assert device.program_status().crc == program.crc
        assert device.infer_codes(codes).tolist() == expected
        cycles = hardware.cycles
        # Opened again, it finds its program.
        again = HostDevice(HardwareLink(hardware, CLOCK_HZ), make_shared(inputs, outputs), program=program)
        assert hardware.cycles - cycles < 2000
        assert again.infer_codes(codes).tolist() == expected
        assert again.status().images == len(codes)


@pytest.mark.parametrize("data", [lambda data: data[:-4] + b"abcd", lambda data: data[:8] + b"\1\0\1\0" + data[12:]])
def test_driver_reports_what_the_gateware_refuses(data: Callable[[bytes], bytes]) -> None:
    accelerator = make_shared(12, 5)
    device = HostDevice(HardwareLink(SimulatedHardware(make_program_device(accelerator)), CLOCK_HZ), accelerator)
    good = ProgramEngine.image(12, 5, 9, b"", ARRAY.id)
    status = device._session.load(data(good.data))
    assert status.state is ProgramState.REFUSED
    assert device.load_program(good).state is ProgramState.READY


@pytest.mark.parametrize("seed", range(3))
def test_model_board_answers_for_programs_as_the_gateware_does(seed: int) -> None:
    """The same frames to both, programs whole, cut and damaged, images with and without a program."""
    rng = random.Random(seed)
    accelerator = make_shared(12, 5)
    good = ProgramEngine.image(12, 5, 9, rng.randbytes(20), ARRAY.id).data
    images = [good, good, good[:30], good[:9] + b"\7" + good[10:], b"x" + good, good + b"yz", good[:-2] + b"12"]
    sent, sequence = [encode(Command.RESET, 1)], 0
    for _ in range(24):
        kind = rng.choice(["load", "load", "data", "program", "reset", "wrong"])
        if kind == "load":
            parts = rng.choice(images)
            cut = rng.randrange(len(parts))
            sent += [
                encode(Command.RESET, 2),
                encode(Command.LOAD, 0, parts[:cut]),
                encode(Command.LOAD, 1, parts[cut:]),
            ]
            sent += [encode(Command.PROGRAM, rng.randrange(256)), encode(Command.RESET, 3)]
            sequence = 0
        elif kind == "data":
            sent.append(encode(Command.DATA, sequence, rng.randbytes(12)))
        elif kind == "reset":
            sent.append(encode(Command.RESET, rng.randrange(256)))
        elif kind == "wrong":
            sent.append(encode(rng.choice([Command.LOAD, Command.DATA, 0x46]), 77, bytes(5)))
        else:
            sent.append(encode(Command.PROGRAM, rng.randrange(256)))

    def compute(frames: np.ndarray) -> np.ndarray:
        image = ProgramImage(good)
        return np.array([list(ProgramEngine.expected(image, frame.tobytes())) for frame in frames], np.uint8)

    device = make_program_device(accelerator)
    board = ModelBoard(device.identity, compute, ProgramMemory(ARRAY.id, ProgramEngine.MEMORY_BYTES), 12)
    model = decode(b"".join(map(board.exchange, sent)))
    gateware = decode(talk(device, (200 * b"\0").join(sent), quiet=600).data)
    assert [_essence(frame) for frame in gateware] == [_essence(frame) for frame in model]
    assert {frame.command for frame in model} >= {Command.PROGRAM_STATUS, Command.TAKEN, Command.ERROR}


def _essence(frame: Frame) -> object:
    """Return a frame without what has no meaning: the sequence of an ERROR, numbers of a program that is not there."""
    if frame.command == Command.PROGRAM_STATUS:
        said = ProgramStatus.unpack(frame.payload)
        ready, refused = said.state is ProgramState.READY, said.state is ProgramState.REFUSED
        meaning = (said.crc, said.output_bytes) if ready else said.reason if refused else None
        return frame.sequence, said.state, said.array_id, meaning
    return (frame.command, frame.payload) if frame.command == Command.ERROR else frame
