"""Programs made by chance: layers of every kind that a record can be, on small arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared import ArrayConfig, Compute, Emit, Fill, SharedConfig, make_loops
from nnhw.engines.shared.array import CELLS_LOG2, Requantizing, StepMemory
from nnhw.engines.shared.cycles import needed_gap
from nnhw.engines.shared.records import Record

SMALL = ArrayConfig(
    lanes=4,
    simd=2,
    weight_bits=8,
    activation_bits=8,
    word_bits=32,
    words=1024,
    rows=64,
    sum_bits=23,
    factor_bits=12,
    addend_bits=24,
    shifts=(0, 3, 6, 11),
    dsp=True,
)
ARRAYS = {
    "dsp": SMALL,
    "slices": replace(SMALL, simd=4, weight_bits=2, activation_bits=2, word_bits=16, drains=2, words=2048, dsp=False),
    "parts": replace(SMALL, lanes=8, simd=1, i_lanes=2, words=2048, shifts=(5,), factor_bits=9, rows=128),
    "nibbles": replace(SMALL, weight_bits=4, activation_bits=4, word_bits=64, drains=4, dsp=False, sum_bits=14),
    "wide": replace(SMALL, weight_bits=2, lanes=8, word_bits=64, factor_bits=29, addend_bits=45, shifts=(14, 20)),
    "pairs": replace(SMALL, weight_bits=4, activation_bits=4, factor_bits=3, addend_bits=20, drains=2, word_bits=16),
}
ARRAYS |= {
    "joined": replace(SMALL, lanes=8, simd=4, word_bits=128, drains=4, i_lanes=4),
    "steps": replace(ARRAYS["slices"], sum_bits=9, requantizing=Requantizing.STEPS),
    "blocks": replace(ARRAYS["nibbles"], factor_bits=14, addend_bits=21, requantizing=Requantizing.DSP),
    "magnitudes": replace(ARRAYS["pairs"], sum_bits=12, factor_bits=17, addend_bits=28, requantizing=Requantizing.DSP),
    "mixed": replace(ARRAYS["nibbles"], dsp_lanes=3),
    "late": replace(ARRAYS["pairs"], simd=1, dsp=False, dsp_lanes=1),
    "ties": replace(SMALL, factor_bits=9, addend_bits=23, shifts=(4, 7, 11), tie_bits=(2, 6)),
}
STEPPED = StepMemory(words=32, places=64, place_bits=5)
ARRAYS |= {
    "stepped": replace(SMALL, step_memory=STEPPED),
    "narrow steps": replace(ARRAYS["nibbles"], shifts=(6, 9), step_memory=replace(STEPPED, places=128, place_bits=3)),
    "steps in blocks": replace(ARRAYS["blocks"], shifts=(9,), word_bits=16, step_memory=STEPPED),
}
ARRAYS |= {f"{name}, apart": replace(ARRAYS[name], row_steps=True) for name in ("slices", "parts", "nibbles")}
ARRAYS["ties in blocks"] = replace(ARRAYS["blocks"], tie_bits=(3, 3))
STREAMING = {f"{name}, streaming": replace(array, weight_stream=True) for name, array in ARRAYS.items()}
"""The same, and weights may come while they are used."""
NONE = (0, 0, 0)


@dataclass(frozen=True)
class Tensor:
    """A tensor in memory: `words` of them a pixel."""

    start: int
    height: int
    width: int
    words: int


class Maker:
    """Add records to a program, each tensor in a place of its own."""

    def __init__(self, array: ArrayConfig, seed: int) -> None:
        self.array = array
        self.rng = np.random.default_rng(seed)
        self.free = array.words * 5 // 8
        self.records: list[Record] = []
        memory = array.step_memory
        self.functions = [] if memory is None else [self._function(memory) for _ in range(self.number(1, 2))]

    def _function(self, memory: StepMemory) -> RankedSteps:
        """Return steps in half the memory at the most."""
        words = self.number(1, min(memory.words // 2, self.array.activation.high) - 2)
        cell_bits, cells = self.number(1, memory.place_bits), words << CELLS_LOG2
        count = self.number(1, min(memory.places // 2 - 1, cells))
        taken = (1 << CELLS_LOG2) + np.sort(self.rng.choice(cells, count, replace=False))
        steps = (taken << cell_bits) + self.rng.integers(0, 1 << cell_bits, count)
        code = self.array.activation
        codes = self.rng.integers(code.low, code.high + 1, count + 1)
        return RankedSteps(steps, codes, cell_bits, CELLS_LOG2)

    def place(self, height: int, width: int, words: int) -> Tensor:
        """Return a new tensor."""
        tensor = Tensor(self.free, height, width, words)
        self.free += height * width * words
        assert self.free <= self.array.words
        return tensor

    def number(self, low: int, high: int) -> int:
        """Return a number from low to high."""
        return int(self.rng.integers(low, high + 1))

    def flag(self) -> bool:
        """Return a truth value."""
        return bool(self.rng.integers(2))

    def fill(self, height: int, width: int, elements: int) -> Tensor:
        """Add a tensor from the input."""
        tensor = self.place(height, width, self.array.chunks(elements))
        self.records.append(Fill(tensor.start, height * width, elements, self.flag()))
        return tensor

    def emit(self, tensor: Tensor) -> None:
        """Add the way of a tensor to the output."""
        most = tensor.words * self.array.codes_per_word
        elements = self.number(max(1, most - self.array.codes_per_word + 1), most)
        self.records.append(Emit(tensor.start, tensor.height * tensor.width, elements, self.flag()))

    def layer(self, source: Tensor, other: Tensor | None = None) -> Tensor | None:
        """Add a layer of one or two tiles; return what it stores, None where its results are raw."""
        array, dilation = self.array, self.number(1, 2)
        kernel = [self.number(1, 2 if other else 3) for _ in range(2)] if other is None else [1, 1]
        pad, stride = self.number(0, 2) if other is None else 0, self.number(1, 2) if other is None else 1
        if array.weight_stream and self.number(0, 2):
            dilation, pad, kernel = 1, 0, [source.height, source.width]
        shape = [
            (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
            for extent, size in zip((source.height, source.width), kernel, strict=True)
        ]
        pools = [self.number(1, 2) if extent > 1 and extent % 2 == 0 else 1 for extent in shape]
        if min(shape) < 1:
            return self.layer(source, other)
        shape = [extent // pool for extent, pool in zip(shape, pools, strict=True)]
        raw = self.number(1, 4) if self.number(0, 5) == 0 else 0
        tiles = self.number(1, 2)
        apart = self._apart(shape, self._words(tiles))
        extents = [extent * step for extent, step in zip(shape, apart, strict=True)]
        target = None if raw else self.place(*extents, self._words(tiles))
        channelwise = other is not None or self.flag()
        for tile in range(tiles):
            word, part_slice = self._granule(tile)
            record = self._record(source, kernel, dilation, stride, pools, shape, pad, channelwise)
            if other is not None:
                record = self._two_sources(record, source, other)
            if array.weight_stream and record.positions == 1 and not record.channelwise:
                record = replace(record, streamed=True, hold=False, weights=self._weights(record.taps))
            record = replace(record, raw=raw, gap=self._gap(record))
            if array.tie_bits and not raw:
                record = self._with_ties(record)
            if self.functions and not raw and self.number(0, 2):
                record = self._with_steps(record)
            if raw:
                record = replace(record, factor=None, addend=None)
            elif target is not None:
                step, row = apart[1] * target.words, apart[0] * target.width * target.words
                row = row if array.row_steps else 0
                record = replace(
                    record, target=target.start + word, target_step=step, target_row=row, target_slice=part_slice
                )
            self.records.append(record)
        return target

    def _apart(self, shape: list[int], words: int) -> list[int]:
        """Return distances of the pixels that a layer stores; 1 without steps for rows, or with too few words."""
        if not self.array.row_steps:
            return [1, 1]
        apart = [self.number(1, 3), self.number(1, 3)]
        needed = shape[0] * apart[0] * shape[1] * apart[1] * words
        return apart if self.free + 2 * needed <= self.array.words else [1, 1]

    def _words(self, tiles: int) -> int:
        return max(1, -(-tiles * self.array.granule_bits // self.array.word_bits))

    def _granule(self, tile: int) -> tuple[int, int]:
        """Return word and slice of a tile of a pixel."""
        array = self.array
        return tile // array.slices * array.parts, tile % array.slices

    def _gap(self, record: Compute) -> int:
        words = record.words
        return needed_gap(words, record.steps, record.window, self.array) + self.number(0, 3) * self.number(0, 1)

    def _record(
        self,
        source: Tensor,
        kernel: list[int],
        dilation: int,
        stride: int,
        pools: list[int],
        shape: list[int],
        pad: int,
        channelwise: bool,
    ) -> Compute:
        """Return a record without the place of its results."""
        array, words, rng = self.array, source.words, self.rng
        channelwise = channelwise and words % array.parts == 0
        granule, source_slice = self._granule(self.number(0, max(words * array.slices // array.parts, 1) - 1))
        row, column = (source.width * words, 1, 0), (words, 0, 1)
        steps = self.number(1, min(array.steps_per_word, array.rows // (kernel[0] * kernel[1] * words)))

        def times(step: tuple[int, int, int], factor: int) -> tuple[int, int, int]:
            return step[0] * factor, step[1] * factor, step[2] * factor

        counts = (array.parts if channelwise else words, *kernel[::-1], *pools[::-1], *shape[::-1])
        strides = [
            (1, 0, 0),
            times(column, dilation),
            times(row, dilation),
            times(column, stride),
            times(row, stride),
            times(column, stride * pools[1]),
            times(row, stride * pools[0]),
        ]
        hold = self.number(0, 3) == 0
        taps = kernel[0] * kernel[1] * (1 if channelwise else words * steps)
        low, high = sorted(rng.integers(array.activation.low, array.activation.high + 1, 2).tolist())
        if self.number(0, 1):
            low, high = array.activation.low, array.activation.high
        return Compute(
            layer="layer",
            node="node",
            channels=(0, self.number(1, array.lanes)),
            start=source.start - pad * (row[0] + column[0]) + (granule if channelwise else 0),
            row=-pad,
            column=-pad,
            height=source.height,
            width=source.width,
            border=self.number(array.activation.low, array.activation.high),
            loops=make_loops(counts, strides),
            weights=self._weights(1 if hold else taps),
            factor=self._factors(),
            addend=rng.integers(-(1 << (array.addend_bits - 1)), 1 << (array.addend_bits - 1), array.lanes)
            >> rng.integers(0, array.addend_bits),
            channelwise=channelwise,
            steps=1 if channelwise else steps,
            source_slice=source_slice if channelwise else 0,
            hold=hold,
            shift=self.number(0, len(array.shifts) - 1),
            even=self.flag(),
            parity=self.number(0, 1),
            low=low,
            high=high,
        )

    def _weights(self, rows: int) -> np.ndarray:
        array = self.array
        weights = self.rng.integers(array.weight.low, array.weight.high + 1, (rows, array.lanes, array.simd))
        return weights if self.flag() else weights >> max(array.weight_bits - 3, 0)

    def _factors(self) -> np.ndarray:
        """Return factors: any, or powers of two, whose products have ties."""
        bits = self.array.factor_bits
        if self.flag():
            factors = self.rng.integers(1 - (1 << (bits - 1)), 1 << (bits - 1), self.array.lanes)
            return factors >> self.rng.integers(0, bits)
        return self.rng.choice([-1, 1], self.array.lanes) << self.rng.integers(0, bits - 1, self.array.lanes)

    def _with_ties(self, record: Compute) -> Compute:
        """Return a record whose lanes round ties away from zero, most of them, or to even."""
        array = self.array
        least, most = array.tie_bits or (1, 1)
        bits = self.rng.integers(least - 1, most + 1, array.lanes)
        bits[(bits < least) | (bits > array.shifts[record.shift])] = 0
        pivot = self.number(record.low, record.high)
        return replace(record, even=record.even and not bits.any(), tie_bits=bits, pivot=pivot)

    def _with_steps(self, record: Compute) -> Compute:
        """Return a record whose lines say the words of ranks of a function."""
        index = self.number(0, len(self.functions) - 1)
        function, shifts = self.functions[index], self.array.shifts
        fit = [number for number, shift in enumerate(shifts) if shift >= function.word_bits]
        if not fit:
            return record
        low = self.number(self.array.activation.low, self.array.activation.high - function.used_words + 1)
        place = fit[self.number(0, len(fit) - 1)]
        words, lanes = function.used_words << shifts[place], self.array.lanes
        # Sums of a few products spread over all words.
        most = min(2 * words >> self.number(1, self.array.sum_bits - 4), (1 << (self.array.factor_bits - 1)) - 1)
        middle = (low << shifts[place]) + self.rng.integers(0, words, lanes)
        return replace(
            record,
            factor=self.rng.choice([-1, 1], lanes) * self.rng.integers(most // 2, most + 1, lanes),
            addend=middle.clip(-(1 << (self.array.addend_bits - 2)), 1 << (self.array.addend_bits - 2)),
            shift=place,
            even=False,
            tie_bits=None,
            low=low,
            high=low + function.used_words - 1,
            function=index,
        )

    def _two_sources(self, record: Compute, source: Tensor, other: Tensor) -> Compute:
        """Return a record that adds another tensor: it is the second tap."""
        counts = (*record.counts[:1], 2, *record.counts[2:])
        row, column = (source.width * source.words, 1, 0), (source.words, 0, 1)
        strides = [(1, 0, 0), (other.start - source.start, 0, 0), NONE]
        wx, wy = record.counts[3:5]
        strides += [column, row, (column[0] * wx, 0, wx), (row[0] * wy, wy, 0)]
        parts = record.counts[0]
        rows = 1 if record.hold else 2 * (1 if record.channelwise else parts * record.steps)
        return replace(record, loops=make_loops(counts, strides), weights=self._weights(rows))


def random_program(array: ArrayConfig, seed: int) -> SharedConfig:
    """Return a program of a few layers."""
    maker = Maker(array, seed)
    elements = maker.number(1, 2 * array.codes_per_word // array.i_lanes) * array.i_lanes
    most = 2 if array.weight_stream else 5
    tensors = [maker.fill(maker.number(1, most), maker.number(1, most), elements)]
    for _ in range(maker.number(1, 3)):
        source = tensors[maker.number(0, len(tensors) - 1)]
        twins = [
            one
            for one in tensors
            if one is not source and (one.height, one.width, one.words) == (source.height, source.width, source.words)
        ]
        made = maker.layer(source, twins[0] if twins else None)
        if made is not None:
            tensors.append(made)
    if maker.flag():
        maker.emit(tensors[0])
    maker.emit(tensors[-1])
    return SharedConfig(array, tuple(maker.records), tuple(maker.functions))


def random_frames(program: SharedConfig, count: int, seed: int) -> list[np.ndarray]:
    """Return elements of input."""
    code = program.array.activation
    rng = np.random.default_rng(seed)
    return [rng.integers(code.low, code.high + 1, program.i_beats * program.array.i_lanes) for _ in range(count)]
