"""Arrays, records in memory, and images."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from nnhw.engines.shared import ArrayConfig, Compute, Emit, Fill, SharedConfig
from nnhw.engines.shared.records import LOOPS, OVERLAID, RecordKind, descriptor_words, encode_record, layout, recode
from nnhw.errors import MappingError
from nnhw.protocol import PROGRAM_HEADER
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
    assert field(words, "kind") == RecordKind.COMPUTE
    assert field(words, "start") == 200 - 7
    assert field(words, "row") == 2**11 - 1
    assert [field(words, f"{name}_count") + 1 for name in LOOPS] == [1, 3, 3, 1, 1, 6, 6]
    assert field(words, "rows") + 2 == 9
    constants = words[head : head + ARRAY.constant_words]
    # A factor of 3 is 4 - 1, and the complement of a sum is one less than -1 times it.
    assert constants[0] & 0xFF == 1
    assert ((constants[1] << 64 | constants[0]) >> ARRAY.stored_addend_bits) & 0xFF == 0b0111
    assert words[head + 8 * ARRAY.constant_words] == 0x0101010101010101
    assert [field(PROGRAM.words[first:], "last") for first, _ in PROGRAM.spans] == [0, 0, 1]


def test_lanes_that_leave_at_once_have_their_constants_in_one_word() -> None:
    wide = replace(ARRAY, word_bits=512, drains=4)
    assert [array.constant_lanes for array in (ARRAY, wide, replace(wide, drains=2))] == [1, 4, 2]
    narrow = encode_record(RECORD, False, ARRAY).words[descriptor_words(ARRAY) :]
    words = encode_record(RECORD, False, wide).words[descriptor_words(wide) :]
    for lane in range(8):
        number = narrow[2 * lane] | narrow[2 * lane + 1] << 64
        mask = (1 << wide.constant_bits) - 1
        assert words[lane // 4] >> (lane % 4 * wide.constant_bits) & mask == number
    assert len(words) == 2 + 9


def test_a_channelwise_row_has_only_the_first_weight_of_each_lane() -> None:
    weights = np.arange(9 * 8 * 2).reshape(9, 8, 2) % 128
    head = descriptor_words(ARRAY) + 8 * ARRAY.constant_words
    dense, apart = (
        encode_record(replace(RECORD, weights=weights, channelwise=channelwise), False, ARRAY).words[head:]
        for channelwise in (False, True)
    )
    assert apart == dense[::2]
    assert apart[0].to_bytes(8, "little") == bytes(weights[0, :, 0].tolist())
    assert dense[1].to_bytes(8, "little") == bytes(weights[0, :, 1].tolist())


@pytest.mark.parametrize("bits", [2, 3, 6, 9])
def test_a_recoded_factor_is_the_factor(bits: int) -> None:
    digits = bits // 2 + 1
    for factor in range(-(1 << (bits - 1)), 1 << (bits - 1)):
        pattern, missing = recode(factor, digits)
        found = [pattern >> 2 * index & 3 for index in range(digits)]
        # Digit 3 takes ~x for -x: the same for each x.
        for x in (-5, 0, 7):
            multiples = (0, x, 2 * x, ~x)
            assert sum(multiples[digit] << 2 * index for index, digit in enumerate(found)) + missing == factor * x


def test_fields_of_transfers_lie_over_those_of_a_compute() -> None:
    for array in (ARRAY, replace(ARRAY, word_bits=16), replace(ARRAY, word_bits=512)):
        places = layout(array)
        for name, parts in OVERLAID.items():
            low, bits = places[name]
            assert [places[part] for part in parts] == [
                (low + sum(places[before][1] for before in parts[:index]), places[part][1])
                for index, part in enumerate(parts)
            ]
            assert bits == sum(places[part][1] for part in parts)
        used = [bit for name, (low, bits) in places.items() if name not in OVERLAID for bit in range(low, low + bits)]
        assert len(used) == len(set(used))


def test_an_image_names_array_length_and_output_and_ends_with_its_checksum() -> None:
    image = PROGRAM.image
    magic, array, length, output = PROGRAM_HEADER.unpack(image[: PROGRAM_HEADER.size])
    assert (magic, array, output) == (b"NNPR", ARRAY.id, 36 * 8)
    assert length == len(image) - PROGRAM_HEADER.size - 4 == 8 * len(PROGRAM.words)
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


def test_size_of_a_program_is_known_without_its_words() -> None:
    assert "words" not in replace(PROGRAM).__dict__
    for channelwise in (False, True):
        record = replace(RECORD, channelwise=channelwise)
        encoded = encode_record(record, False, ARRAY)
        assert encoded.size == len(encoded.words) > len(encoded.before)
    assert PROGRAM.size == len(PROGRAM.words)
