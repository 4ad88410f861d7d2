"""The matrix product engine in Amaranth's simulator: results, stream rules and cycles, under stalls on all sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnhw.engines.matrix_product import MatrixProductConfig, factor_type
from nnhw.engines.requantize import Thresholds
from nnhw.errors import MappingError
from nnhw.hdl.engine import HARDWARE
from nnhw.ir.types import BIPOLAR, BIT, IntType
from sim.cases import INT4, INT8, UINT2, UINT4, random_values
from tests.hdl.ports import run_ports
from tests.hdl.test_joins import STALLS
from tests.hdl.test_pairwise import words

FRAMES = 3
UINT8, INT2 = IntType(0, 255), IntType(-2, 1)
THREE_STEPS = Thresholds(np.sort(np.arange(18).reshape(6, 3) * 7 % 40 - 15, axis=1), np.arange(6) % 2 == 1, UINT2)

PRODUCTS: dict[str, Callable[[], MatrixProductConfig]] = {
    # left, right, cells, simd, spread, steps, folds, drain, period
    "one_lane": lambda: MatrixProductConfig(INT8, UINT8, 1, 1, 1, 5, 6, 1, 1),
    "one_step": lambda: MatrixProductConfig(INT4, INT4, 3, 2, 1, 1, 8, 3, 6),
    "lanes_of_a_sum": lambda: MatrixProductConfig(INT8, INT8, 1, 4, 1, 2, 6, 1, 2),
    "heads": lambda: MatrixProductConfig(INT4, UINT4, 3, 3, 1, 2, 4, 3, 3),
    "heads_drained": lambda: MatrixProductConfig(INT4, UINT4, 6, 1, 1, 3, 4, 2, 6, THREE_STEPS),
    "shared_factor": lambda: MatrixProductConfig(UINT8, INT8, 4, 1, 4, 5, 6, 1, 8),
    "shared_by_heads": lambda: MatrixProductConfig(UINT4, INT4, 6, 1, 3, 6, 4, 1, 12),
    "requantized": lambda: MatrixProductConfig(INT4, INT4, 2, 2, 1, 2, 9, 1, 6, THREE_STEPS),
    "bits": lambda: MatrixProductConfig(BIT, BIT, 2, 4, 1, 3, 4, 1, 2),
    "bipolar": lambda: MatrixProductConfig(factor_type(BIPOLAR), INT4, 2, 3, 2, 2, 5, 1, 2),
    "ternary": lambda: MatrixProductConfig(INT4, factor_type(IntType(-1, 1)), 1, 5, 1, 1, 5, 1, 1),
    "narrow": lambda: MatrixProductConfig(INT2, INT2, 1, 5, 1, 3, 5, 1, 1),
    "dsp": lambda: MatrixProductConfig(INT8, UINT8, 2, 3, 1, 2, 5, 1, 2, dsp=True),
    "dsp_shared": lambda: MatrixProductConfig(INT4, UINT4, 3, 1, 3, 4, 4, 1, 6, THREE_STEPS, dsp=True),
}


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("name", PRODUCTS)
def test_matrix_product_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config, rng = PRODUCTS[name](), np.random.default_rng(5)
    kinds = config.left, config.right
    inputs: list[list[int]] = [[], []]
    expected: list[int] = []
    for _ in range(FRAMES):
        beats = [
            random_values(rng, kind, (config.i_beats, lanes)) for kind, lanes in zip(kinds, config.lanes, strict=True)
        ]
        for stream, values, kind in zip(inputs, beats, kinds, strict=True):
            stream += words(values, kind)
        expected += words(config.golden(*beats), config.element)
    hardware = HARDWARE[MatrixProductConfig](config)
    run_ports(hardware, ["i0", "i1"], ["o"], inputs, [expected], pattern, config.model())


def test_sums_reach_both_ends_of_their_range() -> None:
    config = MatrixProductConfig(INT8, INT8, 2, 2, 1, 3, 1, 1, 2)
    ends = np.full((config.i_beats, config.lanes[0]), -128)
    right = np.where(np.arange(config.lanes[1]) < 2, -128, 127)[None].repeat(config.i_beats, axis=0)
    expected = np.array([[6 * 128 * 128], [-6 * 128 * 127]])
    np.testing.assert_array_equal(config.golden(ends, right), expected)
    assert config.raw.holds(expected)
    inputs = [words(values, INT8) for values in (ends, right)]
    hardware = HARDWARE[MatrixProductConfig](config)
    run_ports(hardware, ["i0", "i1"], ["o"], inputs, [words(expected, config.raw)], ("none", "none"), config.model())


def test_matrix_product_rejects_what_it_cannot_do() -> None:
    for cells, spread, drain, period, message in (
        (4, 3, 4, 4, "spread 3 must divide cells 4"),
        (4, 1, 3, 4, "drain 3 must divide cells 4"),
        (4, 1, 4, 6, "drain 4 must divide period 6"),
        (4, 1, 4, 16, "period 16 must divide sums of a frame, 8"),
        (4, 1, 1, 4, "draining takes 4 cycles but a sum has only 2; use a larger drain"),
    ):
        with pytest.raises(MappingError, match=f"^matrix product engine: {message}"):
            MatrixProductConfig(INT4, INT4, cells, 1, spread, 2, 2, drain, period)
    with pytest.raises(MappingError, match=r"no products of int -8..7 and bipolar"):
        MatrixProductConfig(INT4, BIPOLAR, 1, 1, 1, 1, 1, 1, 1)
    with pytest.raises(MappingError, match=r"of at most 8 bits, given int -32768..32767 and int -8..7; use logic"):
        MatrixProductConfig(IntType(-32768, 32767), INT4, 1, 1, 1, 1, 1, 1, 1, dsp=True)
