"""Products of two values read and give matrices as they lie: exact, and without permutations where none is needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.ir import Builder, Graph, Value, run
from nnhw.passes import turn_products

STEPS = np.arange(-60, 61, 10)


def ops_of(graph: Graph) -> list[str]:
    """Return the names of the ops that compute."""
    return [node.op.name for node in graph.nodes if node.inputs]


def turned(result: Value) -> Graph:
    """Return the graph of a value behind the pass, which changed no result."""
    graph = result.builder.build(result)
    after = turn_products(graph)
    node = graph.inputs[0]
    images = np.random.default_rng(0).integers(-8, 8, (6, *node.type.shape))
    np.testing.assert_array_equal(run(after, images)[0], run(graph, images)[0])
    return after


def heads(value: Value, first: int, count: int) -> Value:
    """Return features `first` and more, of [features, 1, rows], as heads [2, rows, size]."""
    features, _, rows = value.shape
    flat = value.reshape((features, rows)).permute((1, 0)).slice(axis=1, start=first, stop=first + count)
    return flat.reshape((rows, 2, count // 2)).permute((1, 0, 2))


def attention(joined: bool) -> Value:
    """Return attention of the rows of a value, its result as features of rows."""
    x = Builder("attention").input("x", (24, 1, 5), low=-8, high=7)
    q, k, v = (heads(x, first, 8) for first in (0, 8, 16))
    scores = q.matrix_product(k.permute((0, 2, 1))).threshold(np.tile(STEPS, (2, 1)), low=-6)
    shares = scores.integer_softmax([65535, 30000, 9000, 100, 0], axis=2)
    mixed = shares.matrix_product(v).threshold(np.tile(STEPS * 20, (2, 1)), low=-6)
    rows = mixed.permute((1, 0, 2)).reshape((5, 8)).permute((1, 0)).reshape((8, 1, 5))
    return rows.weighted_sum(rows, factors=(1, 2)) if joined else rows.conv2d(np.ones((3, 8, 1, 1), np.int64))


@pytest.mark.parametrize("joined", [True, False])
def test_turn_products_leaves_attention_without_permutations(joined: bool) -> None:
    after = turned(attention(joined))
    assert "permute" not in ops_of(after)
    products = [node.op for node in after.nodes if node.op.name == "matrix_product"]
    assert [(op.transpose_left, op.transpose_right) for op in products] == [(True, False), (False, True)]  # type: ignore[attr-defined]


def test_turn_products_keeps_permutations_that_others_read() -> None:
    x = Builder("other").input("x", (3, 4), low=-8, high=7)
    codes = x.matrix_product(x, transpose_right=True).threshold(np.tile(STEPS, (3, 1)), low=0)
    assert ops_of(turned(codes.permute((1, 0)).weighted_sum(codes, factors=(1, 3))))[-2:] == ["permute", "weighted_sum"]


def test_turn_products_turns_results_of_one_matrix_where_all_rows_have_the_same_steps() -> None:
    for rows, expected in ((np.tile(STEPS, (3, 1)), 0), (np.stack([STEPS, STEPS + 1, STEPS]), 1)):
        x = Builder("rows").input("x", (3, 4), low=-8, high=7)
        y = x.broadcast(np.arange(20).reshape(4, 5) - 10)
        codes = x.matrix_product(y).threshold(rows, low=0).permute((1, 0))
        assert ops_of(turned(codes.weighted_sum(codes, factors=(1, 1)))).count("permute") == expected


def test_turn_products_lets_constants_follow_the_value_itself() -> None:
    x = Builder("constant").input("x", (3, 4), low=-8, high=7)
    constant = x.permute((1, 0)).broadcast(np.arange(12).reshape(3, 4))
    assert ops_of(turned(constant.weighted_sum(x, factors=(1, 1)))) == ["broadcast", "weighted_sum"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_turn_products_is_exact_for_all_orders(data: st.DataObject) -> None:
    x = Builder("drawn").input("x", (4, 4, 4), low=-8, high=7)
    sides = []
    for _ in range(2):
        value = x
        for _ in range(data.draw(st.integers(0, 3))):
            move = data.draw(st.sampled_from(["permute", "slice", "reshape"]))
            if move == "permute":
                value = value.permute(data.draw(st.permutations(range(len(value.shape)))))
            elif move == "slice" and value.shape == (4, 4, 4):
                axis = data.draw(st.integers(0, 2))
                value = value.slice(axis=axis, start=2, stop=4).weighted_sum(
                    value.slice(axis=axis, start=0, stop=2), factors=(1, 1)
                )
                value = value.concat(value, axis=axis)
            else:
                value = value.reshape((4, 2, 2, 4)).permute((1, 0, 2, 3)).reshape((4, 4, 4))
        sides.append(value)
    product = sides[0].matrix_product(sides[1], data.draw(st.booleans()), data.draw(st.booleans()))
    codes = product.threshold(np.tile(STEPS, (4, 1)), low=-6)
    turned(codes.permute(data.draw(st.permutations(range(3)))).weighted_sum(x, factors=(1, 1)))
