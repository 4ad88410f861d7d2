"""Small accelerators, the boards that stand for them, and links that do harm."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from cobs import cobs

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.driver import BatchError
from nnhw.driver.device import Device
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.driver.links.model_program import ProgramMemory
from nnhw.engines.shared import ArrayConfig, SharedConfig
from nnhw.engines.timing import Schedule
from nnhw.errors import LinkError
from nnhw.ir import IntType
from nnhw.protocol import Command, DeviceIdentity

HASH = "3f1c09a5b77e2d84" + 48 * "0"


def make_accelerator(
    inputs: int = 12, outputs: int = 5, model_hash: str = HASH, interval_cycles: int = 100
) -> Accelerator:
    """Return an accelerator of byte codes that nothing can run but a board from here."""
    return Accelerator(
        name="toy",
        model_hash=model_hash,
        board="icebreaker",
        stages=(),
        input_format=InputFormat((inputs,), IntType(0, 255), 1),
        output_format=OutputFormat((outputs,), IntType(-(2**31), 2**31 - 1), 4, 1, np.zeros(outputs, np.int64)),
        schedule=Schedule(150, interval_cycles),
    )


ARRAY = ArrayConfig(4, 2, 8, 8, 64, 512, 4, 24, 12, 24, (8,))
"""An array that nobody runs, with 4096 bytes of memory."""


def make_shared(inputs: int = 12, outputs: int = 5, array: ArrayConfig = ARRAY) -> Accelerator:
    """Return an accelerator whose engine runs programs."""
    plain = make_accelerator(inputs, outputs)
    stage = Stage("all.shared", "all", "", SharedConfig(array, ()), (INPUT,), Stream(1, outputs, IntType(0, 255)))
    return dataclasses.replace(plain, stages=(stage,))


def make_program(accelerator: Accelerator, body: bytes = bytes(range(200)) * 3) -> ProgramImage:
    """Return a program for the array of an accelerator."""
    return ProgramImage.pack(accelerator.programs[0].array.id, body, accelerator.output_format.frame_bytes)


def golden(codes: np.ndarray, outputs: int) -> np.ndarray:
    """Return what the boards compute: int64 [N, outputs] of [N, inputs]."""
    weights = np.arange(codes.shape[1] * outputs).reshape(codes.shape[1], outputs) * 37 % 11 - 5
    return codes.astype(np.int64) @ weights


def make_board(accelerator: Accelerator, wrong_by: int = 0) -> ModelBoard:
    """Return a board that computes `golden`, or what differs from it everywhere."""
    i_format, o_format = accelerator.input_format, accelerator.output_format
    identity = DeviceIdentity(accelerator.device_hash, *accelerator.device_bytes, 48_000_000)
    memory = None
    for program in accelerator.programs:
        memory = ProgramMemory(program.array.id, program.array.words * program.array.word_bits // 8)

    def compute(frames: np.ndarray) -> np.ndarray:
        return o_format.pack(golden(i_format.unpack(frames), o_format.elements) + wrong_by)

    return ModelBoard(identity, compute, memory, i_format.frame_bytes)


def make_codes(count: int, inputs: int = 12, seed: int = 1) -> np.ndarray:
    """Return random codes [count, inputs], a third of them zero."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((count, inputs)) < 0.3, 0, rng.integers(0, 256, (count, inputs)))


def open_toy(link: ModelLink, accelerator: Accelerator, max_retries: int = 3) -> Device:
    """Return a device without head and tail."""
    return Device(link, accelerator, max_retries=max_retries)


def refusal(device: Device, codes: np.ndarray) -> str:
    """Return "" if a batch is right, and why it was stopped without a row if it was."""
    try:
        results, why = device.infer_codes(codes), ""
    except BatchError as error:
        results, why = error.results, str(error.__cause__)
    assert np.array_equal(results, golden(codes, results.shape[1]) if not why else results[:0])
    return why.partition(": ")[2]


def said_by_child(use: Callable[[], Any]) -> str:
    """Return the message of the LinkError that a use ends by in a forked process; what it gave if it ended well."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(10)  # a child that waits for ever says nothing
        try:
            said = repr(use())
        except LinkError as error:
            said = str(error)
        # Whatever else it raises, the child must not go on with the tests.
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said.replace(f"process {os.getpid()},", "process PARENT,").replace(f"process {child},", "process CHILD,")


class Exchanges(Protocol):
    """What answers bytes by bytes."""

    def exchange(self, data: bytes) -> bytes: ...


class TappedLink(ModelLink):
    """A link to a model board whose bytes pass through two functions.

    Parameters
    ----------
    outbound, inbound: change bytes to and from the device.
    """

    def __init__(
        self, board: ModelBoard, outbound: Callable[[bytes], bytes] = bytes, inbound: Callable[[bytes], bytes] = bytes
    ) -> None:
        super().__init__(board)
        self.sent = 0
        self.closed = False
        self._outbound, self._inbound = outbound, inbound

    def write(self, data: bytes) -> None:
        self.sent += len(data)
        super().write(self._outbound(data))

    def read(self, timeout_s: float) -> bytes:
        # Time passes even while bytes come, as on a real line.
        self._time_s += 1e-4
        return self._inbound(super().read(timeout_s))

    def close(self) -> None:
        self.closed = True


class LostFrames:
    """Loses frames of one command in a row, once, as a buffer that overruns does.

    Parameters
    ----------
    command: of the frames that are lost.
    first: number of its frames that pass before.
    count: number of frames lost.

    Members
    -------
    seen: number of its frames that came.
    """

    def __init__(self, command: Command, first: int, count: int) -> None:
        self._command, self._lost = command, range(first, first + count)
        self._rest = b""
        self.seen = 0

    def __call__(self, data: bytes) -> bytes:
        *parts, self._rest = (self._rest + data).split(b"\0")
        return b"".join(part + b"\0" for part in parts if not self._is_lost(part))

    def _is_lost(self, part: bytes) -> bool:
        if not part or cobs.decode(part)[0] != self._command:
            return False
        self.seen += 1
        return self.seen - 1 in self._lost


class SwappedBoard:
    """A board that is another one from a certain frame of the host on.

    Parameters
    ----------
    board: what is there first.
    swaps: number of DATA frames that the host has sent before --> what is there from then on.
    """

    def __init__(self, board: Exchanges, swaps: Mapping[int, Exchanges]) -> None:
        self.board = board
        self._swaps = dict(swaps)
        self._data_frames = 0
        self._rest = b""

    def exchange(self, data: bytes) -> bytes:
        """Take bytes from the host and return those for it."""
        *parts, self._rest = (self._rest + data).split(b"\0")
        return b"".join(map(self._exchange, parts))

    def _exchange(self, part: bytes) -> bytes:
        if part and cobs.decode(part)[0] == Command.DATA:
            self.board = self._swaps.pop(self._data_frames, self.board)
            self._data_frames += 1
        return self.board.exchange(part + b"\0")
