"""The benchmark of mixed models: its models are what they say, and equal the reference composed with PyTorch."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import compiled, mixed


def test_row_is_equal_and_counts_what_ran_where(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    towers = next(model for model in mixed.MODELS if model.name == "towers")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(compiled, "MODELS", (towers,))
    row = compiled.run(None)
    (model,) = row["models"]
    assert (model["differ"], model["images"], len(model["parts"])) == (0, 50, 2)
    assert model["accelerated"] + sum(one["count"] for one in model["pytorch"]) == model["operations"]
    compiled.show(row)
    assert "0 of 50" in capsys.readouterr().out


def test_one_of_five_models_runs_on_the_virtual_board() -> None:
    assert [model.link for model in mixed.MODELS].count("sim") == 1
    assert len({model.name for model in mixed.MODELS}) == 5


def test_a_difference_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    towers = next(model for model in mixed.MODELS if model.name == "towers")
    wrong = dataclasses.replace(towers, nets={"image": ""})
    made, images = wrong.make()
    exact = wrong.composed(made)
    exact.words[-1].bias.data += 1.0
    assert compiled._differing(exact(images), towers.composed(made)(images)) == 50
