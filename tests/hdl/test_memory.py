"""A ROM in several parts reads like one, a read later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnhw.hdl.memory import LargeRam, SplitRom
from sim.simulator import Simulator


def read(rom: SplitRom, addresses: list[int]) -> list[int]:
    """Return what is read at addresses, two reads later; each second cycle reads nothing and must change nothing."""
    seen: list[int] = []

    async def bench(ctx: Any) -> None:
        for number, address in enumerate([*addresses, 0]):
            ctx.set(rom.en, 1)
            ctx.set(rom.addr, address)
            await ctx.tick()
            ctx.set(rom.en, 0)
            ctx.set(rom.addr, addresses[-1 - number % len(addresses)])
            await ctx.tick()
            seen.append(int(ctx.get(rom.data)))

    simulator = Simulator(rom)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen[1:]


@pytest.mark.parametrize(
    ("words", "tail"),
    [(1, 0), (16, 0), (17, 1), (20, 4), (20, 19), (1, 1), (64, 64), (65, 65), (200, 200), (200, 136), (300, 7)],
)
def test_split_rom_reads_every_word(words: int, tail: int) -> None:
    rng = np.random.default_rng(words)
    init = rng.integers(0, 1 << 9, words).tolist()
    addresses = [*range(words), *rng.permutation(words).tolist()]
    assert read(SplitRom(init, 9, tail), addresses) == [init[address] for address in addresses]


@pytest.mark.parametrize(("depth", "bits"), [(4, 1), (20, 16), (16, 21)])
def test_large_ram_reads_what_was_written_and_keeps_it(depth: int, bits: int) -> None:
    rng = np.random.default_rng(bits)
    ram, words = LargeRam(depth, bits), rng.integers(0, 1 << bits, depth).tolist()
    seen: list[tuple[int, int]] = []

    async def access(ctx: Any, address: int, word: int | None) -> None:
        ctx.set(ram.addr, address)
        ctx.set(ram.read, word is None)
        ctx.set(ram.write, word is not None)
        ctx.set(ram.i_data, 0 if word is None else word)
        await ctx.tick()

    async def bench(ctx: Any) -> None:
        for address, word in enumerate(words):
            await access(ctx, address, word)
        for address, word in enumerate(words):
            await access(ctx, address, None)
            seen.append((int(ctx.get(ram.data)), word))
            for other in range(2):
                await access(ctx, (address + other + 1) % depth, words[(address + other + 1) % depth])
                seen.append((int(ctx.get(ram.data)), word))

    simulator = Simulator(ram)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(seen) == 3 * depth
    assert all(got == wanted for got, wanted in seen)
