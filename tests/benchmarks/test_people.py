"""The corpus of networks that people bring: the command, its results, and the page of the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.people import running
from benchmarks.people.corpus import MODELS
from benchmarks.people.running import BOARDS, PAGE, RESULTS, run
from benchmarks.people.steps import front, mapping, outcome
from benchmarks.people.table import page
from nnhw.errors import InputError


def test_people_runs_a_model_through_and_keeps_what_the_same_code_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, text = tmp_path / "people.json", tmp_path / "networks.md"
    arguments = ["people", "--board", "ulx3s_85f", "--results", str(results), "--page", str(text)]
    assert main([*arguments, "--model", "mlp_relu"]) == 0
    document = json.loads(results.read_text(encoding="utf-8"))
    assert list(document["models"]) == ["mlp_relu"]
    row = document["models"]["mlp_relu"]
    assert [row[step]["outcome"] for step in ("quantize", "capture", "lower")] == ["done"] * 3
    mapped = row["boards"]["ulx3s_85f"]
    assert mapped["outcome"] == "done"
    assert mapped["cycles"] > 0
    assert text.read_text(encoding="utf-8") == page(document)

    asked = list[list[str]]()
    monkeypatch.setattr(running, "_step", lambda words, limit_s: asked.append(words) or {"outcome": "done"})
    mapped["cycles"] = -1  # what is kept is not run again
    results.write_text(json.dumps(document), encoding="utf-8")
    kept = run(["ulx3s_85f"], ["mlp_relu"], 120.0, results, mapped["code"])
    assert kept["models"]["mlp_relu"]["boards"]["ulx3s_85f"]["cycles"] == -1
    assert asked == []
    mapped["code"] = "older"
    results.write_text(json.dumps(document), encoding="utf-8")
    again = run(["ulx3s_85f"], ["mlp_relu"], 120.0, results, row["code"])
    assert "cycles" not in again["models"]["mlp_relu"]["boards"]["ulx3s_85f"]
    assert [(words[0], words[-1]) for words in asked] == [("mlp_relu", "ulx3s_85f")]


def test_a_quantized_model_is_captured_and_lowered_as_it_is(tmp_path: Path) -> None:
    row = front("quant_sensor", tmp_path)
    assert [row[step]["outcome"] for step in ("quantize", "capture", "lower")] == ["done"] * 3
    assert mapping("quant_sensor", tmp_path, "ulx3s_85f")["outcome"] == "done"


def test_people_rejects_a_model_that_the_corpus_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^the corpus has no model 'lenet'; it has mlp_relu, "):
        run([], ["lenet"], 1.0, tmp_path / "people.json", "code")


def test_people_says_what_made_its_results_once_all_rows_are_of_one_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(words: list[str], limit_s: float) -> dict[str, object]:
        if len(words) > 3:  # the fourth is the board
            return {"outcome": "done"}
        return {"lower": {"outcome": "refused" if words[0] == first else "done"}}

    first, second, *others = MODELS
    monkeypatch.setattr(running, "_step", step)
    results = tmp_path / "people.json"
    assert "made" not in run(BOARDS, [first, *others], 1.0, results, "new")
    assert "made" not in run(BOARDS[1:], [second], 1.0, results, "new")
    assert run(BOARDS, None, 1.0, results, "new")["made"] == {"code": "new"}
    assert json.loads(results.read_text(encoding="utf-8"))["made"] == {"code": "new"}
    assert "made" not in run(BOARDS, [second], 1.0, results, "newer")


def test_page_of_the_docs_is_what_the_results_give() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page(document)
    assert set(document["models"]) <= set(MODELS)
    assert len(MODELS) >= 40


def test_outcome_tells_refusals_from_tracebacks() -> None:
    def refuse() -> None:
        raise InputError("no; do that")

    def fail() -> None:
        raise KeyError("x")

    assert outcome(lambda: None)["outcome"] == "done"
    assert outcome(refuse)["message"] == "no; do that"
    failed = outcome(fail)
    assert failed["outcome"] == "traceback"
    assert failed["message"].startswith("KeyError at test_people.py:")
