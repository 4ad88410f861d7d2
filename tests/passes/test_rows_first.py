"""The pass that lets softmax and normalization work along the first axis: exact, and only where it moves something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.ir import BIT, Graph, GraphBuilder, IntType, TensorType, run, verify
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax, Permute
from nnhw.passes.rows_first import rows_first

CODES = IntType(-8, 7)


def rows_of(op: IntegerNorm | IntegerSoftmax, shape: tuple[int, ...], keep: np.ndarray | None = None) -> Graph:
    """Return a graph of one operator."""
    builder = GraphBuilder("rows")
    inputs = [builder.input("x", TensorType(shape, CODES))]
    if isinstance(op, IntegerSoftmax):
        table = np.round(65535 * np.exp(-0.3 * np.arange(16))).astype(np.int64)
        kept = np.ones((), np.int64) if keep is None else keep
        inputs.append(builder.constant("table", table, TensorType(table.shape, IntType(0, 65535))))
        inputs.append(builder.constant("keep", kept, TensorType(kept.shape, BIT)))
    return builder.build([builder.add("y", op, inputs)])


@pytest.mark.parametrize(
    ("op", "shape", "keep"),
    [
        (IntegerSoftmax(2), (2, 3, 4), None),
        (IntegerSoftmax(1), (2, 3, 4), np.tri(4, 3, dtype=np.int64).T),
        (IntegerSoftmax(2), (2, 3, 4), np.tri(3, 4, dtype=np.int64)),
        (IntegerSoftmax(1), (3, 4), np.tri(3, 4, dtype=np.int64)),
        (IntegerNorm(1, 3), (3, 4), None),
        (IntegerNorm(2, 3), (2, 3, 4, 2), None),
    ],
)
def test_rows_first_is_exact_and_leaves_rows_together(
    op: IntegerNorm | IntegerSoftmax, shape: tuple[int, ...], keep: np.ndarray | None
) -> None:
    graph = rows_of(op, shape, keep)
    turned = verify(rows_first(graph))
    images = np.random.default_rng(0).integers(-8, 8, (5, *shape))
    np.testing.assert_array_equal(run(turned, images)[0], run(graph, images)[0])
    kinds = [node.op for node in turned.nodes]
    assert replace(op, axis=0) in kinds
    assert sum(isinstance(kind, Permute) for kind in kinds) == 2
    assert turned.outputs == graph.outputs


@pytest.mark.parametrize(
    ("op", "shape"), [(IntegerSoftmax(0), (3, 4)), (IntegerSoftmax(2), (1, 3, 4)), (IntegerNorm(0, 3), (4, 2, 3))]
)
def test_rows_first_leaves_what_lies_together(op: IntegerNorm | IntegerSoftmax, shape: tuple[int, ...]) -> None:
    graph = rows_of(op, shape)
    assert rows_first(graph) is graph
