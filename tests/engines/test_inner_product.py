"""Products of pairs of lanes: they mean what products of single lanes mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.inner_product import InnerProduct
from nnhw.errors import MappingError
from nnhw.families import ECP5, ICE40
from nnhw.ir.types import BIPOLAR, IntType
from nnhw.mapping.cost.inner_product import pays
from sim.cases import INT4, INT8, UINT3, UINT4, UINT8, matmul, random_values

ACTIVATIONS = st.one_of(
    st.integers(4, 8).map(lambda bits: IntType(0, (1 << bits) - 1)),
    st.integers(4, 8).map(lambda bits: IntType(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
    st.sampled_from((IntType(0, 200), IntType(-9, 3), IntType(5, 130))),
)
WEIGHTS = st.one_of(
    st.integers(4, 8).map(lambda bits: IntType(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
    st.sampled_from((IntType(-127, 127), IntType(-100, 3))),
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(ACTIVATIONS, WEIGHTS, st.integers(1, 6), st.integers(0, 99))
def test_sums_of_pairs_are_raw_sums(activation: IntType, weight: IntType, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes = LaneArithmetic(activation, weight)
    assert InnerProduct.serves(lanes, 2 * count)
    pairs = InnerProduct(lanes)
    a, w = random_values(rng, activation, (8, 2 * count)), random_values(rng, weight, (5, 2 * count))
    centered = a - lanes.center
    assert pairs.activation.holds(centered)
    left = centered[:, None, ::2] + w[None, :, 1::2]
    right = centered[:, None, 1::2] + w[None, :, ::2]
    assert pairs.factors.activation.holds(left)
    assert pairs.factors.weight.holds(right)
    crossed = (centered[:, ::2] * centered[:, 1::2]).sum(axis=1)
    sums = (left * right).sum(axis=2) - crossed[:, None] + pairs.constants(w)
    assert (sums == lanes.raw_sums(a, w)).all()


@pytest.mark.parametrize(
    ("formats", "simd"),
    [((INT8, INT8), 3), ((UINT3, INT8), 4), ((INT8, BIPOLAR), 4), ((INT8, UINT8), 4), ((IntType(0, 511), INT8), 4)],
)
def test_pairs_serve_integers_of_many_bits_with_signed_weights(formats: tuple[IntType, IntType], simd: int) -> None:
    assert not InnerProduct.serves(LaneArithmetic(*formats), simd)
    with pytest.raises(MappingError, match=f"winograd needs an even simd, given {simd}, and integers of 4 to 8 bits"):
        matmul(4, 12, 2, simd, formats, winograd=True)


def test_what_is_taken_away_comes_with_the_sums_or_they_wait() -> None:
    logic, blocks = (matmul(8, 64, 4, 16, (UINT8, INT8), hop=4, dsp_pe=k, winograd=True) for k in (0, 4))
    # A register for the factors, trees of 8 terms and of 9 planes; in DSP blocks 2 stages and the tree of 8 terms.
    assert (logic.tree_levels, blocks.tree_levels) == (1 + 3 + 4, 1 + 2 + 3)
    # What is taken away has 8 planes, and has to be there a move before it is taken away.
    assert (logic.crossed_wait, blocks.crossed_wait) == (1, 3 + 3 + 1 - 6)
    # The tree of a cell has 8 terms in place of 16.
    assert blocks.array_latency == matmul(8, 64, 4, 16, (UINT8, INT8), hop=4, dsp_pe=4).array_latency - 1 + 1 + 1 + 1


def test_pairs_pay_on_ecp5_where_several_cells_share_what_is_taken_away() -> None:
    formats = (UINT8, INT8)
    assert pays(matmul(16, 72, 8, 8, formats, hop=4), ECP5)
    assert not pays(matmul(16, 72, 2, 8, formats), ECP5)
    # Narrow factors, an odd number of lanes, weights that never change, a block that makes two products.
    assert not pays(matmul(16, 72, 8, 8, (UINT4, INT4), hop=4), ECP5)
    assert not pays(matmul(16, 90, 8, 9, formats, hop=4), ECP5)
    assert not pays(matmul(8, 8, 8, 8, formats, hop=8, drain=8), ECP5)
    assert not pays(matmul(16, 72, 8, 8, formats, hop=4), ICE40)
