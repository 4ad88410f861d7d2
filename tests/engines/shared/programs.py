"""Small programs that tests of the shared engine have in common."""

from __future__ import annotations

import numpy as np

from nnhw.engines.shared import ArrayConfig, Compute, make_loops

ARRAY = ArrayConfig(
    lanes=8,
    simd=2,
    weight_bits=8,
    activation_bits=8,
    word_bits=64,
    words=512,
    rows=64,
    sum_bits=23,
    factor_bits=29,
    addend_bits=45,
    shifts=(0, 4, 12, 19),
)
NO_STEP = (0, 0, 0)


def convolution(weights: np.ndarray, size: int, stride: int = 1, dilation: int = 1, pad: int = 1) -> Compute:
    """Return the record of a convolution of a square map at address 200, one word a pixel, to one granule at 300."""
    outputs, channels, height, width = weights.shape
    reach = dilation * (height - 1) + 1
    positions = (size + 2 * pad - reach) // stride + 1
    counts = (1, width, height, 1, 1, positions, positions)
    step = [(0, 0, 0), (dilation, 0, dilation), (dilation * size, dilation, 0), NO_STEP, NO_STEP]
    strides = [*step, (stride, 0, stride), (stride * size, stride, 0)]
    steps = -(-channels // ARRAY.simd)
    rows = np.zeros((height * width * steps, ARRAY.lanes, ARRAY.simd), dtype=np.int64)
    taps = weights.transpose(2, 3, 1, 0).reshape(height * width, channels, outputs)
    for channel in range(channels):
        rows[channel // ARRAY.simd :: steps, :outputs, channel % ARRAY.simd] = taps[:, channel]
    return Compute(
        layer="conv",
        node="y",
        channels=(0, outputs),
        start=200 - pad * size - pad,
        row=-pad,
        column=-pad,
        height=size,
        width=size,
        border=-3,
        loops=make_loops(counts, strides),
        weights=rows,
        factor=np.full(ARRAY.lanes, 3),
        addend=np.arange(ARRAY.lanes),
        steps=steps,
        shift=2,
        low=-128,
        high=127,
        target=300,
        target_step=1,
    )
