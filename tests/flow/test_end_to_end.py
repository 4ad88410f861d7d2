"""The whole path on both boards, for a network that places in seconds."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import nnhw
from nnhw.boards import load_board
from nnhw.errors import TimingError
from nnhw.families import FAMILIES
from nnhw.flow.implementation import bitstream, place
from nnhw.flow.implementation.bitstream import names
from nnhw.flow.implementation.place import PlacedDesign
from nnhw.flow.implementation.synthesis import Netlist
from nnhw.flow.pipeline import Build, build_file
from nnhw.frontend import load_source
from tests.flow.test_patching import NET, OPTIONS
from tests.marks import covering

ROOT = Path(__file__).resolve().parents[2]
FILES = {"design.json", "accelerator.v", "device.v", "report.json", "timing.json"}


BUILT = (("icebreaker", None), ("ice40_hx8k_b_evn", 48e6), ("ulx3s_25f", None))

BuildOn = Callable[[str, float | None, str], Build]


@pytest.fixture(scope="module")
def build_on(tmp_path_factory: pytest.TempPathFactory) -> BuildOn:
    """Build a network for a board, a clock and a folder: once for all tests, as placing takes most of them.

    For the iCEBreaker it is that of `test_patching.py`, so that its placement is found there.
    """
    place = tmp_path_factory.mktemp("boards")
    (place / "net.py").write_text(NET.format(seed=1, width=32), encoding="utf-8")

    @functools.cache
    def build(board: str, clock_hz: float | None, folder: str) -> Build:
        options = dataclasses.replace(OPTIONS, clock_hz=clock_hz, frames=2, netlist_frames=2)
        return build_file(str(place / "net.py"), board, options, out=place / board / folder)

    return build


@pytest.mark.parametrize(("board", "clock_hz"), covering(BUILT, (BUILT[0], BUILT[-1])))
def test_end_to_end_bitstream_holds_its_clock_and_computes_the_model(
    build_on: BuildOn, board: str, clock_hz: float | None
) -> None:
    build = build_on(board, clock_hz, "one")
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
    images = np.random.default_rng(1).random((5, 1, 16, 16)).astype(np.float32) - np.float32(0.5)
    model = load_source(build.path.parents[1] / "net.py").model
    with nnhw.open(build) as device:
        assert (device(images.astype(np.float64)) == nnhw.reference(model)(images)).all()


def test_end_to_end_second_folder_is_equal_and_not_placed_again(
    build_on: BuildOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = build_on("icebreaker", None, "one").path
    ran: list[int] = []
    monkeypatch.setattr(place, "_succeed", lambda commands, *rest: iter(ran.extend(commands) or commands))
    two = build_on("icebreaker", None, "two").path
    assert ran == []
    files = {path.name for path in one.iterdir()} - {"timing.json", "yosys.log", "nextpnr.log"}
    different = [name for name in sorted(files) if (one / name).read_bytes() != (two / name).read_bytes()]
    assert different == []
    folder = str(one.parents[1]).encode()
    inside = [name for name in sorted(files) if folder in (one / name).read_bytes()]
    assert inside == []


def test_end_to_end_stops_at_a_clock_that_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_as_fast(netlist: Netlist, *_: object, **options: object) -> Iterator[PlacedDesign]:
        yield PlacedDesign(netlist.folder, 1, 200e6, 100e6, netlist.resources, ())

    path = tmp_path / "net.py"
    path.write_text(NET.format(seed=1, width=32), encoding="utf-8")
    monkeypatch.setattr(bitstream, "place_seeds", half_as_fast)
    with pytest.raises(TimingError, match=r"^timing: .* MHz is needed, but the best of 1 seeds reaches .* --clock \d+"):
        build_file(str(path), "icebreaker", dataclasses.replace(OPTIONS, clock_hz=200e6), out=tmp_path / "b")
    assert not (tmp_path / "b" / "design.bin").exists()
    assert not list((tmp_path / "b").glob(".partial*"))
