"""Regions in which an accumulator and a code are added: too many pairs to evaluate, so bisected once for each code.

quantize(add(dequantize(sums), dequantize(code)))  --> threshold(weighted_sum(sums, code; k1, k2))

For one code the region is a step function of the accumulator alone. Let step k of code b lie at S, so that the code of
the result reaches k at S and not at S - 1; then a threshold T of k1 * sum + k2 * b takes the same decision if

    k1 * (S - 1) + k2 * b < T <= k1 * S + k2 * b

There is such a T for all b if no left side reaches any right side. For two codes that differ by d this bounds k2 / k1
from both sides; the simplest fraction between all bounds gives the least factors that there are. Of c codes the bounds
are fractions whose denominators are below c, so k1 is below 2 * c.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import FLOAT, GraphBuilder, IntType, TensorType

from .bisection import find_steps
from .margins import Margins
from .regions import Region, RegionEvaluator
from .step_finder import Steps

MOST_CODES = 2**10
"""Most integers of the source that counts as a code."""
MOST_STEPS = 2**24
"""Most codes times classes times steps that are bisected."""
MOST_BITS = 40
"""Most bits of the weighted sum."""
_ANY = 2**40
"""Stands for no bound: farther away than any accumulator."""


def find_wide_steps(region: Region) -> tuple[tuple[int, ...], Steps] | None:
    """Return the factor of each source and the steps of the weighted sum; None unless one of two sources is a code.

    Raises: LoweringError if the code is no step function of any weighted sum.
    """
    ranges = [source.type.int_dtype for source in region.sources]
    sizes = [kind.high - kind.low + 1 for kind in ranges]
    columns = min(sizes) * len(region.classes[0])
    if len(sizes) != 2 or min(sizes) > MOST_CODES or columns * (region.codes.high - region.codes.low) > MOST_STEPS:
        return None
    lead = int(np.argmax(sizes))
    code = np.arange(ranges[1 - lead].low, ranges[1 - lead].high + 1)
    rows, falls, proof = _thresholds(region, lead, code)
    ratio = _ratio(region, rows, ranges[lead], lead)
    factors = (ratio.denominator, ratio.numerator) if lead == 0 else (ratio.numerator, ratio.denominator)
    ends = [sorted((factor * kind.low, factor * kind.high)) for factor, kind in zip(factors, ranges, strict=True)]
    total = IntType(sum(end[0] for end in ends), sum(end[1] for end in ends))
    if total.bits > MOST_BITS:
        raise LoweringError(_unaligned(region, lead))
    # The greatest threshold that all codes allow is the least right side of the module's inequality.
    reached = ratio.denominator * _upper(rows, ranges[lead]) + ratio.numerator * code[:, np.newaxis, np.newaxis]
    starts = np.where((rows > ranges[lead].high).all(axis=0), total.high + 1, reached.min(axis=0))
    steps = _steps(region, starts.clip(total.low, total.high + 1), falls, total.low)
    return factors, replace(steps, proof=f"for each code of {region.sources[1 - lead].name}: {proof}")


def fixed_at(region: Region, lead: int, *others: np.ndarray) -> Region:
    """Return a region with all sources but one fixed: a region of one source, with a channel for each set of integers.

    Parameters
    ----------
    lead: position of the source that stays.
    others: the integers of each other source, int64 [rows], in the order of the sources.

    Returns: a region whose channel row * classes + c has the integers of that row and the constants of class c.
    """
    classes, rows = len(region.classes[0]), len(others[0])
    builder = GraphBuilder(f"{region.graph.name}.{region.quantizer.name}.fixed")
    source = region.sources[lead]
    kind = source.type.int_dtype
    # Nodes that depend on the source that stays are kept. The others become constants, evaluated once for each row.
    alive = {source.name}
    for node in region.nodes:
        if any(name in alive for name in node.inputs):
            alive.add(node.name)
    read = {name for node in region.nodes if node.name in alive for name in node.inputs}
    fixed = [node.name for node in region.nodes if node.name in read - alive]
    given = list(others)
    given.insert(lead, np.full(rows, kind.low))
    values = RegionEvaluator(region, fixed)(*given) if fixed else ()
    names = {source.name: builder.input(source.name, TensorType((rows * classes,), IntType(kind.low, kind.high)))}
    for name, array in zip(fixed, values, strict=True):
        names[name] = builder.constant(name, array.reshape(-1), TensorType((rows * classes,), FLOAT))
    for node in region.nodes:
        if node.name not in alive:
            continue
        for name in node.inputs:
            if name not in names:
                array = region.per_channel(node, region.graph.constants[name])
                array = np.tile(array[region.classes[0]], rows) if array.ndim else array
                names[name] = builder.constant(name, array, TensorType(array.shape, FLOAT))
        names[node.name] = builder.add(node.name, node.op, [names[name] for name in node.inputs], node.location)
    graph = builder.build([names[region.quantizer.name]])
    nodes = [graph.node(names[node.name]) for node in region.nodes if node.name in alive]
    return Region(graph, nodes[-1], (graph.node(names[source.name]),), tuple(nodes))


class _CodeMargins(Margins):
    """The margins of a region for each code of its other source: those of the channels of `fixed_at`."""

    def __init__(self, region: Region, lead: int, code: np.ndarray, fixed: Region) -> None:
        rows, columns = np.divmod(fixed.classes[0], len(region.classes[0]))
        super().__init__(region, columns)
        self._lead, self._code = lead, code[rows]

    def codes(self, *values: np.ndarray, library: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return margins for integers of the accumulator alone, [N, classes of the fixed region]; see `Margins`."""
        (places,) = values
        code = np.broadcast_to(self._code, places.shape)
        return super().codes(*((places, code) if self._lead == 0 else (code, places)), library=library)


def _thresholds(region: Region, lead: int, code: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the thresholds of the accumulator for each code, which classes fall, and the proof.

    Returns
    -------
    int64 [codes, classes, steps], bool [classes], the proof.
    """
    _check_ends(region)
    kind, shape = region.sources[lead].type.int_dtype, (len(code), len(region.classes[0]))
    fixed = fixed_at(region, lead, code)
    steps = find_steps(fixed, _CodeMargins(region, lead, code, fixed))
    directions = steps.directions.reshape(shape)
    falls, rises = (directions < 0).any(axis=0), (directions > 0).any(axis=0)
    if (directions == 2).any() or (falls & rises).any():
        raise LoweringError(_turning(region, lead))
    rows = steps.thresholds(region.codes, kind.high + 1)[0].reshape(*shape, -1)
    # A class that falls for some codes may be constant for this one: write its thresholds as those of a falling class.
    passed = (rows == kind.low).sum(axis=2, keepdims=True)
    levels = rows.shape[2]
    falling = np.where(np.arange(levels) < levels - passed, kind.low, kind.high + 1)
    return np.where((falls & (directions == 0))[..., np.newaxis], falling, rows), np.asarray(falls), steps.proof


def _check_ends(region: Region) -> None:
    """Evaluate at the ends of all sources, so that NaN and infinity are reported with their channels."""
    ends = [(source.type.int_dtype.low, source.type.int_dtype.high) for source in region.sources]
    RegionEvaluator(region)(*(axis.reshape(-1) for axis in np.meshgrid(*map(np.array, ends))))


def _ratio(region: Region, rows: np.ndarray, kind: IntType, lead: int) -> Fraction:
    """Return the fraction k2 / k1 with the least denominator that serves; k2 is the factor of the code.

    Each fraction that fails shows two codes that bound the ratio away from it, so that none is tried twice.

    Raises: LoweringError if there is none.
    """
    low, high = Fraction(-_ANY), Fraction(_ANY)
    lower, upper = np.where(rows > kind.low, rows - 1, -_ANY), _upper(rows, kind)
    index = np.arange(len(rows))[:, np.newaxis, np.newaxis]
    while low < high:
        ratio = simplest_between(low, high)
        left, right = (ratio.denominator * bound + ratio.numerator * index for bound in (lower, upper))
        torn = np.nonzero(left.max(axis=0) >= right.min(axis=0))
        if not len(torn[0]):
            return ratio
        # The two codes whose inequalities exclude each other; subtracted, they bound k2 / k1.
        first, last = left.argmax(axis=0)[torn], right.argmin(axis=0)[torn]
        differences = lower[first, *torn] - upper[last, *torn]
        for difference, distance in {*zip(differences.tolist(), (last - first).tolist(), strict=True)}:
            bound = Fraction(difference, distance)
            low, high = (max(low, bound), high) if distance > 0 else (low, min(high, bound))
    raise LoweringError(_unaligned(region, lead))


def simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction with the least denominator strictly between two others, but not 0."""
    # The continued fractions of both ends agree up to some term; there the simplest fraction between them ends.
    if high <= 0:
        return -simplest_between(-high, -low)
    # Around 0 the positive ones are taken, since 0 itself would take no notice of the code.
    low = max(low, Fraction(0))
    whole = low.__floor__()
    if whole + 1 < high:
        return Fraction(whole + 1)
    if low == whole:
        return whole + Fraction(1, (1 / (high - whole)).__floor__() + 1)
    return whole + 1 / simplest_between(1 / (high - whole), 1 / (low - whole))


def _upper(rows: np.ndarray, kind: IntType) -> np.ndarray:
    return np.where(rows <= kind.high, rows, _ANY)


def _steps(region: Region, starts: np.ndarray, falls: np.ndarray, low: int) -> Steps:
    """Return the steps of all channels from the thresholds of each class, int64 [classes, steps]."""
    index = np.arange(starts.shape[1] + 1)
    rising = 2 * index - 1 if region.codes.bipolar else region.codes.low + index
    codes = np.where(falls[:, np.newaxis], rising[::-1], rising)
    first = np.full((len(starts), 1), low)
    return Steps(np.concatenate([first, starts], axis=1), codes).channel_rows(region.classes[1])


def _turning(region: Region, lead: int) -> str:
    return (
        f"{region.quantizer} joins {_both(region)}, and the ops in front of it are not known to rise or fall with "
        f"{region.sources[lead]} for every code; put a quantizer on the branch of {region.sources[lead]}"
    )


def _unaligned(region: Region, lead: int) -> str:
    return (
        f"{region.quantizer} joins {_both(region)}, and no two integers make its code a function of their weighted "
        f"sum, the same in all channels, within {MOST_BITS} bits; put a quantizer on the branch of "
        f"{region.sources[lead]}, or use scales that are powers of two, the same for all channels"
    )


def _both(region: Region) -> str:
    return " and ".join(f"{source} in {source.type.int_dtype}" for source in region.sources)
