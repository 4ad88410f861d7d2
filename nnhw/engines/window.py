"""Sliding window: a circular line buffer, read in the order in which the engine behind it needs the elements.

A linear layer is the 1 x 1 window of a 1 x 1 image; then the line buffer is a frame buffer, in which one frame comes in
while the one before is read, once for each output fold.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.large_ram import check_large
from nnhw.engines.loop_nest import LoopNest
from nnhw.errors import MappingError


@dataclass(frozen=True)
class WindowConfig(EngineConfig):
    """Parameters of a sliding window over a feature map that streams in row by row, channels innermost.

    Parameters
    ----------
    height, width, channels: of the input feature map.
    kernel, stride: (rows, columns).
    block: (rows, columns) of output pixels that leave one after the other: the window of a max pooling behind the
        convolution, so that pooling needs no line buffer and pixels that pooling drops are never computed.
    channel_lanes: channels of one pixel in a memory word; divides the channels of a group.
    row_lanes: kernel rows read at once: 1, or all of `kernel[0]` (then there is a copy of the memory for each).
    repeats: how often each window is read: the output folds of the engine behind it.
    bits: bits of an element.
    address_bits: the line buffer holds 2**address_bits words.
    dilation: (rows, columns) from one kernel tap to the next.
    groups: the channels of a window leave in so many groups, each `repeats` times before the next one;
        `channel_lanes` divides the channels of a group.
    upsample: (rows, columns) that each pixel becomes, all alike, for kernel, stride and block (1, 1).
    walks: how often all windows of a row of blocks are read, one after the other, before its rows are free.
    large: the line buffer is in large RAM.
    in_luts: the line buffer is in writable LUTs, which only some families have.

    Timing: a word comes in each cycle, a beat leaves each cycle, as far as rows are complete and there is room. A large
    RAM has one port: a word comes in when none is read, and after every `reads` reads the reader pauses for a cycle.

    Raises
    ------
    MappingError: parameters do not go together, or the line buffer is too small.
    """

    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    block: tuple[int, int]
    channel_lanes: int
    row_lanes: int
    repeats: int
    bits: int
    address_bits: int
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    upsample: tuple[int, int] = (1, 1)
    walks: int = 1
    large: bool = False
    in_luts: bool = False

    def __post_init__(self) -> None:
        if self.channels % self.groups:
            raise MappingError(f"window needs groups that divide {self.channels} channels, given {self.groups}")
        if self.group_channels % self.channel_lanes:
            raise MappingError(
                f"window needs channel lanes that divide {self.group_channels} channels, given {self.channel_lanes}"
            )
        if self.upsample != (1, 1) and not self.kernel == self.stride == self.block == (1, 1):
            raise MappingError(
                f"window needs kernel, stride and block (1, 1) where it upsamples, "
                f"given {self.kernel}, {self.stride} and {self.block}"
            )
        if self.row_lanes not in (1, self.kernel[0]):
            raise MappingError(f"window needs 1 or {self.kernel[0]} row lanes, given {self.row_lanes}")
        if self.blocks[0] < 1 or self.blocks[1] < 1:
            raise MappingError(
                f"window needs an input of at least {self.block_rows} x {self.block_columns} pixels, "
                f"given {self.height} x {self.width}"
            )
        if self.large:
            check_large("a line buffer", 1 << self.address_bits)
        if self.rows < self.block_rows:
            raise MappingError(
                f"window needs a line buffer of {self.block_rows} rows of {self.row_words} words, "
                f"given {1 << self.address_bits} words"
            )

    @property
    def group_channels(self) -> int:
        """Channels of one group."""
        return self.channels // self.groups

    @property
    def extent(self) -> tuple[int, int]:
        """(rows, columns) from the first kernel tap to the last, both counted."""
        rows, columns = ((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilation, strict=True))
        return rows, columns

    @property
    def simd(self) -> int:
        """Elements of one output beat: `channel_lanes` of the first kernel row, then those of the next one."""
        return self.row_lanes * self.channel_lanes

    @property
    def chunks(self) -> int:
        """Words of one pixel."""
        return self.channels // self.channel_lanes

    @property
    def row_words(self) -> int:
        """Words of one row of the feature map."""
        return self.width * self.chunks

    @property
    def rows(self) -> int:
        """Whole rows that the line buffer holds."""
        return (1 << self.address_bits) // self.row_words

    @property
    def block_rows(self) -> int:
        """Input rows that one row of blocks covers."""
        return self.extent[0] + (self.block[0] - 1) * self.stride[0]

    @property
    def block_columns(self) -> int:
        """Input columns that one block covers."""
        return self.extent[1] + (self.block[1] - 1) * self.stride[1]

    @property
    def blocks(self) -> tuple[int, int]:
        """(rows, columns) of blocks in one frame."""
        out_height = (self.height - self.extent[0]) // self.stride[0] + 1
        out_width = (self.width - self.extent[1]) // self.stride[1] + 1
        return out_height // self.block[0], out_width // self.block[1]

    @property
    def rows_step(self) -> int:
        """Input rows that are no longer needed once a row of blocks is done."""
        return self.block[0] * self.stride[0]

    @property
    def rows_left(self) -> int:
        """Input rows that the last row of blocks frees: all that remain of the frame."""
        # Frames follow one another in the buffer, so rows below the last block go with it, even if no window reads
        # them.
        return self.height - (self.blocks[0] - 1) * self.rows_step

    @property
    def steps(self) -> int:
        """Beats of one window of one group, read once."""
        return self.kernel[0] // self.row_lanes * self.kernel[1] * (self.chunks // self.groups)

    @property
    def row_beats(self) -> int:
        """Output beats of one row of blocks."""
        pixels = self.blocks[1] * self.block[0] * self.block[1] * self.upsample[0] * self.upsample[1]
        return pixels * self.walks * self.groups * self.repeats * self.steps

    @property
    def i_beats(self) -> int:
        """Input beats (memory words) of one frame."""
        return self.height * self.row_words

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.blocks[0] * self.row_beats

    @property
    def cycles(self) -> int:
        """Cycles of one frame, if no other engine makes it wait."""
        # One port: each read takes a cycle, and so does each write, or each pause if there are more of these.
        if self.large:
            return self.o_beats + max(self.i_beats, self.o_beats // self.reads)
        return max(self.i_beats, self.o_beats)

    @property
    def reads(self) -> int:
        """Words that are read from a large RAM between two pauses, in each of which a word can come in."""
        # In a frame, all words that come in must find a pause.
        return max(1, self.o_beats // self.i_beats)

    def nest(self) -> LoopNest:
        """Return the loops of one frame, innermost first.

        They are: chunk, kernel column, kernel row, repeat, group, copy of a column, column in a block, row in a block,
        block, walk, copy of a row, row of blocks. Where kernel columns and chunks are one run of words, they are one
        loop. Frames follow one another in memory.
        """
        (stride_y, stride_x), (step_y, step_x), chunks = self.stride, self.dilation, self.chunks
        group_chunks, row = chunks // self.groups, self.row_words
        loops = [(group_chunks, 1), (self.kernel[1], step_x * chunks)]
        # Fewer loops are fewer counters.
        if self.groups == 1 and (step_x == 1 or self.kernel[1] == 1):
            loops = [(self.kernel[1] * chunks, 1)]
        # A repeat goes back to the same window, hence a stride of 0.
        loops += [(self.kernel[0] // self.row_lanes, step_y * row), (self.repeats, 0)]
        if self.groups > 1:
            loops.append((self.groups, group_chunks))
        if self.upsample[1] > 1:
            loops.append((self.upsample[1], 0))
        loops += [
            (self.block[1], stride_x * chunks),
            (self.block[0], stride_y * row),
            (self.blocks[1], self.block[1] * stride_x * chunks),
        ]
        if self.walks > 1:
            loops.append((self.walks, 0))
        if self.upsample[0] > 1:
            loops.append((self.upsample[0], 0))
        loops.append((self.blocks[0], self.rows_step * row))
        counts, strides = zip(*loops, strict=True)
        return LoopNest(counts, strides, self.address_bits, outer_advance=self.i_beats)

    def tap_order(self) -> np.ndarray:
        """Return the order in which a window's pixels appear, as indices int64 [taps] into (row, column), C-ordered.

        Weights [channels, kh * kw] indexed with it along their last axis are in the order in which a channelwise engine
        needs them.
        """
        kernel_y, kernel_x = self.kernel
        index = np.arange(kernel_y * kernel_x).reshape(kernel_y // self.row_lanes, self.row_lanes, kernel_x)
        return np.ascontiguousarray(index.transpose(0, 2, 1)).reshape(-1)

    def weight_order(self) -> np.ndarray:
        """Return the order in which a window's elements appear, as indices into (channel, row, column), C-ordered.

        If there are several groups, it is that of one group.

        Returns
        -------
        int64 [steps * simd]: a weight matrix [outputs, channels / groups * kh * kw] indexed with it along its last axis
        is in the order of the stream.
        """
        kernel_y, kernel_x = self.kernel
        # As axes: chunk, lane of a chunk, row step, row lane, column; the stream goes by row step, column, chunk, row
        # lane, lane.
        index = np.arange(self.group_channels * kernel_y * kernel_x).reshape(
            self.chunks // self.groups, self.channel_lanes, kernel_y // self.row_lanes, self.row_lanes, kernel_x
        )
        return np.ascontiguousarray(index.transpose(2, 4, 0, 3, 1)).reshape(-1)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats of one frame.

        Parameters
        ----------
        beats: [i_beats, channel_lanes], or the same elements as [height, width, channels].

        Returns
        -------
        [o_beats, simd], the same kind of elements.
        """
        frame = np.asarray(beats[0]).reshape(self.height, self.width, self.channels)
        frame = frame.repeat(self.upsample[0], axis=0).repeat(self.upsample[1], axis=1)
        windows = []
        for y, x in self._pixels():
            (step_y, step_x), (rows, columns) = self.dilation, self.extent
            window = frame[y : y + rows : step_y, x : x + columns : step_x].transpose(2, 0, 1)
            # Channels come first in a window, so groups of them are consecutive parts.
            for group in window.reshape(self.groups, -1):
                windows += [group[self.weight_order()].reshape(-1, self.simd)] * self.repeats
        return np.concatenate(windows)

    def _pixels(self) -> Iterator[tuple[int, int]]:
        """Yield (row, column) of the first tap of every window, in the order of the stream."""
        for block_y, _, block_x in product(
            range(self.blocks[0] * self.upsample[0]),
            range(self.walks),
            range(self.blocks[1] * self.upsample[1]),
        ):
            for y, x in product(range(self.block[0]), range(self.block[1])):
                yield (block_y * self.block[0] + y) * self.stride[0], (block_x * self.block[1] + x) * self.stride[1]

    def model(self) -> WindowModel:
        """Return the cycle model."""
        return WindowModel(self)


class WindowModel:
    """Cycle model: words come in while there is room, a row of blocks starts when its rows are complete.

    Writer and reader hear of each other's rows one cycle late. Rows that no window reads, such as those behind the last
    one, are freed before they come in: then the surplus is negative until they are there, and the room is more than
    the buffer.
    """

    def __init__(self, config: WindowConfig) -> None:
        self.row_words, self.row_beats, self.block_rows = config.row_words, config.row_beats, config.blocks[0]
        self.rows_step, self.rows_left = config.rows_step, config.rows_left
        self.large, self.reads = config.large, config.reads
        self.pause = False  # of the port of a large RAM: nothing is read
        self.since = 0  # words read since the last pause
        self.room = 1 << config.address_bits  # words that may still come in
        self.surplus = -config.block_rows  # complete rows less those that the reader needs next
        self.word = 0  # words of the row that is coming in
        self.block_row = 0
        self.beat = 0  # beats of the row of blocks that is going out
        self.completed = 0  # rows completed in the last cycle
        self.freed = 0  # rows freed in the last cycle
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether a word has room, and the port to the memory is free."""
        return self.room > 0 and (not self.large or self.pause or self.surplus < 0)

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Write a word, read a word, release rows."""
        # Most cycles of a network are spent here, hence no calls where rows neither begin nor end.
        before, paused, told = self.o_valid, self.pause, self.completed or self.freed
        move = o_ready or not before
        write = i_valid and self.room > 0 and (not self.large or paused or self.surplus < 0)
        read = move and self.surplus >= 0 and not paused
        if self.large:
            self._pause(read, move)
        completed = freed = 0
        if write:
            self.room -= 1
            self.word += 1
            if self.word == self.row_words:
                self.word, completed = 0, 1
        if move:
            self.o_valid = read
        if read:
            self.beat += 1
            if self.beat == self.row_beats:
                freed = self._freed()
                self.surplus -= freed
        # What each side does in this cycle is known to the other one only in the next.
        if told:
            self.room += self.freed * self.row_words
            self.surplus += self.completed
        self.completed, self.freed = completed, freed
        return bool(write or read or told or before != self.o_valid or paused != self.pause)

    def state(self) -> Hashable:
        """Return the positions of writer and reader, what each has yet to hear of, and the state of the port."""
        port = (self.pause, self.since)
        reader = (self.surplus, self.block_row, self.beat, self.o_valid)
        return self.room, self.word, self.completed, self.freed, *reader, *port

    def _pause(self, read: bool, move: bool) -> None:
        """Decide whether the reader pauses in the next cycle: after `reads` words, and while nothing leaves."""
        self.since += read
        full = self.since == self.reads
        # A pause costs nothing while the output is blocked, and lets a word in.
        self.pause = full or not move
        if full:
            self.since = 0

    def _freed(self) -> int:
        """End a row of blocks; return the rows that are freed with it."""
        self.beat = 0
        self.block_row = (self.block_row + 1) % self.block_rows
        return self.rows_left if self.block_row == 0 else self.rows_step
