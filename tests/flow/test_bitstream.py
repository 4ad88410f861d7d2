"""From a device to a bitstream: whole or not at all, and the same bytes for the same input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nnhw.boards import Board, load_board
from nnhw.errors import BuildError, TimingError
from nnhw.families import ECP5, FAMILIES, ICE40
from nnhw.flow.implementation import bitstream
from nnhw.flow.implementation.bitstream import BitstreamRequest, build_bitstream, expected_seconds, names
from nnhw.flow.tools.cache import Cache
from tests.flow.designs import RomDevice
from tests.marks import covering

BOARDS = [load_board(name) for name in ("icestick", "icebreaker", "ulx3s_25f")]


@pytest.mark.parametrize("board", covering(BOARDS, BOARDS[1:]), ids=lambda board: board.name)
def test_build_bitstream_is_whole_the_same_each_time_and_names_no_folder_of_this_machine(
    board: Board, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second", "third")]
    caches = [Cache(None), Cache(tmp_path / "cache"), Cache(tmp_path / "cache")]
    results = [
        build_bitstream(
            lambda hz: RomDevice(), board, out, BitstreamRequest(planned_ebr=1, seeds=2, jobs=jobs), cache=cache
        )
        for out, cache, jobs in zip(folders, caches, (1, 2, 1), strict=True)
    ]
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert set(contents[0]) == set(names(FAMILIES[board.family]))
    assert contents[0] == contents[1] == contents[2]
    facts = [result.facts() for result in results]
    assert facts[0] == facts[1] == facts[2]
    assert facts[0]["placed_hz"] == board.target_clock_hz
    assert board.target_clock_hz <= facts[0]["clock_hz"] <= facts[0]["fmax_hz"]
    assert [attempt["seed"] for attempt in facts[0]["attempts"]] == [1, 2]
    assert facts[0]["resources"]["ebr"] == 1
    assert {memory["name"] for memory in facts[0]["memories"]} == {"device.rom"}
    for name, content in contents[0].items():
        assert str(tmp_path).encode() not in content, name
        assert str(Path(__file__).parents[2]).encode() not in content, name
        assert b"site-packages" not in content, name


def test_build_bitstream_keeps_logs_of_all_it_tried(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with pytest.raises(TimingError, match="270 MHz is needed"):
        build_bitstream(
            lambda hz: RomDevice(), BOARDS[0], tmp_path / "out", BitstreamRequest(clock_hz=270e6, seeds=2), logs=logs
        )
    assert sorted(path.relative_to(logs).as_posix() for path in logs.rglob("*.log")) == [
        "270000000/seed1.log",
        "270000000/seed2.log",
        "270000000/yosys.log",
    ]
    assert not (tmp_path / "out").exists()


def test_build_bitstream_rejects_other_plan(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="the mapping planned 3 block RAMs, but synthesis used 1"):
        build_bitstream(lambda hz: RomDevice(), BOARDS[0], tmp_path / "out", BitstreamRequest(planned_ebr=3))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("step", ["synthesize", "place_seeds", "pack", "_move"])
def test_build_bitstream_leaves_nothing_on_ctrl_c(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str) -> None:
    def interrupt(*arguments: object, **options: object) -> Iterator[None]:
        raise KeyboardInterrupt

    monkeypatch.setattr(bitstream, step, interrupt)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(KeyboardInterrupt):
        build_bitstream(lambda hz: RomDevice(), BOARDS[0], tmp_path / "out", BitstreamRequest())
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_expected_seconds_are_said() -> None:
    """The runs of `mnist_mlp` that were measured, 17 to 19 s, lie in what is said."""
    assert expected_seconds(ICE40, 2247) == "; a seed of 2,247 logic cells takes 9 to 36 s of a core"
    assert expected_seconds(ECP5, 1516) == "; a seed of 1,516 logic cells takes 5 to 21 s of a core"
    assert expected_seconds(ECP5, 19_370) == "; a seed of 19,370 logic cells takes 3 to 11 min of a core"
