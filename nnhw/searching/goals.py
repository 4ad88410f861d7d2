"""What a search is for: figures that are objectives, and limits that figures have to keep."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from nnhw.errors import InputError

ACCURACY = "accuracy"
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Figure:
    """Something that is known of a trained and mapped network.

    Parameters
    ----------
    about: in a few words, with the unit.
    more: whether more of it is better.
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
"""All figures by name: those of the mapping are known before training, resources are estimates with the link."""

_SPEED = ("rate", "cycles", "latency")


@dataclass(frozen=True)
class Goals:
    """Objectives and limits of a search.

    Parameters
    ----------
    objectives: names of figures; the first one decides which network is the best.
    at_least, at_most: limits by name of the figure.

    Raises: InputError for a figure that does not exist, one that is named twice, or a limit that is no number.
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
        """Of each objective, as optuna calls them."""
        return ["maximize" if FIGURES[name].more else "minimize" for name in self.objectives]

    @property
    def target_fps(self) -> float | None:
        """Images/s for which the smallest mapping is taken: a limit, where speed beyond it is no objective."""
        return None if set(self.objectives) & set(_SPEED) else self.at_least.get("rate")

    def values(self, figures: Figures) -> list[float]:
        """Return the values of the objectives."""
        return [figures[name] for name in self.objectives]

    def missed(self, figures: Figures) -> list[str]:
        """Return the limits that figures miss, each as part of a sentence; of figures that are known."""
        low = [(name, limit, "at least") for name, limit in self.at_least.items()]
        high = [(name, limit, "at most") for name, limit in self.at_most.items()]
        return [
            f"{name} is {shown(name, figures[name])}, but {bound} {shown(name, limit)} is asked for"
            for name, limit, bound in (*low, *high)
            if name in figures and (figures[name] < limit if bound == "at least" else figures[name] > limit)
        ]

    def at_least_as_good(self, one: Figures, other: Figures, without: str = "") -> bool:
        """Return whether one network is as good as another, or better, in each objective but one."""
        return all(
            one[name] >= other[name] if FIGURES[name].more else one[name] <= other[name]
            for name in self.objectives
            if name != without
        )

    def front(self, known: Sequence[Figures]) -> list[int]:
        """Return the indices of the networks than which no other is better, the best in the first objective first.

        A network is better than another if it is as good in each objective, and not the other way round.
        """
        best = [
            index
            for index, one in enumerate(known)
            if not any(self.at_least_as_good(other, one) and not self.at_least_as_good(one, other) for other in known)
        ]
        return sorted(best, key=lambda index: [self._loss(name, known[index]) for name in self.objectives])

    def _loss(self, name: str, figures: Figures) -> float:
        return -figures[name] if FIGURES[name].more else figures[name]


def make_limits(given: Iterable[str], option: str) -> dict[str, float]:
    """Return limits by name from texts NAME=NUMBER of an option. Raises: InputError for another text."""
    limits: dict[str, float] = {}
    for text in given:
        name, equals, number = text.partition("=")
        try:
            limit = float(number)
        except ValueError:
            equals = ""
            limit = 0.0
        if not equals:
            raise InputError(f"{option} needs NAME=NUMBER, such as rate=20000, given '{text}'")
        if name in limits:
            raise InputError(f"{option} names '{name}' twice; name it once")
        limits[name] = limit
    return limits


def shown(name: str, value: float) -> str:
    """Return a figure as a person reads it."""
    return f"{value:.4f}" if name == ACCURACY else f"{value:,.0f}"


def _check_name(name: str) -> None:
    if name in FIGURES:
        return
    near = difflib.get_close_matches(name, FIGURES, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise InputError(f"there is no figure '{name}', the figures are {', '.join(FIGURES)}{hint}")
