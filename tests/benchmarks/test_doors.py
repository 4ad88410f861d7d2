"""The benchmark of doors: its networks come through them, and it counts what a report says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import doors
from nnhw.errors import InputError
from nnhw.frontend import load_source
from nnhw.frontend.doors import is_foreign


@pytest.mark.parametrize("network", doors.NETWORKS, ids=lambda network: network.door)
def test_each_network_comes_through_a_door(network: doors.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        file = network.file()
    except InputError as error:  # without NNHW_DATA
        pytest.skip(str(error))
    monkeypatch.syspath_prepend(str(file.parent))
    assert is_foreign(load_source(file).model)


def test_rows_are_those_of_reports(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[str, str]] = []

    def build(file: str, board: str, options: Any, *, out: Path) -> SimpleNamespace:
        asked.append((file, board))
        report = {
            "model": {"name": "net"},
            "style": {"name": "streaming"},
            "resources": {name: {"used": 7, "available": 9} for name in ("lc", "ebr", "spram", "dsp")},
            "fmax_hz": 50.4e6,
            "clock_hz": 48_000_000,
            "cycles": {"interval": {"simulated": 196}},
            "exactness": {"rtl_samples": 8, "ir_rtl": 0},
        }
        return SimpleNamespace(report=report)

    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(doors, "build_file", build)
    monkeypatch.setattr(doors, "NETWORKS", doors.NETWORKS[:1])
    row = doors.run(None)
    assert asked == [(str(doors.NETWORKS[0].file()), "icebreaker")]
    assert row["networks"][0]["resources"]["lc"] == 7
    doors.show(row)
    printed = capsys.readouterr().out
    assert "50.4" in printed
    assert "0 of 8" in printed
