"""Bytes of a frame: as few as its codes need, whatever the engine takes at once."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.ir import BIPOLAR, IntType
from nnhw.mapping.assemble import BEAT_BYTES, input_format
from tests.mapping.bodies import codes_of


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
