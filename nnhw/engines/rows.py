"""Engines that need a whole row of elements before they give its first result: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass

from nnhw.engines.contract import EngineConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.timing import PipelineModel
from nnhw.errors import MappingError
from nnhw.ir.types import IntType


@dataclass(frozen=True)
class RowConfig(EngineConfig):
    """Parameters of an engine that works on rows, in three parts, each of which may be busy with another row.

    1. A row comes into a buffer, and a number is collected of it, such as its sum.
    2. Constants of the row are solved from that number, bit by bit.
    3. The row is read from the buffer, and the constants are applied to each of its elements.

    Parameters
    ----------
    source: type of the elements that come in.
    lanes: elements of one beat.
    chunks: beats of a row.
    rows: rows of one frame.

    Timing: a row each `interval` cycles. The first word of a row is read `waiting` + 1 cycles after the row's last beat
    came in, at the earliest, and its results leave `latency` cycles later. The last beat of the next row comes in one
    cycle after that read, at the earliest.

    Raises
    ------
    MappingError: a row, a frame or a beat of no elements.
    """

    source: IntType
    lanes: int
    chunks: int
    rows: int

    def __post_init__(self) -> None:
        if min(self.lanes, self.chunks, self.rows) < 1:
            raise MappingError(
                f"an engine for rows needs lanes, chunks and rows of 1 or more, given {self.lanes}, {self.chunks} "
                f"and {self.rows}"
            )

    @property
    @abstractmethod
    def collect_levels(self) -> int:
        """Cycles from a row's last beat to the number that is collected of the row, such as its sum."""

    @property
    @abstractmethod
    def solve_cycles(self) -> int:
        """Cycles from the number of a row to its constants."""

    @property
    @abstractmethod
    def latency(self) -> int:
        """Moves from the reading of a word to its results in the output buffer."""

    @property
    @abstractmethod
    def element(self) -> IntType:
        """Type of the elements that leave."""

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.lanes * self.chunks

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.rows * self.chunks

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.i_beats

    @property
    def tree_levels(self) -> int:
        """Register stages of the tree that joins the numbers of all lanes to one."""
        return (self.lanes - 1).bit_length()

    @property
    def waiting(self) -> int:
        """Cycles from the last beat of a row to its constants."""
        return self.collect_levels + self.solve_cycles

    @property
    def interval(self) -> int:
        """Cycles of a row, if nothing stalls."""
        # Rows come in and are solved at the same time, so the longer of the two decides.
        return max(self.chunks, self.waiting + 2)

    @property
    def buffer(self) -> FifoConfig:
        """The buffer: a FIFO of as few words as let no row wait for room, if nothing stalls.

        While a row is read, the next one takes its place. There is also room for the beats that come in while constants
        are solved, one in each cycle, except for the last beat of the next row. So it never holds two whole rows.
        """
        words = self.chunks + min(self.chunks, self.waiting + 2) - 1
        return FifoConfig(words + 1, self.lanes, self.source.bits, self.i_beats)

    @property
    def cycles(self) -> int:
        """Cycles of a frame, if nothing stalls."""
        return self.rows * self.interval

    @property
    def cycle_bound(self) -> int:
        """An upper bound of the cycles of one frame alone."""
        return (self.rows + 1) * (self.chunks + self.waiting + 2) + self.latency

    def model(self) -> RowModel:
        """Return the cycle model."""
        return RowModel(self)


class RowModel:
    """Cycle model: a row comes in while there is room, waits for its constants, and is read into a pipeline."""

    def __init__(self, config: RowConfig) -> None:
        self.chunks, self.words, self.done = config.chunks, config.buffer.words, config.waiting + 1
        self.pipeline = PipelineModel(config.latency)
        self.level = 0  # words in the buffer
        self.taken = 0  # beats of the row that comes in
        self.given = 0  # words of the row that is read
        self.waited = 0  # cycles since the last beat of a row whose constants are solved; 0: there is none
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether there is room; never for two rows, so that constants are solved for one row at a time."""
        return self.level < self.words

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Write a word, read a word, solve constants."""
        take = i_valid and self.ready(o_ready)
        # Once begun, a row is read to its end: its constants stay until the next ones are solved.
        wanted = self.given > 0 or self.waited == self.done
        read = wanted and self.pipeline.ready(o_ready)
        moved = self.pipeline.step(wanted, o_ready)
        solving = 0 < self.waited < self.done
        self.waited += solving
        if read:
            # The constants are taken over with the first word, which frees the solver.
            if self.given == 0:
                self.waited = 0
            self.given = (self.given + 1) % self.chunks
        if take:
            self.taken = (self.taken + 1) % self.chunks
            if self.taken == 0:
                # The row is complete: what is collected of it goes to the solver.
                self.waited = 1
        self.level += take - read
        self.o_valid = self.pipeline.o_valid
        return take or moved or solving

    def state(self) -> Hashable:
        """Return where writer and reader are, how long a row has waited, and the state of its pipeline."""
        return self.level, self.taken, self.given, self.waited, self.pipeline.state()
