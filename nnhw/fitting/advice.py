"""What would fit, where a network does not: the nearest variants, each of them mapped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nnhw.boards import Board, load_board
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import Progress
from nnhw.ir import Graph

from .narrowing import NotNarrowedError
from .sweep import devices, plain_variant, variants
from .trials import FitTrial, LoweredVariant, Variant

AUTO = "auto"
"""The style that tries all others."""
MOST_SECONDS = 60.0
"""Once so many seconds are over, a build that does not fit maps no further form of the network to give advice."""


@dataclass(frozen=True)
class Advice:
    """What was tried for a network that does not fit a board.

    Parameters
    ----------
    tried: all trials, fitting or not, in their order.
    seconds: the time limit in seconds that stopped the trials; None: all forms were tried.
    """

    tried: tuple[FitTrial, ...]
    seconds: float | None = None

    @property
    def trials(self) -> tuple[FitTrial, ...]:
        """The trials that fit."""
        return tuple(one for one in self.tried if one.fits)


def advise(graph: Graph, board: str, options: Options, progress: Progress, seconds: float = MOST_SECONDS) -> Advice:
    """Map variants of a captured graph that does not fit a board, until each kind of change has been tried.

    First comes what costs least: the other style, then piecewise linear activations. The largest board is next, as
    the answer that most users need soon, then fewer bits, from the smallest reduction on, then smaller boards. Each
    variant has to meet the rate that was asked for. Foldings and arrays that the options fix are dropped, because they
    were chosen for the network as it is.

    Parameters
    ----------
    graph: captured, not lowered yet.
    board: name of the board, or path of its file.
    seconds: time limit: no form is lowered or mapped later than this; one at least always is.

    Raises
    ------
    NnhwError: what stands in the way of lowering the network.
    """
    given, found = load_board(board), list[FitTrial]()
    free = replace(options, overrides={}, array=None)
    start = time.monotonic()
    for form, target, style in _candidates(graph, given, free.style, found, progress):
        # The first form is mapped however long it takes, so that there is always an answer.
        if found and time.monotonic() - start > seconds:
            return Advice(tuple(found), seconds)
        found.append(form.attempt(target, (), replace(free, style=style)))
    return Advice(tuple(found))


def _candidates(
    graph: Graph, board: Board, style: str, found: Sequence[FitTrial], progress: Progress
) -> Iterator[tuple[LoweredVariant, Board, str]]:
    """Yield the next form of a network, a board to map that on, and the style.

    Parameters
    ----------
    style: the one in which the network does not fit the board.
    found: the trials made until then: the caller's list, which grows between two yields.
    """
    forms = variants(graph, None)
    own, same = next(forms)
    # Lowered once, for all boards and styles.
    given = LoweredVariant(own, same, progress)
    if style != AUTO:
        yield given, board, AUTO
    plain = plain_variant(graph)
    if plain is not None:
        yield LoweredVariant(*plain, progress), board, style
    larger = [other for other, _ in reversed(devices(())) if other.resources.lc > board.resources.lc]
    for other in larger[:1]:
        yield given, other, style
    narrower = list[LoweredVariant]()
    for one in _narrower(forms, board, found, progress):
        narrower.append(one)
        yield one, board, style
    for one in narrower if larger else ():
        # Only where neither fewer bits alone nor the largest board alone helps.
        if not any(trial.fits for trial in found):
            yield one, larger[0], style
    for other in larger[1:]:
        # What is too large for a device is too large for a smaller one of its family.
        if not any(one.variant.own and not one.fits and _is_as_large(one.board, other) for one in found):
            yield given, other, style


def _narrower(
    forms: Iterator[tuple[Variant, Graph | NotNarrowedError]],
    board: Board,
    found: Sequence[FitTrial],
    progress: Progress,
) -> Iterator[LoweredVariant]:
    """Yield the forms with fewer bits, but for those that take more away than one that fits the board."""
    for variant, form in forms:
        if isinstance(form, NotNarrowedError):
            progress.note(f"fewer bits were not tried: {form}")
            return
        if not any(_fits_on(one, board) and _is_nearer(one.variant, variant) for one in found):
            yield LoweredVariant(variant, form, progress)


def _is_as_large(board: Board, other: Board) -> bool:
    """Return whether a board has a device of another one's family, and no smaller one."""
    return board.family == other.family and board.resources.lc >= other.resources.lc


def _fits_on(one: FitTrial, board: Board) -> bool:
    return one.fits and one.board == board


def _is_nearer(one: Variant, other: Variant) -> bool:
    """Return whether `one` keeps the network's activations and has at least the bits of `other` in both widths."""
    return not one.replaced and one.weight_bits >= other.weight_bits and one.act_bits >= other.act_bits
