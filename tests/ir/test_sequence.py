"""Sequences: a loop over steps in every form of a graph, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.random_recurrent import random_recurrent
from nnhw.errors import InputError, IrError
from nnhw.ir import (
    BIPOLAR,
    FLOAT,
    Builder,
    Graph,
    IntType,
    Node,
    TensorType,
    dumps,
    graph_hash,
    load,
    loads,
    one_step,
    run,
    run_in_chunks,
    save,
    verify,
)
from nnhw.ir.graph import named, with_body
from nnhw.ir.ops import Input, Scan

STEPS = (1, 9, 10, 1000)
CELL = """
(graph cell
  (step (input) () (int -8 7) (2))
  (state (input) () (int -8 7) (1))
  (weight (constant) () (int -2 3) (1 2) (data 3 -2))
  (sums (linear) (step weight))
  (total (weighted_sum :factors (1 2)) (sums state))
  (limits (constant) () (int -40 40) (1 15) (data -28 -24 -20 -16 -12 -8 -4 0 4 8 12 16 20 24 28))
  (falls (constant) () (int 0 1) (1) (data false))
  (code (threshold :low -8) (total limits falls))
  (outputs code code))"""
TEXT = f"""(graph net
  (x (input) () (int -8 7) (steps 2))
  (start (constant) () (int 0 0) (1) (data 0))
  (loop (scan :body {CELL}) (x start))
  (last (last_step) (loop))
  (outputs last))
"""


def codes(steps: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(steps).integers(-8, 8, (count, steps, 2))


def by_hand(sequences: np.ndarray) -> np.ndarray:
    """Return the state behind each step [N, steps, 1], as arithmetic says it."""
    state, states = np.zeros(len(sequences), np.int64), []
    for step in sequences.swapaxes(0, 1):
        total = 3 * step[:, 0] - 2 * step[:, 1] + 2 * state
        state = np.clip((total + 32) // 4, 0, 15) - 8
        states.append(state)
    return np.stack(states, axis=1)[..., np.newaxis]


@pytest.mark.parametrize("steps", STEPS)
def test_scan_computes_step_after_step(steps: int) -> None:
    graph, sequences = loads(TEXT), codes(steps)
    assert graph.node("loop").type == TensorType((1,), IntType(-8, 7), is_sequence=True)
    assert np.array_equal(run(graph, sequences)[0], by_hand(sequences)[:, -1])


def test_scan_shows_and_replaces_what_is_in_its_body() -> None:
    graph, sequences, seen = loads(TEXT), codes(9), {}
    run(graph, sequences, seen.__setitem__)
    assert np.array_equal(seen["loop/code"], by_hand(sequences))
    assert np.array_equal(seen["loop/state"][:, 1:], by_hand(sequences)[:, :-1])
    assert named(graph, "loop/total").op.name == "weighted_sum"
    zeros = {"loop/code": np.zeros((3, 9, 1), np.int64)}
    run(graph, sequences, seen.__setitem__, zeros)
    assert not seen["loop/state"].any()
    assert not seen["last"].any()


def test_sequences_of_any_length_one_after_another_do_not_touch_each_other() -> None:
    graph = loads(TEXT)
    for steps in (10, 1, 1000, 9, 1, 10):
        assert np.array_equal(run(graph, codes(steps))[0], by_hand(codes(steps))[:, -1])
        assert np.array_equal(run_in_chunks(graph, codes(steps), 2)[0], by_hand(codes(steps))[:, -1])


def test_other_operators_compute_each_step_of_a_sequence() -> None:
    builder = Builder("net")
    x = builder.input("x", (2,), low=-8, high=7, is_sequence=True)
    y = x.linear([[1, 2]]).concat(x, axis=0)
    graph = builder.build(y.reverse_steps())
    sequences = codes(5)
    sums = (sequences @ [1, 2])[..., np.newaxis]
    assert np.array_equal(run(graph, sequences)[0], np.concatenate([sums, sequences], axis=2)[:, ::-1])


def test_graph_with_a_loop_is_the_same_in_every_form(tmp_path: Path) -> None:
    graph = loads(TEXT)
    assert loads(dumps(graph, data=True)) == graph
    save(graph, tmp_path / "net.ir")
    assert load(tmp_path / "net.ir") == graph
    body = graph.loops[0][1].body
    other = dict(body.constants) | {"weight": -body.constants["weight"]}
    changed = with_body(graph, "loop", Graph(body.name, body.nodes, body.outputs, other))
    assert changed != graph
    assert graph_hash(changed) != graph_hash(graph)


@pytest.mark.parametrize("seed", range(30))
def test_random_loop_is_read_back_and_computed_step_by_step(seed: int) -> None:
    graph = random_recurrent(seed)
    assert loads(dumps(graph, data=True)) == graph
    images = np.random.default_rng(seed).normal(size=(3, 9, *graph.inputs[0].type.shape))
    whole, steps = run(graph, images)[0], one_step(graph).run(images)
    assert np.array_equal(steps if graph.output_nodes[0].type.is_sequence else steps[:, -1], whole)


def test_one_step_refuses_what_needs_a_whole_sequence() -> None:
    graph = next(
        graph for seed in range(99) if "reverse_steps" in dumps(graph := random_recurrent(seed, reverses=True))
    )
    with pytest.raises(IrError, match=r"^reverse_steps .* reads a sequence from its end, so all of it must be there"):
        one_step(graph)


def test_run_rejects_sequences_without_steps_and_of_unlike_lengths() -> None:
    with pytest.raises(InputError) as caught:
        run(loads(TEXT), np.zeros((3, 0, 2), np.int64))
    assert str(caught.value) == (
        "input 'x' of graph 'net' needs sequences of one step or more, got the shape [3, 0, 2]"
    )
    with pytest.raises(InputError, match=r"^input 'x' of graph 'net' needs an array of shape \[N, steps, 2\], got "):
        run(loads(TEXT), np.zeros((3, 2), np.int64))
    builder = Builder("two")
    a, b = (builder.input(name, (1,), low=0, high=1, is_sequence=True) for name in "ab")
    with pytest.raises(InputError) as caught:
        run(builder.build(a.concat(b, axis=0)), [np.zeros((1, 2, 1), int), np.zeros((1, 3, 1), int)])
    assert str(caught.value) == "the inputs of graph 'two' need equal numbers of steps, got a: 2, b: 3"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "(outputs code code)",
            "(outputs code total)",
            "[1] of it; a state keeps its type: put a quantizer of that type behind",
        ),
        ("(outputs code code)", "(outputs code)", "scan needs a sequence of int -8..7 [1]"),
        ("(outputs code code)", "(outputs code code code code)", "as its outputs, got 2 inputs and 4 outputs"),
        ("(1) (data 0)", "(2) (data 0 0)", "state 'state' of scan begins as int -8..7 [1], got a constant of int 0..0"),
        ("(int 0 0) (1) (data 0)", "(int 9 9) (1) (data 9)", "begins as int -8..7 [1], got a constant of int 9..9 [1]"),
        (
            "(int -8 7) (steps 2)",
            "(int -8 7) (2)",
            "step 'step' of scan needs a sequence of int -8..7 [2], got a value",
        ),
        ("(int -8 7) (steps 2)", "(int -9 7) (steps 2)", "of int -8..7 [2], got a value of int -9..7 [steps, 2]"),
        ("(x start)", "(x)", "scan needs a value for each input of its body (step, state), got 1"),
        (
            "(last (last_step) (loop))",
            "(y (last_step) (loop)) (last (last_step) (y))",
            "last_step needs a sequence, got int",
        ),
        ("(steps 2)", "(2 steps)", "at least 1, got steps; a sequence's begins with the word steps, as in (steps 16)"),
        ("(sums (linear)", "(sums (liner)", "unknown operator 'liner'; did you mean linear?"),
        ("(loop (scan", "(loop/code (last_step) (x)) (loop (scan", "'loop/code' is the name of a value in this body"),
        ("(scan :body", "(scan :body 3 :bdy", "attribute :body of operator scan takes a graph (graph NAME"),
    ],
)
def test_text_rejects_loops_with_their_place(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(IrError) as caught:
        loads(TEXT.replace(old, new, 1), file="net.ir")
    assert message in str(caught.value)
    assert str(caught.value).startswith("net.ir:")


def test_verify_rejects_bodies_that_break_a_rule() -> None:
    graph = loads(TEXT)
    loop, scan = graph.loops[0]
    bare = Graph("cell", scan.body.nodes, scan.body.outputs, {})
    with pytest.raises(
        IrError, match=r"(?s)^node 'loop' has a body that breaks a rule: 5 .*node 'weight' has no array"
    ):
        verify(with_body(graph, "loop", bare))
    taken = Node("loop/code", Input(), (), TensorType((2,), IntType(-8, 7)))
    with pytest.raises(IrError, match=r"^node 'loop' has a body, whose values would share the name 'loop/code' with "):
        verify(Graph("net", (taken, *graph.nodes), graph.outputs, graph.constants))
    nested = Graph("outer", graph.nodes, ("loop", "start"), graph.constants)
    with pytest.raises(IrError, match="is a sequence; a body computes one step"):
        Scan(nested).infer([])
    assert loop.name == "loop"


def test_operators_refuse_sequences_beside_other_values() -> None:
    builder = Builder("net")
    x = builder.input("x", (2,), is_sequence=True)
    with pytest.raises(IrError, match=r"add takes sequences alone, or none, got float64 \[steps, 2\], float64 \[2\]"):
        x.add(builder.input("y", (2,)))


def test_signs_begin_as_signs() -> None:
    builder, cell = Builder("net"), Builder("cell")
    step, state = cell.input("step", (1,), bipolar=True), cell.input("state", (1,), bipolar=True)
    body = cell.build(state, step)
    x = builder.input("x", (1,), bipolar=True, is_sequence=True)
    with pytest.raises(
        IrError, match=r"state 'state' of scan begins as bipolar \[1\], got a constant of int 1..1 \[1\]"
    ):
        x.scan(body, builder.constant([1]))
    graph = builder.build(x.scan(body, builder.constant([1], BIPOLAR)))
    given = np.array([[[-1], [1], [-1]]])
    assert run(graph, given)[0].ravel().tolist() == [1, -1, 1]
    assert one_step(graph).graph.outputs == ("scan/state", "x")
    assert TensorType((1,), FLOAT, is_sequence=True).step == TensorType((1,), FLOAT)
