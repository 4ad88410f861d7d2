"""Last bits of functions: where they decide, steps are not bisected, and limits on a step are refused."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.errors import LoweringError
from nnhw.ir import Graph, IntType, Op, run
from nnhw.ir.ops import Add, Elu, Gelu, HardSwish, Quantize, Relu, Sigmoid, Silu, Softplus, Square, Tanh
from nnhw.passes import bisection, collapse_chains, find_rounding_notes, joins
from nnhw.passes.bisection import BISECTED, EVALUATED, SEPARATED, _bisected, _scanned, find_steps
from nnhw.passes.joins import COMBINED
from nnhw.passes.margins import Margins
from nnhw.passes.regions import Region, find_region
from tests.passes.models import SIGN, ChainBuilder, all_sums
from tests.passes.test_joins import INT4, INT8, Branches

FINE = IntType(-(2**15), 2**15)


def region_of(graph: Graph) -> Region:
    region = find_region(graph, graph.output_nodes[0])
    assert region is not None
    return region


def chain(sums: IntType, scale: float, *ops: Op | float, to: Quantize = SIGN, step: float = 1.0) -> Graph:
    builder = ChainBuilder(sums, (1,), scale=scale)
    for op in ops:
        builder = builder.add(op) if isinstance(op, float) else builder.then(op)
    return builder.quantize(to, step).build()


# 512 sums share a float64, and the last bits of tanh fall in the middle; so do those of hardswish.
TANH = chain(FINE, 2.0**-63, 0.25, Tanh(), -0.24491866240370913, to=Quantize(-128, 127), step=2.0**-55)
HARDSWISH = chain(FINE, 2.0**-61, -2.4, HardSwish(), 0.24, to=Quantize(-128, 127), step=2.0**-56)


@pytest.mark.parametrize("graph", [TANH, HARDSWISH], ids=["tanh", "hardswish"])
def test_bisection_is_given_up_where_last_bits_decide(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisection, "SCANNED", 2**14)
    region = region_of(graph)
    assert _bisected(region) is None
    monkeypatch.setattr(Margins, "library", [])  # which would reject a scale as fine as the last bits of tanh
    steps, scanned = find_steps(region), _scanned(region)
    assert steps.proof == EVALUATED
    assert steps.starts.tolist() == scanned.starts.tolist()
    assert steps.codes.tolist() == scanned.codes.tolist()


def test_last_bits_that_decide_on_too_many_sums_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisection, "SCANNED", 1)
    monkeypatch.setattr(bisection, "SCANNED_AT_MOST", 2**10)
    with pytest.raises(LoweringError) as caught:
        find_steps(region_of(HARDSWISH))
    assert str(caught.value) == (
        "quantize 'quantize' (net.py:5): the ops behind input 'fc' (net.py:1) decide on codes by their last bits, and "
        "65537 sums are too many to evaluate (at most 1024); put a quantizer directly behind input 'fc' (net.py:1)"
    )


PROOFS = [
    (Relu(), EVALUATED, BISECTED), (Square(), EVALUATED, BISECTED), (Tanh(), EVALUATED, SEPARATED),
    (HardSwish(), EVALUATED, SEPARATED), (Softplus(2.0, 3.0), EVALUATED, SEPARATED), (Gelu(), EVALUATED, SEPARATED),
]  # fmt: skip


@pytest.mark.parametrize(("op", "small", "large"), PROOFS, ids=str)
def test_each_quantizer_has_its_proof(op: Op, small: str, large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chain(IntType(-3000, 3000), 0.003, op, to=Quantize(-128, 127), step=0.03)
    for scanned, wanted in ((2**22, small), (2**10, large)):
        monkeypatch.setattr(bisection, "SCANNED", scanned)
        proofs: dict[str, str] = {}
        lowered = collapse_chains(graph, proofs)
        assert proofs == {"quantize": wanted}
        np.testing.assert_array_equal(run(lowered, all_sums(graph))[0], run(graph, all_sums(graph))[0])


def test_joins_have_their_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Branches((INT4, 0.5), (INT8, 0.3))
    graph = net.build(net.then(Add(), *net.values), Quantize(-8, 7), 1.0)
    proofs: dict[str, str] = {}
    collapse_chains(graph, proofs)
    assert proofs == {"quantize": COMBINED}
    monkeypatch.setattr(joins, "_ALWAYS", 1)
    collapse_chains(graph, proofs)
    assert proofs == {"quantize": f"for each code of {graph.inputs[0].name}: {EVALUATED}"}


def test_sign_at_the_limit_of_a_function_is_rejected() -> None:
    graph = chain(IntType(-200, 100), 0.0625, Gelu())
    with pytest.raises(LoweringError) as caught:
        collapse_chains(graph)
    assert str(caught.value) == (
        "quantize 'quantize' (net.py:3) takes its code from the last bits of gelu 'gelu' (net.py:2) for some values of "
        "input 'fc' (net.py:1): they lie closer to the step between two codes than PyTorch is exact, whose "
        "last bits depend on the machine. Either the function tends to a limit that lies on the step, or the scale is "
        "too fine; leave the function out, or put a quantizer of two or more bits, or ReLU or hardtanh, in its place"
    )


@pytest.mark.parametrize(
    ("ops", "to", "step"),
    [
        ((Silu(),), SIGN, 1.0),  # underflow below -708
        ((Sigmoid(), -1.0), SIGN, 1.0),
        ((Elu(), -0.5), Quantize(-8, 7), 1.0),  # tends to -1.5, the end of a code
        ((Tanh(), 0.5), Quantize(-8, 7), 1.0),
        ((Sigmoid(), 0.5), Quantize(-8, 7), 1.0),
    ],
)
def test_limits_that_lie_on_a_step_are_rejected(ops: tuple[Op | float, ...], to: Quantize, step: float) -> None:
    scale = 8.0 if isinstance(ops[0], Silu) else 0.25
    graph = chain(IntType(-200, 200), scale, *ops, to=to, step=step)
    with pytest.raises(LoweringError, match="takes its code from the last bits of"):
        collapse_chains(graph)


@pytest.mark.parametrize(
    ("ops", "to", "step"),
    [
        ((Gelu(),), SIGN, 1.0),  # -0.0 below -8.4, where no sum is near: the code is 1, as in PyTorch
        ((Gelu(), Relu()), SIGN, 1.0),
        ((Gelu(),), Quantize(-8, 7), 1.0),  # x itself above 8.4, on many a tie
        ((Silu(),), Quantize(-128, 127), 0.5),
        ((Tanh(),), Quantize(-2, 1), 2.0),  # 1 is half a step, and half to even is the code of what is below
        ((Sigmoid(),), SIGN, 1.0),
    ],
)
def test_limits_that_decide_nothing_are_accepted(ops: tuple[Op | float, ...], to: Quantize, step: float) -> None:
    graph = chain(IntType(-200, 200), 1.0, *ops, to=to, step=step)
    np.testing.assert_array_equal(run(collapse_chains(graph), all_sums(graph))[0], run(graph, all_sums(graph))[0])


@pytest.mark.parametrize("always", [2**18, 1])
def test_sum_of_branches_at_the_limit_of_a_function_is_rejected(always: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "_ALWAYS", always)
    for branches in (((INT4, 0.013), (INT8, 0.0703125)), ((INT8, 0.0703125), (INT4, 0.013))):
        net = Branches(*branches)
        graph = net.build(net.then(Gelu(), net.then(Add(), *net.values)), SIGN, 1.0)
        with pytest.raises(LoweringError, match="takes its code from the last bits of"):
            collapse_chains(graph)


def test_one_value_whose_last_bits_decide_is_a_note() -> None:
    graph = chain(IntType(-9, 18), 1.0, Tanh(), 0.5, to=Quantize(-8, 7))
    collapse_chains(graph)
    notes = [str(note) for note in find_rounding_notes(graph)]
    assert any(
        "for the sums 18 the last bits of tanh decide, which PyTorch's float64 may round" in note for note in notes
    )


def test_margins_hold_the_value_and_are_exact_for_ieee_operations() -> None:
    graph = chain(IntType(-50, 50), 0.3, Relu(), Square(), -2.0, to=Quantize(-8, 7), step=0.25)
    margins, sums = Margins(region_of(graph)), all_sums(graph)
    assert margins.exact
    assert not margins.library
    least, greatest = margins.codes(sums)
    assert (least == greatest).all()
    assert (least == run(graph, sums)[0]).all()
