"""The benchmarks' command line; what they measure is measured there, not here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import speed
from nnhw.errors import BoardError


def test_benchmarks_list_as_lines_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    plain = capsys.readouterr().out.splitlines()
    assert command.main(["--list", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [*command.BENCHMARKS, command.PEOPLE]
    assert [row["benchmark"] for row in rows] == names
    assert [line.split()[0] for line in plain] == names
    assert {"mnist_mlp", "mnist_cnn", "speed"} <= command.BENCHMARKS.keys()


def test_benchmarks_json_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"board": "b", "seconds": {"cold": 1.0}, "cycles_per_second": 2}
    monkeypatch.setitem(command.BENCHMARKS, "speed", command.Benchmark("about", lambda board: row, speed.show))
    assert command.main(["speed", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert {**found, "made": None} == {"benchmark": "speed", **row, "made": None}
    assert found["made"].keys() == {"code", "seconds", "cpu_seconds"}


def test_benchmarks_speed_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("empty_environment", "cold", "warm_tools", "unchanged")
    speed.show({"seconds": dict.fromkeys(names, 12.34), "cycles_per_second": 512_345})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[-1].endswith("512,345 cycles/s")


def test_benchmarks_error_is_a_message(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(board: str) -> dict[str, Any]:
        raise BoardError(f"board '{board}' is not known")

    monkeypatch.setitem(command.BENCHMARKS, "speed", command.Benchmark("about", fails, speed.show))
    assert command.main(["speed", "--board", "x"]) == 1
    assert capsys.readouterr().err == "BoardError: board 'x' is not known\n"


def test_benchmarks_needs_a_name() -> None:
    with pytest.raises(SystemExit) as error:
        command.main([])
    assert error.value.code == 2
