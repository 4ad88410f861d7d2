"""Estimated logic of shared engines beside what synthesis made of them.

Measured with yosys 0.70 and the commands of `synthesis_commands` for the engine alone, without a link: LUTs and
flip-flops that no LUT drives on the UP5K; LUTs, LUT memories, carry cells and flip-flops on the ECP5.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnhw.engines.shared.array import ArrayConfig, Requantizing
from nnhw.families import ECP5, ICE40
from nnhw.mapping.shared.search.array_cost import array_cost
from tests.mapping.shared.programs import array_of

WORDS = 1 << 14
BLOCKS = array_of(4, 1, 8, words=WORDS, dsp=True, sum_bits=22, factor_bits=24, addend_bits=42)
WIDE_BLOCKS = array_of(8, 1, 8, words=WORDS, dsp=True)
LOGIC = array_of(4, 2, 8, words=WORDS, sum_bits=24, factor_bits=28, addend_bits=48)
TWO_DRAINS = array_of(16, 2, 4, words=WORDS, sum_bits=18, factor_bits=20, addend_bits=34, drains=2)
LINES = replace(
    array_of(16, 2, 4, words=WORDS, sum_bits=16, factor_bits=16, addend_bits=28), requantizing=Requantizing.DSP
)
STEPS = replace(
    array_of(16, 4, 2, words=WORDS, sum_bits=14, factor_bits=16, addend_bits=28), requantizing=Requantizing.STEPS
)
STREAM = array_of(8, 4, 4, words=WORDS, sum_bits=20, factor_bits=22, addend_bits=38, weight_stream=True, i_lanes=4)
WIDE_WORDS = array_of(8, 4, 8, words=WORDS, sum_bits=26, factor_bits=24, addend_bits=44, drains=4, word_bits=128)


@pytest.mark.parametrize(
    ("array", "lc"),
    [
        (BLOCKS, 2374),
        (WIDE_BLOCKS, 3188),
        (LOGIC, 3524),
        (TWO_DRAINS, 4241),
        (LINES, 3022),
        (STEPS, 2338),
        (STREAM, 3553),
    ],
)
def test_logic_cells_of_an_array_are_those_of_synthesis(array: ArrayConfig, lc: int) -> None:
    assert array_cost(array, ICE40, True).lc == pytest.approx(lc, rel=0.02)


@pytest.mark.parametrize(
    ("array", "lc", "ff"), [(BLOCKS, 2148, 1816), (TWO_DRAINS, 3915, 3409), (WIDE_WORDS, 8419, 7927)]
)
def test_luts_and_flip_flops_of_an_array_are_those_of_synthesis(array: ArrayConfig, lc: int, ff: int) -> None:
    cost = array_cost(array, ECP5, False)
    assert cost.lc == pytest.approx(lc, rel=0.05)
    assert cost.ff == pytest.approx(ff, rel=0.03)
