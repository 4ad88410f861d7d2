"""The shared engine behind the link: two programs, one after the other, on the same hardware."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.driver import Device as HostDevice
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.hardware import HardwareLink
from nnhw.engines.shared import Emit, Fill, SharedConfig
from nnhw.engines.shared.golden import run_program
from nnhw.engines.timing import Schedule
from nnhw.flow.virtual.virtual_board import SimulatedHardware
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.link.program_signature import ProgramSignature
from nnhw.hdl.shared import SharedEngine
from nnhw.ir import IntType
from nnhw.protocol import Command, DeviceIdentity, ProgramState, ProgramStatus, Refusal
from tests.engines.shared.programs import ARRAY, convolution
from tests.hdl.link.bench import talk
from tests.hdl.link.test_program import ASK, RESET, load_frames
from tests.hdl.link.wire import decode

CLOCK_HZ = 48_000_000
CODE = IntType(-128, 127)


class ByteShared(wiring.Component):
    """A shared engine whose beats are bytes."""

    def __init__(self) -> None:
        self.engine: Any = SharedEngine(ARRAY)
        byte = stream.Signature(unsigned(8))
        self.status = dict(ProgramSignature().members)
        super().__init__({"i": In(byte), "o": Out(byte), "load": In(byte), **self.status})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.engine = engine = self.engine
        wiring.connect(m, wiring.flipped(self.load), engine.load)
        wiring.connect(m, engine.o, wiring.flipped(self.o))
        m.d.comb += [
            Value.cast(engine.i.payload).eq(self.i.payload),
            engine.i.valid.eq(self.i.valid),
            self.i.ready.eq(engine.i.ready),
            *(getattr(self, name).eq(getattr(engine, name)) for name in self.status),
        ]
        return m


def make_program(seed: int, stride: int, outputs: int) -> SharedConfig:
    """Return a convolution of a map of 3 channels, 5 by 5."""
    weights = np.random.default_rng(seed).integers(-128, 128, (outputs, 3, 3, 3))
    record = convolution(weights, 5, stride)
    return SharedConfig(ARRAY, (Fill(200, 25, 3, flip=False), record, Emit(300, record.pixels, outputs, flip=False)))


def make_accelerator(program: SharedConfig) -> Accelerator:
    outputs = program.o_beats
    stage = Stage("all.shared", "all", "", program, (INPUT,), Stream(1, outputs, CODE))
    return Accelerator(
        name="shared",
        model_hash="00" * 32,
        board="none",
        stages=(stage,),
        input_format=InputFormat((75,), CODE, 1),
        output_format=OutputFormat((outputs,), CODE, 1, 1, np.zeros(outputs, np.int64)),
        schedule=Schedule(5000, 5000),
    )


def make_device(accelerator: Accelerator) -> LinkedEngine:
    identity = DeviceIdentity(accelerator.device_hash, *accelerator.device_bytes, CLOCK_HZ)
    return LinkedEngine(ByteShared(), identity, ARRAY.id)


def test_shared_engine_runs_one_network_after_the_other() -> None:
    first, second = make_program(1, 1, 5), make_program(2, 2, 8)
    assert make_accelerator(first).device_hash == make_accelerator(second).device_hash
    hardware = SimulatedHardware(make_device(make_accelerator(first)))
    frames = np.random.default_rng(3).integers(-128, 128, (3, 75))
    for program in (first, second):
        image = ProgramImage(program.image)
        device = HostDevice(HardwareLink(hardware, CLOCK_HZ), make_accelerator(program), program=image)
        expected = [run_program(program, frame).output.astype(np.int8).tolist() for frame in frames]
        for _ in range(2):
            assert device.infer_codes(frames).tolist() == expected


@pytest.mark.parametrize(
    ("place", "reason"),
    [(6, Refusal.OTHER_ARRAY), (11, Refusal.LENGTH), (90, Refusal.CHECKSUM)],
)
def test_shared_engine_refuses_what_is_wrong(place: int, reason: Refusal) -> None:
    data = bytearray(make_program(1, 1, 5).image)
    data[place] ^= 64
    sent = RESET + load_frames(bytes(data)) + 400 * b"\0" + ASK
    frames = decode(talk(make_device(make_accelerator(make_program(1, 1, 5))), sent).data)
    (said,) = [ProgramStatus.unpack(one.payload) for one in frames if one.command == Command.PROGRAM_STATUS]
    assert (said.state, said.reason, said.array_id) == (ProgramState.REFUSED, reason, ARRAY.id)
