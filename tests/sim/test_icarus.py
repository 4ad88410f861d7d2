"""Icarus, which runs the benches where no C++ compiler is, finds the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.verification.benches import Simulator
from nnhw.flow.verification.simulate import boundary_values, simulate_accelerator
from tests.sim.networks import SMALL, accelerator_of, mixed, random_codes

pytestmark = pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")


def test_icarus_equals_ir_and_prediction(tmp_path: Path) -> None:
    body = mixed()
    accelerator, codes = accelerator_of(body, SMALL), random_codes(body, 4)
    icarus = Simulator("icarus", "Icarus Verilog")
    patterns = [("none", "none"), ("random", "random")]
    values = boundary_values(body, codes)
    result = simulate_accelerator(accelerator, codes, values, patterns, tmp_path, SilentProgress(), icarus)
    assert result.equal
    assert result.simulator == "cocotb on Icarus Verilog"
    assert result.latency_cycles == accelerator.schedule.latency_cycles
    assert result.interval == accelerator.schedule.interval
    assert result.mistimed is None
