"""Figures of results beside those that are predicted now."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import recheck
from benchmarks.cases import Case
from nnhw.nn import Int, QuantLinear


def load() -> tuple[nn.Module, torch.Tensor]:
    """Return a small model and its images."""
    torch.manual_seed(0)
    return nn.Sequential(Int(4, 0.25), QuantLinear(8, 4, weight_quant=Int(4, 0.25))).eval(), torch.randn(2, 8)


def test_recheck_finds_the_result_of_each_board_and_says_what_differs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recheck, "RESULTS", tmp_path)
    monkeypatch.setattr(recheck, "CASES", {"small": Case("ulx3s_25f")})
    monkeypatch.setattr(recheck, "NETWORKS", {"small": SimpleNamespace(load=load)})
    for board, interval in (("icebreaker", 4), ("ulx3s_25f", 1)):
        cycles = {"interval": {"predicted": interval}, "latency": {"predicted": 20}}
        (tmp_path / f"small-{board}.json").write_text(json.dumps({"cycles": cycles}))
    row = recheck.run("icebreaker")
    assert row == {"networks": [{"network": "small", "board": "icebreaker", "interval": [4, 4], "latency": [20, 20]}]}
    recheck.show(row)
    assert "same" in capsys.readouterr().out
    recheck.show({"networks": [{**row["networks"][0], "latency": [1, 20]}]})
    assert "DIFFERS" in capsys.readouterr().out
