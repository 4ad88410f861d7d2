"""The step memory of an array: what a program loads into it, what that costs, and what it does not hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared import ArrayConfig, Fill, SharedConfig, StepMemory
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.shared.cycle_model import rest_cycles
from nnhw.engines.shared.cycles import LOOKUP_CYCLES, load_cycles, requantizer_latency
from nnhw.engines.shared.program import load_words
from nnhw.engines.shared.records import descriptor_words, requantize, step_entries
from nnhw.errors import MappingError
from tests.engines.shared.programs import ARRAY, convolution
from tests.engines.shared.test_requantizing import record_of

MEMORY = StepMemory(words=16, places=32, place_bits=6)
STEPPED = replace(ARRAY, shifts=(4, 9), factor_bits=14, addend_bits=24, step_memory=MEMORY)
FIRST = RankedSteps(np.array([33, 80, 127]), np.array([-3, 5, 4, 100]), cell_bits=1, cells_log2=4)
SECOND = RankedSteps(np.array([140, 150, 400]), np.array([0, 1, 2, 3]), cell_bits=2, cells_log2=4)
"""Both begin in their second word, and take 5 and 8 words."""


def looked_up(numbers: np.ndarray, base: int, array: ArrayConfig, functions: list[RankedSteps]) -> np.ndarray:
    """Return the codes that memories with the entries of functions give, for numbers from a word of ranks on."""
    memory = array.step_memory
    assert memory is not None
    entries = np.array(step_entries(functions, array))
    ranks = entries & ((1 << memory.rank_bits) - 1)
    places = entries >> memory.rank_bits & ((1 << memory.place_bits) - 1)
    codes = entries >> (memory.rank_bits + memory.place_bits)
    word, low = base + (numbers >> memory.low_bits), numbers & ((1 << memory.low_bits) - 1)
    cell, place = low >> memory.place_bits, low & ((1 << memory.place_bits) - 1)
    bits = ranks[word] & ((1 << 16) - 1)
    index = (ranks[word] >> 16) + np.array([int(one).bit_count() for one in bits & ((1 << cell) - 1)])
    index += (bits >> cell & 1) & (place >= places[index])
    patterns = codes[index]
    top = 1 << (array.activation_bits - 1)
    return (patterns ^ top) - top


def test_entries_of_several_functions_give_the_codes_of_each() -> None:
    for function, base in ((FIRST, 0), (SECOND, FIRST.used_words)):
        numbers = np.arange(function.used_words << MEMORY.low_bits)
        wanted = function.golden(numbers >> (MEMORY.place_bits - function.cell_bits))
        assert (looked_up(numbers, base, STEPPED, [FIRST, SECOND]) == wanted).all()
        assert set(wanted.tolist()) == set(function.codes.tolist())


def test_numbers_beyond_the_words_of_a_function_have_its_first_and_its_last_code() -> None:
    record = record_of(STEPPED, [16, -16], [0, 0], shift=1, low=-2, high=2, function=0)
    sums = np.arange(-200, 200)[:, None].repeat(8, axis=1)
    codes = requantize(sums, record, STEPPED, (FIRST, SECOND))[:, :2]
    assert (codes[[0, -1]] == [[-3, 100], [100, -3]]).all()
    # A word of ranks is 32 sums, and the first one is word -2.
    wanted = FIRST.codes[np.searchsorted(FIRST.steps, sums[:, 0] + 64, side="right")]
    assert (codes[:, 0] == wanted).all()


def test_functions_are_loaded_once_in_front_of_all_records() -> None:
    array = replace(STEPPED, rows=4)
    program = SharedConfig(array, (Fill(300, 4, 2, flip=False),), (FIRST, SECOND))
    plain = SharedConfig(array, program.records)
    each = 4 // array.entry_words
    assert [len(load.entries) for load in program.loads] == [each] * (13 // each) + [13 % each] * (13 % each > 0)
    assert program.spans[0][0] == load_words(program.functions, array) == len(program.words) - len(plain.words)
    assert program.cycles == plain.cycles
    assert load_cycles(program) == 13 * array.entry_words + (descriptor_words(array) + 8) * len(program.loads)
    assert rest_cycles(program) == rest_cycles(plain) + load_cycles(program)
    assert (load_cycles(plain), plain.loads) == (0, ())


@pytest.mark.parametrize("steps", [[512], [512, 700], [600, 650, 700, 1200]])
def test_program_with_fewer_steps_than_bits_of_a_place_begins_behind_its_loads(steps: list[int]) -> None:
    function = RankedSteps(np.array(steps), np.arange(len(steps) + 1), cell_bits=5, cells_log2=4)
    array = replace(STEPPED, rows=4)
    program = SharedConfig(array, (Fill(300, 4, 2, flip=False),), (function,))
    assert sum(len(load.entries) for load in program.loads) == max(function.used_words, len(function.codes))
    assert program.spans[0][0] == load_words(program.functions, array)
    assert program.spans[-1][0] + program.spans[-1][1] == len(program.words)


def test_an_array_without_a_step_memory_is_what_it_was() -> None:
    assert requantizer_latency(STEPPED) == requantizer_latency(replace(STEPPED, step_memory=None)) + LOOKUP_CYCLES
    assert replace(STEPPED, step_memory=None).id != STEPPED.id


@pytest.mark.parametrize(
    ("memory", "given"),
    [(StepMemory(8, 32, 6), "8, 32 and 6"), (StepMemory(16, 4, 6), "16, 4 and 6"), (None, "0, 0 and 0")],
)
def test_program_rejects_functions_that_the_memory_does_not_hold(memory: StepMemory | None, given: str) -> None:
    with pytest.raises(MappingError) as caught:
        SharedConfig(replace(STEPPED, step_memory=memory), (), (FIRST, SECOND))
    assert str(caught.value) == (
        "the functions that are no lines take 13 words of ranks and 8 places of 2 bits of a step memory, "
        f"the array has {given} bits; use an array with more, or --style streaming"
    )


def test_record_rejects_a_function_where_there_is_no_memory() -> None:
    record = replace(convolution(np.zeros((8, 1, 1, 1), np.int64), 3, pad=0), function=0)
    with pytest.raises(MappingError, match="goes through steps that its channels share, the array has no step memory"):
        SharedConfig(ARRAY, (record,))


def test_array_rejects_a_memory_that_it_cannot_have() -> None:
    with pytest.raises(MappingError) as caught:
        replace(STEPPED, step_memory=StepMemory(words=12, places=1, place_bits=0))
    assert str(caught.value) == (
        "shared engine: step memory: words must be a power of two of at least 2, given 12; "
        "step memory: places must be a power of two of at least 2, given 1; "
        "step memory: places have 1 to 24 bits, given 0"
    )
    narrow = {"activation_bits": 2, "weight_bits": 2, "simd": 1, "sum_bits": 7, "requantizing": Requantizing.STEPS}
    with pytest.raises(MappingError, match="requantizers that compare have no step memory"):
        replace(STEPPED, **narrow)
