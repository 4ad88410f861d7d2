"""The timing gate: which seeds are tried, which clock is taken and why, and when the build stops."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nnhw.boards import Resources, Uart, load_board
from nnhw.errors import InputError, TimingError
from nnhw.flow.implementation.place import Hop, PlacedDesign
from nnhw.flow.implementation.timing_closure import Attempt, Wanted, close_timing, first_clock, usable_clocks
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


def wanted(mhz: float = 48, requested: bool = False, images_per_s: Callable[[float], float] | None = None) -> Wanted:
    return Wanted(CLOCKS, at(mhz), requested, BOARD.uart, images_per_s)


def any_clock(placed: PllSettings, other: PllSettings) -> bool:
    """A layout that serves every clock."""
    return True


def its_own(placed: PllSettings, other: PllSettings) -> bool:
    """A layout that serves the clock alone that it was made for."""
    return placed == other


def reached(*mhz: float) -> Callable[[int, float], float]:
    """Return what seeds reach, whatever the clock."""
    return lambda seed, clock: mhz[seed - 1]


def test_close_timing_takes_the_better_of_two_seeds_and_the_fastest_clock_that_it_holds() -> None:
    log: list[tuple[float, int]] = []
    closure = close_timing(tries(reached(56, 63.1, 70), log), wanted(), any_clock)
    assert log == [(48, 1), (48, 2)]
    assert (closure.settings, closure.placed, closure.placement.seed) == (at(63), at(48), 2)
    assert closure.attempts == (Attempt(48_000_000, 1, 56e6), Attempt(48_000_000, 2, 63.1e6))
    assert closure.reason == "the fastest of the PLL that holds; seed 2 holds 63.10 MHz"


def test_close_timing_takes_the_first_of_equal_seeds() -> None:
    assert close_timing(tries(reached(50, 50), []), wanted(), any_clock).placement.seed == 1


def test_close_timing_takes_a_lower_clock_of_the_same_layout() -> None:
    """What holds 46 MHz is a result for 45.75, and no further seed is placed for the last two."""
    log: list[tuple[float, int]] = []
    closure = close_timing(tries(reached(44, 46, 70), log), wanted(), any_clock)
    assert log == [(48, 1), (48, 2)]
    assert (closure.settings, closure.placed, closure.placement.seed) == (at(45.75), at(48), 2)


def test_close_timing_tries_further_seeds_until_one_holds() -> None:
    log: list[tuple[float, int]] = []
    closure = close_timing(tries(reached(44, 46, 48, 60), log, seeds=4), wanted(), its_own)
    assert log == [(48, 1), (48, 2), (48, 3)]
    assert (closure.settings, closure.placement.seed) == (at(48), 3)


def missing(*mhz: float) -> Callable[[PllSettings], Iterator[PlacedDesign]]:
    """Seeds that reach so much of the 48 MHz of the link's clock, and 48 MHz of their own where that is enough."""

    def place(settings: PllSettings) -> Iterator[PlacedDesign]:
        for seed, reached_mhz in enumerate(mhz, 1):
            missed = (reached_mhz * 1e6, 48e6) if reached_mhz < 48 else None
            fmax_hz = 0.0 if missed else 48e6
            yield PlacedDesign(Path(), seed, settings.output_hz, fmax_hz, Resources(1, 0, 0, 0), PATH, missed)

    return place


def test_close_timing_tries_further_seeds_until_one_holds_the_clock_of_the_link() -> None:
    closure = close_timing(missing(44, 47, 46, 48, 49), wanted(36, images_per_s=lambda clock_hz: 1.0), any_clock)
    assert (closure.settings, closure.placement.seed, len(closure.attempts)) == (at(48), 4, 4)


@pytest.mark.parametrize(("seeds", "tried"), [((44, 47, 46), 3), ((40, 41, 49), 2)])
def test_close_timing_rejects_a_link_whose_clock_no_seed_holds(seeds: tuple[int, ...], tried: int) -> None:
    text = (
        f"timing: the clock of the link, 48 MHz, is missed by all of {tried} seeds; the best reaches {seeds[1]}.00 MHz "
        "(seed 2); try more --seeds, or a smaller folding"
    )
    with pytest.raises(TimingError, match=f"^{re.escape(text)}$"):
        close_timing(missing(*seeds), wanted(36), any_clock)


def test_close_timing_gives_up_a_clock_that_two_seeds_miss_clearly() -> None:
    log: list[tuple[float, int]] = []
    said: list[str] = []
    closure = close_timing(tries(reached(43, 40, 48), log), wanted(), its_own, said.append)
    lower = [clock for clock in CLOCKS if clock.output_hz <= 43e6][-1]
    assert log == [(48, 1), (48, 2), (lower.output_hz / 1e6, 1), (lower.output_hz / 1e6, 2)]
    assert closure.settings == lower
    assert said[0] == "48 MHz is given up: the better one of 2 seeds holds 43.00 MHz"


def test_close_timing_prefers_the_clock_with_which_the_host_gets_more() -> None:
    """At 60 MHz the link has 12 Mbaud, at what is a little faster less."""

    def link_alone(clock_hz: float) -> float:
        return BOARD.uart.bytes_per_s(clock_hz)

    def engine_alone(clock_hz: float) -> float:
        return clock_hz / 1e6

    closure = close_timing(tries(reached(62.7, 58), []), wanted(images_per_s=link_alone), any_clock)
    assert closure.settings == at(60)
    assert closure.reason == (
        "with it the link has 12,000,000 baud; at 62.25 MHz it had 4,800,000 baud, and the host fewer results; "
        "seed 1 holds 62.70 MHz"
    )
    engine = close_timing(tries(reached(62.7, 58), []), wanted(images_per_s=engine_alone), any_clock)
    assert engine.settings == at(62.25)


def test_close_timing_places_no_second_seed_where_the_host_gets_no_more() -> None:
    """The link has 12 Mbaud at 60 MHz, and no more at clocks that another seed may hold; an engine gains with each."""

    def link_alone(clock_hz: float) -> float:
        return BOARD.uart.bytes_per_s(clock_hz)

    for images_per_s, seeds in ((link_alone, 1), (float, 2)):
        log: list[tuple[float, int]] = []
        close_timing(tries(reached(62.7, 61), log), wanted(images_per_s=images_per_s), any_clock)
        assert log == [(48, seed + 1) for seed in range(seeds)]


def test_close_timing_takes_the_fastest_clock_that_the_layout_serves() -> None:
    def slower(placed: PllSettings, other: PllSettings) -> bool:
        return other.output_hz <= 50e6

    closure = close_timing(tries(reached(62, 62), []), wanted(), slower)
    assert closure.settings == [clock for clock in CLOCKS if clock.output_hz <= 50e6][-1]
    assert (
        closure.reason == "the fastest that the layout serves; seed 1 holds 62.00 MHz, so --clock 60.75 may hold, too"
    )


def test_close_timing_places_again_where_a_layout_serves_one_clock() -> None:
    log: list[tuple[float, int]] = []
    said: list[str] = []
    closure = close_timing(tries(reached(44.0, 45.2, 40.0), log), wanted(), its_own, said.append)
    assert (closure.settings, closure.placed) == (at(45), at(45))
    assert log == [(48, 1), (48, 2), (48, 3), (45, 1), (45, 2)]
    assert said == ["48 MHz is not held by any of 3 seeds (best 45.20 MHz); the next lower PLL clock is 45 MHz"]


def test_close_timing_never_tries_a_clock_twice() -> None:
    log: list[tuple[float, int]] = []
    with pytest.raises(TimingError):
        close_timing(tries(lambda seed, mhz: mhz - 0.001, log, seeds=1), wanted(), its_own)
    clocks = [mhz for mhz, _ in log]
    assert len(clocks) == 6
    assert clocks == sorted(set(clocks), reverse=True)


def test_close_timing_takes_the_requested_clock_with_the_first_seed_that_holds_it() -> None:
    log: list[tuple[float, int]] = []
    closure = close_timing(tries(reached(47, 60, 70), log), wanted(requested=True), any_clock)
    assert log == [(48, 1), (48, 2)]
    assert (closure.settings, closure.placement.seed) == (at(48), 2)
    assert closure.reason == "as asked for; seed 2 holds 60.00 MHz"


def test_close_timing_rejects_requested_clock_that_is_missed() -> None:
    with pytest.raises(TimingError) as caught:
        close_timing(tries(lambda seed, mhz: 44 + seed / 10, []), wanted(requested=True), any_clock)
    assert str(caught.value) == (
        "timing: 48 MHz is needed, but the best of 3 seeds reaches 44.30 MHz (seed 3); the slowest path takes "
        "21.50 ns from 'a' to 'b' (0 cells, 20.00 ns of it in wires); the nearest clock that holds is 44.25 MHz: "
        "--clock 44.25, or try more --seeds, or a smaller folding"
    )


def test_close_timing_rejects_requested_clock_that_is_missed_clearly() -> None:
    log: list[tuple[float, int]] = []
    with pytest.raises(TimingError) as caught:
        close_timing(tries(reached(36.2, 36, 60), log), wanted(requested=True), any_clock)
    assert log == [(48, 1), (48, 2)]
    assert str(caught.value).startswith("timing: 48 MHz is needed, but the best of 2 seeds reaches 36.20 MHz (seed 1)")
    assert str(caught.value).endswith("the nearest clock that holds is 36 MHz: --clock 36, or try a smaller folding")


def test_close_timing_rejects_design_below_the_slowest_clock() -> None:
    with pytest.raises(TimingError) as caught:
        close_timing(tries(lambda seed, mhz: 1.0, []), wanted(), any_clock)
    assert str(caught.value).endswith("20.00 ns of it in wires); try a smaller folding")


def test_first_clock_is_within_the_target_or_as_fast_as_asked() -> None:
    assert first_clock(CLOCKS, None, 48_000_000) == at(48)
    assert first_clock(CLOCKS, None, 47_999_999) == CLOCKS[CLOCKS.index(at(48)) - 1]
    assert first_clock(CLOCKS, None, 1) == CLOCKS[0]
    assert first_clock(CLOCKS, 48e6, 1) == at(48)
    assert first_clock(CLOCKS, 48e6 + 1, 1) == CLOCKS[CLOCKS.index(at(48)) + 1]


def test_first_clock_rejects_what_the_pll_cannot_make() -> None:
    with pytest.raises(InputError) as caught:
        first_clock(CLOCKS, 300e6, 48e6)
    assert str(caught.value) == "--clock 300 is not possible: the PLL makes at most 270 MHz; ask for a slower clock"


def test_usable_clocks_divide_to_the_speed_of_the_serial_port() -> None:
    assert CLOCKS == tuple(sorted(CLOCKS, key=lambda settings: settings.output_hz))
    for settings in CLOCKS:
        assert not BOARD.uart.clock_problem(settings.output_hz)
    assert 49_500_000 not in [settings.output_hz for settings in CLOCKS]


def test_usable_clocks_of_a_sensor_do_not_depend_on_the_link() -> None:
    board = dataclasses.replace(BOARD, uart=Uart(500_000_000, "uart")).with_input("i2s")
    assert usable_clocks(board) == usable_clocks(BOARD.with_input("i2s"))
    assert set(CLOCKS) < set(usable_clocks(board))


def test_usable_clocks_rejects_impossible_speed() -> None:
    board = dataclasses.replace(BOARD, uart=Uart(500_000_000, "uart"))
    with pytest.raises(InputError) as caught:
        usable_clocks(board)
    assert str(caught.value) == (
        "board 'icebreaker' has no PLL clock for a serial port of 500,000,000 baud; lower uart.baud"
    )
