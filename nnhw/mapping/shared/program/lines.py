"""Step functions as one exact line for each channel, alone or in front of steps that all channels share.

This is what the requantizer of a shared engine computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from nnhw.engines.requantize import MultiplyShift, Thresholds
from nnhw.engines.shared.array import CELLS_LOG2
from nnhw.errors import MappingError
from nnhw.ir import IntType
from nnhw.mapping.common_steps import ChannelLines, NoCommonStepsError, cells_of, channel_lines
from nnhw.mapping.fit import MOST_SLOPE, Channel, occurring_steps
from nnhw.mapping.layers import DoubleScaling, StepFunction
from nnhw.mapping.requantize import NormalSteps
from nnhw.mapping.shared.settings import LINES


@dataclass(frozen=True, eq=False)
class Line(MultiplyShift):
    """A function of sums, clamp((factor * sum + addend) >> shift) in each channel, and the freedom of its addends.

    Parameters
    ----------
    slack: int64 [channels], by how much each addend may be larger without changing the function.
    """

    slack: np.ndarray = field(repr=False, kw_only=True)

    @cached_property
    def factor_bits(self) -> int:
        """Two's complement width of the factors."""
        return signed_bits(self.factor)

    @cached_property
    def addend_bits(self) -> int:
        """Two's complement width of the addends."""
        return signed_bits(self.addend)

    @property
    def zeros(self) -> int:
        """Number of lowest bits that are 0 in all addends, at most the shift."""
        bits = int(np.bitwise_or.reduce(self.addend, axis=None))
        return min((bits & -bits).bit_length() - 1, self.shift) if bits else self.shift

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all channels have the same line."""
        constants = (self.factor, self.addend, self.slack, self.ties)
        return all(bool((values == values[0]).all()) for values in constants)

    @property
    def ties(self) -> np.ndarray:
        """`tie_bits`, or zeros: int64 [channels]."""
        return np.zeros_like(self.factor) if self.tie_bits is None else self.tie_bits

    def shifted(self, shift: int) -> Line:
        """Return the same function with a shift that is equal or greater."""
        # Numbers and divisor grow alike, so no code changes.
        scale = 1 << (shift - self.shift)
        constants = {name: getattr(self, name) * scale for name in ("factor", "addend", "slack")}
        return replace(self, **constants, shift=shift)

    def stored(self, offset: np.ndarray, zero: int, sign: int = 1) -> Line:
        """Return the function from sums of stored codes to stored codes.

        Parameters
        ----------
        offset: int64 [channels], with sum = sign * (sum of stored codes) + offset.
        zero: with code = stored code + zero.
        """
        if self.ranked is not None:
            ranked = replace(self.ranked, codes=self.ranked.codes - zero)
            return replace(self, factor=sign * self.factor, addend=self.addend + self.factor * offset, ranked=ranked)
        return replace(
            self,
            factor=sign * self.factor,
            addend=self.addend + self.factor * offset - (zero << self.shift),
            low=self.low - zero,
            high=self.high - zero,
            # The tie rule is about the model's codes, which are odd where stored ones are even if the zero is odd.
            parity=(self.parity + zero) & 1 if self.even else 0,
            pivot=0 if self.tie_bits is None else self.pivot - zero,
        )

    def rounded(self) -> Line:
        """Return the line with as many zeros at the end of all addends as their slack allows; the array drops these."""
        for zeros in range(self.shift, 0, -1):
            unit = 1 << zeros
            addend = -(-self.addend // unit) * unit
            if (addend <= self.addend + self.slack).all():
                return replace(self, addend=addend, slack=np.zeros_like(addend))
        return self


def signed_bits(values: np.ndarray) -> int:
    """Return the two's complement width that holds all values, at least 1."""
    low, high = int(values.min()), int(values.max())
    return max((-low - 1).bit_length() if low < 0 else 0, max(high, 0).bit_length()) + 1


@lru_cache(maxsize=1 << 10)
def at_shift(lines: tuple[Line, ...], shift: int) -> Line:
    """Return a function's line for a shift, made from the one with the greatest shift up to it, its addends rounded."""
    return max((line for line in lines if line.shift <= shift), key=lambda line: line.shift).shifted(shift).rounded()


def tie_range(lines: Sequence[Line]) -> tuple[int, int] | None:
    """Return the least and the most fraction bits that tell a tie, if some channels round ties away from zero."""
    told = [bits for line in lines for bits in line.ties.tolist() if bits]
    return (min(told), max(told)) if told else None


def identity(channels: int, code: IntType) -> Line:
    """Return the line that leaves sums as they are, since they are codes already."""
    none = np.zeros(channels, np.int64)
    return Line(none + 1, none, 0, code.low, code.high, slack=none)


# Each way of cutting a network reads its layers, and equal functions, again.
@lru_cache(maxsize=1 << 8)
def fit_lines(function: StepFunction, raw: IntType) -> tuple[Line, ...]:
    """Return lines, by ascending shift, that equal a step function on all sums of a range; empty if there are none.

    Each is proved: compared on both sides of each step of the function, with the least and with the largest addends.
    """
    normal = NormalSteps.of(np.clip(function.thresholds, raw.low, raw.high + 1), function.codes, function.code, raw)
    steps = normal.thresholds()
    # A channel that rises and falls is no line.
    if steps is None:
        return ()
    found = [_steep(steps)] if steps.code.bipolar else _lines(steps, raw, function.scaling)
    # Addends in between lie between the two functions, which are equal.
    _prove([one for line in found for one in (line, replace(line, addend=line.addend + line.slack))], normal)
    return tuple(found)


@lru_cache(maxsize=1 << 8)
def fit_ranked(function: StepFunction, raw: IntType) -> Line:
    """Return a line in front of common steps that is equal to a step function on all sums of a range; it is proved.

    Of those that there are, it takes the least memory and logic, about.

    Raises
    ------
    NoCommonStepsError: there is none.
    """
    normal = NormalSteps.of(np.clip(function.thresholds, raw.low, raw.high + 1), function.codes, function.code, raw)
    found = [line for lines in channel_lines(normal.steps, normal.codes, raw) for line in _ranked(lines)]
    if not found:
        raise NoCommonStepsError(f"steps that lie so unevenly take more than {LINES.most_rank_words} words of ranks")
    best = min(found, key=lambda line: _weight(line, function.code))
    _prove([best], normal)
    return best


def _weight(line: Line, code: IntType) -> tuple[bool, float]:
    """Return whether a line has more words of ranks than narrow arrays tell apart, and about its logic cells."""
    ranked = line.ranked
    assert ranked is not None
    words, place_bits = ranked.used_words, max(ranked.cell_bits, LINES.narrow_place_bits)
    bits = words * (ranked.rank_bits + (1 << CELLS_LOG2)) + len(ranked.codes) * place_bits
    return words > 1 << code.bits, LINES.memory_bit_lc * bits + LINES.factor_bit_lc * line.factor_bits


def _ranked(lines: ChannelLines) -> Iterator[Line]:
    """Yield lines in front of cells as a step memory has them, large ones first."""
    if len(lines.steps) > 1 and np.diff(lines.steps).min() < 2:
        lines = lines.doubled()  # a cell has a bit at least
    for cell_bits, _ in cells_of(lines.steps, (CELLS_LOG2,)):
        ranked, base = lines.ranked(cell_bits, CELLS_LOG2)
        words, shift = ranked.used_words, lines.drop + ranked.word_bits
        if words > LINES.most_rank_words:
            return
        # Words are numbered as codes are, around 0, since the clamped code says the word.
        low, none = -(words // 2), np.zeros_like(lines.addend)
        addend = lines.addend - base + (low << shift)
        yield Line(lines.multiplier, addend, shift, low, low + words - 1, ranked=ranked, slack=none)


def _lines(function: Thresholds, raw: IntType, scaling: DoubleScaling | None) -> list[Line]:
    """Return the lines with the least shift and with the next ones, for the rounding of ties that needs the least."""
    rows, floor, ceiling = occurring_steps(function.steps, function.descending, raw)
    bounds = floor + function.code.low, ceiling + function.code.low
    falls, chosen, least = function.descending, None, LINES.most_shift + 1
    for parity in (None, 0, 1):
        ways: list[tuple[Channel, ...]] = [(channel,) for channel in _channels(rows, falls, raw, parity)]
        chosen, least = _better(ways, least) or (chosen, least)
        # No other rounding needs less.
        if least == 0:
            break
    pivot = 0
    for pivot, bits in () if chosen is not None else _ties_away(rows, scaling, bounds[0]):
        # A channel may do with a plain line: its steps lie on one side of zero, or no sum of it is a tie.
        plain, place = _channels(rows, falls, raw, None), pivot - bounds[0]
        ways = [(one, replace(one, tie_bits=own, pivot=place)) for one, own in zip(plain, bits, strict=True)]
        chosen, least = _better(ways, least) or (chosen, least)
        if chosen is not None:
            break
    if chosen is None:
        return []
    parity = chosen[0].parity
    odd = 0 if parity is None else (parity + bounds[0]) & 1
    ties = np.array([channel.tie_bits for channel in chosen], dtype=np.int64)
    kind: dict[str, Any] = {}
    if ties.any():
        kind = {"tie_bits": ties, "pivot": min(max(pivot, bounds[0]), bounds[1])}
    turn, found = np.where(falls, -1, 1), list[Line]()
    for shift in range(least, least + LINES.further + 1):
        known = {channel: _line(channel, least, shift) for channel in set(chosen)}
        factor, low, high = np.array([known[channel] for channel in chosen], dtype=np.int64).T
        addend = low + (bounds[0] << shift)
        found.append(Line(turn * factor, addend, shift, *bounds, parity is not None, odd, slack=high - low, **kind))
    return found


def _ties_away(rows: np.ndarray, scaling: DoubleScaling | None, lowest: int) -> Iterator[tuple[int, list[int]]]:
    """Yield guesses of how a function rounds ties away from zero: the code of zero, and the tie bits of each channel.

    With a scaling both are known. Else all channels must have the same steps, as those of a mean do. Rounding away from
    zero makes the steps a mirror image around zero: two steps at the same distance have the same sum. Codes around
    which most steps lie so come first.

    Parameters
    ----------
    rows: the steps that occur, int64 [channels, steps].
    lowest: the code in front of the first step.
    """
    if scaling is not None:
        yield scaling.offset, np.maximum(-scaling.exponent, 0).tolist()
        return
    count = rows.shape[1]
    if count < 2 or (rows != rows[:1]).any() or rows[0, 0] == rows[0, -1]:
        return
    bits = max(1, int(np.ceil(np.log2((rows[0, -1] - rows[0, 0]) / (count - 1)))))
    for place in sorted(range(1, count), key=lambda place: (-min(place, count - place), place)):
        reach = min(place, count - place)
        sums = rows[0, place - reach : place][::-1] + rows[0, place : place + reach]
        if (sums == sums[0]).all():
            yield lowest + place, [bits] * len(rows)
            if reach < count // LINES.most_one_sided:
                return


def _better(ways: Sequence[tuple[Channel, ...]], least: int) -> tuple[list[Channel], int] | None:
    """Return a choice for each channel, and the smallest shift with which all have a line, if that is below `least`.

    Parameters
    ----------
    ways: for each channel, the conditions of its possible lines.
    """

    def serving(way: tuple[Channel, ...], shift: int) -> Channel | None:
        return next((channel for channel in way if channel.slopes(shift) is not None), None)

    different = dict.fromkeys(ways)
    # A line for some shift is one for all greater shifts, so only the greatest useful shift has to be tried.
    if any(serving(way, least - 1) is None for way in different):
        return None
    shift = 0
    for way in different:
        while serving(way, shift) is None:
            shift += 1
    known = {way: serving(way, shift) for way in different}
    return [channel for way in ways if (channel := known[way]) is not None], shift


def _channels(rows: np.ndarray, falls: np.ndarray, raw: IntType, parity: int | None) -> list[Channel]:
    """Return the conditions on the line of each channel; of a falling one, those of the function of -x."""
    return [
        Channel(tuple(1 - step for step in reversed(row)), -raw.high, -raw.low, parity)
        if falling
        else Channel(tuple(row), raw.low, raw.high, parity)
        for row, falling in zip(rows.tolist(), falls, strict=True)
    ]


def _line(channel: Channel, least: int, shift: int) -> tuple[int, int, int]:
    """Return (factor, smallest addend, largest addend); for greater shifts, of two factors the one with more room."""
    nearest, slopes = channel.slope(least), channel.slopes(shift)
    assert nearest is not None
    assert slopes is not None
    choices = [nearest << (shift - least)]
    if shift > least and -MOST_SLOPE < slopes[0] and slopes[1] < MOST_SLOPE:
        choices.append((slopes[0] + slopes[1]) // 2)
    lines = [(factor, *channel.addends(factor, shift)) for factor in choices]
    return max(lines, key=lambda line: line[2] - line[1])


def _steep(steps: Thresholds) -> Line:
    """Return the line of a bipolar function."""
    # 2 * (sum - place) + 1 is odd, hence never 0: the clamp to -1..1 gives its sign.
    turn, place = np.where(steps.descending, -1, 1), steps.steps[:, 0]
    addend = np.where(steps.descending, 2 * place - 1, 1 - 2 * place)
    return Line(2 * turn, addend, 0, -1, 1, slack=np.zeros_like(addend))


def _prove(lines: Sequence[Line], function: NormalSteps) -> None:
    """Compare lines with a function on both sides of all its steps; between them it is constant, and a line monotone.

    Ranked steps are constant between their own places.

    Raises
    ------
    MappingError: they differ; this is a bug of nnhw.
    """
    steps, raw = function.padded()[0].T, function.raw
    own = [line.borders(raw.low).T for line in lines if line.ranked is not None]
    ends = np.array([[raw.low], [raw.high]]).repeat(function.outputs, axis=1)
    steps = np.concatenate([steps, *own])
    points = np.concatenate([ends, steps - 1, steps]).clip(raw.low, raw.high)
    codes = function(points)
    for line in lines:
        if (line.golden(points) != codes).any():
            raise MappingError("a line differs from its step function; this is a bug of nnhw, please report it")
