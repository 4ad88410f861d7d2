"""The whole path on both boards, for a network that places in seconds."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import nnhw
from nnhw.boards import load_board
from nnhw.errors import TimingError
from nnhw.families import FAMILIES
from nnhw.flow.implementation.bitstream import names
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.frontend import load_source

ROOT = Path(__file__).resolve().parents[2]
FILES = {"design.json", "accelerator.v", "device.v", "report.json", "timing.json"}


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache: here it is seen whether it is used."""
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(("board", "clock_hz"), [("icebreaker", None), ("ice40_hx8k_b_evn", 48e6), ("ulx3s_25f", None)])
def test_end_to_end_bitstream_holds_its_clock_and_computes_the_model(
    small_net: str, tmp_path: Path, board: str, clock_hz: float | None
) -> None:
    options = Options(clock_hz=clock_hz, seeds=1, frames=2, netlist_frames=2)
    build = build_file(small_net, board, options, out=tmp_path / "b")
    report = build.report
    jsonschema.validate(report, json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8")))
    assert {path.name for path in build.path.iterdir()} >= FILES | set(names(FAMILIES[load_board(board).family]))
    assert report["fmax_hz"] >= report["clock_hz"] > 0
    assert report["exactness"]["ir_rtl"] == 0
    assert set(report["exactness"]["layers"].values()) == {0}
    assert (report["exactness"]["netlist_samples"], report["exactness"]["ir_netlist"]) == (2, 0)
    assert report["cycles"]["interval"]["simulated"] == report["cycles"]["interval"]["predicted"]
    assert report["cycles"]["latency"]["simulated"] == report["cycles"]["latency"]["predicted"]
    assert report["resources"]["ebr"]["used"] == report["resources"]["ebr"]["estimated"]
    images = np.random.default_rng(1).random((5, 1, 4, 4)).astype(np.float32) - np.float32(0.5)
    with nnhw.open(build) as device:
        assert (device(images) == nnhw.reference(load_source(small_net).model)(images)).all()


@pytest.mark.usefixtures("own_cache")
def test_end_to_end_second_folder_is_equal_and_not_placed_again(small_net: str, tmp_path: Path) -> None:
    options = Options(seeds=1, frames=0)
    one = build_file(small_net, "icebreaker", options, out=tmp_path / "one").path
    two = build_file(small_net, "icebreaker", options, out=tmp_path / "two").path
    names = {path.name for path in one.iterdir()} - {"timing.json", "yosys.log", "nextpnr.log"}
    different = [name for name in sorted(names) if (one / name).read_bytes() != (two / name).read_bytes()]
    assert different == []
    inside = [name for name in sorted(names) if str(tmp_path).encode() in (one / name).read_bytes()]
    assert inside == []


def test_end_to_end_stops_at_a_clock_that_is_missed(small_net: str, tmp_path: Path) -> None:
    with pytest.raises(TimingError, match=r"^timing: .* MHz is needed, but the best of 1 seeds reaches .* --clock \d+"):
        build_file(small_net, "icebreaker", Options(clock_hz=200e6, seeds=1, frames=0), out=tmp_path / "b")
    assert not (tmp_path / "b" / "design.bin").exists()
    assert not list((tmp_path / "b").glob(".partial*"))
