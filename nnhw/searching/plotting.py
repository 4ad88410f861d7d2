"""The Pareto front as one HTML file."""

from __future__ import annotations

import html
import os
import tempfile
from pathlib import Path
from typing import Any

from .goals import FIGURES, shown
from .records import Search, Tried

PLOTS = ("offline", "cdn", "none")
"""Kinds of plots: with the script of plotly inside, 4.8 MB; with a link to it, some 10 KB; no plot."""
_LOG_RATIO = 10.0


def write_plot(search: Search, path: Path, kind: str) -> Path:
    """Write the plot of a search in one step: all complete trials, the front marked.

    Two objectives are its axes, a third one the colour; one alone stands over the trials' numbers.
    """
    text = _figure(search).to_html(include_plotlyjs=True if kind == "offline" else "cdn")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}", suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)
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
    """Return whether a figure spreads so far that it is better read on a logarithmic axis."""
    values = [trial.figures[name] for trial in search.complete if name in trial.figures]
    return bool(values) and min(values) > 0 and max(values) > _LOG_RATIO * min(values)


def _hover(trial: Tried) -> str:
    figures = [f"{name} {shown(name, value)}" for name, value in trial.figures.items()]
    params = [f"{name} = {value}" for name, value in trial.params.items()]
    return "<br>".join(html.escape(line) for line in (f"trial {trial.number}", *figures, "", *params))
