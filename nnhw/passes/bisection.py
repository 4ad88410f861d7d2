"""The steps of a region with one source, found by evaluating its whole range, or by bisection with a proof.

A place is an integer of the source; a class is a set of channels with equal constants (`Region.classes`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import IntType

from .margins import Margins
from .region_directions import MonotonePieces, find_pieces, first_reached
from .regions import Region, RegionEvaluator
from .step_finder import StepFinder, Steps

SCANNED = 2**22
"""Up to so many places times classes, the whole range is evaluated rather than bisected."""
SCANNED_AT_MOST = 2**26
"""The same where bisection proves nothing; more are an error."""
_NEIGHBOURS = 64
"""Most places on either side of a step that are evaluated to check it."""
_COMPARED = 2**26
"""Most places that are evaluated around all steps together."""

# The three ways to know that no step is missing, in words for the report.
EVALUATED = "every sum evaluated"
BISECTED = "each step bisected; no operation falls where it rises, in any last bit"
SEPARATED = "each step bisected, the sums around it evaluated; no last bit reaches another code elsewhere"


def find_steps(region: Region, margins: Margins | None = None) -> Steps:
    """Find the steps of a region with one source, in all channels.

    Small ranges are evaluated whole. Else the region is bisected on the pieces of the range on which its ops are known
    to be monotone. The computed values of a library function such as tanh may move against its direction by some last
    bits. Such a region is also evaluated around each step, and farther away the last bits must not reach another code
    (see `margins`). If they may, or if no pieces are known, a large range is evaluated whole, too.

    Parameters
    ----------
    margins: how far last bits reach in this region; None: as its own ops say.

    Raises: LoweringError for a step where a function reaches its limit, or if the range is too large to evaluate.
    """
    margins = margins or Margins(region)
    sums = region.source.type.int_dtype
    size = (sums.high - sums.low + 1) * len(region.classes[0])
    steps = None if size <= SCANNED else _bisected(region, margins)
    if steps is None:
        if size > SCANNED_AT_MOST:
            raise LoweringError(_too_wide(region, size))
        steps = _scanned(region)
    # However the steps were found: next to them PyTorch's last bits may differ from those that were evaluated here.
    margins.check_around(np.concatenate([steps.starts.T, _ends_of_pieces(region)]), sums)
    return steps.channel_rows(region.classes[1])


def _too_wide(region: Region, size: int) -> str:
    why = "are not known to be monotone" if find_pieces(region) is None else "decide on codes by their last bits"
    return (
        f"{region.quantizer}: the ops behind {region.source} {why}, and {size} sums are too many to evaluate (at most "
        f"{SCANNED_AT_MOST}); put a quantizer directly behind {region.source}"
    )


def _ends_of_pieces(region: Region) -> np.ndarray:
    """Return the ends of the range, and of its monotone pieces if they are known: int64 [places, classes]."""
    sums, pieces = region.source.type.int_dtype, find_pieces(region)
    ends = np.broadcast_to(np.array([[sums.low], [sums.high]]), (2, len(region.classes[0])))
    if pieces is None:
        return ends
    return np.concatenate([ends, pieces.starts, pieces.ends(sums.high + 1) - 1]).clip(sums.low, sums.high)


def _scanned(region: Region) -> Steps:
    """Evaluate every integer of the range."""
    sums, evaluate, finder = region.source.type.int_dtype, RegionEvaluator(region), StepFinder()
    rows = max(SCANNED // len(region.classes[0]), 1)
    for start in range(sums.low, sums.high + 1, rows):
        places = np.arange(start, min(start + rows, sums.high + 1))
        finder.add(places, evaluate(places)[0])
    return replace(finder.steps(sums.high + 1), proof=EVALUATED)


def _bisected(region: Region, margins: Margins | None = None) -> Steps | None:
    """Return the steps by bisection; None if no monotone pieces are known, or if there may be further steps."""
    margins = margins or Margins(region)
    sums, evaluate, finder = region.source.type.int_dtype, RegionEvaluator(region), StepFinder()
    # Raises for NaN in a parameter, which `find_pieces` would take for a constant.
    evaluate(np.array([sums.low, sums.high]))
    pieces = find_pieces(region)
    if pieces is None:
        return None
    places = _places_of_steps(region, pieces, evaluate)
    finder.add(places, evaluate(places.clip(sums.low, sums.high))[0])
    steps = replace(finder.steps(sums.high + 1), proof=BISECTED if margins.exact else SEPARATED)
    # Ends of pieces are checked like steps: at a turn of a function its last bits may decide as well.
    marks = np.sort(np.concatenate([pieces.starts, steps.starts.T]), axis=0)
    if not _holds_around(steps, sums.low, sums.high, evaluate, marks):
        return None
    return steps if margins.exact or _separated(marks, sums, margins) else None


def _places_of_steps(region: Region, pieces: MonotonePieces, evaluate: RegionEvaluator) -> np.ndarray:
    """Return the places at which a code may change: int64 [places, classes], ascending; between them it is constant."""
    sums, codes = region.source.type.int_dtype, region.codes
    levels = np.array([1]) if codes.bipolar else np.arange(codes.low + 1, codes.high + 1)
    # Each level in each piece: [levels * pieces, classes].
    low, high = (np.tile(ends, (len(levels), 1)) for ends in (pieces.starts, pieces.ends(sums.high + 1)))
    falls = np.tile(pieces.directions < 0, (len(levels), 1))
    level = np.repeat(levels, len(pieces.starts))[:, np.newaxis]
    # On a piece that rises, look for the first place with code >= level; on one that falls, with code < level.
    steps = first_reached(low, high, lambda places: (evaluate(np.minimum(places, sums.high))[0] < level) == falls)
    return np.sort(np.concatenate([pieces.starts, steps]), axis=0)


def _holds_around(
    steps: Steps, low: int, high: int, evaluate: RegionEvaluator, marks: np.ndarray | None = None
) -> bool:
    """Return whether steps and region agree around each mark and at both ends of the range.

    Parameters
    ----------
    marks: places to look at, int64 [places, classes]; None: the starts of the steps.
    """
    marks = steps.starts.T if marks is None else marks
    ends = np.broadcast_to(np.array([[low], [high]]), (2, len(steps.starts)))
    around = np.arange(-_reach(marks), _reach(marks) + 1)[:, np.newaxis]
    # Sixteen rows of marks at a time bound the memory.
    for some in np.array_split(marks, max(len(marks) // 16, 1)):
        near = (some[:, np.newaxis, :] + around).reshape(-1, len(steps.starts))
        places = np.concatenate([ends, near]).clip(low, high)
        if (steps(places) != evaluate(places)[0]).any():
            return False
    return True


def _reach(marks: np.ndarray) -> int:
    """Return how many places on either side of each mark to evaluate."""
    return min(_NEIGHBOURS, max(_COMPARED // marks.size, 2))


def _separated(marks: np.ndarray, sums: IntType, margins: Margins) -> bool:
    """Return whether no last bit can change a code between the places that `_holds_around` has evaluated.

    Parameters
    ----------
    marks: steps and ends of pieces, int64 [places, classes], ascending.
    """
    reach = _reach(marks)
    begins, ends = marks + reach, np.concatenate([marks[1:] - reach, np.full_like(marks[:1], sums.high)])
    least, greatest = margins.codes(np.concatenate([begins, ends]).clip(sums.low, sums.high))
    # Both ends of a gap decide for one code, hence all places between do (see `margins`).
    unseen = begins < ends
    return not (np.concatenate([unseen, unseen]) & (least != greatest)).any()
