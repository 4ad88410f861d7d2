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

MOST_SECONDS = 60.0
"""Once so many seconds are over, a build that does not fit maps no further form of the network to give advice."""


@dataclass(frozen=True)
class Advice:
    """What was tried for a network that does not fit a board.

    Parameters
    ----------
    trials: the trials that fit, the form nearest to the given network first: piecewise linear activations, then
        fewer bits, from the smallest reduction on, then larger boards.
    tried: how many forms were mapped, fitting or not.
    seconds: the time limit in seconds that stopped the trials; None: all forms were tried.
    """

    trials: tuple[FitTrial, ...]
    tried: int
    seconds: float | None = None


def advise(graph: Graph, board: str, options: Options, progress: Progress, seconds: float = MOST_SECONDS) -> Advice:
    """Map variants of a captured graph that does not fit a board, until each kind of change has been tried.

    Each variant has to meet the rate that was asked for. Foldings and arrays that the options fix are dropped, because
    they were chosen for the network as it is.

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
    for form, target in _candidates(graph, given, found, progress):
        # The first form is mapped however long it takes, so that there is always an answer.
        if found and time.monotonic() - start > seconds:
            return Advice(_fitting(found), len(found), seconds)
        found.append(form.attempt(target, (), free))
    return Advice(_fitting(found), len(found))


def _fitting(found: Sequence[FitTrial]) -> tuple[FitTrial, ...]:
    return tuple(one for one in found if one.fits)


def _candidates(
    graph: Graph, board: Board, found: Sequence[FitTrial], progress: Progress
) -> Iterator[tuple[LoweredVariant, Board]]:
    """Yield the next form of a network, and a board to map that on.

    `found` has the trials made until then.
    """
    forms = variants(graph, None)
    # The first form is the network as it is, which is known not to fit this board.
    own, same = next(forms)
    plain = plain_variant(graph)
    if plain is not None:
        yield LoweredVariant(*plain, progress), board
    for variant, form in forms:
        if isinstance(form, NotNarrowedError):
            progress.note(f"fewer bits were not tried: {form}")
            break
        # `found` is the caller's list and grows between two yields: what fits already makes forms that take more away
        # pointless.
        if not any(one.fits and _is_nearer(one.variant, variant) for one in found):
            yield LoweredVariant(variant, form, progress), board
    # Lowered once, and only if some board is tried: all of them get the same integers.
    given = LoweredVariant(own, same, progress)
    for other, _ in devices(()):
        larger = other.resources.lc > board.resources.lc
        if larger and not any(one.fits and one.variant.own and one.board.family == other.family for one in found):
            yield given, other


def _is_nearer(one: Variant, other: Variant) -> bool:
    """Return whether `one` keeps the network's activations and has at least the bits of `other` in both widths."""
    return not one.replaced and one.weight_bits >= other.weight_bits and one.act_bits >= other.act_bits
