"""Raw sums: their meaning, their range, and what they cost."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.matmul import MatmulConfig
from nnhw.errors import MappingError
from nnhw.families import ECP5, ICE40
from nnhw.ir.types import BIPOLAR, BIT, IntType
from nnhw.mapping.cost.arithmetic import dsp_blocks
from sim.cases import INT4, INT8, TERNARY, UINT2, UINT4, matmul, random_values

FORMATS = st.one_of(
    st.sampled_from((BIPOLAR, BIT, TERNARY, IntType(-1, 0), IntType(-3, 5), IntType(1, 1))),
    st.integers(1, 8).map(lambda bits: IntType(0, (1 << bits) - 1)),
    st.integers(1, 8).map(lambda bits: IntType(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(FORMATS, FORMATS, st.integers(1, 12), st.integers(0, 99))
def test_raw_sums_mean_the_true_sums(activation: IntType, weight: IntType, inputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arithmetic = LaneArithmetic(activation, weight)
    a, w = random_values(rng, activation, (8, inputs)), random_values(rng, weight, (5, inputs))
    assert (arithmetic.multiplier * arithmetic.raw_sums(a, w) + arithmetic.offsets(w) == a @ w.T).all()


@pytest.mark.parametrize("weight", [BIPOLAR, TERNARY, INT4, UINT2], ids=str)
@pytest.mark.parametrize("activation", [BIPOLAR, BIT, UINT2, IntType(-2, 1)], ids=str)
def test_raw_range_is_what_all_inputs_reach(activation: IntType, weight: IntType) -> None:
    values = (-1, 1) if activation.bipolar else range(activation.low, activation.high + 1)
    every = np.array(list(itertools.product(values, repeat=4)))
    arithmetic = LaneArithmetic(activation, weight)
    w = random_values(np.random.default_rng(1), weight, (3, 4))
    raw = arithmetic.raw_sums(every, w)
    assert arithmetic.raw_range(w) == (raw.min(), raw.max())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(FORMATS, FORMATS, st.permutations(range(6)))
def test_offsets_do_not_depend_on_the_order_of_inputs(activation: IntType, weight: IntType, order: list[int]) -> None:
    arithmetic = LaneArithmetic(activation, weight)
    w = random_values(np.random.default_rng(2), weight, (4, 6))
    assert (arithmetic.offsets(w) == arithmetic.offsets(w[:, order])).all()


@pytest.mark.parametrize(
    ("formats", "kind", "simd", "levels"),
    [
        ((BIPOLAR, BIPOLAR), "xnor", 1, 1),
        ((UINT4, BIPOLAR), "select", 16, 4),
        ((UINT4, TERNARY), "ternary", 3, 2),
        ((BIPOLAR, INT8), "gate", 8, 3),
        ((INT8, INT4), "product", 16, 6),
        ((UINT2, INT8), "product", 5, 4),
    ],
)
def test_tree_levels_are_those_of_lanes_and_planes(
    formats: tuple[IntType, IntType], kind: str, simd: int, levels: int
) -> None:
    arithmetic = LaneArithmetic(*formats)
    assert (arithmetic.kind, arithmetic.tree_levels(simd)) == (kind, levels)


def test_dsp_blocks_are_counted_for_each_family() -> None:
    arithmetic = LaneArithmetic(INT8, INT8)
    assert [dsp_blocks(arithmetic, simd, ICE40) for simd in (1, 2, 5)] == [1, 1, 3]
    assert [dsp_blocks(arithmetic, simd, ECP5) for simd in (1, 2, 5)] == [1, 2, 5]
    assert dsp_blocks(LaneArithmetic(INT8, BIPOLAR), 4, ECP5) == 0


def test_array_latency_is_that_of_the_slower_cells() -> None:
    logic, mixed, blocks = (matmul(4, 16, 4, 8, formats=(INT8, INT8), hop=4, drain=4, dsp_pe=k) for k in (0, 1, 4))
    assert logic.tree_levels == mixed.tree_levels == 3 + 3
    assert blocks.tree_levels == 2 + 3
    assert logic.array_latency - blocks.array_latency == 1


@pytest.mark.parametrize(("dsp_pe", "weight"), [(3, INT4), (-1, INT4), (1, BIPOLAR), (1, IntType(-256, 255))])
def test_matmul_config_rejects_dsp_cells_that_cannot_be(dsp_pe: int, weight: IntType) -> None:
    weights = np.ones((2, 4), dtype=np.int64)
    with pytest.raises(MappingError) as error:
        MatmulConfig(2, 2, 2, 2, weights, UINT4, weight, None, vectors=1, dsp_pe=dsp_pe)
    assert str(error.value) == (
        f"matmul engine: dsp_pe {dsp_pe} must be 0 to pe 2, and 0 for int 0..15 times {weight}, "
        "unless both are integers of at most 8 bits"
    )
