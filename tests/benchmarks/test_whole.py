"""What the benchmarks of whole networks say; the measurements themselves are made there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import cases, whole
from benchmarks.networks import NETWORKS
from nnhw.boards import list_boards
from nnhw.errors import MappingError
from nnhw.flow.array_work import works
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from tests.mapping.networks import depthwise

ROW: dict[str, Any] = {
    "network": "n",
    "board": {"name": "b"},
    "cycles": {
        "interval": {"predicted": 1000, "simulated": 1000},
        "latency": {"predicted": 1500, "simulated": 1500},
    },
    "clock_hz": None,
    "target_clock_hz": 48_000_000,
    "resources": {key: {"estimated": 5, "used": None} for key in ("lc", "ebr", "dsp")},
    "slowest": {"layer": "l", "cycles": 900, "busy": 0.9, "utilization": 1.0},
    "utilization": 0.5,
    "link": {"inferences_per_second": 30.0},
    "exactness": {
        "torch_ir": 0,
        "torch_float64_ir": 3,
        "samples": 9,
        "passes": {"split": 0},
        "layers": {"a": 0},
        "ir_netlist": 0,
        "ir_rtl": 0,
        "rtl_samples": 4,
    },
    "stalls": [{"equal": True}],
}


def test_whole_has_a_case_and_a_benchmark_for_every_network() -> None:
    assert {case.network or name for name, case in cases.CASES.items()} == NETWORKS.keys()
    assert cases.CASES.keys() <= command.BENCHMARKS.keys()
    assert {name for group in cases.SHARED_GROUPS.values() for name in group} == set(cases.SHARED)
    assert {case.board for case in cases.CASES.values()} <= {board.name for board in list_boards()}


def test_whole_slowest_engine_is_busy_with_products_that_are_needed() -> None:
    accelerator = map_body(depthwise(), "test", Budget(lc=100_000, ebr=1000), target_interval=5000)
    found = whole.slowest_engine(accelerator)
    own = {work.layer: work for work in works(accelerator)}
    slowest = own[found["layer"]]
    assert found["cycles"] == max(work.busy for work in own.values())
    assert found["busy"] == found["cycles"] / accelerator.schedule.interval_cycles
    assert 0 < found["utilization"] <= 1
    assert found["utilization"] * found["cycles"] * slowest.lanes == pytest.approx(slowest.products)


@pytest.mark.parametrize(
    ("change", "clean"),
    [
        ({}, True),
        ({"stalls": [{"equal": True}, {"equal": False}]}, False),
        ({"exactness": {**ROW["exactness"], "ir_rtl": 1}}, False),
        ({"exactness": {**ROW["exactness"], "ir_netlist": 1}}, False),
        ({"exactness": {**ROW["exactness"], "passes": {"split": 1}}}, False),
        ({"exactness": {**ROW["exactness"], "layers": {"a": 2}}}, False),
        ({"cycles": {**ROW["cycles"], "latency": {"predicted": 1500, "simulated": 1501}}}, False),
        ({"cycles": {**ROW["cycles"], "interval": {"predicted": 1000, "simulated": 999.5}}}, True),
    ],
)
def test_whole_is_clean_only_if_nothing_differs(change: dict[str, Any], clean: bool) -> None:
    assert whole.is_clean({**ROW, **change}) == clean


def test_whole_line_says_rate_and_where_it_comes_from() -> None:
    assert whole.line(ROW).startswith("n on b: 1000 cycles a frame, 48,000/s at 48 MHz (not placed; ")
    placed = whole.line({**ROW, "clock_hz": 24_000_000})
    assert placed.startswith("n on b: 1000 cycles a frame, 24,000/s at 24 MHz (placed; ")
    assert placed.endswith("PyTorch's float32 differs in 0 of 9 images, its float64 in 3")
    assert "'l' is busy for 90.0%, of which 100.0% are products needed" in placed


def test_whole_several_networks_go_on_behind_one_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(name: str, board: str | None) -> dict[str, Any]:
        if name == "cnn_small":
            raise MappingError("does not fit")
        return {**ROW, "network": name, "board": {"name": board}}

    monkeypatch.setattr(whole, "measure", measure)
    rows = whole.network("cnn_small", "tfc_w1a1")("icestick")["networks"]
    assert [row["network"] for row in rows] == ["cnn_small", "tfc_w1a1"]
    assert whole.line(rows[0]) == "cnn_small on icestick: does not fit"
    assert np.isfinite(rows[1]["utilization"])


def test_whole_table_has_a_line_for_each_network(capsys: pytest.CaptureFixture[str]) -> None:
    resources = {key: {"estimated": 5, "used": 7} for key in ("lc", "ebr", "spram", "dsp")}
    row = {**ROW, "resources": resources, "style": {"name": "shared"}, "ideal_cycles": 800}
    refused = {"network": "m", "board": {"name": "b"}, "refused": "it does not fit"}
    whole.show_table({"networks": [row, {**row, "clock_hz": 24_000_000}, refused]})
    lines = capsys.readouterr().out.splitlines()
    first, second, third = (
        next(line for line in lines if words in line) for words in ("not placed", "24  ", "it does")
    )
    for word in ("shared", "1,000", "800", "80.0%", "0.02", "equal"):
        assert word in first
    assert "0.04" in second
    assert "m" in third
