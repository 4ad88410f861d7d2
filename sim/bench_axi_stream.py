"""Bench of an accelerator as an AXI-Stream core, with the source and sink of cocotbext-axi.

Environment: NNHW_PLAN, path of a JSON document with

    arrays: path of an .npz: `input` uint8 [frames, bytes], `output` uint8 [frames, bytes], `load` uint8 [bytes]
    stalls: patterns of source and sink, see `stalls`
    cut: frames that are sent before a reset in the middle of the next; 0: no reset
    wrong: a frame is sent first whose end is marked a transfer too soon, and `misaligned` must say so
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from .harness import CLOCK_NS, BenchFailure
from .stalls import stalls

LIMIT_US = 500


@cocotb.test()
async def core_equals_ir(dut: Any) -> None:
    """Whole frames through the streams; each result ends where `tlast` says, and is the one expected."""
    plan = json.loads(Path(os.environ["NNHW_PLAN"]).read_text(encoding="utf-8"))
    with np.load(plan["arrays"], allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    dut.aresetn.value = 0
    Clock(dut.aclk, CLOCK_NS, unit="ns").start()
    source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.aclk, dut.aresetn, False, byte_size=8)
    sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.aclk, dut.aresetn, False, byte_size=8)
    loader = None
    if "load" in arrays:
        loader = AxiStreamSource(AxiStreamBus.from_prefix(dut, "load"), dut.aclk, dut.aresetn, False, byte_size=8)
    await ClockCycles(dut.aclk, 5)
    dut.aresetn.value = 1
    await _load(dut, loader, arrays)
    if plan["cut"]:
        await _cut(dut, source, sink, arrays["input"], plan["cut"])
        await _load(dut, loader, arrays)
    for port, pattern, seed in ((source, plan["stalls"][0], 1), (sink, plan["stalls"][1], 2)):
        port.set_pause_generator(not moves for moves in stalls(pattern, seed))
    for frame in arrays["input"]:
        await source.send(AxiStreamFrame(frame.tobytes()))
    for number, expected in enumerate(arrays["output"]):
        result = await with_timeout(sink.recv(), LIMIT_US, "us")
        if bytes(result.tdata) != expected.tobytes():
            raise BenchFailure(f"result {number} is {bytes(result.tdata).hex()}, expected {expected.tobytes().hex()}")
    if int(dut.misaligned.value):
        raise BenchFailure("misaligned, though every frame ended where it should")
    if plan["wrong"]:
        await source.send(AxiStreamFrame(arrays["input"][0].tobytes()[: -len(dut.s_axis_tdata) // 8]))
        await with_timeout(RisingEdge(dut.misaligned), LIMIT_US, "us")


async def _load(dut: Any, loader: Any, arrays: dict[str, np.ndarray]) -> None:
    """Load the programs, where there are any."""
    if loader is not None:
        await loader.send(AxiStreamFrame(arrays["load"].tobytes()))
        await with_timeout(RisingEdge(dut.program_ready), LIMIT_US, "us")


async def _cut(dut: Any, source: Any, sink: Any, frames: np.ndarray, count: int) -> None:
    """Send some frames, and reset everything while one is under way."""
    for frame in frames[:count]:
        await source.send(AxiStreamFrame(frame.tobytes()))
    await with_timeout(source.wait(), LIMIT_US, "us")
    await source.send(AxiStreamFrame(frames[0].tobytes()))
    await ClockCycles(dut.aclk, 3)
    dut.aresetn.value = 0
    await ClockCycles(dut.aclk, 3)
    source.clear()
    sink.clear()
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 3)
