from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from nnhw.errors import LoweringError, NnhwError
from nnhw.ir import BIPOLAR, FLOAT, Graph, GraphBuilder, IntType, TensorType, run, verify
from nnhw.ir.ops import Add, Dequantize, Linear, Quantize, Relu, Softmax
from nnhw.passes import collapse_chains
from nnhw.passes.chains import find_chain
from nnhw.passes.collapse_chains import Steps, _certify, find_steps
from tests.ir.graphs import floats, integers
from tests.passes.models import SIGN, ChainBuilder, all_sums, random_chains

SUMS = IntType(-20, 20)


def message_of(graph: Graph) -> str:
    with pytest.raises(NnhwError) as caught:
        collapse_chains(graph)
    return str(caught.value)


@given(random_chains())
@settings(max_examples=150, deadline=None)
def test_collapse_chains_is_exact_for_every_sum(graph: Graph) -> None:
    collapsed = verify(collapse_chains(graph))
    assert [node.op.name for node in collapsed.nodes if node.op.name != "constant"] == ["input", "threshold"]
    assert collapsed.output_nodes[0].type == graph.output_nodes[0].type
    sums = all_sums(graph)
    np.testing.assert_array_equal(run(collapsed, sums)[0], run(graph, sums)[0])


def steps_of(graph: Graph) -> Steps:
    chain = find_chain(graph, graph.output_nodes[0])
    assert chain is not None
    return find_steps(chain)


def test_steps_of_rising_falling_and_constant_channels() -> None:
    chain = ChainBuilder(SUMS, (4,)).batch_norm([1, -1, 0, 0], [0, 0, 1, -1], [5, 5, 5, 5], [4, 4, 4, 4])
    steps = steps_of(chain.quantize(SIGN).build())
    # rising: +1 from 5 on; falling: +1 up to 5, so the step is at 6; constant: always, and never, reached.
    assert steps.thresholds.tolist() == [[5], [6], [-20], [21]]
    assert steps.descending.tolist() == [False, True, False, False]


def test_steps_of_a_staircase_are_sorted_in_both_directions() -> None:
    steps = steps_of(ChainBuilder(SUMS, (2,)).multiply([0.5, -0.5]).quantize(Quantize(0, 3), 2.0).build())
    # x / 4, rounded half to even: 2.5 at 10, so that code 3 begins at 11; falling: codes end at -3, -6, -11.
    assert steps.thresholds.tolist() == [[3, 6, 11], [-10, -5, -2]]
    assert steps.descending.tolist() == [False, True]


def test_steps_of_a_range_of_one_number() -> None:
    steps = steps_of(ChainBuilder(IntType(7, 7), (2,)).add([-7.0, -8.0]).quantize(SIGN).build())
    assert steps.thresholds.tolist() == [[7], [8]]


def test_collapse_chains_takes_minus_zero_as_plus_one() -> None:
    graph = ChainBuilder(SUMS, (1,)).multiply(-1.0).quantize(SIGN).build()
    assert run(collapse_chains(graph), np.array([[0], [1], [-1]]))[0].tolist() == [[1], [-1], [1]]


def test_collapse_chains_works_on_codes_and_keeps_what_others_read() -> None:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((2,), FLOAT))
    one = floats(builder, "one", 1.0)
    codes = builder.add("codes", SIGN, [x, one])
    again = builder.add("again", SIGN, [builder.add("float", Dequantize(), [codes, one]), one])
    sums = builder.add("sums", Linear(), [again, integers(builder, "w", [[1, -1]], BIPOLAR)])
    value = builder.add("value", Dequantize(), [sums, one])
    kept = builder.add("kept", Relu(), [value])
    graph = builder.build([builder.add("q", SIGN, [kept, one]), kept])
    collapsed = verify(collapse_chains(graph))
    assert {node.name: node.op.name for node in collapsed.nodes}["again"] == "threshold"
    assert "kept" in collapsed
    images = np.array([[0.5, -1.0], [-1.0, 2.0]])
    assert [a.tolist() for a in run(collapsed, images)] == [a.tolist() for a in run(graph, images)]


def test_collapse_chains_leaves_the_quantizer_of_the_input() -> None:
    builder = GraphBuilder("net")
    x = builder.input("x", TensorType((2,), FLOAT))
    one = floats(builder, "one", 1.0)
    graph = builder.build([builder.add("q", SIGN, [builder.add("y", Relu(), [x]), one])])
    assert collapse_chains(graph) == graph


def test_collapse_chains_names_layer_and_channels_of_nan_and_infinity() -> None:
    bad = ChainBuilder(SUMS, (3,)).batch_norm([1, math.nan, 1], [0, 0, math.inf], [0] * 3, [1] * 3).quantize(SIGN)
    assert message_of(bad.build()) == (
        "batch_norm 'batch_norm' (net.py:2) gives NaN or infinity for sums of input 'fc' (net.py:1) in int -20..20, in "
        "channels 1, 2; check its parameters for NaN, infinity and division by zero"
    )
    zero = ChainBuilder(SUMS, (2,)).divide([1.0, 0.0]).then(Relu()).quantize(SIGN)
    assert "div 'div' (net.py:2) gives NaN or infinity" in message_of(zero.build())
    assert "in channels 1;" in message_of(zero.build())


def test_collapse_chains_rejects_constants_that_differ_from_position_to_position() -> None:
    chain = ChainBuilder(SUMS, (2, 3))
    name = floats(chain.graph, "row", [1.0, 2.0, 3.0])
    graph = chain.then(Add(), chain.value, name).quantize(SIGN).build()
    assert message_of(graph) == (
        "add 'add' (net.py:2) has a constant of shape [3], which differs from position to position; use one number, or "
        "one per channel: shape [2, 1]"
    )


def test_collapse_chains_rejects_ops_that_are_not_monotone() -> None:
    graph = ChainBuilder(SUMS, (2,)).then(Softmax(0)).quantize(SIGN).build()
    assert message_of(graph) == (
        "softmax 'softmax' (net.py:2) stands before quantizer 'quantize' and is not monotone, which is not supported "
        "yet; put a quantizer in front of it, or leave it out"
    )


def test_collapse_chains_rejects_branches_that_meet_and_lists_all_problems() -> None:
    chain = ChainBuilder(SUMS, (2,))
    other = chain.graph.add("other", Relu(), [chain.value])
    chain.then(Add(), chain.value, other).quantize(SIGN)
    first = chain.value
    chain.then(Softmax(0), "add").quantize(SIGN)
    graph = chain.graph.build([first, chain.value])
    meeting = (
        "add 'add' (net.py:2) joins 'dequantize' and 'other' before quantizer '{}'; joining branches is not supported "
        "yet; use a model without residual or parallel branches"
    )
    assert message_of(graph) == (f"2 problems:\n  1. {meeting.format('quantize')}\n  2. {meeting.format('quantize_2')}")


def test_certificate_finds_a_wrong_step() -> None:
    graph = ChainBuilder(SUMS, (2,)).multiply([0.5, -0.5]).quantize(Quantize(0, 3), 2.0).build()
    chain = find_chain(graph, graph.output_nodes[0])
    assert chain is not None
    steps = find_steps(chain)
    _certify(chain, steps)
    for channel, step in np.ndindex(steps.thresholds.shape):
        for error in (-1, 1):
            wrong = steps.thresholds.copy()
            wrong[channel, step] += error
            with pytest.raises(LoweringError, match=f"are not monotone in channel {channel}"):
                _certify(chain, Steps(wrong, steps.descending))
    with pytest.raises(LoweringError, match="are not monotone in channel 0"):
        _certify(chain, Steps(steps.thresholds, ~steps.descending))
