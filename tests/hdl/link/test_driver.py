"""The driver on the gateware itself: the same device object as on a board, the bytes answered by the simulated RTL."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nnhw.accelerator import Accelerator, InputFormat, OutputFormat
from nnhw.driver import Device as HostDevice
from nnhw.driver.links.hardware import HardwareLink
from nnhw.driver.links.model import ModelBoard
from nnhw.engines.timing import Schedule
from nnhw.flow.virtual import SimulatedHardware
from nnhw.hdl.link.device import Device
from nnhw.ir import IntType
from nnhw.protocol import Command, DeviceIdentity
from tests.hdl.link.bench import talk
from tests.hdl.link.engines import SumEngine
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
    link = kind(SimulatedHardware(Device(engine, identity)), CLOCK_HZ)
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
    gateware = decode(talk(Device(engine, IDENTITY), (400 * b"\0").join(sent), quiet=600).data)
    assert [_essence(frame) for frame in gateware] == [_essence(frame) for frame in model]


def _essence(frame: object) -> object:
    """Return a frame without what has no meaning: the sequence of an ERROR."""
    return (frame.command, frame.payload) if frame.command == Command.ERROR else frame  # type: ignore[attr-defined]
