"""Joins of several streams: weighted sum, concatenation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig, RequantizingConfig
from nnhw.engines.requantize import Requantizer
from nnhw.engines.timing import PipelineModel
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True)
class SumConfig(RequantizingConfig):
    """Parameters of a weighted sum of several streams, element by element.

    Parameters
    ----------
    inputs: element type of each stream.
    factors: an integer for each stream, not 0.
    lanes: elements of one beat.
    chunks: beats of one pixel.
    pixels: pixels of one frame.
    requantizer: applied to the sums, with constants of its own for each channel of a pixel; None: raw sums leave.

    Timing: one beat a cycle; a beat leaves `latency` cycles after all of its inputs are there.
    Range: sums have exactly the bits that factors and types need.

    Raises
    ------
    MappingError: the factors are not as many as the streams, or one is 0.
    """

    inputs: tuple[IntType, ...]
    factors: tuple[int, ...]
    lanes: int
    chunks: int
    pixels: int
    requantizer: Requantizer | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.factors) or not self.inputs:
            raise MappingError(f"a sum of {len(self.inputs)} streams needs as many factors, given {self.factors}")
        if 0 in self.factors:
            raise MappingError(f"a sum needs factors other than 0, given {self.factors}")

    @property
    def channels(self) -> int:
        """Elements of one pixel."""
        return self.chunks * self.lanes

    @property
    def i_beats(self) -> int:
        """Beats of one frame at each input."""
        return self.pixels * self.chunks

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.i_beats

    @property
    def raw(self) -> IntType:
        """Type of a sum."""
        return type_of_sum(self.inputs, self.factors)

    @property
    def terms(self) -> tuple[tuple[int, int, int], ...]:
        """(input, shift, sign) of every term of the adder tree, sign * (input << shift): one for each signed digit."""
        return tuple(
            (index, shift, sign) for index, factor in enumerate(self.factors) for shift, sign in signed_digits(factor)
        )

    @property
    def tree_levels(self) -> int:
        """Register stages of the adder tree."""
        return max(1, (len(self.terms) - 1).bit_length())

    @property
    def raw_latency(self) -> int:
        """Moves from a beat to its sums."""
        return self.tree_levels

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats of the beats of all inputs, int64 [pixels * chunks, lanes] (values)."""
        total = sum(factor * np.asarray(x, dtype=np.int64) for factor, x in zip(self.factors, beats, strict=True))
        raw = np.asarray(total).reshape(-1, self.channels)
        return self.requantized(raw).reshape(-1, self.lanes)

    def model(self) -> JoinedPipelineModel:
        """Return the cycle model."""
        return JoinedPipelineModel(len(self.inputs), self.latency)


def type_of_sum(types: Sequence[IntType], factors: Sequence[int]) -> IntType:
    """Return the exact range of a weighted sum of numbers of some types."""
    # Sorted, because a negative factor exchanges the ends of a range.
    ends = [sorted((factor * kind.low, factor * kind.high)) for factor, kind in zip(factors, types, strict=True)]
    return IntType(sum(low for low, _ in ends), sum(high for _, high in ends))


def signed_digits(factor: int) -> list[tuple[int, int]]:
    """Return (shift, sign) of the nonzero digits of an integer in canonical signed binary form, which has fewest."""
    # Non-adjacent form: no two digits in a row are used, so a factor has as few terms as possible.
    digits, shift = [], 0
    while factor:
        if factor & 1:
            sign = 2 - (factor & 3)  # +1 where the next bit is 0, else -1 and a carry
            digits.append((shift, sign))
            factor -= sign
        factor >>= 1
        shift += 1
    return digits


class JoinedPipelineModel:
    """Cycle model: a pipeline that takes a beat of every input at once.

    Parameters
    ----------
    inputs: streams.
    latency, period, silent, burst: see `PipelineModel`.
    """

    def __init__(self, inputs: int, latency: int, period: int = 1, silent: int = 0, burst: int = 1) -> None:
        self.inputs = inputs
        self.pipeline = PipelineModel(latency, period, silent, burst)
        self.o_valids = [False]

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return whether the pipeline moves and every input has a beat."""
        # No input is taken before all are there, so beats stay aligned without counters.
        return [self.pipeline.ready(o_readies[0]) and all(i_valids)] * self.inputs

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Pass one clock edge."""
        changed = self.pipeline.step(all(i_valids), o_readies[0])
        self.o_valids = [self.pipeline.o_valid]
        return changed

    def state(self) -> Hashable:
        """Return the state of its pipeline."""
        return self.pipeline.state()


@dataclass(frozen=True)
class ConcatConfig(EngineConfig):
    """Parameters of a concatenation: in each turn some beats of stream 0, then some of stream 1, ...

    Parameters
    ----------
    lanes: elements of one beat.
    chunks: beats of each input in a turn.
    bits: bits of an element.
    turns: of one frame: a turn is a pixel where channels are joined, a row where columns are, else the frame.
    constants: so many of the first inputs are the same for each frame: they are taken only while the input behind them
        has a beat, so that nothing of a frame leaves before anything of it came in.

    Timing: one beat a cycle, which leaves one cycle after it came in.
    """

    lanes: int
    chunks: tuple[int, ...]
    bits: int
    turns: int
    constants: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.constants < len(self.chunks):
            raise MappingError(
                f"a concatenation of {len(self.chunks)} streams needs one that is no constant, given {self.constants}"
            )

    @property
    def i_beats(self) -> tuple[int, ...]:
        """Beats of one frame at each input."""
        return tuple(self.turns * chunks for chunks in self.chunks)

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.turns * sum(self.chunks)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats [o_beats, lanes] of the beats [i_beats, lanes] of all inputs."""
        return np.concatenate([np.asarray(x).reshape(self.turns, -1) for x in beats], axis=1).reshape(-1, self.lanes)

    def model(self) -> ConcatModel:
        """Return the cycle model."""
        return ConcatModel(self)


class ConcatModel:
    """Cycle model: a register that is filled from the input whose turn it is."""

    def __init__(self, config: ConcatConfig) -> None:
        # Which input each beat of a turn comes from.
        self.turns = [index for index, chunks in enumerate(config.chunks) for _ in range(chunks)]
        self.inputs, self.constants = len(config.chunks), config.constants
        self.beat = 0
        self.o_valids = [False]

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return for each input whether the register takes its beat."""
        # Of the inputs, only the one whose turn it is can be taken, even if others have beats.
        readies = [False] * self.inputs
        turn = self.turns[self.beat]
        readies[turn] = (o_readies[0] or not self.o_valids[0]) and self._may(turn, i_valids)
        return readies

    def _may(self, turn: int, i_valids: Sequence[bool]) -> bool:
        """Return whether the input whose turn it is may be taken: constants wait for what is behind them."""
        return turn >= self.constants or i_valids[self.constants]

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Take the next beat, if it is there."""
        before = self.o_valids[0]
        if before and not o_readies[0]:
            return False
        turn = self.turns[self.beat]
        taken = i_valids[turn] and self._may(turn, i_valids)
        self.o_valids = [taken]
        self.beat = (self.beat + taken) % len(self.turns)
        return before or taken

    def state(self) -> Hashable:
        """Return the beat of the turn, and whether the register is full."""
        return self.beat, self.o_valids[0]
