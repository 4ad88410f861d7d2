"""Arrays, records in memory, and images."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from nnhw.engines.shared import ArrayConfig, Compute, Emit, Fill, SharedConfig
from nnhw.engines.shared.program import HEADER
from nnhw.engines.shared.records import LOOPS, Kind, descriptor_words, layout
from nnhw.errors import MappingError
from tests.engines.shared.programs import ARRAY, convolution

RECORD = convolution(np.ones((8, 2, 3, 3), dtype=np.int64), 6)
PROGRAM = SharedConfig(ARRAY, (Fill(200, 36, 2, True), RECORD, Emit(300, 36, 8, False)))


def field(words: list[int], name: str) -> int:
    """Return a field of a descriptor in memory."""
    place, bits = layout(ARRAY)[name]
    number = sum(word << (ARRAY.word_bits * index) for index, word in enumerate(words))
    return (number >> place) & ((1 << bits) - 1)


def test_a_record_lies_in_memory_as_descriptor_constants_and_weights() -> None:
    start, length = PROGRAM.spans[1]
    words = PROGRAM.words[start : start + length]
    head = descriptor_words(ARRAY)
    assert length == head + 8 * ARRAY.constant_words + 9 * ARRAY.row_words
    assert field(words, "kind") == Kind.COMPUTE
    assert field(words, "start") == 200 - 7
    assert field(words, "row") == 2**11 - 1
    assert [field(words, f"{name}_count") + 1 for name in LOOPS] == [1, 3, 3, 1, 1, 6, 6]
    assert field(words, "rows") + 2 == 9
    constants = words[head : head + ARRAY.constant_words]
    assert constants[0] & 0xFF == 0
    assert ((constants[1] << 64 | constants[0]) >> ARRAY.addend_bits) & 0xFF == 3
    assert words[head + 8 * ARRAY.constant_words] == 0x0101010101010101
    assert [field(PROGRAM.words[first:], "last") for first, _ in PROGRAM.spans] == [0, 0, 1]


def test_an_image_names_array_length_and_output_and_ends_with_its_checksum() -> None:
    image = PROGRAM.image
    magic, array, length, output = HEADER.unpack(image[: HEADER.size])
    assert (magic, array, output) == (b"NNPR", ARRAY.id, 36 * 8)
    assert length == len(image) - HEADER.size - 4 == 8 * len(PROGRAM.words)
    assert int.from_bytes(image[-4:], "little") == zlib.crc32(image[:-4])


def test_arrays_that_differ_have_other_ids() -> None:
    others = [replace(ARRAY, words=1024), replace(ARRAY, rows=65), replace(ARRAY, shifts=(0, 4, 12, 20))]
    assert len({ARRAY.id, *(other.id for other in others)}) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.full((9, 8, 2), 128)}, "lie in 128..128, those of the array in -128..127"),
        (
            {"weights": np.zeros((65, 8, 2), dtype=np.int64)},
            "field 'rows' of its program is 65, the array takes 0 to 64",
        ),
        ({"factor": np.full(8, 1 << 28)}, "factor 268435456 of its requantizer needs more than the 29 bits"),
        ({"gap": 256}, "field 'gap' of its program is 256"),
    ],
)
def test_what_exceeds_the_array_is_refused_by_layer_and_limit(change: dict[str, object], message: str) -> None:
    with pytest.raises(MappingError, match="layer 'conv'") as error:
        SharedConfig(ARRAY, (replace(RECORD, **change),))  # type: ignore[arg-type]
    assert message in str(error.value)


def test_a_program_longer_than_the_memory_is_refused() -> None:
    small = replace(ARRAY, words=32)
    with pytest.raises(MappingError, match=r"need \d+ words of 64 bits, the memory has 32"):
        SharedConfig(small, PROGRAM.records)


def test_all_misfits_of_an_array_are_named_at_once() -> None:
    with pytest.raises(MappingError, match=r"drains 3 must divide lanes 8; shifts must be"):
        replace(ARRAY, drains=3, shifts=(4, 4))
    with pytest.raises(MappingError, match="lanes must be a power of two up to 64, given 12"):
        ArrayConfig(12, 1, 8, 8, 64, 512, 64, 20, 20, 30, (4,))


def test_compute_counts_positions_and_cycles() -> None:
    assert (RECORD.words, RECORD.window, RECORD.pixels, RECORD.positions) == (9, 1, 36, 36)
    assert replace(RECORD, gap=4).period == 13
    assert isinstance(RECORD, Compute)
    assert (PROGRAM.i_beats, PROGRAM.o_beats) == (72, 288)
