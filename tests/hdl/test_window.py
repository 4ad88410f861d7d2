"""What the sliding window promises to block RAM: no word is read in the cycle in which it is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from amaranth.lib.memory import Memory

from nnhw.hdl import window
from nnhw.hdl.memory import block_ram, lut_ram
from sim.cases import WINDOWS, make_frames
from tests.hdl.streams import check, run_stream


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "alternating"), ("bursts", "bursts")], ids="-".join)
@pytest.mark.parametrize("name", WINDOWS)
def test_window_never_reads_what_it_writes(
    name: str, pattern: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[Memory] = []
    written: set[int] = set()

    def recorded(make: Callable[..., Memory], *arguments: Any, **options: Any) -> Memory:
        memories.append(make(*arguments, **options))
        return memories[-1]

    def watch(ctx: Any) -> str:
        for memory in memories:
            for writer in memory.write_ports:
                if not ctx.get(writer.en):
                    continue
                address = ctx.get(writer.addr)
                written.add(address)
                if any(ctx.get(reader.en) and ctx.get(reader.addr) == address for reader in memory.read_ports):
                    return f"word {address} is read while it is written"
        return ""

    monkeypatch.setattr(window, "block_ram", partial(recorded, block_ram))
    monkeypatch.setattr(window, "lut_ram", partial(recorded, lut_ram))
    config = WINDOWS[name]()
    frames = make_frames(config, count=4)
    result = run_stream(window.SlidingWindow(config), frames.inputs, len(frames.outputs), pattern, watch=watch)
    check(result, frames.outputs)
    assert len(memories) == config.row_lanes
    assert written
