"""Requantizers with a multiply-add for each channel and steps that all channels share.

Their integers are found from the steps of the function alone, so that they are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nnhw.engines.requantize import CommonSteps, RankedSteps
from nnhw.errors import MappingError
from nnhw.families import ICE40
from nnhw.ir.types import IntType
from nnhw.mapping.alignment import AlignedSteps, align
from nnhw.mapping.common_lines import CommonLines, fit_lines, refit_lines
from nnhw.mapping.cost.requantizer import requantizer_cost

MOST_BITS = 60
"""Most bits of a number (multiplier * place + addend): below this, int64 is exact throughout the search."""
MOST_WORDS = 2048
"""Most words of the memory of ranks; steps at uneven distances would need more."""

MOST_REFITTED = 1 << 15
"""Narrower multipliers are sought for up to so many steps of all channels together, as each try takes as long as the
first fit."""


@dataclass(frozen=True)
class IntegerLines:
    """Integer lines of channels, and their common steps.

    A channel's number at a place is multiplier * place + addend; it has reached step k if number >> drop >= steps[k].

    Parameters
    ----------
    multiplier, addend: int64 [channels].
    steps: int64 [count].
    drop: lowest bits of the numbers that no step needs.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    steps: np.ndarray
    drop: int


@dataclass(frozen=True)
class ChannelLines:
    """Lines of all channels, in raw sums, in front of common steps.

    Parameters
    ----------
    multiplier, addend: int64 [outputs].
    steps: int64 [count]: they stand for steps << drop.
    codes: int64 [count + 1].
    drop: lowest bits of the numbers that do not count.
    """

    multiplier: np.ndarray
    addend: np.ndarray
    steps: np.ndarray
    codes: np.ndarray
    drop: int

    def ranked(self, cell_bits: int, cells_log2: int) -> tuple[RankedSteps, int]:
        """Return the steps in such cells, moved to the second word, and by how much all addends become less."""
        base = int(self.steps[0]) - (1 << (cell_bits + cells_log2))
        return RankedSteps(self.steps - base, self.codes, cell_bits, cells_log2), base << self.drop

    def doubled(self) -> ChannelLines:
        """Return the same with numbers twice as large."""
        return replace(self, multiplier=2 * self.multiplier, addend=2 * self.addend, steps=2 * self.steps)


class NoCommonStepsError(MappingError):
    """Channels share no steps: the message says why, and begins with them as its subject."""


def channel_lines(steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], raw: IntType) -> tuple[ChannelLines, ...]:
    """Return lines of all channels in front of common steps, those with more and more narrow multipliers.

    Parameters
    ----------
    steps, codes: int64, of each channel, in the normal form of `NormalSteps`.

    Raises
    ------
    NoCommonStepsError: there are none.
    """
    found = _known_lines(_bytes(steps), _bytes(codes), raw)
    if isinstance(found, NoCommonStepsError):
        raise found.with_traceback(None)
    return found


# By content: a network is mapped in many ways, which all ask for the lines of the same layers.
@lru_cache(maxsize=64)
def _known_lines(
    steps: tuple[bytes, ...], codes: tuple[bytes, ...], raw: IntType
) -> tuple[ChannelLines, ...] | NoCommonStepsError:
    try:
        return tuple(_lines(_rows(steps), _rows(codes), raw))
    except NoCommonStepsError as error:
        return error


def _bytes(rows: Sequence[np.ndarray]) -> tuple[bytes, ...]:
    return tuple(row.astype(np.int64).tobytes() for row in rows)


def _rows(found: Sequence[bytes]) -> list[np.ndarray]:
    return [np.frombuffer(row, np.int64) for row in found]


def _lines(steps: Sequence[np.ndarray], codes: Sequence[np.ndarray], raw: IntType) -> Iterator[ChannelLines]:
    """Yield the lines that `channel_lines` returns. Raises: NoCommonStepsError."""
    moving = [channel for channel, places in enumerate(steps) if len(places)]
    if not moving:
        raise NoCommonStepsError("its channels are all constant")
    aligned = align([steps[c] for c in moving], [codes[c] for c in moving], raw)
    if aligned is None:
        raise NoCommonStepsError("its channels turn in different ways, so that their codes are no part of one sequence")
    lines = fit_lines(aligned)
    if lines is None:
        raise NoCommonStepsError("no multiplication and addition in each channel brings its channels' steps together")
    none = True
    for fitted in integer_lines(aligned, lines):
        multiplier, addend = np.zeros((2, len(steps)), dtype=np.int64)
        multiplier[moving] = np.where(aligned.mirrored, -fitted.multiplier, fitted.multiplier)
        addend[moving] = fitted.addend
        for channel in set(range(len(steps))) - set(moving):
            places = np.flatnonzero(aligned.codes == codes[channel][0])
            if not len(places):
                raise NoCommonStepsError(f"channel {channel} has a code that no other has, and no step")
            # A constant channel has a multiplier of 0: its number is one that lies in front of the step behind its
            # code.
            addend[channel] = (int(np.append(fitted.steps, fitted.steps[-1] + 1)[places[0]]) - 1) << fitted.drop
        none = False
        yield ChannelLines(multiplier, addend, fitted.steps, aligned.codes, fitted.drop)
    if none:
        raise NoCommonStepsError(f"its channels' steps come together with numbers of more than {MOST_BITS} bits alone")


def find_common_steps(
    steps: tuple[np.ndarray, ...], codes: tuple[np.ndarray, ...], code: IntType, raw: IntType
) -> CommonSteps | None:
    """Return a requantizer with common steps that is equal to a step function, or None if none was found.

    Parameters
    ----------
    steps, codes: of each channel, in the normal form of `NormalSteps`.
    """
    try:
        found = [_smallest(lines, code, raw) for lines in channel_lines(steps, codes, raw)]
    except NoCommonStepsError:
        return None
    return min((common for common in found if common is not None), key=_weight, default=None)


def integer_lines(aligned: AlignedSteps, lines: CommonLines) -> Iterator[IntegerLines]:
    """Yield integer lines that satisfy every condition exactly, with narrower multipliers from one to the next.

    The first are the real lines times the least power of two with which rounding succeeds. For half of that power and
    less, heights and offsets are fitted again to the rounded gains, until there are no lines.
    """
    bits = int(max(abs(aligned.lows).max(), abs(aligned.highs).max())).bit_length()
    largest = float(np.abs(lines.heights).max())
    # Rounding moves a number by about one, so the slack must be about one when it is scaled.
    for scale in range(max(0, int(-np.log2(lines.slack)) - 1), MOST_BITS - bits):
        found = _rounded(aligned, lines, scale) if largest * 2.0**scale < 2.0**MOST_BITS else None
        if found is not None:
            break
    else:
        return
    yield found
    if len(set(found.multiplier.tolist())) == 1 or aligned.steps.size > MOST_REFITTED:
        return
    for narrow in range(scale - 1, 0, -1):
        refitted = refit_lines(aligned, np.rint(lines.gains * 2.0**narrow) / 2.0**narrow)
        found = None if refitted is None else _rounded(aligned, refitted, narrow)
        if found is None:
            return
        yield found


def _rounded(aligned: AlignedSteps, lines: CommonLines, scale: int) -> IntegerLines | None:
    """Return real lines times 2**scale, rounded to integers; None if no addends satisfy the conditions then."""
    multiplier = np.rint(lines.gains * 2.0**scale).astype(np.int64)[:, None]
    heights = np.rint(lines.heights * 2.0**scale).astype(np.int64)
    none = np.int64(1) << (MOST_BITS + 1)
    # With rounded gains and heights, each condition bounds the channel's addend, from below or from above.
    least = np.where(aligned.above, heights - multiplier * aligned.steps, -none).max(axis=1, keepdims=True)
    most = np.where(aligned.below, heights - 1 - multiplier * (aligned.steps - 1), none).min(axis=1, keepdims=True)
    if (least > most).any():
        return None
    # In the middle: both kinds of conditions then leave room for the steps.
    addend = least + (most - least) // 2
    numbers = multiplier * aligned.steps + addend
    low = np.where(aligned.below, numbers - multiplier + 1, -none).max(axis=0)
    high = np.where(aligned.above, numbers, none).min(axis=0)
    # A step may be any number in low..high. Drop lowest bits as long as each such range holds a multiple of 2**drop.
    drop = 0
    while (high >> (drop + 1) << (drop + 1) >= low).all() and drop < scale:
        drop += 1
    return IntegerLines(multiplier[:, 0], addend[:, 0], high >> drop, drop)


def _smallest(lines: ChannelLines, code: IntType, raw: IntType) -> CommonSteps | None:
    """Return the requantizer whose memories are smallest, or None if the steps lie too unevenly."""
    found = []
    for cell_bits, cells_log2 in cells_of(lines.steps):
        ranked, base = lines.ranked(cell_bits, cells_log2)
        try:
            found.append(
                CommonSteps(
                    multiplier=lines.multiplier[:, None],
                    addend=lines.addend[:, None] - base,
                    drop=lines.drop,
                    steps=ranked.steps,
                    codes=ranked.codes,
                    cell_bits=cell_bits,
                    cells_log2=cells_log2,
                    code=code,
                    raw=raw,
                )
            )
        except MappingError:  # its product is too wide
            return None
    return min(found, key=_memory, default=None)


def cells_of(steps: np.ndarray, counts: Sequence[int] = (1, 2, 3)) -> Iterator[tuple[int, int]]:
    """Yield bits of a cell, and of the number of cells in a word, such that no cell has two steps; large cells first.

    Steps begin at the first cell of a word.

    Parameters
    ----------
    counts: bits of the number of cells in a word that are tried.
    """
    away = steps - steps[0]
    largest = int(away[-1]).bit_length()
    # With smaller cells steps are apart all the more, so the largest that separates them bounds the rest.
    while largest > 0 and (np.diff(away >> largest) == 0).any():
        largest -= 1
    for cells_log2 in counts:
        for cell_bits in range(largest, 0, -1):
            if int(away[-1]) >> (cell_bits + cells_log2) < MOST_WORDS:
                yield cell_bits, cells_log2


def _weight(common: CommonSteps) -> float:
    """Return the cost of a requantizer on the iCE40 as one number."""
    cost = requantizer_cost(common, common.raw, 1)
    return ICE40.weight(cost.lc, cost.ebr, cost.dsp)


def _memory(common: CommonSteps) -> tuple[int, int, int]:
    """Return block RAMs of the iCE40, bits of a place, which wait in registers, and words: in this order they count."""
    ranks, places = common.ranked.rank_bits + (1 << common.cells_log2), len(common.steps) + 1
    sizes = ((common.words, ranks), (places, common.cell_bits))
    rams = sum(ICE40.block_rams(*size, rom=True) for size in sizes if size[0] > common.logic_words)
    return rams, common.cell_bits, common.words
