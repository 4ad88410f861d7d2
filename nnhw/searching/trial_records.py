"""The trials and the result of a search as plain data, without optuna's objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .goals import Goals

if TYPE_CHECKING:
    import optuna

COMPLETE, UNFIT, LIMIT, REPEATED = "complete", "does not fit", "misses a limit", "repeated"
STOPPED, UNFIT_TRAINED = "stopped early", "does not fit once trained"
FAILED, INTERRUPTED, RUNNING = "failed", "interrupted", "running"
OUTCOMES = (COMPLETE, UNFIT, LIMIT, REPEATED, STOPPED, UNFIT_TRAINED, FAILED, INTERRUPTED, RUNNING)
"""The possible outcomes of a trial."""


@dataclass(frozen=True)
class Tried:
    """One trial.

    Parameters
    ----------
    number: its number in the study, from 0 on.
    outcome: one of `OUTCOMES`.
    params: the chosen values by parameter name.
    figures: values of the trained network, see `goals.FIGURES`; empty if it was not trained, or did not fit then.
    reason: why the trial is not complete; empty if it is.
    style: `streaming` or `shared`, of the trained network's mapping; empty if there is none.
    hash: of the trained network's graphs, see `Estimate.hash`; empty if there is none.
    seconds: wall time that the trial took; None while it runs.
    host: name of the machine that ran it.
    """

    number: int
    outcome: str
    params: Mapping[str, Any]
    figures: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    style: str = ""
    hash: str = ""
    seconds: float | None = None
    host: str = ""


@dataclass(frozen=True)
class ExportedNetwork:
    """A network that was exported.

    Parameters
    ----------
    path: path of its Python file; its weights are beside it, with the suffix .pt.
    number: number of its trial.
    test: its accuracy on test data; None if the user's file has no `test`.
    """

    path: Path
    number: int
    test: float | None


@dataclass(frozen=True, repr=False)
class Search:
    """The state of a search: all trials so far, and what was written.

    Parameters
    ----------
    study: name of the study.
    storage: file or URL that keeps its trials, a password masked.
    out: folder of weights, plot and exported networks.
    goals: objectives and limits.
    trials: the trials of all processes and machines, sorted by number.
    plot: path of the HTML file; None if none was written.
    exported: the exported network; None if none was asked for.
    interrupted: whether Ctrl-C ended this call.
    """

    study: str
    storage: str
    out: Path
    goals: Goals
    trials: tuple[Tried, ...]
    plot: Path | None = None
    exported: ExportedNetwork | None = None
    interrupted: bool = False

    @property
    def complete(self) -> tuple[Tried, ...]:
        """The trials whose network was trained, fits the board and meets all limits."""
        return tuple(trial for trial in self.trials if trial.outcome == COMPLETE)

    @property
    def front(self) -> tuple[Tried, ...]:
        """The complete trials on the Pareto front, the best in the first objective first."""
        complete = self.complete
        return tuple(complete[index] for index in self.goals.front([trial.figures for trial in complete]))

    @property
    def outcomes(self) -> dict[str, int]:
        """How many trials there are of each outcome, in the order of `trying.OUTCOMES`."""
        counted = Counter(trial.outcome for trial in self.trials)
        return {outcome: counted[outcome] for outcome in OUTCOMES if counted[outcome]}

    @property
    def untrained(self) -> int:
        """Trials that ended before training because the network does not fit, or misses a limit."""
        return sum(trial.outcome in (UNFIT, LIMIT) and not trial.figures for trial in self.trials)

    def __repr__(self) -> str:
        counted = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.items())
        return f"<Search '{self.study}' in '{self.storage}': {counted or 'no trials'}, {len(self.front)} on the front>"


def read_trials(study: optuna.Study) -> tuple[Tried, ...]:
    """Return the trials of a study, sorted by number."""
    return tuple(_tried(trial) for trial in study.get_trials(deepcopy=False))


def named(trials: Sequence[Tried], number: int) -> Tried | None:
    """Return the trial with this number, or None."""
    return next((trial for trial in trials if trial.number == number), None)


def _tried(trial: optuna.trial.FrozenTrial) -> Tried:
    said = trial.user_attrs
    # run_trial writes the outcome before it finishes a trial: one that is finished without was ended from outside.
    outcome = said.get("outcome", INTERRUPTED if trial.state.is_finished() else RUNNING)
    # Figures are kept behind training alone, so their presence says that it was trained.
    finished = {"figures": said["figures"]} if "figures" in said else {}
    return Tried(
        trial.number,
        outcome if outcome in OUTCOMES else FAILED,
        dict(trial.params),
        reason=said.get("reason", ""),
        style=said.get("style", ""),
        hash=said.get("hash", ""),
        seconds=said.get("seconds"),
        host=said.get("host", ""),
        **finished,
    )


def mixed(seed: int, number: int) -> int:
    """Return the seed of a trial's random numbers: a hash, for with seed + number close seeds would share some."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
