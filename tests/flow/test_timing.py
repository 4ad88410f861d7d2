"""The timing gate: which clock comes first, when a lower one is taken, and when the build stops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nnhw.boards import Resources, Uart, load_board
from nnhw.errors import InputError, TimingError
from nnhw.flow.implementation.place import Hop, PlacedDesign
from nnhw.flow.implementation.timing import Attempt, close_timing, first_clock, usable_clocks
from nnhw.hdl.pll import PllSettings

BOARD = load_board("icebreaker")
CLOCKS = usable_clocks(BOARD)
PATH = (Hop("clk-to-q", 1.5, "a", "a"), Hop("routing", 20.0, "a", "b"))


def at(mhz: float) -> PllSettings:
    (found,) = [settings for settings in CLOCKS if settings.output_hz == round(mhz * 1e6)]
    return found


def tries(reached_mhz: Callable[[int, float], float], log: list[tuple[float, int]], seeds: int = 3):  # type: ignore[no-untyped-def]
    """Return a stand-in for building: seed and clock --> the clock that it reaches."""

    def place(settings: PllSettings) -> Iterator[PlacedDesign]:
        for seed in range(1, seeds + 1):
            log.append((settings.output_hz / 1e6, seed))
            fmax_hz = reached_mhz(seed, settings.output_hz / 1e6) * 1e6
            yield PlacedDesign(Path(), seed, settings.output_hz, fmax_hz, Resources(1, 0, 0, 0), PATH)

    return place


def test_close_timing_stops_at_the_first_seed_that_holds() -> None:
    log: list[tuple[float, int]] = []
    closure = close_timing(tries(lambda seed, mhz: 46 + seed, log), CLOCKS, at(48), requested=False)
    assert log == [(48, 1), (48, 2)]
    assert closure.settings == at(48)
    assert closure.placement.seed == 2
    assert closure.attempts == (Attempt(48_000_000, 1, 47e6), Attempt(48_000_000, 2, 48e6))


def test_close_timing_takes_the_next_lower_clock_and_says_so() -> None:
    log: list[tuple[float, int]] = []
    said: list[str] = []
    reached = {1: 44.0, 2: 45.2, 3: 40.0}
    closure = close_timing(
        tries(lambda seed, mhz: reached[seed], log), CLOCKS, at(48), requested=False, note=said.append
    )
    assert closure.settings == at(45)
    assert log == [(48, 1), (48, 2), (48, 3), (45, 1), (45, 2)]
    assert said == [
        "48 MHz is not held by any of 3 seeds (best 45.20 MHz); the next lower PLL clock is 45 MHz",
    ]


def test_close_timing_never_tries_a_clock_twice() -> None:
    log: list[tuple[float, int]] = []
    with pytest.raises(TimingError):
        close_timing(tries(lambda seed, mhz: mhz - 0.001, log, seeds=1), CLOCKS, at(48), requested=False)
    clocks = [mhz for mhz, _ in log]
    assert len(clocks) == 6
    assert clocks == sorted(set(clocks), reverse=True)


def test_close_timing_rejects_requested_clock_that_is_missed() -> None:
    with pytest.raises(TimingError) as caught:
        close_timing(tries(lambda seed, mhz: 44 + seed / 10, []), CLOCKS, at(48), requested=True)
    assert str(caught.value) == (
        "timing: 48 MHz is needed, but the best of 3 seeds reaches 44.30 MHz (seed 3); the slowest path takes "
        "21.50 ns from 'a' to 'b' (0 cells, 20.00 ns of it in wires); the nearest clock that holds is 44.25 MHz: "
        "--clock 44.25, or try more --seeds, or a smaller folding"
    )


def test_close_timing_rejects_design_below_the_slowest_clock() -> None:
    with pytest.raises(TimingError) as caught:
        close_timing(tries(lambda seed, mhz: 1.0, []), CLOCKS, at(48), requested=False)
    assert str(caught.value).endswith("20.00 ns of it in wires); try more --seeds, or a smaller folding")


def test_first_clock_is_within_the_target_or_as_fast_as_asked() -> None:
    assert first_clock(CLOCKS, None, 48_000_000) == at(48)
    assert first_clock(CLOCKS, None, 47_999_999) == CLOCKS[CLOCKS.index(at(48)) - 1]
    assert first_clock(CLOCKS, None, 1) == CLOCKS[0]
    assert first_clock(CLOCKS, 48e6, 1) == at(48)
    assert first_clock(CLOCKS, 48e6 + 1, 1) == CLOCKS[CLOCKS.index(at(48)) + 1]


def test_first_clock_rejects_what_the_pll_cannot_make() -> None:
    with pytest.raises(InputError) as caught:
        first_clock(CLOCKS, 300e6, 48e6)
    assert str(caught.value) == "--clock 300 is not possible: the PLL makes at most 270 MHz"


def test_usable_clocks_divide_to_the_speed_of_the_serial_port() -> None:
    assert CLOCKS == tuple(sorted(CLOCKS, key=lambda settings: settings.output_hz))
    for settings in CLOCKS:
        assert not BOARD.uart.clock_problem(settings.output_hz)
    assert 49_500_000 not in [settings.output_hz for settings in CLOCKS]


def test_usable_clocks_rejects_impossible_speed() -> None:
    board = dataclasses.replace(BOARD, uart=Uart(500_000_000, "uart"))
    with pytest.raises(InputError) as caught:
        usable_clocks(board)
    assert str(caught.value) == (
        "board 'icebreaker' has no PLL clock for a serial port of 500,000,000 baud; lower uart.baud"
    )
