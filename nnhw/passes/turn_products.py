"""Pass: products of two values take over the transpositions around them, so that no permutation moves elements.

matrix_product(permute(x), y)                 --> matrix_product(x, y; transpose_left)
matrix_product(permute(slice(permute(x))), y) --> matrix_product(reshape(slice(x)), y)
permute(threshold(matrix_product(x, y)))      --> threshold(matrix_product(y, x; transpose_left, transpose_right))
broadcast(permute(x))                         --> broadcast(x)
"""

from __future__ import annotations

import math

import numpy as np

from nnhw.ir import Graph, Node, TensorType
from nnhw.ir.ops import Broadcast, MatrixProduct, Op, Permute, Rescale, Reshape, Slice, StepTable, Threshold

from .cancel_permutes import cancel_permutes
from .edit import ORDER_OPS, Edit, sole_names
from .shapes import order_of

_FUNCTIONS = (Threshold, StepTable, Rescale)


def turn_products(graph: Graph) -> Graph:
    """Remove permutations around products of two values, where a product with transposed operands needs none.

    A linear layer of attention gives its heads as channels, so the values that a product reads as rows are the columns
    of what lies in memory. Exact, since a product of matrices is the same sum, transposed or not.
    """
    for name in [node.name for node in graph.nodes if isinstance(node.op, Broadcast)]:
        graph = _unordered(graph, graph.node(name))
    for name in [node.name for node in graph.nodes if isinstance(node.op, MatrixProduct)]:
        for position in (0, 1):
            graph = _turned_operand(graph, graph.node(name), position)
    for name in [node.name for node in graph.nodes if isinstance(node.op, _FUNCTIONS)]:
        if name in graph:
            graph = _turned_result(graph, graph.node(name))
    return graph


def _unordered(graph: Graph, node: Node) -> Graph:
    """Let a broadcast read a value in front of its reorderings.

    It gives a constant for each image of the value, so the order of elements does not matter.
    """
    path = _path(graph, node.inputs[0], ORDER_OPS)
    if not path:
        return graph
    edit = Edit(graph, {node.name})
    edit.add(node, node.op, [path[0].inputs[0], node.inputs[1]])
    return edit.apply(node.name)


def _path(graph: Graph, name: str, kinds: tuple[type[Op], ...]) -> list[Node]:
    """Return the chain of ops of the given kinds that ends in a value, first to last."""
    path: list[Node] = []
    node = graph.node(name)
    while isinstance(node.op, kinds):
        path.insert(0, node)
        node = graph.node(node.inputs[0])
    return path


def _turned_operand(graph: Graph, product: Node, position: int) -> Graph:
    """Let an operand of a product be a contiguous part of the value behind its reorderings, transposed if need be."""
    path = _path(graph, product.inputs[position], (*ORDER_OPS, Slice))
    if not path:
        return graph
    source = graph.node(path[0].inputs[0])
    places = order_of([node.op for node in path], source.type.shape)
    for turned in (False, True):
        held = places.swapaxes(-1, -2) if turned else places
        # The elements of the operand follow one another in the source: a slice and a reshape give it without moving
        # anything.
        if (np.diff(held.reshape(-1)) == 1).all():
            return _with_operand(graph, product, position, source, path, held, turned)
    return graph


def _with_operand(
    graph: Graph, product: Node, position: int, source: Node, path: list[Node], held: np.ndarray, turned: bool
) -> Graph:
    """Return the graph whose product reads consecutive elements of a source.

    Parameters
    ----------
    position: of the operand. source: the value. path: the ops between source and product.
    held: the elements to read, consecutive indices in the shape that the product reads.
    turned: whether the product has to transpose that operand.
    """
    first, row = int(held.flat[0]), math.prod(source.type.shape[1:])
    # Slices cut along the first axis only, so the part has to consist of whole rows of the source.
    if first % row or held.size % row:
        return graph
    old = product.op
    assert isinstance(old, MatrixProduct)
    if not turned and len(path) == 1 and isinstance(path[0].op, Reshape | Slice):
        return graph
    flags = [old.transpose_left, old.transpose_right]
    flags[position] ^= turned
    edit = Edit(graph, {product.name})
    value = source.name
    if held.size < source.type.size:
        value = edit.add(path[-1], Slice(0, first // row, (first + held.size) // row), [value], f"{product.name}.part")
    if edit.type_of(value).shape != held.shape:
        value = edit.add(path[-1], Reshape(held.shape), [value], f"{product.name}.matrix")
    inputs = list(product.inputs)
    inputs[position] = value
    edit.add(product, MatrixProduct(*flags), inputs)
    return edit.apply(product.name)


def _turned_result(graph: Graph, function: Node) -> Graph:
    """Compute the transposed product, if all readers of its codes want them transposed."""
    product, users = graph.node(function.inputs[0]), graph.users()
    if not isinstance(product.op, MatrixProduct) or users[product.name] != (function,):
        return graph
    ends = [] if function.name in graph.outputs else _ends(graph, function)
    rows = [graph.constants[name] for name in function.inputs[1:]]
    if len(function.type.shape) == 2:
        # Transposed, columns become channels: thresholds must not differ between them, and are as many as the columns.
        if not all((row == row[:1]).all() for row in rows):
            return graph
        rows = [row[:1].repeat(function.type.shape[1], axis=0) for row in rows]
    wanted = np.arange(function.type.size).reshape(function.type.shape).swapaxes(-1, -2).reshape(-1)
    orders = [order_of([node.op for node in path], function.type.shape).reshape(-1) for path in ends]
    if not orders or not all(np.array_equal(order, wanted) for order in orders):
        return graph
    return _transposed(graph, product, function, rows)


def _ends(graph: Graph, node: Node) -> list[list[Node]]:
    """Return the chains of reorderings behind a value, each as far as it goes; empty if another op reads the value."""
    users = graph.users()
    found: list[list[Node]] = []
    waiting: list[list[Node]] = [[user] for user in users[node.name]]
    while waiting:
        path = waiting.pop()
        if not isinstance(path[-1].op, ORDER_OPS):
            return []
        readers = users[path[-1].name]
        inner = [reader for reader in readers if isinstance(reader.op, ORDER_OPS)]
        if len(inner) < len(readers) or not readers or path[-1].name in graph.outputs:
            found.append(path)
        waiting += [[*path, reader] for reader in inner]
    return found


def _transposed(graph: Graph, product: Node, function: Node, rows: list[np.ndarray]) -> Graph:
    old = product.op
    assert isinstance(old, MatrixProduct)
    names = function.inputs[1:]
    edit = Edit(graph, sole_names(graph, [product, *map(graph.node, names)], function))
    # The transposed product swaps its operands: (A B)^T = B^T A^T.
    op = MatrixProduct(not old.transpose_right, not old.transpose_left)
    sums = edit.add(product, op, product.inputs[::-1])
    constants = [
        edit.constant(name, row, TensorType(row.shape, graph.node(name).type.dtype))
        for name, row in zip(names, rows, strict=True)
    ]
    codes = edit.add(function, function.op, [sums, *constants])
    rank = len(function.type.shape)
    # Readers still see the old order; this permutation and theirs undo each other and go away.
    edit.add(function, Permute((*range(rank - 2), rank - 1, rank - 2)), [codes], f"{function.name}.rows")
    return cancel_permutes(edit.apply(function.name))
