"""`nnhw search` as a person types it, and its example and page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from nnhw import cli
from nnhw.cli import app
from nnhw.errors import ModelFileError
from nnhw.frontend import Source
from nnhw.searching import trying
from nnhw.searching.chosen import Chosen
from nnhw.searching.estimating import Estimate
from nnhw.searching.goals import FIGURES
from nnhw.searching.trial_records import OUTCOMES
from nnhw.searching.user_program import load_program
from nnhw.searching.user_sources import needed_text
from tests.searching.toys import write_toy

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "search_mnist.py"
PAGE = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wide terminal, a folder of its own, and a mapper that looks at nothing."""
    monkeypatch.setattr(cli.OUT, "width", 200)
    monkeypatch.chdir(tmp_path)
    names = (name for name in FIGURES if name != "accuracy")
    figures = dict.fromkeys(names, 1000.0)

    def estimate(source: Source, board: object, options: object) -> Estimate:
        assert isinstance(source.model, torch.nn.Module)
        return Estimate(figures, "streaming", "00")

    monkeypatch.setattr(trying, "estimate", estimate)
    monkeypatch.setattr("nnhw.searching.exporting.estimate", estimate)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["search", *arguments])


def test_command_shows_front_counts_and_where_things_are(tmp_path: Path) -> None:
    write_toy(tmp_path)
    options = ("--objective", "accuracy", "-o", "lc", "--at-least", "rate=500", "--at-most", "ebr=1e6", "--seed", "1")
    first = command("toy.py", *options, "--trials", "3", "--plot", "cdn")
    assert first.exit_code == 0, first.output
    assert re.search(r"trial . accuracy ▲ .* lc ▼ .* rate .* parameters", first.output)
    assert "trial 0: accuracy 0." in first.stderr
    assert re.search(
        r"^3 trials: \d complete(, \d repeated)?; 0 ended by the mapper before training$", first.output, re.M
    )
    assert "plot: search/toy-icebreaker/front.html" in first.output
    assert "trials are kept in search/toy-icebreaker/study.journal" in first.output
    (hint,) = re.findall(r"add (--trials 0 --export \d)", first.output)
    again = command("toy.py", *options, *hint.split())
    assert again.exit_code == 0, again.output
    number = hint[-1]
    assert f"trial {number} is in search/toy-icebreaker/toy_{number}.py, accuracy on test data 0.5000" in again.output


def test_command_says_what_is_wrong(tmp_path: Path) -> None:
    write_toy(tmp_path)
    result = command("toy.py", "--at-least", "fps=3")
    assert result.exit_code == 1
    assert result.output.startswith("Input: there is no figure 'fps', the figures are accuracy, rate")


def test_command_that_is_interrupted_shows_what_is_done(tmp_path: Path) -> None:
    write_toy(tmp_path, ('return trial.params["width"] / 12', "raise KeyboardInterrupt"))
    result = command("toy.py")
    assert result.exit_code == 130
    assert "1 trials: 1 interrupted; 0 ended by the mapper" in result.output
    assert "interrupted; what was finished before is kept" in result.output


def test_command_help_lists_the_figures_that_there_are() -> None:
    assert cli.FIGURES.split(", ") == list(FIGURES)


def test_page_names_every_option_figure_and_outcome() -> None:
    shown = CliRunner().invoke(app, ["search", "--help"], env={"COLUMNS": "200"}).output
    options = set(re.findall(r"--[a-z-]+", shown)) - {"--help"}
    assert {option for option in options if f"`{option}" not in PAGE} == set()
    assert {name for name in (*FIGURES, *OUTCOMES) if f"`{name}`" not in PAGE} == set()


def test_page_has_a_file_that_can_be_searched(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(import torch\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "net.py").write_text(program, encoding="utf-8")
    result = command("net.py", "--trials", "1", "--export", "best", "--plot", "none", "--seed", "1")
    assert "1 trials: 1 complete" in result.output, result.output
    assert "accuracy on test data" in result.output


def test_example_needs_mnist_and_says_how_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNHW_DATA", raising=False)
    with pytest.raises(ModelFileError, match=r"No folder with the MNIST files is given\. Put train-images"):
        load_program(EXAMPLE)


def test_example_makes_networks_of_its_parameters_and_exports_without_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mnist").mkdir()
    monkeypatch.setenv("NNHW_DATA", str(tmp_path))
    program = load_program(EXAMPLE)
    params = {"edge": 2, "pixel_bits": 2, "depth": 2, "width_0": 48, "width_1": 32, "weights": "ternary"}
    model = program.source(Chosen({**params, "activation": "relu2"})).model
    assert isinstance(model, torch.nn.Module)
    assert model(program.example_input).shape == (8, 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 576 * 48 + 48 * 32 + 32 * 10 + 2 * (48 + 32)
    text = needed_text(EXAMPLE.read_text(encoding="utf-8"), "model")
    assert "from mnist_data" not in text
    assert "class Inner" in text
