"""Regions with several sources, whose branches are added, as steps of one weighted sum of the sources' integers.

All combinations of integers are evaluated; `wide_joins` is for too many of them. The factors of the sum only have to
put all combinations in the right order, so they are much smaller than a precise ratio of the scales: see `factors`.
Where the join is no weighted sum, factors give each combination a number of its own, and its steps are a table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import IntType, Node
from nnhw.ir.ops import Divide, Maximum, Minimum, Multiply, Quantize, StepTable, Threshold

from .factors import find_factors, greatest_factor
from .margins import Margins
from .regions import Region, RegionEvaluator
from .step_finder import StepFinder, Steps
from .wide_joins import MOST_BITS, find_wide_steps

_ALWAYS = 2**18
"""Up to so many combinations are evaluated; with more, `wide_joins` is tried first."""
COMBINATIONS = 2**22
"""Most combinations that are ever evaluated."""
COMBINATIONS_OF_CLASSES = 2**24
"""Most combinations times classes that are ever evaluated."""
MOST_NUMBERED = 2**12
"""Most steps of a function of numbered combinations, in one channel: codes of 8 bits for two block RAMs of ECP5."""
_ORDERED = 4
"""Most sources whose orders are tried: 24 of them."""
_LINEAR_TO = 1e-9
"""Relative deviation up to which the join counts as a weighted sum. It only chooses candidates: all are compared."""
_PAIRED = (Multiply, Divide, Maximum, Minimum)
"""Ops of two values that are no weighted sum of them."""
COMBINED = "every combination evaluated"
"""How it is known that no step is missing, in words for the report."""


@dataclass(frozen=True)
class JoinTable:
    """The values of a region at all combinations of its sources' integers.

    Parameters
    ----------
    values: the integers of each source, int64 [combinations].
    codes: the results, int32 [combinations, classes].
    join: the values of the join, float64 [combinations, classes].
    """

    values: tuple[np.ndarray, ...]
    codes: np.ndarray
    join: np.ndarray


def find_joint_steps(region: Region) -> tuple[tuple[int, ...], Steps]:
    """Return the factor of each source, and the steps of the weighted sum in all channels.

    Raises: LoweringError that names the sources if there are too many combinations or no factors.
    """
    join = _join(region)
    ranges = [source.type.int_dtype for source in region.sources]
    count = math.prod(codes.high - codes.low + 1 for codes in ranges)
    few = count <= COMBINATIONS and count * len(region.classes[0]) <= COMBINATIONS_OF_CLASSES
    if count > _ALWAYS:
        check_products(region)
        try:
            found = find_wide_steps(region)
        # It only looks at pairs of an accumulator and a code; where all combinations can be evaluated, they decide.
        except LoweringError:
            if not few:
                raise
        else:
            if found is not None:
                return found
    if not few:
        raise LoweringError(_too_many(region, join, count))
    table = _evaluated(region, join, ranges)
    _check_margins(region, table, ranges)
    values = np.stack(table.values, axis=1)
    try:
        ratios, signs = _ratios(region, join, table)
        factors = find_factors(values, _segments(table, signs), ratios)
        if factors is None:
            raise _unaligned(region, join)
        steps = _steps(table, values @ np.array(factors))
    except LoweringError as error:
        factors, steps = _numbered(table, ranges)
        if steps.starts.shape[1] > MOST_NUMBERED:
            check_products(region)
            raise _too_many_steps(error, steps) from error
    return factors, replace(steps.channel_rows(region.classes[1]), proof=COMBINED)


def _numbered(table: JoinTable, ranges: list[IntType]) -> tuple[tuple[int, ...], Steps]:
    """Return factors whose sum is another number for each combination, and the steps of any function of that number.

    Of all orders of the sources it is the one with the fewest steps: the code of a choice between two values changes
    rarely along the values of the one that is not chosen.
    """
    sizes = [kind.high - kind.low + 1 for kind in ranges]
    values, found = np.stack(table.values, axis=1), []
    for order in permutations(range(len(sizes))) if len(sizes) <= _ORDERED else [range(len(sizes))]:
        factors = [0] * len(sizes)
        for place, source in enumerate(order):
            factors[source] = math.prod(sizes[inner] for inner in order[place + 1 :])
        found.append((tuple(factors), _steps(table, values @ np.array(factors))))
    return min(found, key=lambda one: one[1].starts.shape[1])


def check_products(region: Region) -> None:
    """Refuse products, quotients, maxima and minima of several sources: they are no functions of a weighted sum.

    Raises: LoweringError that says what to quantize instead.
    """
    reach = _reach(region)
    for node in region.nodes:
        computed = [name for name in node.inputs if reach.get(name)]
        if not isinstance(node.op, _PAIRED) or len(computed) < 2 or len(reach[node.name]) < 2:
            continue
        names = " and ".join(str(source) for source in region.sources if source.name in reach[node.name])
        if isinstance(node.op, Divide):
            raise LoweringError(
                f"{node} before quantizer '{region.quantizer.name}' divides functions of {names}, which depend on the "
                f"model's input; there is no engine for that: divide by constants, or multiply by codes of the "
                f"reciprocal"
            )
        if isinstance(node.op, Maximum | Minimum):
            raise LoweringError(
                f"{node} before quantizer '{region.quantizer.name}' compares functions of {names}, and an op between "
                f"the two falls in some channels, or joins others: put a quantizer directly behind the {node.op.name}"
            )
        raise LoweringError(
            f"{node} before quantizer '{region.quantizer.name}' multiplies functions of {names}, which depend on the "
            f"model's input; an engine multiplies codes: put a quantizer on each of the two factors, directly in "
            f"front of the product, such as nnhw.nn.UInt(8, scale=2**-8) behind a sigmoid"
        )


def _reach(region: Region) -> dict[str, set[str]]:
    """Return the names of the sources that each node depends on."""
    reach: dict[str, set[str]] = {source.name: {source.name} for source in region.sources}
    for node in region.nodes:
        reach[node.name] = set().union(*(reach.get(name, set()) for name in node.inputs))
    return reach


def _join(region: Region) -> Node:
    """Return the join: the first node that depends on all sources and through which all paths to the quantizer go."""
    reach = _reach(region)
    for place, node in enumerate(region.nodes):
        behind = {later.name for later in region.nodes[place:]}
        read_behind = {name for later in region.nodes[place + 1 :] for name in later.inputs if name in reach}
        if len(reach[node.name]) == len(region.sources) and read_behind <= behind:
            return node
    raise AssertionError("the quantizer itself is such a node")


def _evaluated(region: Region, join: Node, ranges: list[IntType]) -> JoinTable:
    grid = np.meshgrid(*(np.arange(codes.low, codes.high + 1) for codes in ranges), indexing="ij")
    values = tuple(axis.reshape(-1) for axis in grid)
    codes, before = RegionEvaluator(region, [region.quantizer.name, join.name])(*values)
    return JoinTable(values, codes.astype(np.int32), before)


def _check_margins(region: Region, table: JoinTable, ranges: list[IntType]) -> None:
    """Raise LoweringError if a function is so flat somewhere that last bits decide for several integers in a row."""
    margins = Margins(region)
    if margins.library:
        torn = margins.undecided(*table.values)
        margins.check_rows(torn.reshape(*(codes.high - codes.low + 1 for codes in ranges), -1), *range(len(ranges)))


def _too_many(region: Region, join: Node, count: int) -> str:
    listed = ", ".join(f"{source} in {source.type.int_dtype}" for source in region.sources)
    widest = _widest(region)
    remedy = f"put a quantizer on the branch of {widest}, or give all branches values of similar size, such as by a "
    remedy += f"normalized input, and scales that are powers of two, so that their sum needs at most {MOST_BITS} bits"
    if isinstance(widest.op, Quantize | Threshold | StepTable):
        remedy = "join fewer of them at a time, with a quantizer behind each join, or use scales that are powers of two"
    return (
        f"{join} joins {len(region.sources)} branches before quantizer '{region.quantizer.name}', whose integers "
        f"have {count} combinations, too many to evaluate: {listed}; {remedy}"
    )


def _widest(region: Region) -> Node:
    """Return the source with the most integers, where a quantizer would save most combinations."""
    return max(region.sources, key=lambda source: source.type.int_dtype.high - source.type.int_dtype.low)


def _ratios(region: Region, join: Node, table: JoinTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of each source in the join, and the join's direction in each class.

    Returns
    -------
    Weights relative to the greatest one, float64 [sources]; sign of the greatest one, float64 [classes] of -1, 0, 1.

    Raises: LoweringError if the join is not a weighted sum of the sources, the same in all channels.
    """
    slopes = np.stack([_slope(table, source) for source in range(len(table.values))])
    rest = (
        table.join
        - table.join[0]
        - sum(slope * (values - values[0])[:, np.newaxis] for slope, values in zip(slopes, table.values, strict=True))
    )
    if np.abs(rest).max() > _LINEAR_TO * max(np.ptp(table.join), np.abs(table.join).max()):
        raise LoweringError(
            f"{join} before quantizer '{region.quantizer.name}' is not a weighted sum of {_names(region)}",
            "use codes of fewer bits: put a narrower quantizer on each branch, directly in front of the join",
        )
    # A class in which the leading source has weight 0 must not depend on any source: it is constant.
    lead = slopes[np.abs(slopes).max(axis=1).argmax()]
    used = lead != 0
    ratios = slopes[:, used] / lead[used]
    if not used.any() or np.ptp(ratios, axis=1).max() > _LINEAR_TO or (slopes[:, ~used] != 0).any():
        raise LoweringError(
            f"{join} adds {_names(region)} before quantizer '{region.quantizer.name}' with scales whose ratio differs "
            f"from channel to channel",
            "put a quantizer of few bits, or of one scale for all channels, on each branch, "
            "directly in front of the join",
        )
    return ratios[:, 0], np.sign(lead)


def _slope(table: JoinTable, source: int) -> np.ndarray:
    """Return the join's mean change per step of one source, all others at their least: float64 [classes]."""
    values = table.values[source]
    # The first combination has all sources at their least, as each of them ascends.
    others = [array == array[0] for index, array in enumerate(table.values) if index != source]
    line = np.flatnonzero(np.logical_and.reduce(others))
    return (table.join[line[-1]] - table.join[line[0]]) / max(values[line[-1]] - values[line[0]], 1)


def _segments(table: JoinTable, signs: np.ndarray) -> np.ndarray:
    """Return the segment of each combination: how often the code changes up to it in the join's order, [N, classes]."""
    segments = np.zeros_like(table.codes)
    for codes, join, segment, sign in zip(table.codes.T, table.join.T, segments.T, signs, strict=True):
        order = np.argsort(sign * join, kind="stable")
        segment[order[1:]] = np.cumsum(np.diff(codes[order]) != 0)
    return segments


def _steps(table: JoinTable, total: np.ndarray) -> Steps:
    """Return the steps of the codes over a weighted sum, int64 [combinations]."""
    order = np.argsort(total, kind="stable")
    places, first = np.unique(total[order], return_index=True)
    finder = StepFinder()
    finder.add(places, table.codes[order[first]].astype(np.int64))
    return finder.steps(int(places[-1]) + 1)


def _too_many_steps(error: LoweringError, steps: Steps) -> LoweringError:
    count = steps.starts.shape[1]
    cause = f"{error.cause}, and a table of all combinations has {count:,} steps, more than {MOST_NUMBERED:,}"
    return LoweringError(cause, error.remedy)


def _names(region: Region) -> str:
    return " and ".join(map(str, region.sources))


def _unaligned(region: Region, join: Node) -> LoweringError:
    kinds = [source.type.int_dtype for source in region.sources]
    most = greatest_factor([kind.high - kind.low for kind in kinds])
    return LoweringError(
        f"{join} adds {_names(region)} before quantizer '{region.quantizer.name}', and no factors up to {most} make "
        f"its code a function of their weighted sum, because the sum's rounding to float64 decides in ties",
        "use scales of fewer significant bits, as float32 has them, or powers of two",
    )
