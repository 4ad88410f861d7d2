"""Results that are older than their code: which are listed, and what is made again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import designs, remaking
from benchmarks.cases import CASES
from benchmarks.remaking import PresentDesigns, Result, code_hash, code_of, find_results, made_by, remake, sources_hash
from nnhw.errors import DoesNotFitError

COMMAND = "python -m benchmarks peak --board old --json"
MODULES = {"small": "benchmarks.seconds_of_small", "peak": "benchmarks.peak"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four results; the benchmark `small` depends on one file, `small.py`."""
    source = tmp_path / "small.py"
    source.write_text("1")
    monkeypatch.setattr(remaking, "code_of", lambda module: {module: source})
    results = tmp_path / "results"
    results.mkdir()
    rows: dict[str, dict[str, object]] = {
        "small-icebreaker": {"benchmark": "small", "made": made_by(MODULES["small"], {}, 1.04, 2)},
        "small": {"benchmark": "small", "made": {"code": "older"}},
        "peak-old": {"benchmark": "peak"},
        "small_c0ffee": {"benchmark": "small", "commit": "c0ffee"},
    }
    for name, row in rows.items():
        (results / f"{name}.json").write_text(json.dumps(row))
    return results


def changes(path: Path, sources: Mapping[str, Path]) -> tuple[str, ...]:
    return ("nnhw/one.py", "nnhw/two.py", "nnhw/three.py") if path.stem == "peak-old" else ()


def no_design(document: Mapping[str, object]) -> None:
    raise AssertionError(f"{document} has no design")


def test_find_results_says_what_is_older_than_its_code_and_how_it_is_made(folder: Path) -> None:
    found = {one.path.stem: one for one in find_results(folder, MODULES, changes, no_design)}
    assert {name: one.is_stale for name, one in found.items()} == {
        "small-icebreaker": False,
        "small": True,
        "peak-old": True,
        "small_c0ffee": False,
    }
    command = "python -m benchmarks peak --board old --json"
    assert [one.line() for one in found.values()] == [
        f"peak-old.json: 3 files changed since (nnhw/one.py, nnhw/two.py, ..); {command}",
        "small-icebreaker.json: current",
        "small.json: made by unknown code; python -m benchmarks small --json",
        "small_c0ffee.json: kept, no benchmark makes it now",
    ]
    (folder.parent / "small.py").write_text("2")
    assert [one.is_stale for one in find_results(folder, MODULES, changes, no_design)] == [True, True, True, False]


DESIGN = {"netlist": "n1", "program": "p1", "schedule": "s1", "settings": "t1"}


@pytest.mark.parametrize(
    ("now", "told", "is_stale"),
    [
        (DESIGN, "current, its design is the same", False),
        ({**DESIGN, "netlist": "n2", "schedule": "s2"}, f"other netlist, schedule; {COMMAND}", True),
        ({"refused": "does not fit"}, f"other netlist, program, schedule, settings; {COMMAND}", True),
        (None, f"3 files changed since (nnhw/one.py, nnhw/two.py, ..); {COMMAND}", True),
    ],
)
def test_find_results_goes_by_designs_where_sources_have_changed(
    folder: Path, now: Mapping[str, str] | None, told: str, is_stale: bool
) -> None:
    path = folder / "peak-old.json"
    path.write_text(json.dumps({"benchmark": "peak", "made": {"code": "older"}, "design": DESIGN}))
    asked = []

    def design(document: Mapping[str, object]) -> Mapping[str, str] | None:
        asked.append(document["benchmark"])
        return now

    (found,) = (one for one in find_results(folder, MODULES, changes, design) if one.path == path)
    assert found.line() == f"peak-old.json: {told}"
    assert found.is_stale == is_stale
    assert asked == ["peak"]
    # Where no source has changed, no design is computed.
    path.write_text(json.dumps({"benchmark": "peak", "made": made_by(MODULES["peak"], {}, 1, 1), "design": DESIGN}))
    assert next(one.line() for one in find_results(folder, MODULES, changes, no_design)) == "peak-old.json: current"


def test_present_designs_are_computed_once_for_the_same_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path))
    source = tmp_path / "small.py"
    source.write_text("1")
    monkeypatch.setattr(remaking, "code_of", lambda module: {module: source})
    computed, noted = [], list[str]()

    def design_of(document: Mapping[str, object]) -> Mapping[str, str]:
        computed.append(document["benchmark"])
        if document["clock_hz"] is None:
            raise DoesNotFitError("too large")
        return DESIGN

    monkeypatch.setattr(designs, "design_of", design_of)
    row = {"benchmark": "tfc_w1a1", "board": {"name": "icebreaker"}, "clock_hz": 1}
    find = PresentDesigns(None, noted.append)
    assert find(row) == find(row) == PresentDesigns(0, noted.append)(row) == DESIGN
    assert find({**row, "clock_hz": None}) == {"refused": "too large"}
    assert PresentDesigns(0, noted.append)({**row, "clock_hz": 2}) is None
    source.write_text("2")
    assert find(row) == DESIGN
    assert computed == noted == ["tfc_w1a1"] * 3


def test_remake_replaces_what_could_be_made_and_keeps_the_rest(folder: Path) -> None:
    ran: list[Sequence[str]] = []

    def run(arguments: Sequence[str]) -> str:
        ran.append(arguments)
        if arguments[0] == "peak":
            raise subprocess.CalledProcessError(1, "peak")
        return json.dumps({"benchmark": "small", "new": True, "made": made_by(MODULES["small"], {}, 1, 1)})

    before = (folder / "peak-old.json").read_text()
    stale = [one for one in find_results(folder, MODULES, changes, no_design) if one.is_stale]
    assert remake(stale, run) == [folder / "peak-old.json"]
    assert ran == [("peak", "--board", "old"), ("small",)]
    assert json.loads((folder / "small.json").read_text())["new"]
    assert (folder / "peak-old.json").read_text() == before
    assert [one.path.stem for one in find_results(folder, MODULES, changes, no_design) if one.is_stale] == ["peak-old"]
    assert not list(folder.glob("*.partial"))


def test_remake_rejects_names_that_nothing_makes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remaking, "RESULTS", folder)
    monkeypatch.setattr(remaking, "changed_since", changes)
    monkeypatch.setattr(remaking, "remake", lambda wanted: print([one.path.stem for one in wanted]) or [])
    with pytest.raises(SystemExit, match="no benchmark makes small_c0ffee, other"):
        remaking.main(["remake", "small_c0ffee", "other"], MODULES)
    assert remaking.main(["remake", "small-icebreaker.json"], MODULES) == 0
    assert remaking.main(["remake", "small-icebreaker", "small"], MODULES) == 0
    assert remaking.main(["remake"], MODULES) == 0
    assert capsys.readouterr().out.splitlines() == [
        "['small-icebreaker']",
        "['small-icebreaker', 'small']",
        "['peak-old', 'small']",
    ]


def test_code_of_holds_the_benchmark_and_what_it_imports_of_nnhw() -> None:
    found = code_of("benchmarks.peak")
    assert {"benchmarks.peak", "nnhw.flow.implementation.place", "nnhw.boards"} <= found.keys()
    assert "benchmarks.doors" not in found
    assert "nnhw.flow.pipeline" in code_of("benchmarks.bnn_pynq")
    assert {"benchmarks.people.steps", "nnhw.mapping.mapper"} <= code_of("benchmarks.people.running").keys()
    assert Result(Path("a.json"), (), None).line() == "a.json: kept, no benchmark makes it now"


def test_sources_hash_changes_with_what_code_does_not_with_what_is_said_of_it(tmp_path: Path) -> None:
    def hashed(text: str, name: str = "one.py", as_text: bool = False) -> str:
        path = tmp_path / str(len(list(tmp_path.iterdir()))) / name
        path.parent.mkdir()
        path.write_text(text)
        return sources_hash({"one": path}, as_text)

    plain = "LIMIT = 3\n\n\ndef half(x: int) -> int:\n    return x // 2\n"
    half = 'def half(x: int) -> int:\n    """Return x / 2."""\n    return x // 2\n'
    told = '"""Halves."""\n\nLIMIT = 3  # of each\n"""Most."""\n\n' + half
    assert hashed(plain) == hashed(told)
    assert hashed(plain, as_text=True) != hashed(told, as_text=True)
    assert hashed(plain, "board.toml") != hashed(told, "board.toml")
    changed = [
        plain.replace("3", "4"),
        plain.replace("// 2", "/ 2"),
        plain.replace("half", "third"),
        plain + "LIMIT = 3",
    ]
    assert len({hashed(text) for text in (plain, *changed)}) == 5


def test_code_hash_of_a_network_goes_by_the_family_of_its_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("nnhw.families.ice40", "nnhw.families.ecp5", "nnhw.hdl.cells.ecp5", "nnhw.families.base")
    sources = {name: tmp_path / f"{name}.py" for name in names}
    monkeypatch.setattr(remaking, "code_of", lambda module: sources)
    rows = [{"board": {"name": board}} for board in ("icebreaker", "ulx3s_85f")]

    def changed_with(*changed: str) -> list[bool]:
        for path in sources.values():
            path.write_text("LIMIT = 1")
        before = [code_hash("benchmarks.whole", row) for row in rows]
        for name in changed:
            sources[name].write_text("LIMIT = 2")
        return [code_hash("benchmarks.whole", row) != old for row, old in zip(rows, before, strict=True)]

    assert changed_with() == [False, False]
    assert changed_with("nnhw.families.ice40") == [True, False]
    assert changed_with("nnhw.families.ecp5") == changed_with("nnhw.hdl.cells.ecp5") == [False, True]
    assert changed_with("nnhw.families.base") == [True, True]
    before = code_hash("benchmarks.lanes", {"board": "icebreaker"})
    sources["nnhw.families.ecp5"].write_text("LIMIT = 2")
    assert code_hash("benchmarks.lanes", {"board": "icebreaker"}) != before


def test_code_hash_of_a_network_goes_by_its_own_case(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"benchmark": name, "board": {"name": "icebreaker"}} for name in ("cnn_small", "tfc_w1a1")]
    before = [code_hash("benchmarks.whole", row) for row in rows]
    monkeypatch.setitem(CASES, "tfc_w1a1", replace(CASES["tfc_w1a1"], frames=33))
    changed = [code_hash("benchmarks.whole", row) != old for row, old in zip(rows, before, strict=True)]
    assert changed == [False, True]


def test_code_hash_of_a_network_goes_by_how_netlists_run_where_its_netlist_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "netlist.py"
    monkeypatch.setattr(remaking, "code_of", lambda module: {"nnhw.flow.verification.netlist": source})
    rows = [
        {"benchmark": name, "board": {"name": CASES[name].board}}
        for name in ("cnn_small", "resnet8_w4a4", "resnet8_w2a2")
    ]
    hashes = []
    for text in ("LIMIT = 1", "LIMIT = 2"):
        source.write_text(text)
        hashes.append([code_hash("benchmarks.whole", row) for row in rows])
    assert [one == other for one, other in zip(*hashes, strict=True)] == [False, True, True]
