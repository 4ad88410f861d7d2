"""The Pareto front as one HTML file."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from nnhw.flow.tools.storage import write_whole

from .goals import FIGURES, shown
from .trial_records import Search, Tried

PLOTS = ("offline", "cdn", "none")
"""Kinds of plots: `offline` holds the script of plotly (4.8 MB), `cdn` loads it from the web (10 KB), `none`."""
_LOG_RATIO = 10.0
"""An axis whose greatest value is more than this many times its least one is logarithmic."""


def write_plot(search: Search, path: Path, kind: str) -> Path:
    """Write an HTML plot of all complete trials, the front marked, and return its path.

    The first objective is the y axis, the second the x axis, the third the colour; without a second one, x is the
    number of the trial.

    Parameters
    ----------
    path: of the file; it is replaced in one step, so that a browser never reads half of it.
    kind: `offline` or `cdn`, see `PLOTS`.

    Raises
    ------
    InputError: it cannot be written.
    """
    text = _figure(search).to_html(include_plotlyjs=True if kind == "offline" else "cdn")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
    return path


def _figure(search: Search) -> Any:
    import plotly.graph_objects as go

    objectives, front = search.goals.objectives, search.front
    on_front = {trial.number for trial in front}
    y = objectives[0]
    x = objectives[1] if len(objectives) > 1 else "trial"
    colour = objectives[2] if len(objectives) > 2 else None
    figure = go.Figure(layout={"title": {"text": f"{html.escape(search.study)}: {len(search.trials)} trials"}})
    others = [trial for trial in search.complete if trial.number not in on_front]
    # The front comes last, so that its marks lie above the others.
    for title, trials, size in (("other networks", others, 7), ("Pareto front", front, 12)):
        marker: dict[str, Any] = {"size": size, "symbol": "diamond" if size > 7 else "circle"}
        if colour is not None:
            values = [trial.figures[colour] for trial in trials]
            marker |= {"color": values, "coloraxis": "coloraxis"}
        figure.add_scatter(
            x=[trial.number if x == "trial" else trial.figures[x] for trial in trials],
            y=[trial.figures[y] for trial in trials],
            mode="markers",
            name=title,
            marker=marker,
            text=[_hover(trial) for trial in trials],
            # Without `<extra>` plotly would add the name of the series in a second box.
            hovertemplate="%{text}<extra></extra>",
        )
    for name, axis in ((x, figure.update_xaxes), (y, figure.update_yaxes)):
        axis(title=_title(name), type="log" if _spreads(search, name) else "linear")
    if colour is not None:
        figure.update_layout(coloraxis={"colorbar": {"title": colour}}, legend={"orientation": "h"})
    return figure


def _title(name: str) -> str:
    return f"{name}: {FIGURES[name].about}" if name in FIGURES else name


def _spreads(search: Search, name: str) -> bool:
    """Return whether the values of a figure are positive and spread over more than `_LOG_RATIO`."""
    values = [trial.figures[name] for trial in search.complete if name in trial.figures]
    return bool(values) and min(values) > 0 and max(values) > _LOG_RATIO * min(values)


def _hover(trial: Tried) -> str:
    figures = [f"{name} {shown(name, value)}" for name, value in trial.figures.items()]
    params = [f"{name} = {value}" for name, value in trial.params.items()]
    # plotly takes texts as HTML, and parameters may hold any text.
    return "<br>".join(html.escape(line) for line in (f"trial {trial.number}", *figures, "", *params))
