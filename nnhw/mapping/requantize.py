"""The exact requantizers of a step function, each proved equal on the whole raw range, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nnhw.engines.requantize import (
    CommonSteps,
    DoubleScaler,
    Requantizer,
    Scaler,
    Table,
    Thresholds,
    ThresholdSearch,
    index_span,
)
from nnhw.errors import MappingError
from nnhw.families import ICE40, Family
from nnhw.ir.types import IntType
from nnhw.mapping.common_steps import find_common_steps
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.fit import fit_scaler

FEW_STEPS = 3
"""Up to so many steps, comparators are the only choice: nothing is smaller, and they add no latency."""
MOST_COMPARATORS = 31
"""Most comparators of a channel."""
MOST_TABLE_WORDS = 1 << 16
"""Most words of a lookup table, all channels together."""
MOST_SEGMENTS = 3
"""Most pieces of a channel's function that have a line each."""


@dataclass(frozen=True)
class NormalSteps:
    """A step function of each channel in normal form: all steps are in the range, and each changes the code.

    Parameters
    ----------
    steps: for each channel, the first raw sum of each segment but the first, ascending.
    codes: for each channel, the code of each segment, one more than steps.
    code: type of the codes. raw: range of the raw sums.
    """

    steps: tuple[np.ndarray, ...]
    codes: tuple[np.ndarray, ...]
    code: IntType
    raw: IntType

    @classmethod
    def of(cls, steps: np.ndarray, codes: np.ndarray, code: IntType, raw: IntType) -> NormalSteps:
        """Return the normal form of steps [outputs, k] and codes [outputs, k + 1]."""
        rows = []
        for row, values in zip(steps, codes, strict=True):
            starts = np.concatenate([[raw.low], np.clip(row, raw.low, raw.high + 1)])
            # A segment of no sums, between two equal steps or beyond the range, goes.
            kept = starts < np.append(starts[1:], raw.high + 1)
            starts, values = starts[kept], values[kept]
            changes = np.flatnonzero(np.diff(values)) + 1
            rows.append((starts[changes], values[np.concatenate([[0], changes])]))
        return cls(tuple(starts for starts, _ in rows), tuple(values for _, values in rows), code, raw)

    @property
    def outputs(self) -> int:
        """Number of channels."""
        return len(self.steps)

    def __call__(self, raw: np.ndarray) -> np.ndarray:
        """Return the codes int64 [n, outputs] of raw sums [n, outputs]."""
        columns = [
            codes[np.searchsorted(steps, column, side="right")]
            for steps, codes, column in zip(self.steps, self.codes, raw.T, strict=True)
        ]
        return np.stack(columns, axis=1)

    def thresholds(self) -> Thresholds | None:
        """Return the function with a step for each code above the least; None if a channel both rises and falls."""
        span = index_span(self.code)
        steps = np.full((self.outputs, span), self.raw.high + 1, dtype=np.int64)
        falls = np.zeros(self.outputs, dtype=bool)
        for channel, (places, codes) in enumerate(zip(self.steps, self.codes, strict=True)):
            index = (codes > 0).astype(np.int64) if self.code.bipolar else codes - self.code.low
            moves = np.diff(index)
            if (moves > 0).any() and (moves < 0).any():
                return None
            falls[channel] = (moves < 0).any()
            starts = np.concatenate([[self.raw.low], places, [self.raw.high + 1]])
            # A code that is skipped has the step of the next one.
            wanted = np.arange(1, span + 1)
            if falls[channel]:
                # A falling channel counts how many steps it has not reached, so its steps come in reverse.
                steps[channel] = starts[np.searchsorted(-index, -wanted, side="right")][::-1]
            else:
                steps[channel] = starts[np.searchsorted(index, wanted)]
        return Thresholds(steps, falls, self.code)

    def padded(self) -> tuple[np.ndarray, np.ndarray]:
        """Return steps [outputs, k] and codes [outputs, k + 1]; shorter rows end in steps that are never reached."""
        most = max(1, max(len(row) for row in self.steps))
        steps = [np.append(row, [self.raw.high + 1] * (most - len(row))) for row in self.steps]
        codes = [np.append(row, [row[-1]] * (most + 1 - len(row))) for row in self.codes]
        return np.array(steps, dtype=np.int64), np.array(codes, dtype=np.int64)


def implementations(
    steps: np.ndarray,
    codes: np.ndarray,
    code: IntType,
    raw: IntType,
    further: Sequence[Requantizer] = (),
    fused: bool = False,
) -> list[Requantizer]:
    """Return the requantizers that equal a step function, each checked by `prove`.

    Parameters
    ----------
    steps: int64 [outputs, k], each row sorted, in raw sums.
    codes: int64 [outputs, k + 1]; codes[o, i] is the code of a sum that reaches i steps.
    code: type of the codes.
    raw: range of the raw sums.
    further: requantizers that should be equal, too; they are checked like the others.
    fused: whether one DSP block may multiply and add.
    """
    function = NormalSteps.of(steps, codes, code, raw)
    thresholds = function.thresholds()
    found: list[Requantizer] = [*further]
    if thresholds is not None:
        levels = thresholds.steps.shape[1]
        if levels <= MOST_COMPARATORS:
            found.append(thresholds)
        if levels > FEW_STEPS:
            found += _monotone(thresholds, raw, fused)
    else:
        rows, values = function.padded()
        found.append(ThresholdSearch(rows, np.zeros(len(rows), dtype=bool), code, raw, values))
    if thresholds is None or thresholds.steps.shape[1] > FEW_STEPS:
        found += _tables(function)
    # Common steps are a line with memories behind it: they cannot win where a line alone is exact.
    if not any(isinstance(each, Scaler) and each.segments == 1 for each in found):
        found += _common(function, fused)
    for requantizer in found:
        prove(requantizer, function)
    return found


def _monotone(thresholds: Thresholds, raw: IntType, fused: bool) -> list[Requantizer]:
    """Return a binary search, and multiply-add-shift if it is exact, in logic and in DSP blocks."""
    steps, descending, code = thresholds.steps, thresholds.descending, thresholds.code
    found: list[Requantizer] = [ThresholdSearch(steps, descending, code, raw)]
    # The cheapest form first: one line, then several, each with ties up (the cheapest rounding), then half to even.
    for most in (1, MOST_SEGMENTS):
        for parity in (None, 0, 1):
            scaler = fit_scaler(steps, descending, code, raw, most, parity)
            if scaler is not None:
                in_one = [replace(scaler, dsp=True, fused=True)] if fused and scaler.product.can_be_fused else []
                return [*found, scaler, replace(scaler, dsp=True), *in_one]
    return found


def _common(function: NormalSteps, fused: bool) -> list[Requantizer]:
    """Return requantizers with steps that all channels share, in logic and in DSP blocks; none if steps are few."""
    if max(len(row) for row in function.steps) <= MOST_COMPARATORS:
        return []
    common = find_common_steps(function.steps, function.codes, function.code, function.raw)
    if common is None:
        return []
    in_one = [replace(common, dsp=True, fused=True)] if fused and common.product.can_be_fused else []
    return [common, replace(common, dsp=True), *in_one]


def _tables(function: NormalSteps) -> list[Requantizer]:
    """Return a lookup table if it is not too large; one for all channels if they have the same function."""
    raw, outputs = function.raw, function.outputs
    words = raw.high - raw.low + 1
    # Avoid evaluating a table that is too large; a moderate one may turn out to be the same for all channels.
    if words * outputs > MOST_TABLE_WORDS and words > MOST_TABLE_WORDS // 4:
        return []
    codes = function(np.arange(raw.low, raw.high + 1)[:, None].repeat(outputs, axis=1)).T
    shared = bool((codes == codes[0]).all())
    if not shared and words * outputs > MOST_TABLE_WORDS:
        return []
    return [Table(np.ascontiguousarray(codes[:1] if shared else codes), function.code, raw, outputs)]


def prove(requantizer: Requantizer, function: NormalSteps) -> str:
    """Prove that a requantizer equals a step function on the whole range; return the proof in words.

    Between the function's steps and the places at which the requantizer changes its form (its own steps or borders),
    the function is constant and the requantizer monotone. So equality on both sides of each such place, and at the ends
    of the range, is equality everywhere. A table is compared entry by entry.

    Raises
    ------
    MappingError: they differ; this is a bug of nnhw.
    """
    raw = function.raw
    if isinstance(requantizer, Table):
        points = np.arange(raw.low, raw.high + 1)[:, None].repeat(function.outputs, axis=1)
        certificate = f"lookup table, compared at all {len(points)} raw sums of {function.outputs} channels"
    else:
        points, steps = _critical_points(requantizer, function)
        certificate = f"{describe(requantizer)}, proved at {steps} steps of {function.outputs} channels"
    wrong = requantizer.golden(points) != function(points)
    if wrong.any():
        place, channel = np.argwhere(wrong)[0]
        raise MappingError(
            f"requantizer: {describe(requantizer)} differs from its function in channel {channel} at raw sum "
            f"{points[place, channel]}; this is a bug of nnhw, please report it"
        )
    return certificate


def _critical_points(requantizer: Requantizer, function: NormalSteps) -> tuple[np.ndarray, int]:
    """Return the raw sums to compare, int64 [n, outputs], and the number of the function's steps."""
    rows, _ = function.padded()
    columns = [rows.T]
    # Places at which the requantizer changes its own form, such as the borders of its segments.
    own = getattr(requantizer, "borders", getattr(requantizer, "steps", None))
    if own is not None:
        columns.append(own.T)
    steps = np.concatenate(columns)
    ends = np.array([[function.raw.low], [function.raw.high]]).repeat(function.outputs, axis=1)
    points = np.concatenate([ends, steps - 1, steps]).clip(function.raw.low, function.raw.high)
    return points, sum(len(row) for row in function.steps)


def describe(requantizer: Requantizer) -> str:
    """Return the kind of a requantizer in words, for reports."""
    if isinstance(requantizer, Scaler):
        where = " in one DSP block" if requantizer.fused else " in DSP blocks" if requantizer.dsp else ""
        pieces = f" in {requantizer.segments} segments" if requantizer.segments > 1 else ""
        rounding = "half to even" if requantizer.even else "floor"
        return f"multiply-add-shift (shift {requantizer.shift}, {rounding}){pieces}{where}"
    if isinstance(requantizer, CommonSteps):
        where = " in one DSP block" if requantizer.fused else " in DSP blocks" if requantizer.dsp else ""
        return f"multiply-add{where} and {len(requantizer.steps)} steps common to all channels"
    if isinstance(requantizer, DoubleScaler):
        return "multiplication with double rounding" + (" in DSP blocks" if requantizer.dsp else "")
    if isinstance(requantizer, ThresholdSearch):
        return "binary search" + ("" if requantizer.table is None else " with a table of codes")
    return "comparators" if isinstance(requantizer, Thresholds) else "lookup table"


def choose(
    choices: Sequence[Requantizer],
    lanes: int,
    in_logic: bool = True,
    family: Family = ICE40,
    dsp: bool = False,
    lean: bool = False,
) -> Requantizer:
    """Return the cheapest requantizer for `lanes` sums a cycle; of equally cheap ones the first.

    Parameters
    ----------
    choices: exact requantizers of one function.
    in_logic: whether constants may be in logic; else those of more than a few words are in block RAM.
    family: device family, whose prices decide.
    dsp: whether DSP blocks may be used.
    lean: whether to return the cheapest of those with the fewest block RAMs.
    """
    # Comparators and tables have no attribute `dsp`: they never take a block.
    allowed = [choice for choice in choices if dsp or not getattr(choice, "dsp", False)]
    placed = [place for choice in allowed for place in _places(choice, in_logic, family.block_ram.slow)]

    def weight(requantizer: Requantizer) -> tuple[int, float]:
        cost = requantizer_cost(requantizer, getattr(requantizer, "raw", None), lanes, in_logic, family)
        return cost.ebr if lean else 0, family.weight(cost.lc, cost.ebr, cost.dsp)

    return min(placed, key=weight)


# The same objects for any number of lanes, as they keep the digits of their constants.
@lru_cache(maxsize=1 << 12)
def _places(requantizer: Requantizer, in_logic: bool, registered: bool) -> tuple[Requantizer, ...]:
    """Return a requantizer with its constants in logic and in block RAM; for comparators their engine decides that."""
    if isinstance(requantizer, ThresholdSearch):
        # Its memories choose between logic and block RAM by their words, see `logic_words`.
        return (replace(requantizer, registered=registered),)
    if isinstance(requantizer, CommonSteps):
        requantizer = replace(requantizer, registered=registered)
    if isinstance(requantizer, CommonSteps | Scaler | DoubleScaler | Table):
        return tuple(replace(requantizer, logic=logic) for logic in ((True, False) if in_logic else (False,)))
    return (requantizer,)
