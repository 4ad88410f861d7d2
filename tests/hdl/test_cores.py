"""Cores for somebody else's design, driven by models of buses that nobody here wrote."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.tools.processes import ToolFailure
from nnhw.flow.tools.toolchain import run_yosys
from nnhw.flow.verification.benches import run_bench
from nnhw.hdl.core import AxiStreamCore, WishboneCore
from nnhw.hdl.verilog import to_verilog
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from tests.mapping.networks import NETWORKS
from tests.mapping.shared.networks import NETWORKS as SHARED_NETWORKS
from tests.marks import covering
from tests.sim.networks import random_codes
from tests.sim.test_benches import simulator_missing

pytest.importorskip("cocotbext.axi", reason="needs cocotbext-axi: pip install 'nnhw[dev]'")
pytest.importorskip("cocotbext.wishbone", reason="needs cocotbext-wishbone: pip install 'nnhw[dev]'")
pytestmark = pytest.mark.skipif(bool(simulator_missing()), reason=simulator_missing())

FRAMES = 4
STREAMING = ("residual", "wide_input", "pooled", "padded_bipolar")
LARGE = Budget(lc=100_000, ebr=1000, dsp=100)
STALLS = (("none", "none"), ("random", "bursts"))


@cache
def mapped(name: str) -> tuple[Graph, Accelerator]:
    if name == "shared":
        body = SHARED_NETWORKS["joined"](0)
        return body, map_on_board(body, load_board("icebreaker"), Options(style="shared"))[0].accelerator
    return NETWORKS[name](), map_body(NETWORKS[name](), "test", LARGE, target_interval=64)


def arrays_of(name: str, folder: Path) -> Path:
    """Write random frames and the results that the IR has for them; return the file."""
    body, accelerator = mapped(name)
    codes = random_codes(body, FRAMES)
    arrays = {
        "input": accelerator.input_format.pack(codes),
        "output": accelerator.output_format.pack(ir.run(body, codes)[0]),
    }
    if accelerator.image is not None:
        arrays["load"] = np.frombuffer(accelerator.image, np.uint8)
    np.savez(folder / "arrays.npz", **arrays)
    return folder / "arrays.npz"


def plans(folder: Path, name: str, settings: list[dict[str, object]]) -> list[dict[str, str]]:
    """Return the environments of a bench, one for each of the settings."""
    arrays, found = arrays_of(name, folder), []
    for number, setting in enumerate(settings):
        path = folder / f"plan-{number}.json"
        path.write_text(json.dumps({"arrays": str(arrays), **setting}), encoding="utf-8")
        found.append({"NNHW_PLAN": str(path)})
    return found


@pytest.mark.parametrize("name", covering([*STREAMING, "shared"], ("residual", "padded_bipolar", "wide_input")))
def test_core_on_axi_stream_equals_the_ir(name: str, tmp_path: Path) -> None:
    core = AxiStreamCore(mapped(name)[1])
    settings: list[dict[str, object]] = [
        {"stalls": stalls, "cut": number, "wrong": core.engine.i_beats > 1} for number, stalls in enumerate(STALLS)
    ]
    run_bench(to_verilog(core, run_yosys), "bench_axi_stream", plans(tmp_path, name, settings), tmp_path)


@pytest.mark.parametrize("name", covering([*STREAMING, "shared"], ("padded_bipolar", "shared", "wide_input")))
def test_core_on_wishbone_equals_the_ir(name: str, tmp_path: Path) -> None:
    accelerator = mapped(name)[1]
    device = int(accelerator.device_hash[:8], 16)
    settings: list[dict[str, object]] = [{"device": device, "cut": cut, "overrun": cut} for cut in (False, True)]
    verilog = to_verilog(WishboneCore(accelerator), run_yosys)
    run_bench(verilog, "bench_wishbone", plans(tmp_path, name, settings), tmp_path)


def test_axi_bench_finds_results_that_end_in_the_wrong_place(tmp_path: Path) -> None:
    core = AxiStreamCore(mapped("residual")[1])
    core.engine.o_beats += 1
    check_found(to_verilog(core, run_yosys), "bench_axi_stream", "result 0 is", tmp_path)


def test_wishbone_bench_finds_an_interrupt_without_a_result(tmp_path: Path) -> None:
    verilog = to_verilog(WishboneCore(mapped("residual")[1]), run_yosys)
    wrong = verilog.replace("assign irq =", "assign irq = 1'b1 |")
    assert wrong != verilog
    check_found(wrong, "bench_wishbone", "the interrupt before a result", tmp_path)


def check_found(verilog: str, bench: str, what: str, folder: Path) -> None:
    """Check that a bench says what is wrong."""
    device = int(mapped("residual")[1].device_hash[:8], 16)
    setting: dict[str, object] = {"stalls": STALLS[0], "cut": 0, "wrong": False, "device": device, "overrun": False}
    with pytest.raises(ToolFailure):
        run_bench(verilog, bench, plans(folder, "residual", [setting]), folder)
    assert f"BenchFailure: {what}" in (folder / "bench.log").read_text(encoding="utf-8")
