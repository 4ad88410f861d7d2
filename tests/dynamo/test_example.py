"""The example of a mixed model: the cheap part of it, over the link that needs no simulator."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_example_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    torch._dynamo.reset()
    example = importlib.import_module("compile_mixed")
    app = typer.Typer()
    app.command()(example.main)
    result = CliRunner().invoke(app, ["--link", "model", "--digits", "50", "--batch", "20"])
    assert result.exit_code == 0, result.output
    assert "equality: 50 of 50 digits equal to the reference composed with PyTorch in every bit" in result.output
    assert "nnhw 0: result: quantize 'net.2' (" in result.output
