"""Tiles: the records of a task, one for each granule, a group of as many output channels as the array has lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared import ArrayConfig, Compute, make_loops
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.shared.cycles import needed_gap, stream_cycles
from nnhw.engines.shared.records import COUNT_BITS, describe_ties, head_words
from nnhw.errors import MappingError
from nnhw.mapping.shared.program.lines import Line, at_shift, signed_bits, tie_range
from nnhw.mapping.shared.program.row_tasks import channelwise_rows, count_channelwise, dense_rows, split_factors
from nnhw.mapping.shared.program.tasks import STREAMING, Task, weighted_range
from nnhw.mapping.shared.program.tensors import Tensor

Stride = tuple[int, int, int]
"""From one iteration of a loop to the next: (words, rows, columns)."""
MOST_COUNT = 1 << COUNT_BITS
"""Greatest count of one loop."""
MOST_STREAMED = 2
"""Rows of the weight cache that streamed weights need: one is used while the next comes in."""


@dataclass(frozen=True)
class Tile:
    """A granule (group of output channels) of a task; or all of them, one after the other in each pixel, if alike.

    Parameters
    ----------
    number: number of the granule.
    first, channels: first output channel of the granule, and number of its channels.
    word, words: first word of a source's pixel that is read, and number of words.
    source_slice: slice of that word that is read, of a channelwise task.
    target_word, target_slice: place of the first pixel in the target's storage: word, and slice of it.
    granules: number of granules that the tile computes.
    """

    number: int
    first: int
    channels: int
    word: int
    words: int
    source_slice: int
    target_word: int
    target_slice: int
    granules: int = 1


class Tiler:
    """Makes the records of one task.

    Parameters
    ----------
    tensors: of the network.
    function: index of the task's step function in the program, if it has one.
    """

    def __init__(self, task: Task, tensors: Mapping[str, Tensor], array: ArrayConfig, function: int = 0) -> None:
        self.task, self.array, self._function = task, array, function
        self.sources = tuple(tensors[name] for name in task.sources)
        self.target = tensors.get(task.node) if task.lines else None
        self.weights, self.sign = split_factors(task, array) if task.is_sum else (task.weights, 1)
        # Stored codes are less than codes by their zeros, so sums of them lack a constant, which the addends of lines
        # make up for.
        sums = [weights.sum(axis=1) for weights in self._by_source()] if task.is_sum else [task.weight_sums]
        zeros = [source.zero for source in self.sources]
        self.offset = self.sign * sum(
            (zero * own for zero, own in zip(zeros, sums, strict=True)), np.zeros(1, np.int64)
        )
        self._check()

    @cached_property
    def tiles(self) -> tuple[Tile, ...]:
        """All tiles, in the order in which they run.

        The last granule may have words beyond its pixel, which overwrite the beginning of the next pixel. So tiles run
        from the last granule to the first, whose words are then right. Planes have no such words and run in order: the
        last plane may then lie over the source, behind the window that moves over it.
        """
        count = -(-self.task.channels // self.array.lanes)
        # One record instead of one for each granule: less to fetch, and fewer latencies.
        if self._is_alike():
            return (replace(self._tile(0), granules=count),)
        tiles = [self._tile(number) for number in range(count)]
        return tuple(tiles if self.target is None or self.target.is_planar else tiles[::-1])

    @cached_property
    def kinds(self) -> tuple[tuple[Tile, int], ...]:
        """A tile of each kind, and how many there are: those of a kind take as many cycles, words and rows.

        A search counts these for hundreds of arrays, where most tasks have dozens of tiles of one kind.
        """
        task = self.task
        if self._is_alike():
            return ((self.tiles[0], 1),)
        equal = task.equal_taps
        if bool(equal.all()) or not equal.any() if task.channelwise else task.groups == 1:
            return ((self._tile(0), -(-task.channels // self.array.lanes)),)
        kinds: dict[tuple[int, int, int], list[Tile]] = {}
        for tile in self.tiles:
            kinds.setdefault((tile.words, self._steps(tile), self._rows(tile)), []).append(tile)
        return tuple((alike[0], len(alike)) for alike in kinds.values())

    def total(self, count: Callable[[Tile], int]) -> int:
        """Return a count of cycles, words or rows, added up over all tiles."""
        return sum(count(tile) * number for tile, number in self.kinds)

    @property
    def overflow(self) -> int:
        """Number of words behind the last pixel of the target that are overwritten."""
        # Pieces of a map never reach beyond their pixels, see `tensors._home_of_piece`.
        if self.target is None or self.target.is_planar or self.task.piece is not None:
            return 0
        last = self.tiles[0] if self._is_alike() else self._tile(-(-self.task.channels // self.array.lanes) - 1)
        return max(0, last.target_word + last.granules * self.array.parts - self.target.step)

    @cached_property
    def rows(self) -> int:
        """Number of rows of weights that the cache has to hold at once."""
        return MOST_STREAMED if self.streams else max(self._rows(tile) for tile, _ in self.kinds)

    @property
    def streams(self) -> bool:
        """Whether weights are used as they come in: in a dense task with a single position, each is used only once."""
        return self.array.weight_stream and not self.task.channelwise and self.task.window.is_global

    @cached_property
    def sum_bits(self) -> int:
        """Bits of the widest sum."""
        if not self.task.is_sum:
            return signed_bits(np.array(task_sums(self.task, self.sources[0])))
        sums = [
            weighted_range(weights, *(np.array(end) for end in source.stored_range))
            for source, weights in zip(self.sources, self._by_source(), strict=True)
        ]
        return signed_bits(np.array([sum(low for low, _ in sums), sum(high for _, high in sums)]))

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The possible lines from sums of stored codes to stored codes, by ascending shift; empty if sums leave."""
        zero = 0 if self.target is None else self.target.zero
        return _stored_lines(self.task, self.offset.tobytes(), zero, self.sign)

    @property
    def function(self) -> RankedSteps | None:
        """The steps behind the line, from which stored codes come, if there are any."""
        return self.lines[0].ranked if self.lines else None

    def records(self, places: Mapping[str, int]) -> tuple[Compute, ...]:
        """Return the records of all tiles.

        Parameters
        ----------
        places: address of each storage, by name.

        Raises
        ------
        MappingError: the array's requantizers cannot compute the line.
        """
        shift, line = (0, None) if self.target is None else self._line()
        # Sums leave in whole bytes.
        raw = 0 if line is not None else -(-self.sum_bits // 8)
        return tuple(self._record(tile, places, line, shift, raw) for tile in self.tiles)

    def _record(self, tile: Tile, places: Mapping[str, int], line: Line | None, shift: int, raw: int) -> Compute:
        task, window, source, target = self.task, self.task.window, self.sources[0], self.target
        strides, counts = self._loops(tile, places)
        loops = make_loops(counts, strides)
        weights, steps = self._weights(tile), self._steps(tile)
        words, positions = int(np.prod(counts[:3])), int(np.prod(counts[3:5]))
        before = window.before[0] * window.source[2] + window.before[1]
        # Without a border no place can lie outside; rows and columns then start at 0 and do not count.
        outside = not task.is_sum and window.has_border
        lanes = slice(tile.first, tile.first + tile.channels)
        constants = {} if line is None else _constants(line, lanes, self.array.lanes)
        return Compute(
            layer=task.name,
            node=task.value,
            channels=(tile.first, tile.channels * tile.granules),
            # The address of the first tap, which may lie in the border, in front of the value: row and column tell.
            start=places[source.storage] + tile.word * source.chunk - before * source.step,
            row=-window.before[0] if outside else 0,
            column=-window.before[1] if outside else 0,
            height=window.source[1],
            width=window.source[2],
            border=window.border - source.zero if outside else 0,
            loops=loops,
            weights=weights,
            factor=constants.get("factor"),
            addend=constants.get("addend"),
            channelwise=task.channelwise,
            steps=steps,
            source_slice=tile.source_slice,
            # Equal weights of all taps are one row, which is held.
            hold=task.channelwise and len(weights) == 1,
            streamed=self.streams,
            gap=needed_gap(words, steps, positions, self.array),
            shift=shift,
            even=line is not None and line.even,
            parity=line.parity if line is not None else 0,
            tie_bits=constants.get("tie_bits"),
            pivot=line.pivot if line is not None else 0,
            low=line.low if line is not None else 0,
            high=line.high if line is not None else 0,
            function=None if self.function is None else self._function,
            raw=raw,
            target=0 if target is None else places[target.storage] + target.origin + tile.target_word,
            target_step=0 if target is None else self.array.parts if tile.granules > 1 else target.step,
            target_row=0 if target is None or task.piece is None else target.row,
            target_slice=tile.target_slice,
            zero=0 if target is None else target.zero,
            planar=tile.granules > 1 and source.is_planar and not task.window.is_global,
            products=task.products // task.channels * tile.channels,
            **_stored_pixels(task),
        )

    def _loops(self, tile: Tile, places: Mapping[str, int]) -> tuple[list[Stride], list[int]]:
        """Return strides (words, rows, columns) and counts of the loops, innermost first."""
        window, source = self.task.window, self.sources[0]
        rows = window.source[2] * source.step
        taps: list[tuple[int, Stride]]
        if self.task.is_sum:
            summands, repeats = self.weights.shape[1:]
            # Summands lie in storages of their own: the step between them is a distance of addresses, whatever its
            # sign.
            places_of = [places[one.storage] + one.granule(tile.number, self.array)[0] for one in self.sources]
            taps = [(repeats, (0, 0, 0)), (summands, (places_of[-1] - places_of[0], 0, 0))]
        else:
            down, right = window.dilation
            taps = [(window.kernel[1], (right * source.step, 0, right)), (window.kernel[0], (down * rows, down, 0))]
        loops = [(tile.words, (source.chunk, 0, 0)), *taps]
        if tile.granules > 1:
            # All pixels in one loop, all granules in the other; what is planar is computed plane by plane.
            none = (1, (0, 0, 0))
            pixels = (window.pixels, (source.step, 0, 0))
            granules = (tile.granules, (source.chunk if source.is_planar else self.array.parts, 0, 0))
            loops += [none, none, *((pixels, granules) if source.is_planar else (granules, pixels))]
            return [stride for _, stride in loops], [count for count, _ in loops]
        for counts, (down, right) in ((window.pool, window.stride), (window.blocks, window.step)):
            loops += [(counts[1], (right * source.step, 0, right)), (counts[0], (down * rows, down, 0))]
        return [stride for _, stride in loops], [count for count, _ in loops]

    def _is_alike(self) -> bool:
        """Return whether one record can compute all granules: all channels have the same weights and the same line."""
        task, window, target = self.task, self.task.window, self.target
        # Lanes of several granules in a word, or with channels left over, would write what belongs to others.
        parts, several = self.array.parts, task.channels > self.array.lanes
        if target is None or not several or self.array.slices > 1 or task.channels % self.array.lanes or task.piece:
            return False
        pixelwise = window.is_pixelwise and window.pixels <= MOST_COUNT and target.chunk == self.sources[0].chunk
        alike = task.channelwise and len(self.weights) == 1 and all(line.is_uniform for line in task.lines)
        whole = target.is_planar or target.step * self.array.lanes == task.channels * parts
        return alike and whole and (pixelwise or window.is_global)

    def _tile(self, number: int) -> Tile:
        task, array = self.task, self.array
        first = number * array.lanes
        channels = min(array.lanes, task.channels - first)
        target = (0, 0) if self.target is None else self.target.granule(number, array)
        # Lane k takes channel k, so the words read are those of the granule itself.
        if task.channelwise:
            place, part = self.sources[0].granule(number, array)
            return Tile(number, first, channels, place // self.sources[0].chunk, array.parts, part, *target)
        low, high = self._inputs(first, channels)
        word = low // array.codes_per_word
        return Tile(number, first, channels, word, -(-high // array.codes_per_word) - word, 0, *target)

    def _inputs(self, first: int, channels: int) -> tuple[int, int]:
        """Return the channels (first, end) of a source's pixel that outputs first..first + channels - 1 read."""
        groups, inside = self.task.groups, self.weights.shape[1]
        outputs = self.task.channels // groups
        start = self.sources[0].first
        return start + first // outputs * inside, start + ((first + channels - 1) // outputs + 1) * inside

    def _steps(self, tile: Tile) -> int:
        """Return the cycles that the array spends on a word of the source."""
        if self.task.channelwise:
            return 1
        _, high = self._inputs(tile.first, tile.channels)
        # The last word of a pixel need not be full; with several words, all but the last one are.
        used = high - tile.word * self.array.codes_per_word
        return min(self.array.steps_per_word, -(-used // self.array.simd))

    def _rows(self, tile: Tile) -> int:
        if not self.task.channelwise:
            return self.task.window.kernel[0] * self.task.window.kernel[1] * tile.words * self._steps(tile)
        return count_channelwise(self.weights, tile.first, tile.channels)

    def record_words(self, tile: Tile) -> int:
        """Return the memory words of a tile's record."""
        row = self.array.channelwise_words if self.task.channelwise else self.array.row_words
        return self._head_words() + self._rows(tile) * row

    def _head_words(self) -> int:
        """Return the words of a record in front of its weights."""
        return head_words(self.array, bool(self.task.lines))

    def cycles(self, tile: Tile, rows: int | None = None) -> int:
        """Return the cycles of a tile: those of its positions, and those in which its record is read.

        Parameters
        ----------
        rows: number of rows that it stores; None: all.
        """
        kernel = self.weights.shape[1:] if self.task.is_sum else self.task.window.kernel
        pool = self.task.window.pool
        words, steps, window = tile.words * kernel[0] * kernel[1], self._steps(tile), pool[0] * pool[1]
        gap = needed_gap(words, steps, window, self.array)
        if self.streams:
            return self._head_words() + gap + stream_cycles(words, steps, self.array)
        height, width = self.task.window.blocks
        pixels = width * (height if rows is None else rows)
        return self.record_words(tile) + (gap + words * steps) * window * pixels * tile.granules

    def _weights(self, tile: Tile) -> np.ndarray:
        """Return the rows of weights [n, lanes, simd]."""
        task, array = self.task, self.array
        if task.channelwise:
            return channelwise_rows(self.weights, tile.first, tile.channels, array)
        outputs, inside = task.channels // task.groups, self.weights.shape[1]
        # Where the value begins within the first word that is read: it may be a part of a concatenation.
        start = self.sources[0].first - tile.word * array.codes_per_word
        places = [start + number // outputs * inside for number in range(tile.first, tile.first + tile.channels)]
        return dense_rows(self.weights, places, tile.first, tile.words, self._steps(tile), array)

    def _by_source(self) -> list[np.ndarray]:
        """Return the weights [outputs or 1, n] of each source."""
        if self.task.is_sum:
            return [self.weights[:, index] for index in range(self.weights.shape[1])]
        return [self.weights.reshape(len(self.weights), -1)]

    def _line(self) -> tuple[int, Line]:
        """Return the index of the smallest sufficient shift of the array, and the line with that shift."""
        task, array, where, lines = self.task, self.array, self.task.where, self.lines
        # A line for a shift is one for any greater one, with wider constants.
        index = next((index for index, shift in enumerate(array.shifts) if shift >= lines[0].shift), None)
        if index is None:
            raise MappingError(
                f"layer {where} needs a requantizer with a shift of {lines[0].shift}, the array has {array.shifts}",
                f"use an array with more, or {STREAMING}",
            )
        line = at_shift(lines, array.shifts[index])
        for name, need, given in (
            ("factors", line.factor_bits, array.factor_bits),
            ("addends", line.addend_bits, array.addend_bits),
        ):
            if need > given:
                raise MappingError(
                    f"layer {where} needs a requantizer with {name} of {need} bits, the array has {given}",
                    f"use an array with more, or {STREAMING}",
                )
        self._check_ties(line)
        self._check_steps()
        if task.needs_row_steps and not array.row_steps:
            raise MappingError(
                f"layer {where} makes rows of a map whose pixels are apart, the array has no steps for rows",
                f"use an array with them, or {STREAMING}",
            )
        return index, line

    def _check_steps(self) -> None:
        ranked, array, code = self.function, self.array, self.array.activation
        if ranked is None:
            return
        memory = array.step_memory
        if memory is None:
            raise MappingError(
                f"layer {self.task.where} goes through steps that its channels share, the array has no memory of steps",
                f"use an array with one, or {STREAMING}",
            )
        most = code.high - code.low + 1
        if ranked.cell_bits > memory.place_bits or ranked.used_words > most:
            raise MappingError(
                f"layer {self.task.where} goes through {ranked.used_words} words of ranks and places of "
                f"{ranked.cell_bits} bits, the array has {most} of them for a layer and places of {memory.place_bits} "
                f"bits",
                f"use an array with more, or {STREAMING}",
            )

    def _check_ties(self, line: Line) -> None:
        array, ties = self.array, tie_range([line])
        if ties is None or array.requantizing == Requantizing.STEPS or None not in map(array.tie_code, ties):
            return
        raise MappingError(
            f"layer {self.task.where} rounds ties away from zero, told by {ties[0]} to {ties[1]} fraction bits; the "
            f"array tells them by {describe_ties(array)}",
            f"use an array with more, or {STREAMING}",
        )

    def _check(self) -> None:
        """Raise MappingError if the task exceeds a limit of the array."""
        task, array = self.task, self.array
        # The factors of a sum are split into such weights.
        low, high = (0, 0) if task.is_sum else task.weight_range
        if low < array.weight.low or high > array.weight.high:
            raise MappingError(
                f"layer {task.where} has weights of {low}..{high}, the array takes "
                f"{array.weight.low}..{array.weight.high}",
                f"use an array with more weight bits, or {STREAMING}",
            )
        if self.rows > array.rows:
            raise MappingError(
                f"layer {task.where} needs {self.rows} rows of weights at once, the cache has {array.rows}",
                "use a smaller kernel or fewer input channels, an array with more rows or a larger simd, or "
                f"{STREAMING}",
            )
        if (words := max(tile.words for tile, _ in self.kinds)) > MOST_COUNT:
            raise MappingError(
                f"layer {task.where} reads {words:,} words of {array.codes_per_word} codes of a pixel, an array at "
                f"most {MOST_COUNT:,}",
                f"use fewer input channels, or {STREAMING}",
            )
        if self.sum_bits > array.sum_bits:
            raise MappingError(
                f"layer {task.where} needs sums of {self.sum_bits} bits, the array has {array.sum_bits}",
                f"use an array with more, or {STREAMING}",
            )
        # Sums leave granule by granule, and the host reads a pixel's channels together.
        if self.target is None and task.channels > array.lanes and task.window.pixels > 1:
            raise MappingError(
                f"layer {task.where} ends the network in sums of {task.channels} channels and {task.window.pixels} "
                f"pixels, the array sends {array.lanes} channels after another",
                f"put a quantizer behind it, or {STREAMING}",
            )


def _stored_pixels(task: Task) -> dict[str, Any]:
    """Return the fields of a record that say which pixels of a value it stores, for those that store a piece."""
    piece = task.piece
    if piece is None:
        return {}
    return {"first_pixel": piece.pixel, "pixel_step": piece.step[1], "pixel_row": piece.row}


def task_sums(task: Task, source: Tensor) -> tuple[int, int]:
    """Return the lowest and the highest sum of a layer with weights, of the codes that are stored for it."""
    return _sum_range(task, *source.stored_range)


@lru_cache(maxsize=1 << 10)
def _sum_range(task: Task, low: int, high: int) -> tuple[int, int]:
    """Return the lowest and the highest sum of a layer with weights, of codes between low and high."""
    return weighted_range(task.weights.reshape(len(task.weights), -1), np.array(low), np.array(high))


@lru_cache(maxsize=1 << 10)
def _stored_lines(task: Task, offset: bytes, zero: int, sign: int) -> tuple[Line, ...]:
    """Return a task's lines of what the array adds to what it stores; see `Line.stored`.

    The search lays out the same tasks for hundreds of arrays, and few of them differ in offset and zero.
    """
    offsets = np.frombuffer(offset, np.int64)
    return tuple(line.stored(offsets, zero, sign) for line in task.lines)


def _constants(line: Line, lanes: slice, count: int) -> dict[str, np.ndarray]:
    """Return the constants of a tile's lanes, each int64 [count]; unused lanes get 0."""
    found = {}
    ties = {} if line.tie_bits is None else {"tie_bits": line.tie_bits}
    for name, values in {"factor": line.factor, "addend": line.addend, **ties}.items():
        found[name] = np.zeros(count, np.int64)
        found[name][: lanes.stop - lanes.start] = np.broadcast_to(values, max(len(values), lanes.stop))[lanes]
    return found
