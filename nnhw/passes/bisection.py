"""Steps of a region with one source: by evaluating its whole range, or by bisection with a proof around each step."""

from __future__ import annotations

import numpy as np

from nnhw.errors import LoweringError

from .directions import Pieces, find_pieces, first_reached
from .regions import Evaluator, Region
from .steps import StepFinder, Steps

SCANNED = 2**22  # places of all classes that are evaluated in any case
SCANNED_AT_MOST = 2**26
_NEIGHBOURS = 64
_COMPARED = 2**26  # neighbours of all steps together


def find_steps(region: Region) -> Steps:
    """Find the steps of a region with one source, in all channels.

    Small ranges are evaluated whole. Else the region is bisected on the pieces on which its ops say that it is
    monotone, and evaluated around each step found: floating-point functions may waver in their last bit, and if one
    does so across a step, or if the pieces are not known, then all of a large range is evaluated, too.
    """
    sums = region.source.type.int_dtype
    size = (sums.high - sums.low + 1) * len(region.classes[0])
    steps = None if size <= SCANNED else _bisected(region)
    if steps is None:
        if size > SCANNED_AT_MOST:
            raise LoweringError(
                f"{region.quantizer}: the ops behind {region.source} are not known to be monotone, and {size} sums are "
                f"too many to evaluate (at most {SCANNED_AT_MOST}); put a quantizer directly behind {region.source}"
            )
        steps = _scanned(region)
    return steps.channel_rows(region.classes[1])


def _scanned(region: Region) -> Steps:
    """Evaluate every integer of the range."""
    sums, evaluate, finder = region.source.type.int_dtype, Evaluator(region), StepFinder()
    rows = max(SCANNED // len(region.classes[0]), 1)
    for start in range(sums.low, sums.high + 1, rows):
        places = np.arange(start, min(start + rows, sums.high + 1))
        finder.add(places, evaluate(places)[0])
    return finder.steps(sums.high + 1)


def _bisected(region: Region) -> Steps | None:
    """Return the steps by bisection, or None if there are no known pieces, or if the steps found are not all."""
    sums, evaluate, finder = region.source.type.int_dtype, Evaluator(region), StepFinder()
    evaluate(np.array([sums.low, sums.high]))  # NaN in a parameter has no direction
    pieces = find_pieces(region)
    if pieces is None:
        return None
    places = _places_of_steps(region, pieces, evaluate)
    finder.add(places, evaluate(places.clip(sums.low, sums.high))[0])
    steps = finder.steps(sums.high + 1)
    return steps if _holds_around(steps, sums.low, sums.high, evaluate) else None


def _places_of_steps(region: Region, pieces: Pieces, evaluate: Evaluator) -> np.ndarray:
    """Return places between which the codes are constant: int64 [places, classes], ascending."""
    sums, codes = region.source.type.int_dtype, region.codes
    levels = np.array([1]) if codes.bipolar else np.arange(codes.low + 1, codes.high + 1)
    # Each level in each piece: [levels * pieces, classes].
    low, high = (np.tile(ends, (len(levels), 1)) for ends in (pieces.starts, pieces.ends(sums.high + 1)))
    falls = np.tile(pieces.directions < 0, (len(levels), 1))
    level = np.repeat(levels, len(pieces.starts))[:, np.newaxis]
    steps = first_reached(low, high, lambda places: (evaluate(np.minimum(places, sums.high))[0] < level) == falls)
    return np.sort(np.concatenate([pieces.starts, steps]), axis=0)


def _holds_around(steps: Steps, low: int, high: int, evaluate: Evaluator) -> bool:
    """Compare steps and region in the neighbourhood of each step and at both ends."""
    ends = np.broadcast_to(np.array([[low], [high]]), (2, len(steps.starts)))
    reach = min(_NEIGHBOURS, max(_COMPARED // steps.starts.size, 2))
    around = np.arange(-reach, reach + 1)[:, np.newaxis]
    for start in np.array_split(steps.starts.T, max(len(steps.starts.T) // 16, 1)):
        near = (start[:, np.newaxis, :] + around).reshape(-1, len(steps.starts))
        places = np.concatenate([ends, near]).clip(low, high)
        if (steps(places) != evaluate(places)[0]).any():
            return False
    return True
