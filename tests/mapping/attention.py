"""Integer networks with products of two computed matrices, of vectors that are rows of tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnhw.ir import BIPOLAR, BIT, Graph, IntType
from nnhw.ir.ops import Broadcast, Concat, IntegerSoftmax, MatrixProduct, Permute, Product, Reshape, Slice, WeightedSum
from tests.mapping.bodies import codes_of
from tests.mapping.networks import I4, U2, Network

U4 = IntType(0, 15)


def scores_of_one_head() -> Graph:
    """Queries times keys, [features, 1, tokens] each."""
    net = Network((4, 1, 5), I4)
    q, k = (net.add(Reshape((6, 5)), net.code(net.conv(net.input, 6, (1, 1)), I4)) for _ in range(2))
    return net.body(net.code(net.add(MatrixProduct(transpose_left=True), q, k), I4))


def scores_of_heads() -> Graph:
    """The same for each of three heads of two features, whose sums are codes behind steps of each head."""
    net = Network((4, 1, 5), I4)
    q, k = (net.add(Reshape((3, 2, 5)), net.code(net.conv(net.input, 6, (1, 1)), I4)) for _ in range(2))
    return net.body(net.code(net.add(MatrixProduct(transpose_left=True), q, k), I4))


def attention(heads: int = 3, size: int = 2, tokens: int = 5) -> Graph:
    """Scores without a softmax times values, and a linear layer of each token."""
    net = Network((4, 1, tokens), I4)
    shape = (heads, size, tokens)
    q, k, v = (net.add(Reshape(shape), net.code(net.conv(net.input, heads * size, (1, 1)), I4)) for _ in range(3))
    scores = net.code(net.add(MatrixProduct(transpose_left=True), q, k), U4)
    mixed = net.code(net.add(MatrixProduct(transpose_right=True), v, scores), I4)
    rows = net.add(Reshape((heads * size, 1, tokens)), mixed)
    return net.body(net.conv(rows, 3, (1, 1)))


def softmax_of_heads() -> Graph:
    """Whole attention: heads follow one another around the softmax, and each has steps of its own."""
    net, shape = Network((4, 1, 5), I4), (3, 2, 5)
    q, k, v = (net.add(Reshape(shape), net.code(net.conv(net.input, 6, (1, 1)), I4)) for _ in range(3))
    scores = net.code(net.add(MatrixProduct(transpose_left=True), q, k), I4)
    table = net.constant(np.round(65535 * np.exp(-0.2 * np.arange(16))).astype(np.int64), IntType(0, 65535))
    rows = net.add(Permute((2, 1, 0)), scores)
    shares = net.add(IntegerSoftmax(0), rows, table, net.constant(np.ones((), np.int64), BIT))
    mixed = net.add(MatrixProduct(transpose_right=True), v, net.add(Permute((2, 1, 0)), shares))
    return net.body(net.conv(net.add(Reshape((6, 1, 5)), net.code(mixed, I4)), 3, (1, 1)))


def one_query() -> Graph:
    """One row, for which all the other ones are weighed, without a function behind the first product."""
    net = Network((4, 1, 6), I4)
    q = net.code(net.conv(net.input, 4, (1, 6)), I4)
    k = net.add(Reshape((4, 6)), net.code(net.conv(net.input, 4, (1, 1)), I4))
    return net.body(net.add(MatrixProduct(transpose_left=True), net.add(Reshape((4, 1)), q), k))


def outer_product() -> Graph:
    """A column times a row: nothing is added."""
    net = Network((4,), I4)
    left, right = (net.code(net.linear(net.input, 5), I4) for _ in range(2))
    outer = net.add(MatrixProduct(), net.add(Reshape((5, 1)), left), net.add(Reshape((1, 5)), right))
    return net.body(net.linear(net.code(outer, U2), 3))


def square() -> Graph:
    """A matrix times itself, each from a stream of its own: bipolar elements, and sums that go on as they are."""
    net = Network((3, 1, 4), U2)
    x = net.add(Reshape((4, 4)), net.code(net.conv(net.input, 4, (1, 1)), BIPOLAR))
    return net.body(net.add(MatrixProduct(), x, x))


def maps(transposed: bool) -> Graph:
    """Matrices of three heads that stream head by head, as maps do."""
    net = Network((4, 5, 4), I4)
    left, right = (net.code(net.conv(net.input, 3, size), I4) for size in ((2, 1), (4, 1) if transposed else (2, 2)))
    return net.body(net.code(net.add(MatrixProduct(transpose_right=transposed), left, right), U2))


def against_the_order() -> Graph:
    """Operands of which neither streams in rows: one of them is put into another order first."""
    net = Network((4, 1, 6), I4)
    left, right = (net.add(Reshape((2, 3, 6)), net.code(net.conv(net.input, 6, (1, 1)), I4)) for _ in range(2))
    turned = net.add(Permute((1, 0, 2)), net.add(Reshape((3, 2, 6)), left))
    return net.body(net.code(net.add(MatrixProduct(transpose_right=True), turned, right), U2))


def class_token() -> Graph:
    """A token in front of all others, positions that are added to all, and the features of the first one."""
    net = Network((4, 1, 5), I4)
    x = net.add(Reshape((6, 5)), net.code(net.conv(net.input, 6, (1, 1)), I4))
    token, positions = (net.constant(codes_of(I4, (6, count), net.rng), I4) for count in (1, 6))
    x = net.add(Concat(1), net.add(Broadcast(), x, token), x)
    x = net.code(net.add(WeightedSum((5, 3)), x, net.add(Broadcast(), x, positions)), I4)
    y = net.add(Reshape((6, 6)), net.code(net.conv(net.add(Reshape((6, 1, 6)), x), 6, (1, 1)), I4))
    x = net.code(net.add(WeightedSum((1, 1)), x, y), I4)
    return net.body(net.linear(net.add(Slice(1, 0, 1), x), 3))


def constant_of_two_readers() -> Graph:
    """The same constants for a sum and for a product, one of which waits for the other; bipolar ones, too."""
    net = Network((4, 1, 5), I4)
    x = net.code(net.conv(net.input, 6, (1, 1)), I4)
    constant = net.add(Broadcast(), x, net.constant(codes_of(I4, (6, 1, 5), net.rng), I4))
    signs = net.add(Broadcast(), x, net.constant(codes_of(BIPOLAR, (6, 1, 1), net.rng), BIPOLAR))
    x = net.code(net.add(WeightedSum((1, 2)), x, constant), I4)
    x = net.code(net.conv(x, 6, (1, 5)), I4)
    x = net.code(net.add(Product(), net.code(net.add(Product(), x, signs), I4), constant), I4)
    return net.body(net.conv(x, 2, (1, 1)))


PRODUCTS: dict[str, Callable[[], Graph]] = {
    "scores_of_one_head": scores_of_one_head,
    "scores_of_heads": scores_of_heads,
    "attention": attention,
    "attention_of_one_head": lambda: attention(1, 4, 3),
    "attention_of_one_feature": lambda: attention(4, 1, 3),
    "softmax_of_heads": softmax_of_heads,
    "one_query": one_query,
    "outer_product": outer_product,
    "square": square,
    "class_token": class_token,
    "constant_of_two_readers": constant_of_two_readers,
    "maps": lambda: maps(False),
    "maps_transposed": lambda: maps(True),
    "against_the_order": against_the_order,
}
