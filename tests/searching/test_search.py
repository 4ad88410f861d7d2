"""Searches over toys that train nothing: what becomes of trials, and who may share a study."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import nnhw
from nnhw.boards import Board
from nnhw.errors import BoardError, InputError, ModelFileError
from nnhw.flow.options import Options
from nnhw.frontend import Source, load_source
from nnhw.searching import trying
from nnhw.searching.estimating import Estimate
from nnhw.searching.rendering import counted
from nnhw.searching.trial_records import Search
from tests.searching.toys import write_toy

TRAINED = 'return trial.params["width"] / 12'


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take figures from the width alone: for what the mapper has no part in."""

    def estimate(source: Source, board: Board, options: Options) -> Estimate:
        assert isinstance(source.model, torch.nn.Module)
        width = source.model.get_submodule("2").out_features
        return Estimate({"rate": 48e6 / width, "cycles": float(width), "lc": 8.0 * width}, "streaming", f"{width:08x}")

    monkeypatch.setattr(trying, "estimate", estimate)


def run(file: Path, **options: Any) -> Search:
    settings: dict[str, Any] = {
        "style": "streaming",
        "trials": 6,
        "seed": 1,
        "plot": "none",
        "out": file.parent / "out",
    }
    return nnhw.search(file, **{**settings, **options})


def told(found: Search) -> list[tuple[Any, ...]]:
    """What must be the same in two searches."""
    return [(one.number, one.outcome, one.params, one.figures, one.reason, one.hash) for one in found.trials]


def test_search_finds_the_front_and_keeps_what_became_of_each_trial(tmp_path: Path) -> None:
    found = run(write_toy(tmp_path), trials=4)
    assert sum(found.outcomes.values()) == len(found.trials) == 4
    assert found.outcomes["complete"] + found.outcomes.get("repeated", 0) == 4
    assert found.front
    for trial in found.complete:
        assert trial.figures["accuracy"] == trial.params["width"] / 12
        assert trial.figures["rate"] == 48e6 / trial.figures["cycles"]
        assert (found.out / "weights" / f"trial_{trial.number:04}.pt").is_file()
    assert max(trial.figures["accuracy"] for trial in found.complete) == found.front[0].figures["accuracy"]
    repeated = [trial for trial in found.trials if trial.outcome == "repeated"]
    assert all(trial.reason.startswith("the same parameters as trial ") for trial in repeated)
    assert repr(found).startswith(f"<Search 'toy-icebreaker' in '{found.storage}': ")


@pytest.mark.usefixtures("quick")
def test_search_with_a_seed_repeats_itself_and_goes_on_as_if_at_once(tmp_path: Path) -> None:
    file = write_toy(tmp_path)
    whole = run(file, trials=12, out=tmp_path / "whole")
    parts = [run(file, trials=count, out=tmp_path / "parts") for count in (5, 7)]
    assert told(parts[1]) == told(whole)
    assert told(parts[0]) == told(whole)[:5]


def test_search_leaves_out_what_does_not_fit_before_it_is_trained(tmp_path: Path) -> None:
    marker = tmp_path / "trained"
    file = write_toy(
        tmp_path,
        ('"width", 2, 12, step=2', '"width", 600, 1000, step=200'),
        ("network.train()", f"open({str(marker)!r}, 'w')"),
    )
    found = run(file, trials=2, board="icestick")
    assert found.outcomes == {"does not fit": 2}
    assert found.untrained == 2
    assert not marker.exists()
    assert all(trial.reason.startswith("the network does not fit: ") for trial in found.trials)
    assert counted(found) == "2 trials: 2 does not fit; 2 ended by the mapper before training"


@pytest.mark.usefixtures("quick")
def test_search_leaves_out_what_misses_a_limit(tmp_path: Path) -> None:
    limits = {"at_most": {"lc": 1.0}}
    found = run(write_toy(tmp_path), trials=1, **limits)
    (trial,) = found.trials
    assert trial.outcome == "misses a limit"
    assert trial.reason.startswith("lc is ")
    assert trial.reason.endswith(", but at most 1 is asked for")
    assert found.untrained == 1
    late = run(write_toy(tmp_path), trials=1, out=tmp_path / "late", at_least={"accuracy": 2.0})
    assert late.trials[0].reason.endswith(", but at least 2.0000 is asked for")
    assert (late.outcomes, late.untrained) == ({"misses a limit": 1}, 0)


def test_search_says_where_a_network_no_longer_fits_once_it_is_trained(tmp_path: Path) -> None:
    file = write_toy(tmp_path, (TRAINED, "network.append(nn.Linear(4, 4)); return 1.0"))
    found = run(file, trials=1)
    assert found.outcomes == {"does not fit once trained": 1}
    assert found.untrained == 0
    assert "linear '7'" in found.trials[0].reason


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("torch.manual_seed(width)", "raise KeyError('gone')", "toy.py:19: KeyError: 'gone'"),
        ("torch.manual_seed(width)", "return 3", "model(trial) in {file} must return an nn.Module, got int"),
        (TRAINED, "return float('nan')", "train(model, trial) in {file} must return a finite number, got nan"),
        (TRAINED, "return None", "train(model, trial) in {file} must return a number, got NoneType"),
        (TRAINED, "trial.report(float('inf'), 3)", "trial.report() needs a finite accuracy, got inf at step 3"),
        (TRAINED, "raise SystemExit(2)", "toy.py:30: SystemExit: 2"),
    ],
    ids=["model fails", "no module", "nan", "no number", "report", "exit"],
)
def test_search_goes_on_after_what_a_file_does_wrong(tmp_path: Path, before: str, after: str, reason: str) -> None:
    file = write_toy(tmp_path, (before, after))
    found = run(file, trials=2)
    assert found.outcomes == {"failed": 2}
    assert {trial.reason for trial in found.trials} == {reason.format(file=file)}
    assert found.front == ()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            ("def model(trial)", "def modell(trial)"),
            InputError,
            "{file} needs model(trial), which returns an untrained ",
        ),
        (("def train(network, trial)", "def fit(network, trial)"), InputError, "{file} needs train(model, trial), "),
        (("example_input = torch", "example = torch"), InputError, "{file} has no 'example_input': a tensor [batch, "),
        (("LOST =", "model = nn.Linear(2, 2); LOST ="), InputError, ""),
        (("LOST = torch", "LOST = torsh"), ModelFileError, "{file} fails at toy.py:9: NameError: "),
    ],
    ids=["model", "train", "example", "module", "fails"],
)
def test_search_rejects_a_file(tmp_path: Path, change: tuple[str, str], error: type[Exception], message: str) -> None:
    file = write_toy(tmp_path, change)
    if not message:  # the function comes behind, so the name is the network's only without it
        file.write_text(file.read_text(encoding="utf-8").replace("def model(trial)", "def other(trial)"), "utf-8")
        message = "'model' in {file} is a network that is made already (Linear); a search needs model(trial), which "
    with pytest.raises(error) as caught:
        run(file)
    assert str(caught.value).startswith(message.format(file=file))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plot": "pdf"}, "--plot is one of offline, cdn, none; given 'pdf'"),
        ({"trials": -1}, "--trials needs a whole number from 0 on, given -1"),
        ({"jobs": 0}, "--jobs needs a whole number from 1 on, given 0"),
        ({"timeout_s": 0.0}, "--timeout needs a positive number of seconds, given 0"),
        ({"export": "last"}, "--export needs the number of a trial, or 'best'; given 'last'"),
    ],
)
def test_search_rejects_an_option(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        run(write_toy(tmp_path), **options)
    assert str(error.value) == message


def test_search_rejects_a_board_and_a_file_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BoardError, match="did you mean 'icebreaker'"):
        run(write_toy(tmp_path), board="icebraker")
    with pytest.raises(InputError, match=r"model file .*/tay.py does not exist; did you mean .*/toy.py"):
        run(tmp_path / "tay.py")


@pytest.mark.usefixtures("quick")
def test_search_rejects_a_study_of_another_search_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    file = write_toy(tmp_path)
    journal = tmp_path / "study.journal"
    options = {"storage": journal, "study": "mine", "trials": 1}
    run(file, **options)
    before = journal.read_bytes()
    remedy = "; give the search a study of its own with --study or --storage"
    start = f"study 'mine' in '{journal}' is of another search: it has "
    with pytest.raises(InputError) as error:
        run(file, **options, objectives=("accuracy",), at_most={"lc": 9.0})
    assert str(error.value) == (
        start + 'objectives ["accuracy", "rate"] instead of ["accuracy"], at most {} instead of {"lc": 9.0}' + remedy
    )
    with pytest.raises(InputError, match=r"it has board \"icebreaker [0-9a-f]{16}\" instead of \"ulx3s_25f "):
        run(file, **options, board="ulx3s_25f")
    write_toy(tmp_path, ("2, 12", "2, 14"))
    with pytest.raises(InputError, match=r"it has text \"[0-9a-f]{16}\" instead of "):
        run(file, **options)
    assert journal.read_bytes() == before
    assert run(file, **{**options, "study": "other"}).outcomes == {"complete": 1}


@pytest.mark.usefixtures("quick")
def test_search_rejects_a_study_that_something_else_made(tmp_path: Path) -> None:
    import optuna

    url = f"sqlite:///{tmp_path}/search.db"
    optuna.create_study(storage=url, study_name="toy-icebreaker").optimize(lambda trial: 1.0, 1)
    with pytest.raises(InputError) as error:
        run(write_toy(tmp_path), storage=url)
    assert str(error.value) == (
        f"study 'toy-icebreaker' in '{url}' was not made by 'nnhw search'; give the search a study of its own with "
        "--study or --storage"
    )


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("kind", ["text", "folder", "url"])
def test_search_rejects_a_storage(tmp_path: Path, kind: str) -> None:
    file = write_toy(tmp_path)
    text = file.read_text(encoding="utf-8")
    places = {"text": str(file), "folder": str(tmp_path), "url": "nosql://me:secret@host/db"}
    with pytest.raises(InputError) as error:
        run(file, storage=places[kind])
    message = str(error.value)
    if kind == "folder":
        assert message == f"storage '{tmp_path}' is a folder; give a file, such as {tmp_path / 'study.journal'}"
    else:
        shown = places[kind].replace("secret", "***")
        assert message.startswith(f"storage '{shown}' cannot be opened: ")
        assert file.read_text(encoding="utf-8") == text
        assert message.endswith(" does not exist yet, or the URL of a database, such as sqlite:///search.db")
    assert "secret" not in message


@pytest.mark.usefixtures("quick")
def test_search_in_a_database_is_that_in_a_file(tmp_path: Path) -> None:
    file = write_toy(tmp_path)
    one = run(file, trials=3)
    other = run(file, trials=3, storage=f"sqlite:///{tmp_path}/search.db", out=tmp_path / "other")
    assert told(one) == told(other)


def test_search_without_its_packages_says_how_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match="a search needs the package 'optuna', which is not installed") as error:
        run(write_toy(tmp_path))
    assert str(error.value).endswith("it comes by: pip install 'nnhw[search]'")


@pytest.mark.usefixtures("quick")
def test_search_that_is_interrupted_keeps_what_is_done(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    file = write_toy(
        tmp_path, (TRAINED, f"import os\n    if os.path.exists({str(stop)!r}): raise KeyboardInterrupt\n    {TRAINED}")
    )
    run(file, trials=1)
    stop.touch()
    found = run(file, trials=50)
    assert found.interrupted
    assert found.outcomes == {"complete": 1, "interrupted": 1}
    stop.unlink()
    assert run(file, trials=1).outcomes["complete"] == 2


@pytest.mark.usefixtures("quick")
def test_search_ends_at_its_time(tmp_path: Path) -> None:
    found = run(write_toy(tmp_path), trials=None, timeout_s=1e-9)
    assert found.trials == ()
    assert counted(found) == "no trials"


@pytest.mark.usefixtures("quick")
def test_search_stops_early_what_falls_behind_networks_that_are_as_good_in_all_else(tmp_path: Path) -> None:
    file = write_toy(
        tmp_path,
        (TRAINED, 'trial.report(-trial.number, 1); trial.report(0, "2"); return 0.5 + trial.number'),
        ('"width", 2, 12, step=2', '"width", 4, 4'),
        ('activation = trial.suggest_categorical("activation", ["sign", "relu"])', "activation = 'sign'"),
        ("torch.manual_seed(width)", 'torch.manual_seed(width); trial.suggest_float("any", 0, 1)'),
    )
    found = run(file, trials=5)
    assert [trial.outcome for trial in found.trials] == ["complete"] * 3 + ["stopped early"] * 2
    assert found.trials[4].reason == (
        "accuracy -4.0000 at step 1, but the median of 3 networks that are as good in all else is -1.0000"
    )


@pytest.mark.usefixtures("quick")
def test_search_takes_the_pruning_of_optuna_as_well(tmp_path: Path) -> None:
    file = write_toy(tmp_path, (TRAINED, "import optuna; raise optuna.TrialPruned('enough')"))
    (trial,) = run(file, trials=1).trials
    assert (trial.outcome, trial.reason) == ("stopped early", "enough")


@pytest.mark.usefixtures("quick")
def test_search_imports_modules_beside_the_file_whenever_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "beside_the_toy.py").write_text("VALUE = 0.75\n", encoding="utf-8")
    file = write_toy(tmp_path, (TRAINED, "from beside_the_toy import VALUE; return VALUE"))
    assert run(file, trials=1).trials[0].figures["accuracy"] == 0.75


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("objectives", [("accuracy",), ("accuracy", "rate"), ("accuracy", "cycles", "lc")])
def test_plot_is_one_file_with_all_networks(tmp_path: Path, objectives: tuple[str, ...]) -> None:
    found = run(write_toy(tmp_path), trials=4, objectives=objectives, plot="cdn")
    assert found.plot == found.out / "front.html"
    text = found.plot.read_text(encoding="utf-8")
    assert len(text) < 30_000
    assert all(f"trial {trial.number}" in text for trial in found.complete)


@pytest.mark.usefixtures("quick")
def test_plot_without_a_network_is_none_and_offline_it_needs_nothing_else(tmp_path: Path) -> None:
    file = write_toy(tmp_path)
    assert run(file, trials=0, plot="offline").plot is None
    found = run(file, trials=1, plot="offline")
    assert found.plot is not None
    assert 4_000_000 < found.plot.stat().st_size < 6_000_000
    assert "cdn.plot.ly" not in found.plot.read_text(encoding="utf-8").rpartition("</script>")[0][-2000:]


def test_export_is_a_model_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "widths_of_toy.py").write_text("STEP = 2\n", encoding="utf-8")
    file = write_toy(tmp_path, ("LOST = ", "from widths_of_toy import STEP\nLOST = "), ("step=2", "step=STEP"))
    found = run(file, trials=2, export="best")
    assert found.exported is not None
    assert (found.exported.number, found.exported.test) == (found.front[0].number, 0.5)
    path = found.exported.path
    assert path == found.out / f"toy_{found.front[0].number}.py"
    assert "LOST" not in path.read_text(encoding="utf-8")
    program = (
        "import sys; from nnhw.frontend import load_source; source = load_source(sys.argv[1]); "
        "print(*source.example_input.shape, source.model(source.example_input).tolist(), 'optuna' in sys.modules)"
    )
    file.unlink()
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("4 1 4 4 [["), done.stderr
    assert done.stdout.endswith(" False\n")
    build = nnhw.build(
        *_model(path), name="toy", out=tmp_path / "b", style="streaming", fast_for="engine", stop_at="map"
    )
    assert build.report["cycles"]["interval"]["predicted"] == found.front[0].figures["cycles"]


def _model(path: Path) -> tuple[Any, torch.Tensor]:
    source = load_source(path)
    return source.model, source.example_input


@pytest.mark.usefixtures("quick")
def test_export_rejects_what_is_not_there(tmp_path: Path) -> None:
    file = write_toy(tmp_path)
    with pytest.raises(InputError, match="study 'toy-icebreaker' has no complete trial to export yet; run more"):
        run(file, trials=0, export="best")
    found = run(file, trials=1)
    with pytest.raises(InputError, match="study 'toy-icebreaker' has no trial 7; it has 1, from 0 on"):
        run(file, trials=0, export=7)
    (found.out / "weights" / "trial_0000.pt").unlink()
    with pytest.raises(InputError, match=r"the weights of trial 0 are not in '.*': the machine '.*' trained it; copy"):
        run(file, trials=0, export="0")
    failing = write_toy(tmp_path, (TRAINED, "raise ValueError('no')"), name="failing")
    run(failing, trials=1, out=tmp_path / "failing")
    with pytest.raises(InputError, match=r"trial 0 has no network to export: failed: failing\.py:30: ValueError: no"):
        run(failing, trials=0, export=0, out=tmp_path / "failing")


@pytest.mark.usefixtures("quick")
def test_export_rejects_weights_of_another_model(tmp_path: Path) -> None:
    file = write_toy(tmp_path, (TRAINED, "network.append(nn.Linear(4, 4)); return 1.0"))
    run(file, trials=1)
    with pytest.raises(InputError, match=r"weights '.*trial_0000.pt' are of another model: .* Unexpected key"):
        run(file, trials=0, export=0)


def test_export_rejects_a_module_that_would_replace_another_file(tmp_path: Path) -> None:
    (tmp_path / "widths_of_toy.py").write_text("STEP = 2\n", encoding="utf-8")
    file = write_toy(tmp_path, ("LOST = ", "from widths_of_toy import STEP\nLOST = "), ("step=2", "step=STEP"))
    run(file, trials=1)
    (tmp_path / "out" / "widths_of_toy.py").write_text("mine = 1\n", encoding="utf-8")
    with pytest.raises(InputError, match="is another file; move that away, or give another folder with --out"):
        run(file, trials=0, export=0)


def test_export_finds_a_model_that_keeps_what_it_learned_elsewhere(tmp_path: Path) -> None:
    file = write_toy(
        tmp_path,
        ("    torch.manual_seed(width)\n", ""),
        ("nn.Flatten(), Sign(),", "nn.Flatten(), nn.LeakyReLU(0.5), Sign(),"),
        (TRAINED, "network[1].negative_slope = -1.0; return 0.5"),
    )
    run(file, trials=1)
    with pytest.raises(
        nnhw.NnhwError, match="the network exported as 'toy_0' is not the one that trial 0 trained: its "
    ):
        run(file, trials=0, export=0)


@pytest.mark.parametrize("damage", ["cut", "text", "other"])
def test_exported_weights_that_are_damaged_are_a_message(tmp_path: Path, damage: str) -> None:
    found = run(write_toy(tmp_path), trials=1, export=0)
    assert found.exported is not None
    weights = found.exported.path.with_suffix(".pt")
    if damage == "other":
        torch.save({"state": {}, "example_input": torch.zeros(1, 1, 4, 4)}, weights)
    else:
        weights.write_bytes(weights.read_bytes()[:100] if damage == "cut" else b"text")
    said = "are of another model: " if damage == "other" else "cannot be read: "
    with pytest.raises(ModelFileError, match=f"weights '{weights}' {said}"):
        load_source(found.exported.path)


def test_two_processes_share_the_trials(tmp_path: Path) -> None:
    found = run(write_toy(tmp_path), trials=3, jobs=2, seed=None)
    assert [trial.number for trial in found.trials] == list(range(3))
    assert set(found.outcomes) <= {"complete", "repeated"}


def test_a_worker_of_dask_and_this_process_share_a_study(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    file = write_toy(tmp_path)
    options = {"storage": str(tmp_path / "study.journal"), "out": str(tmp_path / "out"), "plot": "none"}
    options |= {"style": "streaming"}
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        there = client.submit(nnhw.search, str(file), trials=1, **options, pure=False)
        here = run(file, **options, trials=1, seed=None)
        found = [here, there.result()]
    whole = run(file, **options, trials=0)
    assert max(len(search.trials) for search in found) == len(whole.trials) == 2
    assert set(whole.outcomes) <= {"complete", "repeated"}


def test_seeds_differ_between_trials_and_not_between_runs() -> None:
    seeds = [trying.mixed(seed, number) for seed in range(8) for number in range(8)]
    assert len(set(seeds)) == 64
    assert trying.mixed(3, 4) == trying.mixed(3, 4)
