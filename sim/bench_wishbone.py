"""Bench of an accelerator as a Wishbone core, with the master of cocotbext-wishbone.

Environment: NNHW_PLAN, path of a JSON document with

    arrays: path of an .npz: `input` uint8 [frames, bytes], `output` uint8 [frames, bytes], `load` uint8 [bytes]
    device: the word that identifies the core
    cut: write some bytes of a frame, and reset by CONTROL, first
    overrun: write words without looking for room, until one is lost, at the end
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.wishbone.driver import WBOp, WishboneMaster

from .harness import CLOCK_NS, BenchFailure

STATUS, INPUT, RESULT, CONTROL, INPUT_BYTES, RESULT_BYTES, DEVICE, LOAD = range(8)
ROOM, THERE, LOST, LOAD_ROOM, READY = (1 << bit for bit in range(5))
SIGNALS = {
    **{name: f"{name}_i" for name in ("cyc", "stb", "we", "adr", "sel")},
    **{"datwr": "dat_i", "datrd": "dat_o", "ack": "ack_o"},
}
PATIENCE, TIMEOUT = 5_000, 100


class Master(WishboneMaster):  # type: ignore[misc]
    """The master with the names of the core's ports, of which it would drop `sel_i` as an optional one."""

    _optional_signals = ()


class Bus:
    """The words of the core."""

    def __init__(self, dut: Any) -> None:
        self._master = Master(dut, None, dut.clk_i, width=32, timeout=TIMEOUT, signals_dict=SIGNALS)

    async def read(self, register: int) -> int:
        """Return a word."""
        (answer,) = await self._master.send_cycle([WBOp(register)])
        return int(answer.datrd)

    async def write(self, register: int, word: int, sel: int = 0xF) -> None:
        """Write a word."""
        await self._master.send_cycle([WBOp(register, word, sel=sel)])

    async def wait(self, bit: int) -> None:
        """Read the status until a bit is set."""
        for _ in range(PATIENCE):
            if await self.read(STATUS) & bit:
                return
        raise BenchFailure(f"bit {bit} of the status stays 0")

    async def put(self, register: int, data: bytes, room: int) -> None:
        """Write bytes, four at a time, where there is room."""
        for start in range(0, len(data), 4):
            part = data[start : start + 4]
            await self.wait(room)
            await self.write(register, int.from_bytes(part, "little"), (1 << len(part)) - 1)


@cocotb.test()
async def core_equals_ir(dut: Any) -> None:
    """Whole frames through the registers, each result behind its frame; then what goes wrong."""
    plan = json.loads(Path(os.environ["NNHW_PLAN"]).read_text(encoding="utf-8"))
    with np.load(plan["arrays"], allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    dut.rst_i.value = 1
    Clock(dut.clk_i, CLOCK_NS, unit="ns").start()
    bus = Bus(dut)
    await ClockCycles(dut.clk_i, 3)
    dut.rst_i.value = 0
    await ClockCycles(dut.clk_i, 1)
    sizes = [await bus.read(register) for register in (INPUT_BYTES, RESULT_BYTES, DEVICE)]
    _equal(sizes, [arrays["input"].shape[1], arrays["output"].shape[1], plan["device"]], "what the core says of itself")
    if plan["cut"]:
        await bus.put(INPUT, arrays["input"][0].tobytes()[:3], ROOM)
        await bus.write(CONTROL, 1)
        await ClockCycles(dut.clk_i, 4)
    if "load" in arrays:
        await bus.put(LOAD, arrays["load"].tobytes(), LOAD_ROOM)
        await bus.wait(READY)
    await bus.write(CONTROL, 2)
    _equal(int(dut.irq.value), 0, "the interrupt before a result")
    for number, (frame, expected) in enumerate(zip(arrays["input"], arrays["output"], strict=True)):
        await bus.put(INPUT, frame.tobytes(), ROOM)
        result = bytearray()
        for _ in range(PATIENCE):
            word = await bus.read(RESULT)
            if word & 0x100:
                result.append(word & 0xFF)
            if len(result) == len(expected):
                break
        _equal(bytes(result), expected.tobytes(), f"result {number}")
    _equal(await bus.read(RESULT), 0, "a result that nobody asked for")
    _equal(await bus.read(STATUS) & (LOST | THERE), 0, "the status at the end")
    await bus.put(INPUT, arrays["input"][0].tobytes(), ROOM)
    await bus.wait(THERE)
    _equal(int(dut.irq.value), 1, "the interrupt with a result")
    if plan["overrun"]:
        for _ in range(PATIENCE):
            await bus.write(INPUT, 0)
            if await bus.read(STATUS) & LOST:
                break
        _equal(await bus.read(STATUS) & LOST, LOST, "words that are lost")
        await bus.write(CONTROL, 1)
        await ClockCycles(dut.clk_i, 4)
        _equal(await bus.read(STATUS) & (LOST | THERE | ROOM), ROOM, "the status behind a reset")


def _equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise BenchFailure(f"{what}: {found!r}, expected {expected!r}")
