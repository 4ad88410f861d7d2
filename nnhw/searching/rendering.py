"""Terminal output of a search: the Pareto front as a table, and the outcomes of all trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from nnhw.flow.tools.tables import NumberTable

from .goals import FIGURES, shown
from .trial_records import COMPLETE, OUTCOMES, RUNNING, Search

_ALWAYS = ("accuracy", "rate", "cycles", "lc", "ebr", "spram", "dsp")
"""Figures that have a column even if they are no objective."""
_REASONS_SHOWN = 3
"""Most reasons of an outcome that are printed, the most frequent ones: a search may fail in hundreds of ways."""


def render_search(search: Search) -> RenderableType:
    """Return the table of the front and the remarks below it."""
    return Group(_front(search), *(Text(line) for line in _remarks(search)))


def _front(search: Search) -> NumberTable:
    objectives = search.goals.objectives
    columns = (*objectives, *(name for name in _ALWAYS if name not in objectives))
    marks = {name: "▲" if FIGURES[name].more else "▼" for name in objectives}
    headings = (f"{name} {marks.get(name, '')}".strip() for name in columns)
    title = f"Pareto front of '{search.study}'"
    table = NumberTable(title, "trial", *headings, "parameters", names=(), texts=("parameters",))
    for trial in search.front:
        figures = (shown(name, trial.figures[name]) for name in columns)
        params = ", ".join(f"{name}={value}" for name, value in trial.params.items())
        table.row(str(trial.number), *figures, params)
    return table


def _remarks(search: Search) -> Iterator[str]:
    yield counted(search)
    for outcome in OUTCOMES:
        reasons = Counter(
            # Further lines are details of a layer; by the first ones, equal reasons are counted together.
            (trial.reason.splitlines() or [""])[0]
            for trial in search.trials
            if trial.outcome == outcome and outcome not in (COMPLETE, RUNNING) and trial.reason
        )
        for reason, count in reasons.most_common(_REASONS_SHOWN):
            yield f"  {outcome}, {count}: {reason}"
        if len(reasons) > _REASONS_SHOWN:
            yield f"  {outcome}: {len(reasons) - _REASONS_SHOWN} other reasons"
    if search.exported is not None:
        test = search.exported.test
        judged = "" if test is None else f", accuracy on test data {test:.4f}"
        yield f"trial {search.exported.number} is in {search.exported.path}{judged}"
    elif search.front:
        yield f"export one: add --trials 0 --export {search.front[0].number} to the same command"
    if search.plot is not None:
        yield f"plot: {search.plot}"
    yield f"trials are kept in {search.storage}"


def counted(search: Search) -> str:
    """Return one line that counts the trials by outcome."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in search.outcomes.items())
    return (
        f"{len(search.trials)} trials: {counts}; {search.untrained} ended by the mapper before training"
        if counts
        else "no trials"
    )
