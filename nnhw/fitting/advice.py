"""What would fit, where a network does not: the nearest variants, each of them mapped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from nnhw.boards import Board, load_board
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import Progress
from nnhw.flow.tools.stopping import TimeOver, time_limit
from nnhw.ir import Graph

from .narrowing import NotNarrowedError, width_of
from .sweep import devices, narrower_widths, plain_variant, variant_of
from .trials import FitTrial, LoweredVariant, Variant

AUTO = "auto"
"""The style that tries all others."""
MOST_SECONDS = 15.0
"""Seconds after which no form of a network is lowered or mapped any more to give advice."""
LARGEST_SECONDS = 60.0
"""Seconds for the largest board, because most users need that answer."""


@dataclass(frozen=True)
class Advice:
    """What was tried for a network that does not fit a board.

    Parameters
    ----------
    tried: all trials, fitting or not, in their order.
    untried: board and bits of each trial that the time was too short for, or that did not end in time.
    """

    tried: tuple[FitTrial, ...]
    untried: tuple[tuple[Board, Variant], ...] = ()

    @property
    def trials(self) -> tuple[FitTrial, ...]:
        """The trials that fit."""
        return tuple(one for one in self.tried if one.fits)


@dataclass(frozen=True)
class _Step:
    """A form of a network that is to be mapped.

    Parameters
    ----------
    form: makes it; None: the network has no such form.
    may_help: whether it is worth a trial, after those that were made until then.
    seconds: after the begin of all trials, when this one has to end.
    """

    variant: Variant
    board: Board
    style: str
    form: Callable[[], LoweredVariant | None]
    may_help: Callable[[], bool] = lambda: True
    seconds: float = MOST_SECONDS


def advise(graph: Graph, board: str, options: Options, progress: Progress, faster: float = 1.0) -> Advice:
    """Map variants of a captured graph that does not fit a board, until each kind of change has been tried.

    The largest board comes first, as the answer that most users need soon. Then comes what costs least: the other
    style, piecewise linear activations, fewer bits, from the smallest reduction on, and at last smaller boards, the
    larger ones first. Each variant has to meet the rate that was asked for. Foldings and arrays that the options fix
    are dropped, because they were chosen for the network as it is.

    Parameters
    ----------
    graph: captured, not lowered yet.
    board: name of the board, or path of its file.
    faster: by what factor the trials have to end sooner than after `MOST_SECONDS` and `LARGEST_SECONDS`.

    Raises
    ------
    NnhwError: what stands in the way of lowering the network.
    """
    found = list[FitTrial]()
    free = replace(options, overrides={}, array=None)
    steps = list(_steps(graph, load_board(board), free.style, found, progress))
    start = time.monotonic()
    for place, step in enumerate(steps):
        if not step.may_help():
            continue
        try:
            with time_limit(start + step.seconds / faster - time.monotonic()):
                form = step.form()
                trial = None if form is None else form.attempt(step.board, (), replace(free, style=step.style))
        except TimeOver:
            left = (one for one in steps[place:] if one.may_help())
            return Advice(tuple(found), tuple((one.board, one.variant) for one in left))
        if trial is not None:
            found.append(trial)
    return Advice(tuple(found))


def _steps(graph: Graph, board: Board, style: str, found: Sequence[FitTrial], progress: Progress) -> Iterator[_Step]:
    """Yield the forms of a network that may fit, each with a board and the style, in the order of their trials.

    Parameters
    ----------
    style: the one in which the network does not fit the board.
    found: the trials made so far: the caller's list, which grows.
    """
    own = Variant(*width_of(graph), own=True)
    # Lowered once, for all boards and styles.
    given = LoweredVariant(own, graph, progress)
    larger = [other for other, _ in reversed(devices(())) if other.resources.lc > board.resources.lc]
    for other in larger[:1]:
        yield _Step(own, other, style, lambda: given, seconds=LARGEST_SECONDS)
    if style != AUTO:
        yield _Step(own, board, AUTO, lambda: given)
    plain = plain_variant(graph)
    if plain is not None:
        replaced = LoweredVariant(*plain, progress)
        yield _Step(plain[0], board, style, lambda: replaced)
    yield from _narrower(graph, [board, *larger[:1]], style, found, progress)
    for other in larger[1:]:
        yield _Step(own, other, style, lambda: given, partial(_may_hold, other, found))


def _narrower(
    graph: Graph, boards: Sequence[Board], style: str, found: Sequence[FitTrial], progress: Progress
) -> Iterator[_Step]:
    """Yield the forms with fewer bits, on the board itself and on the largest one.

    Those that take more away than one that fits the board are of no use, and on the largest board all are, once
    anything fits.
    """
    refused = list[NotNarrowedError]()

    @cache
    def form(widths: tuple[int, int]) -> LoweredVariant | None:
        variant, narrow = variant_of(graph, widths)
        if not isinstance(narrow, NotNarrowedError):
            return LoweredVariant(variant, narrow, progress)
        progress.note(f"fewer bits were not tried: {narrow}")
        refused.append(narrow)
        return None

    def is_nearest(variant: Variant) -> bool:
        return not refused and not _keeps_more(variant, own, found)

    def is_wanted() -> bool:
        return not refused and not any(one.fits for one in found)

    own, *larger = boards
    widths = narrower_widths(graph)
    for pair in widths:
        variant = Variant(*pair)
        yield _Step(variant, own, style, partial(form, pair), partial(is_nearest, variant))
    for board in larger:
        for pair in widths:
            yield _Step(Variant(*pair), board, style, partial(form, pair), is_wanted)


def _may_hold(board: Board, found: Sequence[FitTrial]) -> bool:
    """Return False if the network as it is does not fit a device of the same family that is no smaller."""
    return not any(
        one.variant.own
        and not one.fits
        and one.board.family == board.family
        and one.board.resources.lc >= board.resources.lc
        for one in found
    )


def _keeps_more(variant: Variant, board: Board, found: Sequence[FitTrial]) -> bool:
    """Return whether a form fits the board with no fewer bits in both widths, and with the network's activations."""
    return any(
        one.fits
        and one.board == board
        and not one.variant.replaced
        and one.variant.weight_bits >= variant.weight_bits
        and one.variant.act_bits >= variant.act_bits
        for one in found
    )
