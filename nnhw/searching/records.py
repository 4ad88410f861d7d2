"""What a study holds, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .goals import Goals
from .trying import COMPLETE, FAILED, INTERRUPTED, LIMIT, OUTCOMES, RUNNING, UNFIT

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Tried:
    """One trial.

    Parameters
    ----------
    outcome: one of `trying.OUTCOMES`.
    params: by name.
    figures: of the trained network, see `goals.FIGURES`; empty unless it is complete.
    reason: why it is not complete.
    style: of its mapping.
    hash: of its graphs once trained, hex.
    seconds: that it took; None while it runs.
    host: name of the machine.
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
    path: of its Python file; its weights are beside it, with the suffix .pt.
    number: of its trial.
    test: its accuracy on test data; None where the file has no `test`.
    """

    path: Path
    number: int
    test: float | None


@dataclass(frozen=True, repr=False)
class Search:
    """A search, as far as it is.

    Parameters
    ----------
    study: its name.
    storage: where its trials are kept, without a password.
    out: folder of weights, plot and exported networks.
    goals: objectives and limits.
    trials: of all processes and machines, by number.
    plot: the HTML file, or None.
    exported: the network that was asked for.
    interrupted: Ctrl-C ended it.
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
        """The trials whose network was trained, and fits."""
        return tuple(trial for trial in self.trials if trial.outcome == COMPLETE)

    @property
    def front(self) -> tuple[Tried, ...]:
        """The complete trials than which no other is better, the best in the first objective first."""
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
    """Return the trials of a study."""
    return tuple(_tried(trial) for trial in study.get_trials(deepcopy=False))


def named(trials: Sequence[Tried], number: int) -> Tried | None:
    """Return the trial of a number, or None."""
    return next((trial for trial in trials if trial.number == number), None)


def _tried(trial: optuna.trial.FrozenTrial) -> Tried:
    said = trial.user_attrs
    outcome = said.get("outcome", INTERRUPTED if trial.state.is_finished() else RUNNING)
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
