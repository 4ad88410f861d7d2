"""Bytes of a frame: as few as its codes need, whatever the engine takes at once."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.accelerator import OutputFormat
from nnhw.ir import BIPOLAR, IntType
from nnhw.mapping.assemble import BEAT_BYTES, input_format
from nnhw.mapping.mapper import map_body
from tests.mapping.bodies import LayerSpec, codes_of, make_body
from tests.mapping.test_mapper import LARGE, check_equal


def element_of(bits: int) -> IntType:
    """Return a type of so many bits."""
    return BIPOLAR if bits == 1 else IntType(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("slowest", [1, 40, 10_000])
def test_input_format_takes_as_few_bytes_as_there_can_be(bits: int, slowest: int) -> None:
    rng, element = np.random.default_rng(bits), element_of(bits)
    for lanes in range(1, 50):
        shape = (lanes, 5)
        form = input_format(element, lanes, shape, slowest)
        assert form.frame_bytes == -(-lanes * 5 * bits // 8)
        codes = codes_of(element, (3, *shape), rng)
        packed = form.pack(codes)
        assert packed.shape == (3, form.frame_bytes)
        assert packed.dtype == np.uint8
        assert (form.unpack(packed) == codes).all()
        assert form.frame_beats * form.stream.lanes == form.elements
        assert form.beat_bytes <= BEAT_BYTES
        beats = form.pack_beats(codes)
        assert beats.shape == (3 * form.frame_beats, form.beat_bytes)
        if form.unpacking is None:
            assert (beats.reshape(3, -1) == packed).all()
            continue
        for frame, sent in enumerate(packed):
            seen = np.packbits(form.unpacking.golden(sent), axis=1, bitorder="little")
            assert (seen == beats.reshape(3, form.frame_beats, -1)[frame]).all()


@pytest.mark.parametrize("lanes", [1, 2, 4, 7, 8, 14, 16, 49, 98])
def test_input_of_two_bits_is_the_same_bytes_whatever_the_lanes(lanes: int) -> None:
    codes = codes_of(IntType(0, 3), (2, 784), np.random.default_rng(1))
    form = input_format(IntType(0, 3), lanes, (784,), 100)
    assert form.frame_bytes == 196
    assert (form.pack(codes) == input_format(IntType(0, 3), 1, (784,), 100).pack(codes)).all()


def test_input_format_takes_no_more_cycles_than_the_slowest_engine() -> None:
    form = input_format(IntType(0, 3), 14, (784,), 400)
    assert (form.lanes, form.frame_beats) == (2, 392)
    form = input_format(IntType(0, 3), 49, (784,), 20)
    assert (form.lanes, form.frame_beats) == (7, 112)


@pytest.mark.parametrize("bits", range(1, 26))
def test_packed_output_takes_as_few_bytes_as_there_can_be(bits: int) -> None:
    element = element_of(bits)
    for elements in range(1, 50):
        offsets = np.arange(elements)
        form = OutputFormat((elements,), element, -(-bits // 8), 2, offsets, packed=True)
        assert form.frame_bytes == -(-elements * bits // 8)
        values = 2 * codes_of(element, (3, elements), np.random.default_rng(elements)) + offsets
        sent, beats = form.pack(values), form.pack_beats(values)
        assert sent.shape == (3, form.frame_bytes)
        assert beats.shape == (3, form.frame_beats)
        assert (form.unpack(sent) == values).all()
        assert (form.unpack_beats(beats) == values).all()
        assert form.packing is not None
        assert all((form.packing.golden(one) == packed).all() for one, packed in zip(beats, sent, strict=True))


def test_output_is_packed_where_it_takes_more_bytes_than_the_input() -> None:
    few, many = (make_body((16,), IntType(-128, 127), [LayerSpec(count, steps=0)]) for count in (2, 30))
    accelerator = map_body(few, "test", LARGE)
    assert (accelerator.input_format.frame_bytes, accelerator.output_format.frame_bytes) == (16, 4)
    assert not accelerator.output_format.packed
    accelerator = map_body(many, "test", LARGE)
    form = accelerator.output_format
    assert form.packed
    assert form.frame_bytes == -(-30 * form.element.bits // 8) < form.frame_beats == 60
    check_equal(many, accelerator)
