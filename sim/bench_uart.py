"""Bench of a device at its serial pins: the bytes of the protocol, bit by bit.

Environment: NNHW_PLAN, path of a JSON document with

    arrays: path of an .npz: `input` uint8 [frames, bytes], `output` uint8 [frames, bytes]
    divisor: clock cycles of a bit
    faults: in front of each frame goes a damaged copy, or a part of it, and pauses are in it
    stepwise: a frame is sent only when the one before is taken
    result: path of the JSON document to write
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import cocotb
from cobs import cobs
from cocotb.triggers import ClockCycles, Timer
from cocotb.utils import get_sim_time

from nnhw.protocol import DELIMITER, PAYLOAD_LIMIT_BYTES, Command, Frame

from .frames import TOKEN, Answers, conclude, damaged, data_frames, judge, read_plan
from .harness import CLOCK_NS, BenchFailure, start

QUIET_BITS = 2000


class SerialLine:
    """The host's end of a serial line.

    Parameters
    ----------
    divisor: clock cycles of a bit.
    """

    def __init__(self, dut: Any, divisor: int, seed: int) -> None:
        self._dut, self._bit_ns = dut, divisor * CLOCK_NS
        self._random = random.Random(seed)
        self.faults = 0
        self.answers = Answers()
        cocotb.start_soon(self._receive())

    async def begin(self) -> None:
        """Send what the driver begins with: a delimiter, which tells a device of two rates which one this is."""
        await self._send_bytes(DELIMITER)

    async def send(self, frame: Frame, faults: bool = False) -> None:
        """Send a frame; with faults, a damaged copy of it goes before it, and pauses are in it."""
        data = cobs.encode(frame.to_bytes()) + DELIMITER
        if faults:
            self.faults += 1
            await self._send_bytes(damaged(data, self._random))
            await self._until(lambda: self.answers.has_error, "ERROR")
            self.answers.drop_errors()
        await self._send_bytes(data, pauses=faults)

    async def _send_bytes(self, data: bytes, pauses: bool = False) -> None:
        """Send bytes, without a pause or with some of any length."""
        for byte in data:
            for bit in (0, *(byte >> index & 1 for index in range(8)), 1):
                self._dut.rx.value = bit
                await Timer(self._bit_ns, unit="ns")
            if pauses and self._random.random() < 0.1:
                await Timer(self._random.randrange(1, 400), unit="ns")

    async def _receive(self) -> None:
        while True:
            if self._dut.tx.value == 1:
                await self._dut.tx.value_change
                continue
            await Timer(self._bit_ns * 3 // 2, unit="ns")
            byte = 0
            for index in range(8):
                byte |= int(self._dut.tx.value) << index
                await Timer(self._bit_ns, unit="ns")
            if self._dut.tx.value != 1:
                raise BenchFailure(f"tx: byte {byte:#04x} has no stop bit")
            if not byte and self.answers.is_between:
                raise BenchFailure("tx: a delimiter came that ends no frame")
            self.answers.take(byte)

    async def wait(self, count: int) -> None:
        """Wait until `count` frames came in all."""
        await self._until(lambda: len(self.answers.frames) >= count, f"answer {count}")

    async def wait_taken(self, sequence: int) -> None:
        """Wait until the device has taken the DATA frame of a sequence number."""
        await self._until(lambda: self.answers.taken == (sequence + 1) % 256, f"TAKEN of DATA {sequence}")

    async def _until(self, done: Callable[[], bool], what: str) -> None:
        """Wait for something, as long as anything comes."""
        begin = get_sim_time("ns")
        while not done():
            await Timer(self._bit_ns * 10, unit="ns")
            if get_sim_time("ns") - max(begin, self.answers.last_ns) > QUIET_BITS * self._bit_ns:
                raise BenchFailure(f"tx: {what} did not come, {len(self.answers.frames)} answers came before")


@cocotb.test()
async def device_answers_at_its_pins(dut: Any) -> None:
    """Identity, reset, images back to back: every output byte equal, nothing missing, nothing extra."""
    plan, images, outputs = read_plan()
    dut.rx.value = 1
    await start(dut)
    await ClockCycles(dut.clk, 8 * plan["divisor"])
    line = SerialLine(dut, plan["divisor"], seed=1)
    await line.begin()
    await line.send(Frame(Command.IDENTIFY, 1))
    await line.send(Frame(Command.RESET, TOKEN))
    await line.wait(2)
    begin = get_sim_time("ns")
    for frame in data_frames(images.tobytes()):
        await line.send(frame, plan["faults"])
        if plan["stepwise"]:
            await line.wait_taken(frame.sequence)
    per_image = -(-outputs.shape[1] // PAYLOAD_LIMIT_BYTES)
    await line.wait(2 + per_image * len(images))
    await Timer(40 * 10 * plan["divisor"] * CLOCK_NS, unit="ns")  # for answers that nobody expects
    mismatches = judge(line.answers.frames, images.shape[1], outputs, per_image)
    cycles = round((line.answers.last_ns - begin) / CLOCK_NS)
    conclude(plan, len(images), mismatches, cycles, line.faults, "tx")
