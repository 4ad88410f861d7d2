"""A program of a shared engine, and its image: the bytes that are loaded into the engine's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhw.engines.contract import EngineConfig
from nnhw.engines.encoding import decode
from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared.array import CELLS_LOG2, ArrayConfig
from nnhw.engines.shared.cycle_model import SharedModel
from nnhw.engines.shared.cycles import load_cycles, program_cycles
from nnhw.engines.shared.golden import Trace, run_program
from nnhw.engines.shared.records import (
    Compute,
    Emit,
    Encoded,
    Fill,
    Load,
    Record,
    descriptor_words,
    encode_record,
    step_entries,
)
from nnhw.errors import MappingError
from nnhw.ir.types import IntType
from nnhw.protocol import program_image


@dataclass(frozen=True, eq=False)
class SharedConfig(EngineConfig):
    """A shared engine with its program.

    Parameters
    ----------
    array: the hardware.
    records: run one after the other for each frame: `Fill` first, results leave through `Emit` or raw sums.
    functions: steps behind the lines of some records; they are loaded once, before the first frame.

    Raises
    ------
    MappingError: the program exceeds a limit of the array.
    """

    array: ArrayConfig
    records: tuple[Record, ...]
    functions: tuple[RankedSteps, ...] = ()

    def __post_init__(self) -> None:
        check_functions(self.functions, self.array)
        # Encoding the records checks all other limits on the way.
        if self.size > self.array.words:
            raise MappingError(
                f"the program and its weights need {self.size} words of {self.array.word_bits} bits, the memory "
                f"has {self.array.words}",
                "use fewer bits for weights, a smaller network or a larger board",
            )

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """(first word, words) of each record."""
        found, place = [], load_words(self.functions, self.array)
        # Loads come first, and are no records of a frame.
        for one in self._encoded[len(self.loads) :]:
            found.append((place, one.size))
            place += one.size
        return tuple(found)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """What stands in front of the records: it loads the functions."""
        entries, each = step_entries(self.functions, self.array), _rows_of_load(self.array)
        return tuple(Load(tuple(entries[first : first + each])) for first in range(0, len(entries), each))

    @cached_property
    def _encoded(self) -> list[Encoded]:
        place, begin, found = 0, load_words(self.functions, self.array), list[Encoded]()
        for load in self.loads:
            found.append(encode_record(load, False, self.array, place))
            place += found[-1].size
        # The last record leads back to the first one behind the loads, which have run once.
        final = len(self.records) - 1
        for index, record in enumerate(self.records):
            found.append(encode_record(record, index == final, self.array, place, begin, self.functions))
            place += found[-1].size
        return found

    @property
    def size(self) -> int:
        """Words of the program and its weights."""
        return sum(one.size for one in self._encoded)

    @cached_property
    def words(self) -> list[int]:
        """The memory from address 0 on, as it must be when the program starts."""
        return [word for one in self._encoded for word in one.words]

    @property
    def image(self) -> bytes:
        """The bytes to be loaded into an engine whose output is that of the device."""
        return self.image_for(self.o_beats)

    def image_for(self, output_bytes: int) -> bytes:
        """Return the bytes to be loaded; see `nnhw.protocol.PROGRAM_HEADER`.

        Parameters
        ----------
        output_bytes: bytes of a frame that leave the device, which engines behind this one may change.
        """
        return program_image(self.array.id, words_to_bytes(self.words, self.array.word_bits), output_bytes)

    @property
    def i_beats(self) -> int:
        """Beats of input of a frame."""
        return sum(one.pixels * one.elements for one in self.records if isinstance(one, Fill)) // self.array.i_lanes

    @property
    def o_beats(self) -> int:
        """Bytes of output of a frame."""
        return sum(output_bytes(record) for record in self.records)

    @property
    def cycles(self) -> int:
        """Cycles of the whole program, if input and output are always ready."""
        return sum(record.total for record in program_cycles(self))

    @property
    def cycle_bound(self) -> int:
        """Cycles of a frame alone, behind the start."""
        return self.cycles + load_cycles(self)

    @property
    def program(self) -> SharedConfig:
        """Itself."""
        return self

    def trace(self, elements: np.ndarray, before: np.ndarray | None = None) -> Trace:
        """Return what each record stores of one frame, and the bytes that leave; see `run_program`."""
        return run_program(self, elements, before)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the bytes that leave, int64 [o_beats, 1], of the input beats [i_beats, i_lanes] (codes)."""
        return self.trace(np.asarray(beats[0]).reshape(-1)).output.astype(np.int64)[:, None]

    def golden_elements(self, inputs: Sequence[np.ndarray], output: IntType) -> np.ndarray:
        """Return the elements that leave, in stream order: a code of each byte."""
        return elements_of(self.trace(inputs[0]), output)

    def model(self) -> SharedModel:
        """Return the cycle model."""
        return SharedModel(self)

    @property
    def products(self) -> int:
        """Products of the model that it computes for a frame."""
        return sum(record.products for record in self.records if isinstance(record, Compute))


def _rows_of_load(array: ArrayConfig) -> int:
    """Return the rows of the step memory that one record loads: its words count as rows of weights."""
    return max(array.rows // max(array.entry_words, 1), 1)


def load_words(functions: Sequence[RankedSteps], array: ArrayConfig) -> int:
    """Return the words of a program that load its step functions."""
    words, places, _ = memory_needs(functions)
    # A row has a word of ranks, and a place with its code: as many rows as the more numerous of both.
    rows = max(words, places)
    # A `Load` counts its words in the field for rows of weights, which has no more than the cache.
    return -(-rows // _rows_of_load(array)) * descriptor_words(array) + rows * array.entry_words


def memory_needs(functions: Sequence[RankedSteps]) -> tuple[int, int, int]:
    """Return the words of ranks, the places, and the bits of a place that functions take in a step memory."""
    words, places = sum(one.used_words for one in functions), sum(len(one.codes) for one in functions)
    return words, places, max((one.cell_bits for one in functions), default=0)


def check_functions(functions: Sequence[RankedSteps], array: ArrayConfig) -> None:
    """Raise MappingError for functions that an array's step memory does not hold."""
    needs, memory = memory_needs(functions), array.step_memory
    given = (0, 0, 0) if memory is None else (memory.words, memory.places, memory.place_bits)
    if any(need > have for need, have in zip(needs, given, strict=True)):
        raise MappingError(
            "the functions that are no lines take {} words of ranks and {} places of {} bits of a step memory, ".format(
                *needs
            )
            + "the array has {}, {} and {} bits".format(*given),
            "use an array with more, or --style streaming",
        )
    if any(one.cells_log2 != CELLS_LOG2 for one in functions):
        raise MappingError(f"a step memory has {1 << CELLS_LOG2} cells in a word of ranks, these functions have others")


def output_bytes(record: Record) -> int:
    """Return the bytes of a frame that a record sends."""
    if isinstance(record, Emit):
        return record.pixels * record.elements
    return record.positions * record.channels[1] * record.raw if isinstance(record, Compute) else 0


def elements_of(trace: Trace, element: IntType) -> np.ndarray:
    """Return the bytes that left as elements int64 [elements] of a type, one of each byte."""
    # Bytes are numbers in two's complement; a bipolar element is +1 or -1, told by the sign alone.
    numbers = trace.output.astype(np.int64)
    if element.bipolar:
        return 1 - 2 * (numbers >> 7)
    return decode(numbers & ((1 << element.bits) - 1), element)


def words_to_bytes(words: Sequence[int], bits: int) -> bytes:
    """Return memory words as bytes, little-endian."""
    return b"".join(word.to_bytes(bits // 8, "little") for word in words)
