"""Bench of a whole accelerator: every layer boundary and the output against the IR, frames back to back.

Environment: NNHW_PLAN, path of a JSON document with

    arrays: path of an .npz: `input` uint8 [beats, bytes], `output` uint8 [bytes], `tap_<k>` uint32 [beats, words]
    names: of the taps
    counted: taps behind these, each for the cycles of the records of a program
    frames: how many
    stalls: patterns of source and sink
    rest_cycles: before the first beat, until everything rests
    limit_cycles: where to give up
    cut: whether that is no failure: everything that passed until then is compared
    result: path of the JSON document to write
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from .harness import Log, Monitor, Scoreboard, Sink, Source, Stream, Taps, start, wait_for
from .stalls import stalls


@cocotb.test()
async def accelerator_equals_ir(dut: Any) -> None:
    """All frames through the accelerator; the result is written before it is judged."""
    plan = json.loads(Path(os.environ["NNHW_PLAN"]).read_text(encoding="utf-8"))
    with np.load(plan["arrays"], allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    dut.i__valid.value = 0
    dut.o__ready.value = 0
    cycles = await start(dut)
    for _ in range(plan["rest_cycles"]):
        await RisingEdge(dut.clk)
    i, o, frames = Stream(dut, "i"), Stream(dut, "o"), plan["frames"]
    i_beats = [int.from_bytes(row.tobytes(), "little") for row in arrays["input"]]
    taken = Scoreboard("i", i_beats, frames)
    output = Scoreboard("output", arrays["output"].tolist(), frames)
    taps = [Scoreboard(name, words(arrays[f"tap_{number}"]), frames) for number, name in enumerate(plan["names"])]
    source = Source(i, i_beats, stalls(plan["stalls"][0], 1))
    Sink(o, stalls(plan["stalls"][1], 2))
    Monitor(i, taken, cycles)
    Monitor(o, output, cycles)
    records = [Log(f"records {number}") for number in range(plan["counted"])]
    watched: list[Scoreboard | Log] = [*taps, *records]
    Taps(dut, {f"tap_{number}": board for number, board in enumerate(watched)}, cycles)
    boards, seen = [*taps, output], plan["limit_cycles"]
    try:
        seen = await wait_for(boards, source, dut, plan["limit_cycles"], cut=plan["cut"])
    finally:
        found = {**summary(taken, boards), "records": [log.words for log in records], "untaken": source.left}
        Path(plan["result"]).write_text(json.dumps({**found, "cycles": seen}), encoding="utf-8")
    for scoreboard in (taken, *boards):
        scoreboard.finish(plan["cut"])


def words(array: np.ndarray) -> list[int]:
    """Return the beats of uint32 [beats, words] as integers."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.asarray(array, dtype="<u4")]


def summary(taken: Scoreboard, boards: list[Scoreboard]) -> dict[str, Any]:
    """Return what was found: for each stream, and the cycles of the output's frames."""
    output = boards[-1]
    last = output.cycles[len(output.expected) // output.frames - 1 :: len(output.expected) // output.frames]
    return {
        "first_cycle": taken.cycles[0] if taken.cycles else None,
        "frame_cycles": last,
        "broken_rules": len(output.broken) + len(taken.broken),
        "streams": [
            {
                "name": board.name,
                "frames": board.frames,
                "mismatches": board.mismatches,
                "extra": max(0, board.count - len(board.expected)),
                "beats": board.count,
                "wrong": len(board.wrong),
                "of": len(board.expected),
            }
            for board in boards
        ],
    }
