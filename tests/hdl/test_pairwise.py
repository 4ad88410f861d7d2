"""The pairwise engine in Amaranth's simulator: results, stream rules and cycles, under stalls on all sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnhw.engines.encoding import encode, pack_words
from nnhw.engines.pairwise import OPERATIONS, PairConfig
from nnhw.engines.requantize import Thresholds
from nnhw.errors import MappingError
from nnhw.hdl.engine import HARDWARE
from nnhw.ir.types import BIPOLAR, BIT, IntType
from sim.cases import INT4, INT8, UINT2, UINT4, random_values
from tests.hdl.ports import run_ports
from tests.hdl.test_joins import STALLS

FRAMES = 3
UINT8, INT2, NEGATIVE = IntType(0, 255), IntType(-2, 1), IntType(-1, 0)
THREE_STEPS = Thresholds(np.sort(np.arange(18).reshape(6, 3) * 7 % 40 - 15, axis=1), np.arange(6) % 2 == 1, UINT2)
PAIRS: dict[str, Callable[[], PairConfig]] = {
    "product_plain": lambda: PairConfig("product", UINT4, UINT4, 2, 3, 4),
    "product_requantized": lambda: PairConfig("product", INT4, UINT4, 2, 3, 4, THREE_STEPS),
    "product_of_bytes": lambda: PairConfig("product", INT8, UINT8, 1, 2, 60),
    "product_signed": lambda: PairConfig("product", INT8, INT8, 2, 1, 60),
    "product_of_three_bits": lambda: PairConfig("product", IntType(-4, 3), INT8, 2, 1, 20),
    "product_of_five_bits": lambda: PairConfig("product", UINT8, IntType(-16, 15), 1, 1, 60),
    "product_of_nine_bits": lambda: PairConfig("product", IntType(-200, 55), IntType(-256, 255), 1, 1, 60),
    "product_of_bits": lambda: PairConfig("product", BIT, BIT, 3, 1, 8),
    "product_with_bit": lambda: PairConfig("product", INT8, BIT, 1, 1, 20),
    "product_with_minus_one": lambda: PairConfig("product", NEGATIVE, UINT4, 1, 1, 20),
    "product_bipolar": lambda: PairConfig("product", BIPOLAR, BIPOLAR, 3, 1, 5),
    "product_with_bipolar": lambda: PairConfig("product", BIPOLAR, UINT4, 3, 1, 9),
    "product_narrow": lambda: PairConfig("product", INT2, INT2, 1, 1, 30),
    "product_dsp": lambda: PairConfig("product", INT8, UINT8, 3, 1, 30, dsp=True),
    "product_dsp_requantized": lambda: PairConfig("product", INT4, UINT4, 2, 3, 4, THREE_STEPS, dsp=True),
    "maximum_plain": lambda: PairConfig("maximum", INT4, UINT4, 2, 3, 4),
    "maximum_requantized": lambda: PairConfig("maximum", INT8, INT8, 2, 3, 4, THREE_STEPS),
    "maximum_bipolar": lambda: PairConfig("maximum", BIPOLAR, BIPOLAR, 3, 1, 5),
    "minimum_plain": lambda: PairConfig("minimum", INT4, INT8, 2, 3, 4),
    "minimum_unlike": lambda: PairConfig("minimum", UINT4, IntType(-5, 2), 1, 1, 30),
}


def words(values: np.ndarray, dtype: IntType) -> list[int]:
    """Return the words of beats [beats, lanes]."""
    return pack_words(encode(values, dtype), dtype.bits)


@pytest.mark.parametrize("pattern", STALLS, ids="-".join)
@pytest.mark.parametrize("name", PAIRS)
def test_pairwise_equals_golden_and_cycle_model(name: str, pattern: tuple[str, str]) -> None:
    config, rng = PAIRS[name](), np.random.default_rng(5)
    inputs: list[list[int]] = [[], []]
    expected: list[int] = []
    for _ in range(FRAMES):
        beats = [random_values(rng, kind, (config.i_beats, config.lanes)) for kind in (config.left, config.right)]
        for stream, values, kind in zip(inputs, beats, (config.left, config.right), strict=True):
            stream += words(values, kind)
        expected += words(config.golden(*beats), config.element)
    run_ports(HARDWARE[PairConfig](config), ["i0", "i1"], ["o"], inputs, [expected], pattern, config.model())


@pytest.mark.parametrize("left", [INT4, UINT4, IntType(-4, 3), UINT2, BIT, BIPOLAR, NEGATIVE], ids=str)
@pytest.mark.parametrize("right", [INT4, IntType(0, 31), BIPOLAR], ids=str)
def test_product_in_logic_is_right_for_every_pair(left: IntType, right: IntType) -> None:
    sides = [np.array([-1, 1]) if kind.bipolar else np.arange(kind.low, kind.high + 1) for kind in (left, right)]
    pairs = [axis.reshape(-1, 1) for axis in np.meshgrid(*sides, indexing="ij")]
    config = PairConfig("product", left, right, 1, 1, len(pairs[0]))
    inputs = [words(values, kind) for values, kind in zip(pairs, (left, right), strict=True)]
    expected = words(pairs[0] * pairs[1], config.raw)
    run_ports(HARDWARE[PairConfig](config), ["i0", "i1"], ["o"], inputs, [expected], ("none", "none"), config.model())


def test_pairwise_rejects_unknown_op_and_wide_factors_in_dsp() -> None:
    with pytest.raises(MappingError, match=f"has one of the ops {', '.join(OPERATIONS)}, given 'quotient'"):
        PairConfig("quotient", INT4, INT4, 1, 1, 1)
    with pytest.raises(MappingError, match=r"at most 16 bits, given 'product' of int -65536..65535 and int 0..255"):
        PairConfig("product", IntType(-65536, 65535), UINT8, 1, 1, 1, dsp=True)
