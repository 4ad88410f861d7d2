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
from .sweep import devices, lowered, plain_variant, variants
from .trials import Trial, Variant, attempt

MOST_SECONDS = 60.0
"""Seconds after which no other form of a network is tried unasked."""


@dataclass(frozen=True)
class Advice:
    """What was tried where a network does not fit a board.

    Parameters
    ----------
    trials: that fit, the nearest to the network first: activations of straight lines, then the fewest bits less,
        then other boards.
    tried: how many were mapped.
    seconds: no mapping began after so many; None: all were tried.
    """

    trials: tuple[Trial, ...]
    tried: int
    seconds: float | None = None


def advise(graph: Graph, board: str, options: Options, progress: Progress, seconds: float = MOST_SECONDS) -> Advice:
    """Map variants of a captured graph that does not fit a board, until each way to change it has an answer.

    The rate that was asked for holds for each of them; foldings and arrays of other builds do not.

    Parameters
    ----------
    seconds: no mapping begins after so many.

    Raises
    ------
    NnhwError: what stands in the way of lowering the network.
    """
    given, found = load_board(board), list[Trial]()
    free = replace(options, overrides={}, array=None)
    start = time.monotonic()
    for variant, body, target in _candidates(graph, given, found, progress):
        if found and time.monotonic() - start > seconds:
            return Advice(_fitting(found), len(found), seconds)
        with progress.stage(f"map on {target.name}, {variant}"):
            found.append(attempt(body, variant, target, (), free))
    return Advice(_fitting(found), len(found))


def _fitting(found: Sequence[Trial]) -> tuple[Trial, ...]:
    return tuple(one for one in found if one.fits)


def _candidates(
    graph: Graph, board: Board, found: Sequence[Trial], progress: Progress
) -> Iterator[tuple[Variant, Graph, Board]]:
    """Yield what to try next, given what was found so far."""
    forms = variants(graph, None)
    own, same = next(forms)
    plain = plain_variant(graph)
    if plain is not None:
        yield plain[0], lowered(plain[1], plain[0], progress), board
    try:
        for variant, form in forms:
            if not any(one.fits and _is_nearer(one.variant, variant) for one in found):
                yield variant, lowered(form, variant, progress), board
    except NotNarrowedError as error:
        progress.note(f"fewer bits were not tried: {error}")
    body = lowered(same, own, progress)
    for other, _ in devices(()):
        larger = other.resources.lc > board.resources.lc
        if larger and not any(one.fits and one.variant.own and one.board.family == other.family for one in found):
            yield own, body, other


def _is_nearer(one: Variant, other: Variant) -> bool:
    """Return whether a variant with straight lines for nothing has as many bits as another in everything."""
    return not one.replaced and one.weight_bits >= other.weight_bits and one.act_bits >= other.act_bits
