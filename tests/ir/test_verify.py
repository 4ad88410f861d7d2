from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings

from nnhw.errors import IrError, NnhwError
from nnhw.ir import BIPOLAR, BIT, FLOAT, Graph, IntType, Node, TensorType, verify
from nnhw.ir.ops import Constant, Input, Linear, Negate, Relu
from tests.ir.graphs import random_graphs

X = Node("x", Input(), (), TensorType((2,), FLOAT))
Y = Node("y", Relu(), ("x",), TensorType((2,), FLOAT))
W = Node("w", Constant(), (), TensorType((1, 2), IntType(-2, 2)))
CODES = Node("codes", Input(), (), TensorType((2,), BIPOLAR))
SUMS = Node("sums", Linear(), ("codes", "w"), TensorType((1,), IntType(-3, 3)))


@dataclasses.dataclass(frozen=True)
class Unlisted(Relu):
    name: ClassVar[str] = "unlisted"


def graph(*nodes: Node, outputs: tuple[str, ...] = ("y",), **constants: np.ndarray) -> Graph:
    return Graph("g", nodes, outputs, constants)


@given(random_graphs())
@settings(max_examples=20, deadline=None)
def test_verify_accepts_what_the_builder_makes(made: Graph) -> None:
    assert verify(made) is made


def test_verify_accepts_booleans_as_bits() -> None:
    flag = Node("f", Constant(), (), TensorType((1,), BIT))
    verify(graph(X, Y, flag, f=np.array([True])))
    verify(graph(X, Y, flag, f=np.array([1])))


WEIGHT = {"w": np.array([[1, -2]])}


@pytest.mark.parametrize(
    ("nodes", "constants", "outputs", "message"),
    [
        ((X, X, Y), {}, ("y",), "node 'x' is defined twice"),
        ((X, dataclasses.replace(Y, name="")), {}, ("",), "node '' needs a name of printable characters"),
        ((X, dataclasses.replace(Y, name="y\t")), {}, ("y\t",), "node 'y\t' needs a name of printable characters"),
        ((Y, X), {}, ("y",), "node 'y' uses 'x' before it is defined"),
        ((X, dataclasses.replace(Y, inputs=("y",))), {}, ("y",), "node 'y' uses 'y' before it is defined"),
        ((X, dataclasses.replace(Y, op=Unlisted())), {}, ("y",), "node 'y' has an unknown op Unlisted()"),
        ((X, dataclasses.replace(Y, type=TensorType((3,), FLOAT))), {}, ("y",),
         "node 'y' must have the type float64 [2], got float64 [3]"),
        ((X, dataclasses.replace(Y, inputs=("x", "x"))), {}, ("y",),
         "node 'y' breaks a type rule: relu 'y': relu takes 1 inputs, got 2"),
        ((X, dataclasses.replace(X, name="y", inputs=("x",))), {}, ("y",), "node 'y' takes no inputs, got x"),
        ((X, Y), {}, (), "graph 'g' has no output"),
        ((X, Y), {}, ("z",), "output 'z' is not a node"),
        ((X, Y), {"k": np.ones(1)}, ("y",), "array 'k' has no constant node"),
        ((CODES, W, SUMS), {}, ("sums",), "node 'w' has no array"),
        ((CODES, W), {"w": np.array([1, -2])}, ("w",), "node 'w' needs an array of shape [1, 2], got [2]"),
        ((CODES, W), {"w": np.array([[1, -2]], dtype=np.int8)}, ("w",), "node 'w' needs an int64 array, got int8"),
        ((CODES, W), {"w": np.array([[1, -3]])}, ("w",), "node 'w' needs values in int -2..2, got -3..1"),
        ((CODES, dataclasses.replace(W, type=TensorType((1, 2), FLOAT))), WEIGHT, ("w",),
         "node 'w' needs a float64 array, got int64"),
        ((CODES, W, dataclasses.replace(SUMS, type=TensorType((1,), IntType(-4, 4)))), WEIGHT, ("sums",),
         "node 'sums' must have the type int -3..3 [1], got int -4..4 [1]"),
        ((X, W, dataclasses.replace(SUMS, inputs=("x", "w"))), WEIGHT, ("sums",),
         "node 'sums' breaks a type rule: linear 'sums': x must be an integer tensor, got float64 [2]"),
    ],
)  # fmt: skip
def test_verify_rejects_a_broken_rule(
    nodes: tuple[Node, ...], constants: Mapping[str, Any], outputs: tuple[str, ...], message: str
) -> None:
    with pytest.raises(NnhwError) as caught:
        verify(Graph("g", nodes, outputs, constants))
    first = str(caught.value).split("\n  1. ")[-1].split("\n")[0]
    assert first == message


def test_verify_lists_all_problems_at_once() -> None:
    wrong = dataclasses.replace(Y, type=TensorType((3,), FLOAT))
    late = Node("z", Negate(), ("nothing",), TensorType((2,), FLOAT))
    with pytest.raises(NnhwError) as caught:
        verify(graph(X, wrong, late, outputs=("y", "out")))
    assert str(caught.value) == (
        "3 problems:\n"
        "  1. node 'y' must have the type float64 [2], got float64 [3]\n"
        "  2. node 'z' uses 'nothing' before it is defined\n"
        "  3. output 'out' is not a node"
    )
    with pytest.raises(IrError):
        verify(graph(X, wrong))
