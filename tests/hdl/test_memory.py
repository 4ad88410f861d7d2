"""A ROM in two parts reads like one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.sim import Simulator

from nnhw.hdl.memory import SplitRom


def read(rom: SplitRom, addresses: list[int]) -> list[int]:
    """Return what is read at addresses; each second cycle reads nothing and must change nothing."""
    seen: list[int] = []

    async def bench(ctx: Any) -> None:
        for number, address in enumerate(addresses):
            ctx.set(rom.en, 1)
            ctx.set(rom.addr, address)
            await ctx.tick()
            ctx.set(rom.en, 0)
            ctx.set(rom.addr, addresses[-1 - number])
            await ctx.tick()
            seen.append(int(ctx.get(rom.data)))

    simulator = Simulator(rom)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


@pytest.mark.parametrize(("words", "tail"), [(1, 0), (16, 0), (17, 1), (20, 4), (20, 19), (37, 5)])
def test_split_rom_reads_every_word(words: int, tail: int) -> None:
    rng = np.random.default_rng(words)
    init = rng.integers(0, 1 << 9, words).tolist()
    addresses = [*range(words), *rng.permutation(words).tolist()]
    assert read(SplitRom(init, 9, tail), addresses) == [init[address] for address in addresses]
