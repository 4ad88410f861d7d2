"""The faster simulator of benches: Amaranth's own sees the same in every cycle."""

from __future__ import annotations

import random
from typing import Any

import amaranth.sim
import pytest
from amaranth.hdl import Cat, ClockDomain, Elaboratable, Module, Mux, ResetInserter, Signal, signed
from amaranth.lib.memory import Memory

from sim.simulator import Simulator


class Mixture(Elaboratable):
    """One of each: memory, signed sums, parts of a signal, both edges, resets of modules and of the domain."""

    def __init__(self) -> None:
        self.a, self.b, self.flag, self.rst = Signal(8), Signal(signed(6)), Signal(), Signal()
        self.total, self.product, self.parts = Signal(signed(12)), Signal(signed(16)), Signal(12)
        self.late, self.read, self.passed, self.count = Signal(8), Signal(8), Signal(8), Signal(4, init=3)
        self.seen = [self.total, self.product, self.parts, self.late, self.read, self.passed, self.count]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync, m.domains.fall = sync, fall = ClockDomain("sync"), ClockDomain("fall", clk_edge="neg")
        m.d.comb += [sync.rst.eq(self.rst), fall.clk.eq(sync.clk)]
        m.submodules.memory = memory = Memory(shape=8, depth=12, init=range(7, 19))
        write = memory.write_port(granularity=4)
        through, old = memory.read_port(transparent_for=(write,)), memory.read_port()
        m.d.comb += [
            *(write.addr.eq(self.a), write.en.eq(self.a[4:])),
            write.data.eq(self.total),
            *(through.addr.eq(self.a), old.addr.eq(self.a), through.en.eq(self.flag), old.en.eq(1)),
            *(self.passed.eq(through.data), self.read.eq(old.data)),
            self.product.eq(Mux(self.flag, self.total * self.b, -self.total)),
            self.parts[:4].eq(self.a ^ self.count),
        ]
        m.d.sync += [self.total.eq(self.total + self.b), self.parts[4:].eq(self.product >> 3)]
        m.d.fall += self.late.eq(self.total.as_unsigned() + self.a)
        counter = Module()
        counter.d.sync += self.count.eq(self.count + 1)
        m.submodules.counter = ResetInserter(self.a[0] & self.a[1])(counter)
        return m


def watch(kind: Any) -> list[Any]:
    """Return what testbenches see of the same module in a simulator, twice."""
    module, seen = Mixture(), list[Any]()

    async def drive(ctx: Any) -> None:
        rng = random.Random(1)
        driven = Cat(module.a, module.b, module.flag)
        for cycle in range(300):
            ctx.set(driven, rng.getrandbits(15))
            ctx.set(module.rst, cycle % 41 == 40)
            if cycle % 7 == 0:
                ctx.set(module.b, -rng.randrange(32))
                ctx.set(module.a[2:5], 5)
            seen.append([ctx.get(one) for one in module.seen] + [ctx.get(module.total + module.b)])
            seen.append(await ctx.tick())

    async def sample(ctx: Any) -> None:
        async for _, reset, count, product in ctx.tick().sample(module.count, module.product):
            seen.append((bool(reset), count, product))

    async def falls(ctx: Any) -> None:
        while True:
            await ctx.negedge(module.count[1])
            seen.append(ctx.get(module.late))

    simulator = kind(module)
    simulator.add_clock(1e-6)
    for bench, background in ((drive, False), (sample, True), (falls, True)):
        simulator.add_testbench(bench, background=background)
    simulator.run()
    simulator.reset()
    simulator.run()
    return seen


def test_simulator_sees_what_that_of_amaranth_sees() -> None:
    seen = watch(Simulator)
    assert seen == watch(amaranth.sim.Simulator)
    assert len({tuple(row) for row in seen if isinstance(row, list)}) == 300


def test_simulator_rejects_what_would_be_overridden() -> None:
    module = Mixture()

    async def bench(ctx: Any) -> None:
        ctx.set(module.product, 1)

    simulator = Simulator(module)
    simulator.add_testbench(bench)
    with pytest.raises(amaranth.hdl.DriverConflict):
        simulator.run()
