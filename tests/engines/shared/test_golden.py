"""The golden output of programs against the IR's own operators, and against sums written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.engines.shared import Emit, Fill, Loop, SharedConfig, make_loops
from nnhw.engines.shared.golden import compute_sums, requantize, run_program, walk, wrap
from nnhw.ir.ops import Conv2d
from tests.engines.shared.programs import ARRAY, NO_STEP, convolution


@pytest.mark.parametrize(("stride", "dilation", "pad"), [(1, 1, 1), (2, 1, 1), (1, 2, 2), (1, 1, 0)])
def test_dense_record_is_the_convolution_of_the_ir(stride: int, dilation: int, pad: int) -> None:
    rng = np.random.default_rng(stride + 2 * dilation + 4 * pad)
    weights = rng.integers(-128, 128, (5, 3, 3, 3))
    record = convolution(weights, 6, stride, dilation, pad)
    image = rng.integers(-128, 128, (3, 6, 6))
    program = SharedConfig(ARRAY, (Fill(200, 36, 3, flip=False), record, Emit(300, record.pixels, 5, flip=False)))

    trace = run_program(program, np.moveaxis(image, 0, -1).reshape(-1))

    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)), constant_values=-3)
    op = Conv2d(stride=(stride, stride), dilation=(dilation, dilation))
    sums = op.evaluate(padded[None], weights)[0].reshape(5, -1).T
    expected = np.clip((3 * sums + np.arange(5)) >> 12, -128, 127)
    assert (trace.stored[0].codes[:, :5] == expected).all()
    assert (trace.output.astype(np.int8).reshape(-1, 5) == expected).all()


def test_flipped_codes_come_and_go_as_unsigned() -> None:
    program = SharedConfig(ARRAY, (Fill(200, 2, 4, flip=True), Emit(200, 2, 4, flip=True)))
    codes = np.array([0, 1, 127, 128, 129, 255, 3, 200])
    assert (run_program(program, codes).output == codes).all()


def test_pooling_takes_the_maximum_of_the_positions_of_a_window() -> None:
    rng = np.random.default_rng(2)
    record = convolution(rng.integers(-128, 128, (8, 2, 1, 1)), 4, pad=0)
    pooled = replace(
        record,
        loops=make_loops((1, 1, 1, 2, 2, 2, 2), [NO_STEP] * 3 + [(1, 0, 1), (4, 1, 0), (2, 0, 2), (8, 2, 0)]),
    )
    image = rng.integers(-128, 128, 32)
    plain, joined = (
        run_program(SharedConfig(ARRAY, (Fill(200, 16, 2, False), one)), image) for one in (record, pooled)
    )
    codes = plain.stored[0].codes.reshape(2, 2, 2, 2, 8)
    assert (joined.stored[0].codes.reshape(2, 2, 8) == codes.max(axis=(1, 3))).all()


def test_channelwise_record_keeps_channels_apart_and_adds_two_tensors() -> None:
    """A residual add: two taps that read two tensors, their factors as weights."""
    array = replace(ARRAY, lanes=16, simd=1)
    rng = np.random.default_rng(3)
    memory = rng.integers(-128, 128, (array.words, array.codes_per_word))
    counts, strides = (2, 2, 1, 1, 1, 4, 1), [(1, 0, 0), (100, 0, 0), NO_STEP, NO_STEP, NO_STEP, (2, 0, 0), NO_STEP]
    record = replace(
        convolution(np.zeros((8, 2, 1, 1), dtype=np.int64), 4, pad=0),
        start=10,
        loops=make_loops(counts, strides),
        weights=np.array([2, -5]).reshape(2, 1, 1).repeat(16, axis=1),
        channelwise=True,
        steps=1,
    )
    a, b = (memory[first : first + 8].reshape(4, 16) for first in (10, 110))
    assert (compute_sums(memory, record, array) == 2 * a - 5 * b).all()


def test_ties_go_to_the_even_code() -> None:
    record = replace(
        convolution(np.zeros((8, 2, 1, 1), dtype=np.int64), 4, pad=0),
        factor=np.full(8, 8),
        addend=np.full(8, 8),
        shift=1,
        even=True,
    )
    sums = np.arange(-9, 9)[:, None].repeat(8, axis=1)
    assert (requantize(sums, record, ARRAY) == np.round(sums / 2)).all()


def test_a_walk_steps_through_its_loops_innermost_first() -> None:
    counts, strides = (2, 3, 1, 1, 1, 2, 1), [(1, 0, 0), (10, 0, 1), NO_STEP, NO_STEP, NO_STEP, (100, 5, 0), NO_STEP]
    record = replace(convolution(np.zeros((8, 2, 1, 1), dtype=np.int64), 4), loops=make_loops(counts, strides), start=7)
    address, row, column = walk(replace(record, row=0, column=0))
    assert address[1].tolist() == [[107, 108], [117, 118], [127, 128]]
    assert column[0, :, 0].tolist() == [0, 1, 2]
    assert row[:, 0, 0].tolist() == [0, 5]
    level = next(loop for loop in record.loops if loop.address == 100 - 21)
    assert level == Loop(2, 100 - 21, 5, -2)


def test_numbers_wrap_as_twos_complement() -> None:
    assert wrap(np.array([127, 128, -129, 256]), 8).tolist() == [127, -128, 127, 0]
