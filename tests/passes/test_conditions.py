"""Conditions of one value are functions of one integer: pieces, steps, and the numbers behind them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnhw.ir import Builder, Graph, Value, run
from nnhw.ir.ops import Threshold
from nnhw.ir.ops.threshold import StepTable
from nnhw.passes import lower
from nnhw.passes.bisection import BISECTED, _bisected, find_steps
from nnhw.passes.region_directions import find_pieces
from nnhw.passes.regions import find_region, quantizers

FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "leaky": lambda y: y.greater(0).where(y, y.mul(0.25)),
    "bent_twice": lambda y: y.greater(3).where(y.mul(-2), y.greater_equal(-4).where(y, y.mul(0.5))),
    "numbers": lambda y: y.greater([0.5, -7]).where(3.0, -2.0),
    "sign": lambda y: y.sign().mul(5),
    "sign_as_condition": lambda y: y.sub(1.5).sign().where(y, 0.0),
    "value_as_condition": lambda y: y.where(y.mul(-1), 6.0),
    "falling_condition": lambda y: y.neg().where(y, -6.0),
    "constant_condition": lambda y: y.mul(0).add([1.0, 0.0]).where(y, y.neg()),
}
NOT_MONOTONE: dict[str, Callable[[Value], Value]] = {
    "window": lambda y: y.greater(-2).minimum(y.neg().greater(-3)).where(y, 0.0),
    "around_a_place": lambda y: y.greater_equal(2).mul(y.neg().greater_equal(-2)).mul(9),
}


def network(function: Callable[[Value], Value], scale: float = 0.5) -> Graph:
    """Return a layer of two channels, with a function of its sums in front of a quantizer."""
    builder = Builder("g")
    x = builder.input("x", (3,), low=-8, high=7)
    sums = x.linear([[5, -3, 7], [-2, 9, 4]], name="sums").dequantize(scale)
    return builder.build(function(sums).quantize(0.5, low=-128, high=127))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_pieces_of_a_condition_are_monotone_and_steps_are_those_of_a_scan(name: str) -> None:
    graph = network(FUNCTIONS[name])
    region = find_region(graph, quantizers(graph)[0])
    assert region is not None
    pieces = find_pieces(region)
    assert pieces is not None
    sums = region.source.type.int_dtype
    bisected, scanned = _bisected(region), find_steps(region)
    assert bisected is not None
    assert bisected.proof == BISECTED
    places = np.arange(sums.low, sums.high + 1)[:, None].repeat(len(region.classes[0]), axis=1)
    codes = bisected(places)
    wide = np.arange(sums.low, sums.high + 1)[:, None].repeat(region.channels, axis=1)
    assert (codes == scanned(wide)[:, region.classes[0]]).all()
    ends = pieces.ends(sums.high + 1)
    for piece in range(len(pieces.starts)):
        for column, (start, end) in enumerate(zip(pieces.starts[piece], ends[piece], strict=True)):
            moves = np.diff(codes[start - sums.low : end - sums.low, column]) * pieces.directions[piece, column]
            assert (moves >= 0).all(), (name, piece, column)


@pytest.mark.parametrize("name", FUNCTIONS | NOT_MONOTONE)
def test_condition_becomes_steps(name: str) -> None:
    graph = network((FUNCTIONS | NOT_MONOTONE)[name])
    lowered = lower(graph)
    assert [node.op.name for node in lowered.nodes if isinstance(node.op, Threshold | StepTable)]
    images = np.random.default_rng(1).integers(-8, 8, (500, 3))
    assert (run(lowered, images)[0] == run(graph, images)[0]).all()
    assert len(np.unique(run(graph, images)[0])) > 1
