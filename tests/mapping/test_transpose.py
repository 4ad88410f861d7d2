"""Reorderings of tensors as steps of their streams, against NumPy."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.accelerator import stream_order
from nnhw.ir import Op
from nnhw.ir.ops import Flatten, Permute, Reshape
from nnhw.mapping.folding import divisors
from nnhw.mapping.layers import Loops
from nnhw.mapping.transpose import transposes

Path = tuple[tuple[int, ...], list[Op]]


@st.composite
def paths(draw: st.DrawFn) -> Path:
    """Draw a shape and what reorders a tensor of it."""
    first = shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    ops: list[Op] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from([Flatten, Permute, Reshape]))
        if kind is Permute:
            axes = tuple(draw(st.permutations(range(len(shape)))))
            ops.append(Permute(axes))
            shape = tuple(shape[axis] for axis in axes)
            continue
        left, sizes = prod(shape), list[int]()
        for _ in range(draw(st.integers(0, 3)) if kind is Reshape else 0):
            sizes.append(draw(st.sampled_from(divisors(left))))
            left //= sizes[-1]
        shape = (*sizes, left)
        ops.append(Reshape(shape) if kind is Reshape else Flatten())
    return first, ops


@given(paths())
def test_transposes_bring_a_stream_into_the_order_of_the_tensor(path: Path) -> None:
    shape, ops = path
    before = after = np.arange(prod(shape)).reshape(1, *shape)
    for op in ops:
        after = op.evaluate(after)
    stream = stream_order(before)[0]
    for loops in transposes(shape, ops):
        assert min(loops[1:3]) > 1
        stream = stream.reshape(loops).swapaxes(1, 2).reshape(-1)
    assert np.array_equal(stream, stream_order(after)[0])


@pytest.mark.parametrize(
    ("shape", "ops", "steps"),
    [
        ((8, 5, 6), [Permute((0, 2, 1))], [(1, 5, 6, 8)]),  # a transposed image, pixel by pixel
        ((8, 6), [Permute((1, 0))], [(1, 6, 8, 1)]),  # rows become features
        ((12, 4, 5), [Reshape((3, 4, 4, 5)), Permute((1, 0, 2, 3)), Reshape((12, 4, 5))], [(20, 3, 4, 1)]),  # a shuffle
        ((8, 4, 6), [Reshape((2, 2, 2, 4, 6)), Permute((0, 3, 1, 4, 2)), Reshape((2, 8, 12))], None),  # of pixels
        ((8, 4, 6), [Permute((1, 2, 0)), Flatten()], []),
        ((8, 4, 6), [Permute((0, 2, 1)), Permute((0, 2, 1))], []),
        ((8,), [Reshape((4, 2)), Permute((1, 0))], []),
        ((2, 3, 5, 7), [Permute((1, 2, 0, 3))], None),
        ((6, 4), [Reshape((4, 6))], None),  # neither 6 nor 4 divides the other: through the order of all
    ],
    ids=str,
)
def test_transposes_are_as_few_as_there_must_be(
    shape: tuple[int, ...], ops: list[Op], steps: list[Loops] | None
) -> None:
    found = transposes(shape, ops)
    assert len(found) == 2 if steps is None else found == steps
