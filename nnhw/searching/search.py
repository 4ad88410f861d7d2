"""The search: run trials, in one process or several, until the wanted number or the time limit is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnhw.boards import load_board
from nnhw.errors import InputError, NnhwError, ToolError, heading
from nnhw.flow.implementation.timing_closure import check_board_clock
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import PlainProgress, Progress, SilentProgress
from nnhw.flow.tools.storage import check_folder_place
from nnhw.model_files import check_exists

from .goals import ACCURACY, Goals
from .plotting import PLOTS, write_plot
from .studies import masked, open_study, require_packages
from .trial_records import Search, Tried, named, read_trials

if TYPE_CHECKING:
    from .trying import Setting

ROOT = Path("search")
"""Folder below which each study has its own, if none is given."""
JOURNAL, WEIGHTS, PLOT = "study.journal", "weights", "front.html"
"""Names in a study's folder: the storage of its trials, the folder of weights, the plot."""
BEST = "best"
"""In place of a trial's number: the first one of the front."""
DEFAULT_TRIALS = 50
"""Trials of a call without a limit of its own; optuna's sampler draws the first 10 of a study at random."""


@dataclass(frozen=True)
class SearchRequest:
    """The arguments of `search` as plain data, which can be pickled for worker processes; see there."""

    file: str
    board: str
    style: str
    clock_hz: float | None
    goals: Goals
    seed: int | None
    storage: str | None
    study: str | None
    out: str | None

    def setting(self) -> Setting:
        """Load the board and the user's file that the request names."""
        # torch comes with the user's file, once everything that is cheap to check has been checked.
        from .trying import Setting
        from .user_program import load_program

        board = load_board(self.board)
        # The figures are those of the engine: `link` is one of its own.
        options = Options(clock_hz=self.clock_hz, target_fps=self.goals.target_fps, style=self.style, fast_for="engine")
        program = load_program(self.file)
        return Setting(program, board, options, self.goals, self.folder / WEIGHTS, self.seed)

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.study or f"{Path(self.file).stem}-{load_board(self.board).name}"

    @property
    def folder(self) -> Path:
        """Folder of weights, plot and exported networks."""
        return Path(self.out) if self.out else ROOT / self.name

    @property
    def place(self) -> str:
        """Storage of the trials: a file's path, or the URL of a database."""
        return self.storage or str(self.folder / JOURNAL)


def search(
    file: str | Path,
    *,
    board: str = "icebreaker",
    style: str = "auto",
    clock_mhz: float | None = None,
    objectives: Sequence[str] = (ACCURACY, "rate"),
    at_least: Mapping[str, float] | None = None,
    at_most: Mapping[str, float] | None = None,
    trials: int | None = None,
    timeout_s: float | None = None,
    jobs: int = 1,
    seed: int | None = None,
    storage: str | Path | None = None,
    study: str | None = None,
    out: Path | str | None = None,
    plot: str = "offline",
    export: int | str | None = None,
    progress: Progress | None = None,
) -> Search:
    """Search the networks of a file's `model(trial)` for the best ones on a board; see `docs/search.md`.

    Parameters
    ----------
    file: a Python file, which is run. It has `model(trial)`, `train(model, trial)` and `example_input`; maybe
        `test(model)`.
    board: name of a board, an alias, or the path of a board file.
    style: style of the mapping, see `nnhw.build`.
    clock_mhz: clock in MHz for which rates are computed; the board's usual one otherwise.
    objectives: names of figures, see `goals.FIGURES`; the first one decides which network is the best.
    at_least, at_most: limits by name of the figure.
    trials: how many trials to run in this call, 0 for none; 50 unless `timeout_s` is given.
    timeout_s: time limit in seconds: no trial begins later than this.
    jobs: number of processes on this machine.
    seed: seed of all random numbers. With one process the same seed finds the same networks.
    storage: a file, or the URL of a database, that keeps the trials; `<out>/study.journal` otherwise. It may have
        trials already, and other processes and machines may be at work on it.
    study: name of the study in the storage; `<file>-<board>` otherwise.
    out: folder for weights, plot and exported networks; `search/<study>` otherwise.
    plot: `offline`: one HTML file with all that it needs; `cdn`: a small one that loads plotly; `none`.
    export: the number of a trial, or `best`: its network is written as code and weights, and tested.
    progress: receives stages and notes; None: nothing is shown.

    Returns
    -------
    All trials in the storage at the end of this call, those of other processes too. Ctrl-C ends the call early: it
    returns all the same, with `interrupted` set.

    Raises
    ------
    NnhwError: see `nnhw.errors`. An error of a single trial is kept as that trial's reason instead.
    """
    goals = Goals(tuple(objectives), dict(at_least or {}), dict(at_most or {}))
    _check(trials, timeout_s, jobs, seed, plot, export)
    request = SearchRequest(
        file=str(file),
        board=board,
        style=style,
        clock_hz=None if clock_mhz is None else clock_mhz * 1e6,
        goals=goals,
        seed=seed,
        storage=None if storage is None else str(storage),
        study=study,
        out=None if out is None else str(out),
    )
    return _run(request, trials, timeout_s, jobs, plot, export, progress or SilentProgress())


def _run(
    request: SearchRequest,
    trials: int | None,
    timeout_s: float | None,
    jobs: int,
    plot: str,
    export: int | str | None,
    progress: Progress,
) -> Search:
    # Before torch is imported and the user's file is run, which may take long.
    options = Options(clock_hz=request.clock_hz, style=request.style)
    check_board_clock(load_board(request.board), options.clock_hz)
    check_exists(Path(request.file))
    check_folder_place(request.folder)
    require_packages()
    setting = request.setting()
    from .trying import run_trial

    known = open_study(request.place, request.name, setting)
    count = DEFAULT_TRIALS if trials is None and timeout_s is None else trials
    interrupted = False
    with progress.stage("search"):
        try:
            if count == 0:
                pass
            elif jobs == 1:
                # In this process, whose trials a seed makes repeatable: others would finish in any order.
                take = _counter(count, _deadline(timeout_s), progress)
                while take():
                    run_trial(setting, known, progress.note)
            else:
                _run_processes(request, count, timeout_s, jobs)
        except KeyboardInterrupt:
            interrupted = True
    # Read from the storage: other processes and machines may have added trials.
    found = Search(
        request.name, masked(request.place), request.folder, request.goals, read_trials(known), interrupted=interrupted
    )
    if plot != "none" and found.complete:
        found = replace(found, plot=write_plot(found, request.folder / PLOT, plot))
    if export is not None and not interrupted:
        from .exporting import export as write

        with progress.stage("export"):
            found = replace(found, exported=write(setting, _chosen(found, export), request.folder))
    return found


def _check(
    trials: int | None, timeout_s: float | None, jobs: int, seed: int | None, plot: str, export: int | str | None
) -> None:
    """Raise InputError for an argument that is not possible."""
    if plot not in PLOTS:
        raise InputError(f"--plot is one of {', '.join(PLOTS)}; given '{plot}'")
    for name, value, least in (("trials", trials, 0), ("jobs", jobs, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise InputError(f"--{name} needs a whole number from {least} on, given {value}")
    if timeout_s is not None and not 0 < timeout_s < float("inf"):
        raise InputError(f"--timeout needs a positive number of seconds, given {timeout_s:g}")
    if isinstance(export, str) and export != BEST and not (export.isascii() and export.isdigit()):
        raise InputError(f"--export needs the number of a trial, or '{BEST}'; given '{export}'")


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _counter(count: int | None, deadline: float | None, progress: Progress) -> Callable[[], bool]:
    """Return a function that counts a further trial, and returns False once the count or the deadline is reached."""
    begun = 0

    def take() -> bool:
        nonlocal begun
        if count is not None:
            progress.advance(begun, count)
        # A trial that has begun is never cut off: only the beginning of the next one is.
        if begun == count or (deadline is not None and time.monotonic() >= deadline):
            return False
        begun += 1
        return True

    return take


def _run_processes(request: SearchRequest, count: int | None, timeout_s: float | None, jobs: int) -> None:
    """Run trials in processes of their own, which share nothing but the storage and the number of trials left.

    Raises: ToolError where a process ends otherwise than it should; KeyboardInterrupt once all have ended.
    """
    import multiprocessing

    # spawn, not fork: a forked child has the locks of torch's threads without the threads, and may wait for ever.
    context = multiprocessing.get_context("spawn")
    left = context.Value("q", -1 if count is None else count)
    workers = [context.Process(target=_work, args=(request, left, timeout_s)) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()  # the terminal told them, too, unless this process alone was told
        for worker in workers:
            worker.join()
        raise
    # A process that a signal has ended, such as one that ran out of memory, has a negative code.
    bad = [worker.exitcode for worker in workers if worker.exitcode]
    if bad:
        raise ToolError(
            f"{len(bad)} of {jobs} processes of the search ended with exit code {bad[0]}; what they said stands above, "
            "and finished trials are kept: start the same command again to go on"
        )


def _work(request: SearchRequest, left: Any, timeout_s: float | None) -> None:
    """Run trials in this process until none is left."""
    import sys

    from nnhw.flow.tools.stopping import stop_on_signals

    # `terminate` of the parent becomes a KeyboardInterrupt here, so that the trial is kept as interrupted.
    stop_on_signals()
    deadline, progress = _deadline(timeout_s), PlainProgress()
    try:
        from .trying import run_trial

        setting = request.setting()
        # A study of its own: connections to the storage cannot be shared between processes.
        study = open_study(request.place, request.name, setting)
        while (deadline is None or time.monotonic() < deadline) and _take(left):
            run_trial(setting, study, progress.note)
    except KeyboardInterrupt:
        return
    except NnhwError as error:
        progress.note(f"{heading(error)}: {error}")
        sys.exit(1)


def _take(left: Any) -> bool:
    """Count down the trials that the processes share and return whether one was left; -1 means no limit."""
    with left.get_lock():
        if left.value > 0:
            left.value -= 1
            return True
        return bool(left.value)


def _chosen(found: Search, export: int | str) -> Tried:
    """Return the trial to export. Raises: InputError where there is none."""
    if export == BEST:
        if not found.front:
            raise InputError(f"study '{found.study}' has no complete trial to export yet; run more with --trials")
        return found.front[0]
    trial = named(found.trials, int(export))
    if trial is None:
        raise InputError(f"study '{found.study}' has no trial {export}; it has {len(found.trials)}, from 0 on")
    return trial
