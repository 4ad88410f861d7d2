"""The goals of a search: figures to optimize (objectives), and limits that figures have to meet."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from nnhw.errors import InputError

ACCURACY = "accuracy"
"""Name of the figure that training gives; all others come from the mapping."""
Figures = Mapping[str, float]
"""Values of figures by name."""


@dataclass(frozen=True)
class Figure:
    """One measure of a trained and mapped network.

    Parameters
    ----------
    about: what it measures, in a few words with the unit.
    more: whether a greater value is better.
    """

    about: str
    more: bool = False


FIGURES: Mapping[str, Figure] = {
    ACCURACY: Figure("what train() returned, on validation data", more=True),
    "rate": Figure("images/s of the engine at the clock", more=True),
    "link": Figure("images/s that the board's link passes", more=True),
    "cycles": Figure("cycles from image to image"),
    "latency": Figure("cycles from an image to its result"),
    "lc": Figure("logic cells"),
    "ff": Figure("flip-flops, where they are apart from logic cells"),
    "ebr": Figure("block RAMs"),
    "spram": Figure("large RAMs"),
    "dsp": Figure("DSP blocks"),
}
"""All figures by name. All but the accuracy come from the mapping, before training; resources are estimates that
include the link's hardware."""

_SPEED = ("rate", "cycles", "latency")
"""Figures that a faster mapping of the same network improves."""


@dataclass(frozen=True)
class Goals:
    """Objectives and limits of a search.

    Parameters
    ----------
    objectives: names of figures to optimize; the first one decides which network of the front counts as the best.
    at_least, at_most: limits by name of the figure, in its unit.

    Raises: InputError for a figure that does not exist, an objective named twice, or a limit that is not finite.
    """

    objectives: tuple[str, ...] = (ACCURACY, "rate")
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*self.objectives, *self.at_least, *self.at_most):
            _check_name(name)
        if not self.objectives:
            raise InputError(f"a search needs an objective; give one or more of {', '.join(FIGURES)}")
        twice = sorted({name for name in self.objectives if self.objectives.count(name) > 1})
        if twice:
            raise InputError(f"objective '{twice[0]}' is named twice; name it once")
        for name, limit in (*self.at_least.items(), *self.at_most.items()):
            if not isfinite(limit):
                raise InputError(f"the limit of '{name}' needs a finite number, given {limit}")

    @property
    def directions(self) -> list[Literal["maximize", "minimize"]]:
        """The direction of each objective, in optuna's words."""
        return ["maximize" if FIGURES[name].more else "minimize" for name in self.objectives]

    @property
    def target_fps(self) -> float | None:
        """Images/s that the mapper has to reach with the smallest hardware; None: it maps for the greatest speed.

        A lower limit of `rate` is such a target, unless a measure of speed is an objective.
        """
        # With a target the mapper gives the smallest network that reaches it; so an objective of speed would see no
        # faster one.
        return None if set(self.objectives) & set(_SPEED) else self.at_least.get("rate")

    def values(self, figures: Figures) -> list[float]:
        """Return the values of the objectives."""
        return [figures[name] for name in self.objectives]

    def missed(self, figures: Figures) -> list[str]:
        """Return a message for each limit that the figures miss; limits of figures not known yet are skipped."""
        low = [(name, limit, "at least") for name, limit in self.at_least.items()]
        high = [(name, limit, "at most") for name, limit in self.at_most.items()]
        return [
            _missed(name, figures[name], bound, limit)
            for name, limit, bound in (*low, *high)
            if name in figures and (figures[name] < limit if bound == "at least" else figures[name] > limit)
        ]

    def at_least_as_good(self, one: Figures, other: Figures, without: str = "") -> bool:
        """Return whether `one` is at least as good as `other` in each objective; `without` names one to leave out."""
        return all(
            one[name] >= other[name] if FIGURES[name].more else one[name] <= other[name]
            for name in self.objectives
            if name != without
        )

    def front(self, known: Sequence[Figures]) -> list[int]:
        """Return the indices of the Pareto front, sorted by the first objective, then the next ones, best first.

        A network is on the front unless another one is at least as good in each objective and better in one.
        """
        best = [
            index
            for index, one in enumerate(known)
            # Of two equal networks neither beats the other, so both are on the front.
            if not any(self.at_least_as_good(other, one) and not self.at_least_as_good(one, other) for other in known)
        ]
        return sorted(best, key=lambda index: [self._loss(name, known[index]) for name in self.objectives])

    def _loss(self, name: str, figures: Figures) -> float:
        return -figures[name] if FIGURES[name].more else figures[name]


def make_limits(given: Iterable[str], option: str) -> dict[str, float]:
    """Parse texts NAME=NUMBER of a command-line option to limits by name.

    Raises: InputError for a text of another form, or a name that comes twice.
    """
    limits: dict[str, float] = {}
    for text in given:
        name, equals, number = text.partition("=")
        try:
            limit = float(number)
        except ValueError:
            # Both mistakes, no "=" and no number behind it, get one message.
            equals = ""
            limit = 0.0
        if not equals:
            raise InputError(f"{option} needs NAME=NUMBER, such as rate=20000, given '{text}'")
        if name in limits:
            raise InputError(f"{option} names '{name}' twice; name it once")
        limits[name] = limit
    return limits


def shown(name: str, value: float) -> str:
    """Return the text of a figure's value: an accuracy with four decimals, else a whole number."""
    return f"{value:.4f}" if name == ACCURACY else f"{value:,.0f}"


def _missed(name: str, value: float, bound: str, limit: float) -> str:
    """Return the message that a figure misses a limit; both have all their digits where they would look equal."""
    given, wanted = shown(name, value), shown(name, limit)
    if given == wanted:
        given, wanted = f"{value:,}", f"{limit:,}"
    return f"{name} is {given}, but {bound} {wanted} is asked for"


def _check_name(name: str) -> None:
    if name in FIGURES:
        return
    near = difflib.get_close_matches(name, FIGURES, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise InputError(f"there is no figure '{name}', the figures are {', '.join(FIGURES)}{hint}")
