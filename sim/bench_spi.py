"""Bench of a device at its SPI pins, as a microcontroller drives them: mode 0, any number of bytes a transfer.

Environment: NNHW_PLAN, path of a JSON document with

    arrays: path of an .npz: `input` uint8 [frames, bytes], `output` uint8 [frames, bytes]
    divisor: clock cycles of a bit
    faults: in front of each frame goes a damaged copy, or a part of it that ends within a byte, and pauses are in it
    stepwise: a frame is sent only when the one before is taken
    result: path of the JSON document to write
"""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cobs import cobs
from cocotb.triggers import ClockCycles, Timer
from cocotb.utils import get_sim_time

from nnhw.protocol import DELIMITER, PAYLOAD_LIMIT_BYTES, Command, Frame

from .frames import TOKEN, Answers, conclude, damaged, data_frames, judge, read_plan
from .harness import CLOCK_NS, BenchFailure, start

QUIET_BYTES = 4000
POLL_BYTES = 16


class SpiController:
    """The microcontroller's end.

    Parameters
    ----------
    divisor: clock cycles of a bit.
    """

    def __init__(self, dut: Any, divisor: int, seed: int) -> None:
        self._dut, self._half_ns = dut, divisor * CLOCK_NS // 2
        self._random = random.Random(seed)
        self.answers = Answers()
        self.faults = 0

    async def transfer(self, data: bytes, cut_bits: int = 0, pauses: bool = False) -> None:
        """Select the device, exchange bytes, and let go of it; with the last byte cut off behind so many bits."""
        self._dut.spi_cs.value = 0
        await Timer(4 * CLOCK_NS + self._half_ns, unit="ns")
        for number, byte in enumerate(data):
            cut = cut_bits if number == len(data) - 1 else 0
            await self._byte(byte, cut or 8, pauses)
        self._dut.spi_cs.value = 1
        await Timer(5 * CLOCK_NS, unit="ns")

    async def _byte(self, byte: int, bits: int, pauses: bool) -> None:
        answer = 0
        for place in range(7, 7 - bits, -1):
            self._dut.spi_copi.value = byte >> place & 1
            await Timer(self._half_ns, unit="ns")
            answer = answer << 1 | int(self._dut.spi_cipo.value)
            self._dut.spi_sck.value = 1
            await Timer(self._half_ns, unit="ns")
            self._dut.spi_sck.value = 0
            if pauses and self._random.random() < 0.05:
                await Timer(self._random.randrange(1, 400), unit="ns")
        if bits == 8:
            self.answers.take(answer)

    async def send(self, frame: Frame, faults: bool = False) -> None:
        """Send a frame; with faults, a damaged copy of it goes before it, and pauses are in it."""
        data = cobs.encode(frame.to_bytes()) + DELIMITER
        if faults:
            self.faults += 1
            part = damaged(data, self._random)
            if len(part) < len(data):
                await self.transfer(part[:-1], cut_bits=self._random.randrange(1, 8))
                await self.transfer(DELIMITER)
            else:
                await self.transfer(part)
            await self.wait_for(lambda: self.answers.has_error, "ERROR")
            self.answers.drop_errors()
        await self.transfer(data, pauses=faults)

    async def wait_for(self, done: Any, what: str) -> None:
        """Read until something is there."""
        for _ in range(QUIET_BYTES):
            if done():
                return
            await self.transfer(bytes(POLL_BYTES))
        raise BenchFailure(f"cipo: {what} did not come, {len(self.answers.frames)} answers came before")


@cocotb.test()
async def device_answers_at_its_pins(dut: Any) -> None:
    """Identity, reset, images back to back: every output byte equal, nothing missing, nothing extra."""
    plan, images, outputs = read_plan()
    dut.spi_cs.value, dut.spi_sck.value, dut.spi_copi.value = 1, 0, 0
    await start(dut)
    await ClockCycles(dut.clk, 20)
    host = SpiController(dut, plan["divisor"], seed=1)
    answers = host.answers
    await host.send(Frame(Command.IDENTIFY, 1))
    await host.wait_for(lambda: len(answers.frames) >= 1, "identity")
    await host.send(Frame(Command.RESET, TOKEN))
    await host.wait_for(lambda: len(answers.frames) >= 2, "answer to RESET")
    begin = get_sim_time("ns")
    for frame in data_frames(images.tobytes()):
        await host.send(frame, plan["faults"])
        following = (frame.sequence + 1) % 256
        if not plan["stepwise"]:
            continue
        await host.wait_for(lambda expected=following: answers.taken == expected, f"TAKEN of DATA {frame.sequence}")
    per_image = -(-outputs.shape[1] // PAYLOAD_LIMIT_BYTES)
    await host.wait_for(lambda: len(answers.frames) >= 2 + per_image * len(images), "last result")
    await host.transfer(bytes(40))  # for answers that nobody expects
    if dut.spi_irq.value != 0:
        raise BenchFailure("irq: high, though nothing waits")
    mismatches = judge(answers.frames, images.shape[1], outputs, per_image)
    cycles = round((answers.last_ns - begin) / CLOCK_NS)
    conclude(plan, len(images), mismatches, cycles, host.faults, "cipo")
