"""One trial: map the untrained network; only if it fits and meets the limits, train it and map it again."""

from __future__ import annotations

import math
import random
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nnhw.boards import Board
from nnhw.errors import CaptureError, InputError, LoweringError, MappingError, NnhwError, ProblemList
from nnhw.flow.options import Options
from nnhw.frontend.locations import error_location
from nnhw.frontend.source import Source

from .chosen import save_weights
from .estimating import Estimate, estimate
from .goals import ACCURACY, Goals, shown
from .trial_records import (
    COMPLETE,
    FAILED,
    INTERRUPTED,
    LIMIT,
    REPEATED,
    STOPPED,
    UNFIT,
    UNFIT_TRAINED,
    mixed,
)
from .user_program import Program

if TYPE_CHECKING:
    import optuna

RIVALS_MIN = 3
"""Fewest networks with an accuracy at a step that a trial is compared with; with fewer, none is stopped there."""
_REASON_LENGTH_MAX = 2000
"""Most characters of a reason in the storage: the list of all problems of a deep network may have pages."""


@dataclass(frozen=True)
class Setting:
    """What all trials of a search share.

    Parameters
    ----------
    program: the user's file. board, options: what each network is mapped on, and how.
    goals: objectives and limits.
    weights: folder for the weights of trained networks.
    seed: the seeds of a trial's random numbers come from it and the trial's number; None: they are not set.
    """

    program: Program
    board: Board
    options: Options
    goals: Goals
    weights: Path
    seed: int | None = None


class _PrunedError(Exception):
    """Ends a trial early.

    Parameters
    ----------
    outcome: one of `OUTCOMES`. reason: why it ends, a message for the user.
    """

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class Trial:
    """The running trial that `model` and `train` get as argument; a thin layer over optuna's trial.

    Parameters
    ----------
    own: optuna's trial. setting: of the search.
    """

    def __init__(self, own: optuna.Trial, setting: Setting) -> None:
        self._own, self._setting = own, setting
        self._reports: dict[str, float] = {}
        self.number = own.number
        self.figures: dict[str, float] = {}

    @property
    def params(self) -> dict[str, Any]:
        """The parameters so far, by name."""
        return dict(self._own.params)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number from low to high, both included."""
        return self._own.suggest_float(name, low, high, step=step, log=log)

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number from low to high, both included."""
        return self._own.suggest_int(name, low, high, step=step, log=log)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of several texts, numbers or booleans."""
        return self._own.suggest_categorical(name, choices)

    def report(self, accuracy: float, step: int) -> None:
        """Report the accuracy so far; the trial ends here if it is below the median of its rivals at this step.

        Rivals are the complete trials that reported at this step and are at least as good in all other objectives.
        With fewer than `RIVALS_MIN` of them the trial goes on.

        Parameters
        ----------
        accuracy: on validation data, finite.
        step: number of the report, such as the epoch.
        """
        accuracy, key = float(accuracy), str(int(step))
        if not math.isfinite(accuracy):
            raise InputError(f"trial.report() needs a finite accuracy, got {accuracy} at step {key}")
        self._reports[key] = accuracy
        # Written as a whole each time: storages keep whole attributes. JSON has text keys only, hence `key`.
        self._own.set_user_attr("reports", self._reports)
        # A network that is better in another objective, such as a faster one, may be less accurate: slower ones are no
        # rivals of it.
        rivals = [reports[key] for reports in self._rivals() if key in reports]
        if len(rivals) >= RIVALS_MIN and accuracy < (median := statistics.median(rivals)):
            raise _PrunedError(
                STOPPED,
                f"accuracy {accuracy:.4f} at step {key}, but the median of {len(rivals)} networks that are as good in "
                f"all else is {median:.4f}",
            )

    def _rivals(self) -> list[dict[str, float]]:
        """Return the reports of trained networks that are as good as this one in all objectives but accuracy."""
        goals = self._setting.goals
        if ACCURACY not in goals.objectives:
            return []
        return [
            trial.user_attrs.get("reports", {})
            for trial in _completed(self._own.study)
            if goals.at_least_as_good(trial.user_attrs["figures"], self.figures, without=ACCURACY)
        ]


def run_trial(setting: Setting, study: optuna.Study, note: Callable[[str], None]) -> None:
    """Run one trial and keep its outcome in the study; errors of the user's code become the outcome `failed`.

    Raises: KeyboardInterrupt, after the trial is kept as interrupted; whatever the storage raises.
    """
    import optuna

    states, started = optuna.trial.TrialState, time.monotonic()
    own = study.ask()
    own.set_user_attr("host", socket.gethostname())
    # Before the user's code: it draws initial weights, and the order of the data.
    _set_seeds(setting.seed, own.number)
    values, state, outcome, reason = None, states.PRUNED, COMPLETE, ""
    stop: KeyboardInterrupt | None = None
    try:
        values, state = _attempt(setting, own), states.COMPLETE
    except _PrunedError as pruned:
        outcome, reason = pruned.outcome, str(pruned)
    except optuna.TrialPruned as pruned:
        outcome, reason = STOPPED, str(pruned) or "the file's own code ended it"
    except KeyboardInterrupt as interrupt:
        stop, state, outcome, reason = interrupt, states.FAIL, INTERRUPTED, "the search was interrupted"
    # The user's code may fail in any way, and may even call sys.exit(): the search goes on.
    except (Exception, SystemExit) as error:
        state, outcome, reason = states.FAIL, FAILED, _told(error)
    for key, value in (("outcome", outcome), ("reason", reason[:_REASON_LENGTH_MAX])):
        own.set_user_attr(key, value)
    own.set_user_attr("seconds", round(time.monotonic() - started, 3))
    # All attributes are written before the trial is finished, since optuna refuses changes of a finished one.
    study.tell(own, values, state)
    note(_line(own, outcome, reason, setting.goals, values))
    if stop is not None:
        raise stop


def _attempt(setting: Setting, own: optuna.Trial) -> list[float]:
    """Return the values of the objectives; a trial that ends early raises instead."""
    trial = Trial(own, setting)
    source = setting.program.source(trial)
    before = _fitting(setting, source, UNFIT)
    trial.figures = dict(before.figures)
    # Kept at once, so that the storage has them even if the training never ends.
    own.set_user_attr("untrained", trial.figures)
    _keep_limits(setting, trial.figures)
    _check_new(own)
    assert isinstance(source.model, torch.nn.Module)
    accuracy = setting.program.train(source.model, trial)
    # Training changes scales and weights, and with them thresholds and ranges: the trained network may need more
    # hardware.
    after = _fitting(setting, source, UNFIT_TRAINED)
    figures = {ACCURACY: accuracy, **after.figures}
    own.set_user_attr("figures", figures)
    own.set_user_attr("style", after.style)
    own.set_user_attr("hash", after.hash)
    _keep_limits(setting, figures)
    # Only of complete trials, which alone can be exported.
    save_weights(source.model, setting.program.example_input, weights_of(setting.weights, own.number))
    return setting.goals.values(figures)


def weights_of(folder: Path, number: int) -> Path:
    """Return the path of a trial's weights in the folder of weights."""
    return folder / f"trial_{number:04}.pt"


def _fitting(setting: Setting, source: Source, outcome: str) -> Estimate:
    """Return the estimate of a network; end the trial with the given outcome if it cannot be built."""
    try:
        return estimate(source, setting.board, setting.options)
    except NnhwError as error:
        # Other errors, such as missing tools or a full disk, are no property of the network.
        problems = error.problems if isinstance(error, ProblemList) else (error,)
        if not all(isinstance(one, InputError | CaptureError | LoweringError | MappingError) for one in problems):
            raise
        raise _PrunedError(outcome, str(error)) from error


def _keep_limits(setting: Setting, figures: dict[str, float]) -> None:
    if missed := setting.goals.missed(figures):
        raise _PrunedError(LIMIT, "; ".join(missed))


def _check_new(own: optuna.Trial) -> None:
    """End a trial that has the very parameters of a complete one."""
    # `train` may ask for parameters, too, and has not yet: then a complete trial has more, and none is equal here.
    for trial in _completed(own.study):
        if trial.params == own.params:
            raise _PrunedError(REPEATED, f"the same parameters as trial {trial.number}")


def _completed(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    import optuna

    return study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))


def _set_seeds(seed: int | None, number: int) -> None:
    if seed is not None:
        own = mixed(seed, number)
        torch.manual_seed(own)
        np.random.seed(own)
        random.seed(own)


def _told(error: BaseException) -> str:
    """Return the message of an error, with file and line if the user's code raised it."""
    if isinstance(error, NnhwError):
        return str(error)
    place = error_location(error)
    where = f"{place.file}:{place.line}: " if place.file else ""
    return f"{where}{type(error).__name__}: {error}"


def _line(own: optuna.Trial, outcome: str, reason: str, goals: Goals, values: list[float] | None) -> str:
    if values is None:
        lines = reason.splitlines() or [""]
        return f"trial {own.number}: {outcome}: {lines[0]}{' ..' if lines[1:] else ''}"
    return f"trial {own.number}: " + ", ".join(
        f"{name} {shown(name, value)}" for name, value in zip(goals.objectives, values, strict=True)
    )
