"""The cocotb benches: engines of every kind pass, wrong hardware does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring

from nnhw.errors import ToolError
from nnhw.flow.tools.processes import ToolFailure
from nnhw.flow.tools.toolchain import run_yosys
from nnhw.flow.verification.benches import find_simulator, run_bench
from nnhw.hdl.engine import HARDWARE
from nnhw.hdl.verilog import to_verilog
from sim.cases import CASES


def simulator_missing() -> str:
    """Return why no bench can run here, or nothing."""
    try:
        find_simulator()
    except ToolError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(simulator_missing()), reason=simulator_missing())

STALLS = ["none,none", "random,alternating"]


def environments(case: str, patterns: list[str]) -> list[dict[str, str]]:
    """Return what the bench reads, once for each pattern."""
    return [{"NNHW_CASE": case, "NNHW_STALLS": pattern} for pattern in patterns]


def verilog_of(case: str) -> str:
    """Return the Verilog of a row."""
    config = CASES[case]()
    return to_verilog(HARDWARE[type(config)](config), run_yosys)


@pytest.mark.parametrize("case", ["matmul_folded", "window_block_odd", "pool_signed", "convert_narrow_3"])
def test_bench_engine_passes(case: str, tmp_path: Path) -> None:
    run_bench(verilog_of(case), "bench_engine", environments(case, STALLS), tmp_path)
    assert all((tmp_path / f"results-{number}.xml").exists() for number in range(len(STALLS)))


class DeadOutput(wiring.Component):
    """Takes everything and says nothing."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        super().__init__(inner.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = self.inner
        m.d.sync += self.i.ready.eq(1)
        return m


class InvertedOutput(wiring.Component):
    """Inverts one bit of what another component says."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        super().__init__(inner.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = self.inner
        wiring.connect(m, wiring.flipped(self.i), self.inner.i)
        m.d.comb += [
            Value.cast(self.o.payload).eq(Value.cast(self.inner.o.payload) ^ 1),
            self.o.valid.eq(self.inner.o.valid),
            self.inner.o.ready.eq(self.o.ready),
        ]
        return m


@pytest.mark.parametrize(
    ("mutant", "finding"), [(DeadOutput, "9 of 9 beats are missing"), (InvertedOutput, "9 of 9 beats differ")]
)
def test_bench_engine_catches_mutant(mutant: Any, finding: str, tmp_path: Path) -> None:
    case = "convert_widen_3"
    config = CASES[case]()
    verilog = to_verilog(mutant(HARDWARE[type(config)](config)), run_yosys)
    with pytest.raises(ToolFailure):
        run_bench(verilog, "bench_engine", environments(case, ["none,none"]), tmp_path)
    assert finding in (tmp_path / "bench.log").read_text(encoding="utf-8")
