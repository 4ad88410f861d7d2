"""The timing gate: which clocks are tried, and when a build stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from nnhw.boards import Board
from nnhw.errors import InputError, TimingError
from nnhw.flow.implementation.place import PlacedDesign, describe_path
from nnhw.flow.tools.toolchain import Note, silent

if TYPE_CHECKING:
    from nnhw.hdl.pll import PllSettings

_MOST_CLOCKS = 6

TryClock = Callable[["PllSettings"], Iterable[PlacedDesign]]
"""Elaborates and synthesizes a design for a clock, and places it for seed after seed."""


@dataclass(frozen=True)
class Attempt:
    """What a seed reached for a clock."""

    clock_hz: int
    seed: int
    fmax_hz: float


@dataclass(frozen=True)
class Closure:
    """A placement that holds its clock.

    Parameters
    ----------
    settings: of the PLL.
    placement: the first, in the order of the seeds, that holds.
    attempts: everything that was tried, the last one is it.
    """

    settings: PllSettings
    placement: PlacedDesign
    attempts: tuple[Attempt, ...]


@cache
def usable_clocks(board: Board) -> tuple[PllSettings, ...]:
    """Return the clocks of the board's PLL that serve its link, slowest first.

    Raises
    ------
    InputError: there is none.
    """
    from nnhw.hdl.pll import reachable_clocks

    link = board.host_link
    found = [settings for settings in reachable_clocks(board) if not link.clock_problem(settings.output_hz)]
    if not found:
        speed = f"{link.speed:,} {link.speed_unit}"
        raise InputError(
            f"board '{board.name}' has no PLL clock for a {link.title} of {speed}; lower {link.kind}.{link.speed_field}"
        )
    return tuple(found)


def first_clock(clocks: Sequence[PllSettings], requested_hz: float | None, target_hz: float) -> PllSettings:
    """Return the clock to begin with: the slowest that is as fast as asked, or the fastest that is within the target.

    Raises
    ------
    InputError: the PLL makes no clock so fast.
    """
    if requested_hz is None:
        return next((settings for settings in reversed(clocks) if settings.output_hz <= target_hz), clocks[0])
    for settings in clocks:
        if settings.output_hz >= requested_hz:
            return settings
    raise InputError(
        f"--clock {requested_hz / 1e6:g} is not possible: the PLL makes at most {clocks[-1].output_hz / 1e6:g} MHz"
    )


def close_timing(
    try_clock: TryClock,
    clocks: Sequence[PllSettings],
    first: PllSettings,
    *,
    requested: bool,
    note: Note = silent,
) -> Closure:
    """Find a placement that holds its clock.

    The seeds are tried one after the other. When none holds, and no clock was asked for, the next clock is the fastest
    of the PLL that the best of them would hold.

    Parameters
    ----------
    clocks: slowest first.
    first: the clock to begin with.
    requested: the user asked for this clock: no other will do.

    Raises
    ------
    TimingError: no placement holds; with the slowest path of the best, and the clock that it does hold.
    """
    settings, attempts = first, list[Attempt]()
    for _ in range(_MOST_CLOCKS):
        placements = []
        for placement in try_clock(settings):
            placements.append(placement)
            attempts.append(Attempt(settings.output_hz, placement.seed, placement.fmax_hz))
            if placement.holds:
                return Closure(settings, placement, tuple(attempts))
        if not placements:
            raise TimingError(
                f"place and route ended at none of its seeds for {settings.output_hz / 1e6:g} MHz: the router goes in "
                "circles, or cells find no place; try more --seeds, another --clock, or a smaller folding"
            )
        best = max(placements, key=lambda placement: placement.fmax_hz)
        slower = [other for other in clocks if other.output_hz <= min(best.fmax_hz, settings.output_hz - 1)]
        if requested or not slower:
            raise TimingError(_missed(settings, best, len(placements), slower[-1] if slower else None))
        note(
            f"{settings.output_hz / 1e6:g} MHz is not held by any of {len(placements)} seeds (best "
            f"{best.fmax_hz / 1e6:.2f} MHz); the next lower PLL clock is {slower[-1].output_hz / 1e6:g} MHz"
        )
        settings = slower[-1]
    raise TimingError(_missed(settings, best, len(placements), None))


def _missed(settings: PllSettings, best: PlacedDesign, seeds: int, slower: PllSettings | None) -> str:
    """Say that a clock is missed, why, and what to do."""
    remedy = "try more --seeds, or a smaller folding"
    if slower is not None:
        slower_mhz = f"{slower.output_hz / 1e6:g}"
        remedy = f"the nearest clock that holds is {slower_mhz} MHz: --clock {slower_mhz}, or {remedy}"
    return (
        f"timing: {settings.output_hz / 1e6:g} MHz is needed, but the best of {seeds} seeds reaches "
        f"{best.fmax_hz / 1e6:.2f} MHz (seed {best.seed}); the slowest path takes {describe_path(best.path)}; "
        f"{remedy}"
    )
