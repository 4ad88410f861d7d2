"""Optuna studies: open the storage of trials, check that it belongs to this search, and make its sampler."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nnhw
from nnhw.errors import InputError

from .goals import Goals
from .trial_records import mixed

if TYPE_CHECKING:
    import optuna

    from .trying import Setting

OWNER = "nnhw"
"""The study's user attribute that holds the `identity` of the search that made it."""


def require_packages() -> None:
    """Raise InputError if a package of the extra 'search' is not installed."""
    for name in ("optuna", "plotly"):
        try:
            # Imported, not only found: a broken installation shows here.
            __import__(name)
        except ImportError as error:
            raise InputError(
                f"a search needs the package '{name}', which is not installed ({error}); it comes by: "
                "pip install 'nnhw[search]'"
            ) from None


def open_study(storage: str, name: str, setting: Setting) -> optuna.Study:
    """Return the study of a search; create it if it does not exist.

    Parameters
    ----------
    storage: a file, or the URL of a database.
    name: name of the study in the storage.
    setting: of the search; its `identity` is kept in a new study and compared with that of an existing one.

    Raises
    ------
    InputError: the storage cannot be opened, or the study belongs to another search, whose study is not changed.
    """
    import optuna

    # optuna prints a line for each trial, as the search does.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        backend, sampler = _backend(storage), make_sampler(setting.seed)
        if name in optuna.get_all_study_names(backend):
            study = optuna.load_study(study_name=name, storage=backend, sampler=sampler)
        else:
            directions = setting.goals.directions
            # Another process may create it in between: load_if_exists makes that no error.
            study = optuna.create_study(
                study_name=name, storage=backend, sampler=sampler, directions=directions, load_if_exists=True
            )
        _claim(study, storage, setting)
    except (InputError, OSError):
        raise
    except Exception as error:  # each database has its own
        line = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"storage '{masked(storage)}' cannot be opened: {type(error).__name__}: {line}; give a file that "
            "'nnhw search' made or that does not exist yet, or the URL of a database, such as sqlite:///search.db"
        ) from error
    return study


def masked(storage: str) -> str:
    """Return the name of a storage, with the password in a URL replaced by ***."""
    return re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", storage)


def _backend(storage: str) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    # optuna itself opens databases by their URL.
    if "://" in storage:
        return storage
    path = Path(storage)
    if path.is_dir():
        raise InputError(f"storage '{storage}' is a folder; give a file, such as {path / 'study.journal'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return JournalStorage(JournalFileBackend(storage))


def identity(setting: Setting) -> dict[str, Any]:
    """Return the properties, by name, in which two searches must agree to share a study."""
    goals: Goals = setting.goals
    board = json.dumps(dataclasses.asdict(setting.board), sort_keys=True, default=str)
    return {
        "file": setting.program.path.name,
        "text": setting.program.digest[:16],
        "board": f"{setting.board.name} {hashlib.sha256(board.encode()).hexdigest()[:16]}",
        "style": setting.options.style,
        "clock": setting.options.clock_hz,
        "objectives": list(goals.objectives),
        "at least": dict(sorted(goals.at_least.items())),
        "at most": dict(sorted(goals.at_most.items())),
        # Another version may map the same network differently, and its figures are not comparable.
        "nnhw": nnhw.__version__,
    }


def _claim(study: optuna.Study, storage: str, setting: Setting) -> None:
    """Write the search's identity into a new study; raise InputError if a study has another identity."""
    mine = identity(setting)
    # A study with trials but without an owner is one of the user's own: it is left as it is.
    if OWNER not in study.user_attrs and not study.get_trials(deepcopy=False):
        study.set_user_attr(OWNER, mine)
    # Read again: another process may have claimed the new study at the same time.
    found: Mapping[str, Any] | None = study.user_attrs.get(OWNER)
    where = f"study '{study.study_name}' in '{masked(storage)}'"
    remedy = "give the search a study of its own with --study or --storage"
    if not isinstance(found, Mapping):
        raise InputError(f"{where} was not made by 'nnhw search'; {remedy}")
    other = [name for name in mine if found.get(name) != mine[name]]
    if other:
        listed = ", ".join(f"{name} {_said(found.get(name))} instead of {_said(mine[name])}" for name in other)
        raise InputError(f"{where} is of another search: it has {listed}; {remedy}")


def _said(value: Any) -> str:
    return json.dumps(value)


def make_sampler(seed: int | None) -> optuna.samplers.BaseSampler:
    """Return the sampler of a search: multi-objective TPE.

    With a seed, the random numbers of a trial depend on the seed and the trial's number alone.

    Source: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", 2011; Ozaki et al., "Multiobjective
    Tree-Structured Parzen Estimator", 2022.
    """
    import optuna

    if seed is None:
        return optuna.samplers.TPESampler()
    given = seed

    class SeededByTrial(optuna.samplers.BaseSampler):
        """A fresh sampler for each trial, so that a continued search draws what an uninterrupted one would draw."""

        def before_trial(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
            self._inner = optuna.samplers.TPESampler(seed=mixed(given, trial.number))
            self._inner.before_trial(study, trial)

        def infer_relative_search_space(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
            return self._inner.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
            return self._inner.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return self._inner.sample_independent(study, trial, param_name, param_distribution)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            self._inner.after_trial(study, trial, state, values)

    return SeededByTrial()
