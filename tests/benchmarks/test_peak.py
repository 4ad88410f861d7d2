"""The benchmark of peaks: engines that devices can hold, and a harness that leaves nothing of them out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peak
from nnhw.boards import load_board
from nnhw.errors import InputError
from nnhw.families import ECP5, FAMILIES, ICE40
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.hdl import systolic_array
from nnhw.hdl.pll import reachable_clocks
from nnhw.hdl.top import make_top
from sim.simulator import Simulator

PORT_BITS = {"ice40": 16, "ecp5": 36}


@pytest.mark.parametrize("name", peak.PEAKS)
def test_peak_engine_reaches_its_aim_within_the_ports_of_the_block_rams(name: str) -> None:
    one, board = peak.PEAKS[name], load_board(name)
    config = one.config(FAMILIES[board.family])
    # Of those that reach the aim of the 85F, none is routed.
    whole = name != "ulx3s_85f"
    assert config.pe * config.simd * one.engines >= one.aim[0] * (1 if whole else 0.89)
    assert config.folds * config.steps == peak.WORDS
    lanes = one.simd * one.engines
    left = board.resources.ebr * PORT_BITS[board.family] - one.block_pe * lanes
    assert 0 <= left < (2 if whole else 10) * lanes


@pytest.mark.parametrize("engines", [1, 3])
def test_harness_folds_codes_that_change(engines: int) -> None:
    harness = peak.Harness(peak.Peak(16, 4, 4, 4, 8, (1, 1)).config(ICE40), engines)
    seen: list[int] = []

    async def bench(ctx: Any) -> None:
        for cycle in range(600):
            ctx.set(harness.rx, cycle % 7 == 0)
            await ctx.tick()
            seen.append(int(ctx.get(harness.tx)))

    simulator = Simulator(harness)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert 20 < sum(seen[100:]) < 480


@pytest.mark.parametrize(("name", "copies"), [("ulx3s_85f", 4), ("ulx3s_25f", 0)])
def test_each_group_of_an_array_on_a_large_device_keeps_an_enable_of_its_own(
    name: str, copies: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(systolic_array, "SPREAD_BITS", 64)
    board, config = load_board(name), peak.Peak(16, 4, 4, 4, 8, (1, 1)).config(ECP5)
    design = make_top(lambda _: peak.Harness(config), board, reachable_clocks(board)[0])
    synthesize(design.rtlil, board, tmp_path)
    cells = json.loads((tmp_path / "design.json").read_text(encoding="utf-8"))["modules"]["top"]["cells"]
    enables = [cell["connections"]["CE"][0] for cell in cells.values() if "CE" in cell["connections"]]
    found = [
        enables.count(cell["connections"]["Q"][0])
        for name, cell in cells.items()
        if cell["type"] == "TRELLIS_FF" and re.search(r"buffer\.ready_\d", name)
    ]
    assert len(found) == copies
    assert all(count > 16 for count in found)
    own = re.compile(r"array\.(?:valid|load|drains)_of_\d")
    assert sum(cell["type"] == "TRELLIS_FF" and bool(own.search(name)) for name, cell in cells.items()) == 3 * copies


def test_peak_rejects_a_board_without_an_engine() -> None:
    with pytest.raises(InputError) as error:
        peak.run("ulx3s_45f")
    names = "icebreaker, ice40_hx8k_b_evn, ulx3s_25f, ulx3s_85f"
    assert str(error.value) == f"benchmark peak: there is no engine for 'ulx3s_45f'; boards are {names}"


def test_show_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "board": {"name": "icebreaker", "device": "up5k"},
        "products": 1024,
        "resources": {"lc": {"used": 4224, "available": 5280}, "ebr": {"used": 30, "available": 30}},
        "fmax_hz": 70_100_000,
        "products_per_second": 71_782_400_000,
        "aim": {"products": 1000, "clock_hz": 70_000_000},
    }
    peak.show({"devices": [row], "gives_up": "depth"})
    header, line, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["board", "products", "aim", "LC", "EBR", "Fmax", "MHz", "aim", "Tproducts/s"]
    assert line.split() == ["icebreaker", "1024", "1000", "4224", "80%", "30", "70.1", "70", "0.072"]
    assert last == "depth"
