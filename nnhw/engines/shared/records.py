"""The records of a program, and their form in memory.

A record is a descriptor; behind that of a `Compute` follow the constants of each lane, then the rows of weights.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np

from nnhw.engines.encoding import encode, pack_bytes, words_of
from nnhw.engines.requantize import MultiplyShift, RankedSteps
from nnhw.engines.shared.array import ArrayConfig, Requantizing
from nnhw.errors import MappingError

LOOPS = ("word", "kx", "ky", "wx", "wy", "x", "y")
"""The nested loops of a `Compute`, innermost first: word of a tap, kernel, pooling window, output map."""
COUNT_BITS = 10
"""Bits of the fields with counts of words and of output columns and rows, and with the tensor's height and width."""
WINDOW_BITS = 7
"""Bits of the fields with counts of kernels and of pooling windows."""
EXTENT_BITS = 11
"""Bits of the fields with rows and columns: a sign more than a height has, as borders lie at negative places."""
SIZE_BITS = 16
"""Bits of the fields with pixels and elements of a transfer: those of the fields that they lie over, see `OVERLAID`."""
OVERLAID = {
    "pixels": ("kx_count", "ky_count", "shift"),
    "elements": ("wx_count", "wy_count", "even", "parity"),
    "pixels_single": ("kx_single",),
    "elements_single": ("wx_single",),
}
"""Fields of transfers --> the fields of a `Compute` whose bits they use; they are equally long."""
STEPS = (
    *((f"{name}_address", f"{name}_row", f"{name}_column") for name in LOOPS),
    ("start", "row", "column"),
    ("next",),
)
"""Groups of fields (address, row, column) that are added together: steps of the loops, the start, the next record."""


class RecordKind(enum.IntEnum):
    """What a record does."""

    FILL = 0
    COMPUTE = 1
    EMIT = 2
    LOAD = 3


@dataclass(frozen=True)
class Transfer:
    """A tensor that comes in or goes out, pixel by pixel.

    Parameters
    ----------
    start: address of its first word.
    pixels: number of pixels.
    elements: elements of a pixel; for a `Fill` a multiple of the array's `i_lanes`.
    flip: the codes are unsigned on the stream and signed in memory: their top bit is inverted on the way.
    node: name of the IR value.
    """

    start: int
    pixels: int
    elements: int
    flip: bool
    node: str = ""


@dataclass(frozen=True)
class Fill(Transfer):
    """A tensor from the input stream, `i_lanes` elements a beat; a pixel begins with a new word."""


@dataclass(frozen=True)
class Emit(Transfer):
    """A tensor to the output stream, an element in each byte: extended by its sign, or by zeros if it is flipped."""


@dataclass(frozen=True)
class Load:
    """Rows of the step memory, which follow those of the `Load` in front. Loads come first in a program, and run once.

    Parameters
    ----------
    entries: numbers of `entry_bits`, see `step_entries`.
    """

    entries: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """One of the nested loops over the words that a `Compute` reads.

    Parameters
    ----------
    count: iterations.
    address, row, column: added when this loop goes on and all loops inside it go back to their start.
    """

    count: int = 1
    address: int = 0
    row: int = 0
    column: int = 0


def make_loops(counts: Sequence[int], strides: Sequence[tuple[int, int, int]]) -> tuple[Loop, ...]:
    """Return loops for given counts and strides, both innermost first.

    Parameters
    ----------
    strides: (address, row, column) from one iteration of a loop to the next, all loops inside it at the same place.
    """
    # `inner`: how far the loops inside have gone when they are at their end, which a step takes back.
    loops, inner = list[Loop](), [0, 0, 0]
    for count, stride in zip(counts, strides, strict=True):
        loops.append(Loop(count, *(step - back for step, back in zip(stride, inner, strict=True))))
        inner = [back + (count - 1) * step for step, back in zip(stride, inner, strict=True)]
    return tuple(loops)


@dataclass(frozen=True, eq=False)
class Compute:
    """Up to `lanes` output channels of a layer, for all pixels.

    A position is one output before pooling: its words are read in the loops ky, kx, word. Positions come in the loops
    y, x, wy, wx, each after `gap` idle cycles; those of wy and wx are one stored pixel, the maximum of their codes.

    Parameters
    ----------
    layer, node: name of the model's layer, and of the IR value of which this is a part.
    channels: (first, number) of the value's channels that it computes.
    start: address of the first word read. All addresses are modulo the words of the memory.
    row, column: row and column of the first word read, from which the border is found.
    height, width: a word outside of 0 <= row < height, 0 <= column < width is border.
    border: stored code of the border's elements.
    loops: by `LOOPS`.
    weights: int64 [rows, lanes, simd]; channelwise only [:, :, 0] counts.
    factor, addend: int64 [lanes] of the requantizer; None with `raw` and `partial`.
    channelwise: lane k takes channel k of a granule; else all lanes take the same `simd` channels of a word (dense).
    steps: steps, of a cycle each, that the array makes with a word; 1 if channelwise.
    source_slice: if channelwise: which granule of the word is read.
    hold: all taps have the same row of weights.
    streamed: its only position is computed while the weights are read, a row for each step; they are not kept.
    gap: idle cycles in front of each position.
    shift: index into the array's shifts.
    even, parity, tie_bits, pivot: see `MultiplyShift`, of stored codes; of each lane, `tie_bits` are int64 [lanes].
    low, high: range to which the stored codes are clamped; with a function, that of the words of ranks.
    function: index of the program's step function behind the line; None: the line is all.
    raw: bytes of a sum that goes to the output stream instead; 0: codes are stored.
    target, target_step: address of the first word written, and words from one pixel of a row to the next.
    target_row: words from the first pixel of a row to that of the next one; 0: rows follow one another.
    target_slice: which granule of the word is written.
    partial: the sums of its only position stay in the lanes, where the next record adds to them; nothing is stored.
    own_row: address of its only row of weights, which another record stores in each frame, so that codes are multiplied
        with codes; None: weights are constants. This field and those below do not reach the hardware.
    zero: the model's code is the stored code + zero.
    planar: if the channels take several granules: all pixels of one are stored before those of the next.
    first_pixel, pixel_step, pixel_row: number of the first pixel that is stored, and the distances from one pixel to
        the next and from one row to the next, as those of the target, but in pixels of the value.
    products: multiplications of the model that it makes, without those with the border.
    """

    layer: str
    node: str
    channels: tuple[int, int]
    start: int
    row: int
    column: int
    height: int
    width: int
    border: int
    loops: tuple[Loop, ...]
    weights: np.ndarray = field(repr=False)
    factor: np.ndarray | None = field(repr=False)
    addend: np.ndarray | None = field(repr=False)
    channelwise: bool = False
    steps: int = 1
    source_slice: int = 0
    hold: bool = False
    streamed: bool = False
    gap: int = 0
    shift: int = 0
    even: bool = False
    parity: int = 0
    tie_bits: np.ndarray | None = field(default=None, repr=False)
    pivot: int = 0
    low: int = 0
    high: int = 0
    function: int | None = None
    raw: int = 0
    target: int = 0
    target_step: int = 0
    target_row: int = 0
    target_slice: int = 0
    partial: bool = False
    own_row: int | None = None
    zero: int = 0
    planar: bool = False
    first_pixel: int = 0
    pixel_step: int = 1
    pixel_row: int = 0
    products: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """Count of each loop, innermost first."""
        return tuple(loop.count for loop in self.loops)

    @property
    def words(self) -> int:
        """Words read for one position."""
        return math.prod(self.counts[:3])

    @property
    def window(self) -> int:
        """Positions of one stored pixel."""
        return math.prod(self.counts[3:5])

    @property
    def pixels(self) -> int:
        """Pixels that are stored."""
        return math.prod(self.counts[5:])

    @property
    def targets(self) -> np.ndarray:
        """Address of the first word of each pixel that is stored, int64 [pixels], not yet modulo those of memory."""
        return self._lattice(self.target, self.target_step, self.target_row)

    @property
    def stored_pixels(self) -> np.ndarray:
        """Number in the value of each pixel that is stored, int64 [pixels]."""
        return self._lattice(self.first_pixel, self.pixel_step, self.pixel_row)

    @property
    def row_step(self) -> int:
        """Words from the last pixel of a row to the first of the next one, where they are stored."""
        return self.target_row - (self.counts[5] - 1) * self.target_step if self.target_row else self.target_step

    def _lattice(self, first: int, step: int, row: int) -> np.ndarray:
        columns, rows = self.counts[5:]
        # Without a step for rows they follow one another.
        starts = first + (row or columns * step) * np.arange(rows)
        return (starts[:, None] + step * np.arange(columns)).reshape(-1)

    @property
    def positions(self) -> int:
        """Positions that are computed."""
        return self.window * self.pixels

    @property
    def period(self) -> int:
        """Cycles of one position."""
        return self.gap + self.words * self.steps

    @property
    def taps(self) -> int:
        """Rows of weights that one position needs, one after the other."""
        return math.prod(self.counts[1:3]) if self.channelwise else self.words * self.steps


Record = Fill | Compute | Emit


def layout(array: ArrayConfig) -> Mapping[str, tuple[int, int]]:
    """Return (lowest bit, bits) of each field of a descriptor.

    Counts, `steps`, `pixels`, `elements` and `outputs` are stored less one, `rows` less two, modulo its bits. All kinds
    of records have `start`; transfers have `pixels` and `elements`; `next` is the address of the following record. The
    fields of a loop are called `word_count`, `word_address`, `word_row`, `word_column`, and so on.

    Each group of `STEPS` begins with a new word, because hardware keeps these groups in a memory and reads one at a
    time. The other fields use the bits that this leaves, or follow; none crosses the end of a word.
    """
    return _layout(*_format(array))


def _format(array: ArrayConfig) -> tuple[int, int, int, bool, bool, int, bool, bool]:
    """Return what a layout depends on."""
    # Without a feature its fields are left out, so arrays without it have the layout that they had before there was
    # any.
    ranks = 0 if array.step_memory is None else array.step_memory.word_address_bits
    options = array.weight_stream, array.tie_bits is not None, ranks, array.row_steps, array.partial_sums
    return array.address_bits, array.activation_bits, array.word_bits, *options


@cache
def _layout(
    address: int,
    code: int,
    word: int,
    weight_stream: bool,
    ties: bool,
    ranks: int,
    row_steps: bool,
    partial_sums: bool,
) -> Mapping[str, tuple[int, int]]:
    """Return a layout; few arrays differ in what it depends on, and a search asks for those of thousands."""
    places, holes = dict[str, tuple[int, int]](), list[tuple[int, int]]()
    for index, names in enumerate(STEPS):
        place, end = (number * _step_words(address, word) * word for number in (index, index + 1))
        for name, bits in zip(names, (address, EXTENT_BITS, EXTENT_BITS), strict=False):
            places[name] = (place, bits)
            place += bits
        holes += [(max(low, place), low + word) for low in range(place // word * word, end, word)]
    sizes = {"target": address, "target_step": address, "kind": 2, "raw": 3, "last": 1}
    sizes |= {"target_row": address} if row_steps else {}
    sizes |= {"streamed": 1} if weight_stream else {}
    sizes |= {"partial": 1} if partial_sums else {}
    sizes |= {"pivot": code} if ties else {}
    sizes |= {"ranks": ranks, "stepped": 1} if ranks else {}
    sizes |= {f"{name}_count": WINDOW_BITS if name in LOOPS[1:5] else COUNT_BITS for name in LOOPS}
    sizes |= {"height": COUNT_BITS, "width": COUNT_BITS}
    sizes |= {"rows": 11, "gap": 8, "border": code, "low": code, "high": code, "outputs": 7, "steps": 6}
    sizes |= {"source_slice": 5, "target_slice": 5, "shift": 2}
    sizes |= dict.fromkeys(("flip", "channelwise", "hold", "even", "parity", "gapless"), 1)
    sizes |= dict.fromkeys((f"{name}_single" for name in (*LOOPS, "steps")), 1)
    # Fields that lie over one another get one place, in which their parts follow one another.
    inner = {name: {part: sizes.pop(part) for part in parts} for name, parts in OVERLAID.items()}
    places |= _fill_holes({name: sum(parts.values()) for name, parts in inner.items()} | sizes, holes, word)
    for name, parts in inner.items():
        place = places[name][0]
        for part, bits in parts.items():
            places[part] = (place, bits)
            place += bits
    return places


def _fill_holes(sizes: dict[str, int], holes: list[tuple[int, int]], word: int) -> dict[str, tuple[int, int]]:
    """Return places for fields: each in the first hole that has room, or in words that are added behind.

    `target_step` must lie in a later word than `target`, because they go through the same register one after the other.

    Parameters
    ----------
    sizes: bits of each field.
    holes: ranges (first bit, end) of free bits, each within a word; they shrink as they are used.
    word: bits of a word.
    """
    places: dict[str, tuple[int, int]] = {}
    for name, bits in sizes.items():
        least = places["target"][0] // word + 1 if name == "target_step" else 0
        index = 0
        while holes[index][1] - holes[index][0] < bits or holes[index][0] // word < least:
            index += 1
            if index == len(holes):
                end = holes[-1][1]
                holes.append((end, end + word))
        low, high = holes[index]
        places[name], holes[index] = (low, bits), (low + bits, high)
    return places


def step_words(array: ArrayConfig) -> int:
    """Return the memory words of a group of `STEPS`: an address, a row and a column."""
    return _step_words(array.address_bits, array.word_bits)


def _step_words(address: int, word: int) -> int:
    return -(-(address + 2 * EXTENT_BITS) // word)


@lru_cache(maxsize=1 << 14)
def descriptor_words(array: ArrayConfig) -> int:
    """Return the memory words of a descriptor."""
    return _words(*_format(array))


@cache
def _words(address: int, code: int, word: int, *options: int) -> int:
    ends = (place + bits for place, bits in _layout(address, code, word, *options).values())
    return -(-max(ends) // word)


def record_words(record: Record, array: ArrayConfig) -> int:
    """Return the memory words of a record."""
    return fetched_words(record, array) + streamed_words(record, array)


def fetched_words(record: Record, array: ArrayConfig) -> int:
    """Return the memory words of a record that are read before its work begins."""
    if not isinstance(record, Compute):
        return descriptor_words(array)
    return head_words(array, record.factor is not None) + (0 if record.streamed else _row_words(record, array))


@lru_cache(maxsize=1 << 14)
def head_words(array: ArrayConfig, lined: bool) -> int:
    """Return the memory words of a `Compute` in front of its rows of weights: its descriptor, and its constants.

    Parameters
    ----------
    lined: whether it has a line, so that the lanes have constants; else its sums leave.
    """
    constants = array.lanes // array.constant_lanes * array.constant_words if lined else 0
    return descriptor_words(array) + constants


def streamed_words(record: Record, array: ArrayConfig) -> int:
    """Return the memory words of a record that are read during its work: streamed weights."""
    return _row_words(record, array) if isinstance(record, Compute) and record.streamed else 0


def _row_words(record: Compute, array: ArrayConfig) -> int:
    """Return the memory words of all rows of weights of a record."""
    return len(record.weights) * (array.channelwise_words if record.channelwise else array.row_words)


def values(
    record: Record | Load, last: bool, array: ArrayConfig, functions: Sequence[RankedSteps] = ()
) -> dict[str, int]:
    """Return the fields of a record's descriptor; those that are not there are 0."""
    if isinstance(record, Load):
        return {"kind": RecordKind.LOAD, "last": last, "rows": len(record.entries) * array.entry_words}
    # For an `Emit` a beat is one element, whatever the array takes at its input.
    if isinstance(record, Transfer):
        kind = RecordKind.FILL if isinstance(record, Fill) else RecordKind.EMIT
        beats = record.elements // array.i_lanes if isinstance(record, Fill) else record.elements
        sizes = {"pixels": record.pixels - 1, "elements": record.elements - 1}
        sizes |= {"pixels_single": int(record.pixels == 1), "elements_single": int(beats == 1)}
        return {"kind": kind, "last": last, "start": record.start, "flip": int(record.flip), **sizes}
    found = {"kind": RecordKind.COMPUTE, "last": last, **{name: int(getattr(record, name)) for name in PLAIN}}
    found |= {"steps": record.steps - 1, "steps_single": int(record.steps == 1), "rows": len(record.weights)}
    # Within a pixel the target goes on by 1 for each further word, which the steps to the next pixel take into account.
    found |= {"gapless": int(record.gap == 0), "target_step": record.target_step - (array.parts - 1)}
    found |= {"target_row": record.row_step - (array.parts - 1)} if array.row_steps else {}
    found |= {"outputs": record.channels[1] - 1 if record.raw else 0}
    found |= {"pivot": record.pivot} if array.tie_bits else {}
    found |= {"partial": int(record.partial)} if array.partial_sums else {}
    # The ranks of the function begin behind those of the functions before; a line's lowest code stands for the first
    # word.
    if record.function is not None:
        found |= {"stepped": 1, "ranks": sum(one.used_words for one in functions[: record.function]) - record.low}
    if record.streamed:
        found |= {"streamed": 1, "rows": 0}
    for name, loop in zip(LOOPS, record.loops, strict=True):
        found |= {f"{name}_count": loop.count - 1, f"{name}_single": int(loop.count == 1)}
        found |= {f"{name}_address": loop.address}
        found |= {f"{name}_row": loop.row, f"{name}_column": loop.column}
    return found


PLAIN = (
    *("start", "row", "column", "height", "width", "border", "channelwise", "source_slice", "hold", "gap", "shift"),
    *("even", "parity", "low", "high", "raw", "target", "target_step", "target_slice"),
)
"""Fields of a `Compute` that are stored as they are."""
MODULAR = ("start", "next", "target", "target_step", "target_row", "ranks", *(f"{name}_address" for name in LOOPS))
"""Fields that count modulo the words of a memory."""
SIGNED = (
    "row",
    "column",
    "border",
    "low",
    "high",
    "pivot",
    *(f"{name}_{part}" for name in LOOPS for part in ("row", "column")),
)
"""Fields with numbers in two's complement."""


@dataclass(frozen=True)
class Encoded:
    """The memory words of a record, of which weights are encoded when they are asked for.

    A search makes hundreds of programs, and asks for the words of one.

    Parameters
    ----------
    before: descriptor and constants.
    record: whose weights follow; None: none do.
    array: the array.
    """

    before: list[int]
    record: Compute | None
    array: ArrayConfig

    @property
    def size(self) -> int:
        """Number of words."""
        return len(self.before) + (0 if self.record is None else _weight_count(self.record, self.array))

    @property
    def words(self) -> list[int]:
        """The words."""
        return self.before if self.record is None else self.before + _weight_words(self.record, self.array)


def encode_record(
    record: Record | Load,
    last: bool,
    array: ArrayConfig,
    place: int = 0,
    begin: int = 0,
    functions: Sequence[RankedSteps] = (),
) -> Encoded:
    """Return the memory words of a record.

    Parameters
    ----------
    place: address of its first word.
    begin: address of the record that follows the last one.
    functions: of the program.

    Raises
    ------
    MappingError: it exceeds a limit of the array: which, and by how much.
    """
    places, number = layout(array), 0
    head, behind, weights = descriptor_words(array), list[int](), 0
    if isinstance(record, Compute):
        _check_weights(record, array)
        behind, weights = _constant_words(record, array), _weight_count(record, array)
    elif isinstance(record, Load):
        behind = [part for entry in record.entries for part in _parts(entry, array.entry_words, array)]
    found = values(record, last, array, functions) | {"next": begin if last else place + head + len(behind) + weights}
    if isinstance(record, Compute) and record.streamed:
        # The target register first walks over the weights; then a single step leads from their end to the target.
        end = place + head + len(behind) + weights
        found |= {"target": end - streamed_words(record, array), "target_step": record.target - end}
    for name, value in found.items():
        if name not in places:
            raise MappingError(
                f"layer '{_where(record)}' goes through steps that its channels share, the array has no step memory",
                "use --style streaming, or an array with one",
            )
        low, bits = places[name]
        _check_field(record, name, value, bits, array)
        # A single row is stored as -1, all ones, which the sequencer tells without a comparison.
        number |= ((value - 2 * (name == "rows")) & ((1 << bits) - 1)) << low
    weighted = record if isinstance(record, Compute) and weights else None
    return Encoded([*_parts(number, head, array), *behind], weighted, array)


def _parts(number: int, count: int, array: ArrayConfig) -> list[int]:
    """Return a number as so many memory words."""
    return [(number >> (array.word_bits * index)) & ((1 << array.word_bits) - 1) for index in range(count)]


def _where(record: Record | Load) -> str:
    return record.layer if isinstance(record, Compute) else getattr(record, "node", "steps")


def _check_field(record: Record | Load, name: str, value: int, bits: int, array: ArrayConfig) -> None:
    # They count modulo the memory, whatever is cut off.
    if name in MODULAR:
        return
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name in SIGNED else (0, (1 << bits) - 1)
    if name == "rows":
        high = min(high, array.rows)
    if not low <= value <= high:
        raise MappingError(
            f"layer '{_where(record)}': field '{name}' of its program is {value}, the array takes {low} to {high}",
            "use --style streaming, or an array with more",
        )


def recode(factor: int, digits: int) -> tuple[int, int]:
    """Return the radix-4 digits of a factor in the form that the requantizer in logic takes.

    Digits 0, 1 and 2 are stored as they are, -1 as 3: there the requantizer adds the complement of the sum, which is
    one less than the negated sum, whatever the sum is. The addend makes up for that.

    Returns
    -------
    (the digits, two bits each, the lowest first; what has to be added to the addend).
    """
    pattern, missing, carry = 0, 0, 0
    for index in range(digits):
        # 3 is -1 with a carry, and 4, which a carry makes of 3, is 0 with a carry.
        pair = (factor >> 2 * index & 3) + carry
        carry = int(pair >= 3)
        pattern |= (pair & 3) << 2 * index
        missing += (pair == 3) << 2 * index
    return pattern, missing


def _constant_words(record: Compute, array: ArrayConfig) -> list[int]:
    """Return the memory words of the lanes' constants; several lanes share a word if they fit. Raw sums have none."""
    if record.factor is None or record.addend is None:
        return []
    words = []
    if array.requantizing == Requantizing.STEPS:
        numbers = _step_numbers(record, array)
    else:
        pairs = zip(record.factor.tolist(), record.addend.tolist(), strict=True)
        numbers = [_line_number(record, *pair, array) for pair in pairs]
        # Above the line, where an array without such ties has nothing.
        codes = _tie_codes(record, array)
        numbers = [number | code << array.line_bits for number, code in zip(numbers, codes, strict=True)]
    for first in range(0, len(numbers), array.constant_lanes):
        joined = enumerate(numbers[first : first + array.constant_lanes])
        number = sum(own << (index * array.constant_bits) for index, own in joined)
        words += _parts(number, array.constant_words, array)
    return words


def _line_number(record: Compute, factor: int, addend: int, array: ArrayConfig) -> int:
    """Return factor and addend of a lane as they are stored: for some requantizers as sign and magnitude.

    Then the hardware takes ~sum = -sum - 1 for a negative factor: sum * factor + addend is
    ~sum * -factor + (addend - factor), so the stored addend is larger by -factor.
    """
    least = 0
    if array.is_magnitude:
        addend -= min(factor, 0)
        least = 1
    for name, value, bits in (("factor", factor, array.factor_bits), ("addend", addend, array.addend_bits)):
        if not -(1 << (bits - 1)) + (least if name == "factor" else 0) <= value < 1 << (bits - 1):
            raise MappingError(
                f"layer '{record.layer}': {name} {value} of its requantizer needs more than the {bits} bits of the "
                "array",
                "use --style streaming, or an array with more",
            )
    if array.is_magnitude:
        factor = abs(factor) | (factor < 0) << (array.factor_bits - 1)
    if array.requantizing == Requantizing.LOGIC:
        pattern, missing = recode(factor, array.digits)
        place = array.stored_addend_bits
        return (addend + missing) & ((1 << place) - 1) | pattern << place
    return addend & ((1 << array.addend_bits) - 1) | (factor & ((1 << array.factor_bits) - 1)) << array.addend_bits


def _tie_codes(record: Compute, array: ArrayConfig) -> list[int]:
    """Return for each lane the code for the number of bits that tell its ties; see `ArrayConfig.tie_code`.

    Raises
    ------
    MappingError: the array has no code for one of them.
    """
    wanted = [0] * array.lanes if record.tie_bits is None else record.tie_bits.tolist()
    codes = [array.tie_code(bits) for bits in wanted]
    if None in codes:
        raise MappingError(
            f"layer '{record.layer}': its requantizer tells ties by {min(filter(None, wanted))} to {max(wanted)} bits, "
            f"the array by {describe_ties(array)}",
            "use --style streaming, or an array with more",
        )
    return [code for code in codes if code is not None]


def describe_ties(array: ArrayConfig) -> str:
    """Return, as a text for messages, by how many fraction bits an array can tell ties."""
    return "none" if array.tie_bits is None else "{} to {}".format(*array.tie_bits)


def _step_numbers(record: Compute, array: ArrayConfig) -> list[int]:
    """Return the constants of comparisons of each lane: sum + constant is negative where the sum reaches the code.

    There is one for each code but the lowest, with one bit more than a sum has. For a function that falls it is -step,
    which is negative with sums below the step; for one that rises its top bit is inverted, which turns that around.
    """
    # Every sum is tried: arrays with such requantizers have short sums.
    sums = np.arange(-(1 << (array.sum_bits - 1)), 1 << (array.sum_bits - 1))[:, None]
    codes = requantize(sums, record, array)
    numbers = [0] * codes.shape[1]
    for index in range(array.steps):
        reached = codes > array.activation.low + index
        rises = reached[-1] & ~reached[0]
        steps = (reached != reached[:1]).argmax(axis=0) + int(sums[0, 0])
        steps = np.where(reached[0] & reached[-1], 1 << (array.sum_bits - 1), steps)
        # Two's complement with one bit more than a sum, so that the comparison never overflows.
        constants = (-steps + (rises << array.sum_bits)) & ((1 << (array.sum_bits + 1)) - 1)
        numbers = [
            number | constant << (index * (array.sum_bits + 1))
            for number, constant in zip(numbers, constants.tolist(), strict=True)
        ]
    return numbers


def step_entries(functions: Sequence[RankedSteps], array: ArrayConfig) -> list[int]:
    """Return what is loaded into each row of the step memory, those of all functions behind one another.

    From the lowest bits on: a word of ranks, which count places of the memory; a place; the code in front of its step.
    """
    memory = array.step_memory
    if memory is None or not functions:
        return []
    ranks, places, codes = list[int](), list[int](), list[int]()
    for one in functions:
        ranks += one.ranks(one.used_words, first=len(places)).tolist()
        # Cells of all functions have the width of the widest: smaller ones are scaled up to it.
        places += (one.places() << (memory.place_bits - one.cell_bits)).tolist()
        codes += one.codes.tolist()
    # Codes may be negative; the memory holds their bits.
    code_mask = (1 << array.activation_bits) - 1
    return [
        rank | place << memory.rank_bits | (code & code_mask) << (memory.rank_bits + memory.place_bits)
        for rank, place, code in itertools.zip_longest(ranks, places, codes, fillvalue=0)
    ]


def requantize(
    sums: np.ndarray, record: Compute, array: ArrayConfig, functions: Sequence[RankedSteps] = ()
) -> np.ndarray:
    """Return the codes int64 [n, lanes] of sums [n, lanes].

    Parameters
    ----------
    functions: of the program.
    """
    assert record.factor is not None
    assert record.addend is not None
    ties = (record.even, record.parity, record.tie_bits, record.pivot)
    shift, ranked = array.shifts[record.shift], None if record.function is None else functions[record.function]
    return MultiplyShift(record.factor, record.addend, shift, record.low, record.high, *ties, ranked).golden(sums)


def _check_weights(record: Compute, array: ArrayConfig) -> None:
    """Raise MappingError for a weight that is out of the array's range."""
    weights = record.weights
    if not array.weight.holds(weights):
        raise MappingError(
            f"layer '{record.layer}': its weights lie in {weights.min()}..{weights.max()}, those of the array in "
            f"{array.weight.low}..{array.weight.high}",
            "use an array with more weight bits",
        )


def _words_of_row(record: Compute, array: ArrayConfig) -> int:
    return array.channelwise_words if record.channelwise else array.row_words


def _weight_count(record: Compute, array: ArrayConfig) -> int:
    """Return the number of `_weight_words`."""
    return record.weights.size // array.products * _words_of_row(record, array)


def _weight_words(record: Compute, array: ArrayConfig) -> list[int]:
    """Return the memory words of the weights: in a row, the first channel of all lanes is lowest, lane 0 first."""
    rows = record.weights.reshape(-1, array.lanes, array.simd).transpose(0, 2, 1).reshape(-1, array.products)
    packed, each = pack_bytes(encode(rows, array.weight), array.weight_bits), array.word_bits // 8
    count = _words_of_row(record, array)
    # A row begins with a new word. A channelwise one is cut off behind the first weight of each lane: the others do not
    # count.
    whole = np.zeros((len(packed), count * each), dtype=np.uint8)
    taken = min(packed.shape[1], count * each)
    whole[:, :taken] = packed[:, :taken]
    return words_of(whole.reshape(-1, each))
