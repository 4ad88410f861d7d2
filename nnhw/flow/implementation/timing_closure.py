"""Timing closure: for which clocks a design is placed, which clock is taken, and when a build fails.

A design is placed for one clock, and the layout serves others, too (`nnhw.flow.implementation.retuning`): so the search
places it for the clock that is wanted, and takes the fastest of the PLL that the best placement holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from nnhw.boards import Board
from nnhw.errors import InputError, TimingError
from nnhw.flow.implementation.place import PlacedDesign, describe_path
from nnhw.flow.tools.toolchain import Note, silent

if TYPE_CHECKING:
    from nnhw.hdl.pll import PllSettings
    from nnhw.links import BoardLink

_MOST_CLOCKS = 6
COMPARED = 2
"""Number of seeds that are always placed, to take the best; two, so that a second core is used."""
CLEAR_MISS = 0.9
"""Share of a clock below which no further seed is tried: five seeds of `mnist_mlp` on a UP5K reach 56.2 to 63.6 MHz,
and the best of five is rarely a tenth above the better one of two."""

TryClock = Callable[["PllSettings"], Iterable[PlacedDesign]]
"""A function that elaborates and synthesizes a design for a clock, and yields its placements, seed by seed."""
Serves = Callable[["PllSettings", "PllSettings"], bool]
"""A function that returns whether a layout made for the first clock can be changed to the second one."""


@dataclass(frozen=True)
class Attempt:
    """The Fmax that a seed reached when it was placed for a clock."""

    clock_hz: int
    seed: int
    fmax_hz: float


@dataclass(frozen=True)
class Closure:
    """A placement that holds its clock.

    Parameters
    ----------
    settings: settings of the PLL for the clock that is taken.
    placed: settings of the clock that the design was placed for.
    placement: the one with the highest Fmax, of equals the one of the first seed; with a requested clock the first one
        that meets it.
    attempts: all placements that were tried.
    reason: why this clock was taken, for people.
    """

    settings: PllSettings
    placed: PllSettings
    placement: PlacedDesign
    attempts: tuple[Attempt, ...]
    reason: str


@dataclass(frozen=True)
class Wanted:
    """The clocks that are acceptable, and which of them is better.

    Parameters
    ----------
    clocks: all clocks of the PLL, slowest first.
    first: the clock that is placed for first.
    requested: the user asked for `first`: no other is acceptable.
    link: link of the board.
    images_per_s: returns the images per second that the host gets with a clock in Hz, which the slower of engine and
        link decides; None: a faster clock is better.
    """

    clocks: Sequence[PllSettings]
    first: PllSettings
    requested: bool
    link: BoardLink
    images_per_s: Callable[[float], float] | None = None

    def held(self, fmax_hz: float) -> list[PllSettings]:
        """Return the acceptable clocks that a placement with this Fmax meets, best first.

        A faster clock is better, unless its link is so much slower that the host gets fewer images per second.
        """
        clocks = [self.first] if self.requested else self.clocks
        return sorted((clock for clock in clocks if clock.output_hz <= fmax_hz), key=self._worth, reverse=True)

    def may_gain(self, placement: PlacedDesign) -> bool:
        """Return whether the host may get more with another seed: at a clock that one in the usual spread may hold."""
        if self.images_per_s is None:
            return True
        held, possible = self.held(placement.fmax_hz), self.held(placement.fmax_hz / CLEAR_MISS)
        best = [self.images_per_s(clocks[0].output_hz) if clocks else 0.0 for clocks in (held, possible)]
        return best[1] > best[0]

    def reason(self, taken: PllSettings, placement: PlacedDesign) -> str:
        """Return why a clock is taken, for people."""
        holds = f"seed {placement.seed} holds {placement.fmax_hz / 1e6:.2f} MHz"
        if self.requested:
            return f"as asked for; {holds}"
        faster = [clock for clock in self.clocks if taken.output_hz < clock.output_hz <= placement.fmax_hz]
        if not faster:
            return f"the fastest of the PLL that holds; {holds}"
        if self._worth(faster[-1]) > self._worth(taken):
            faster_mhz = f"{faster[-1].output_hz / 1e6:g}"
            return f"the fastest that the layout serves; {holds}, so --clock {faster_mhz} may hold, too"
        rates = [self.link.rate_text(clock.output_hz) for clock in (taken, faster[-1])]
        return (
            f"with it the link has {rates[0]}; at {faster[-1].output_hz / 1e6:g} MHz it had {rates[1]}, and the host "
            f"fewer results; {holds}"
        )

    def _worth(self, clock: PllSettings) -> tuple[float, int]:
        images_per_s = self.images_per_s(clock.output_hz) if self.images_per_s else 0.0
        return images_per_s, clock.output_hz


@cache
def usable_clocks(board: Board) -> tuple[PllSettings, ...]:
    """Return the clocks of the board's PLL with which its link works, slowest first; all that it has for a sensor.

    A design with a sensor has no link. Whether a clock serves the sensor, the front end says, too.

    Raises
    ------
    InputError: there is none.
    """
    from nnhw.hdl.pll import reachable_clocks

    if board.sensor is not None:
        return tuple(reachable_clocks(board))
    link = board.host_link
    found = [settings for settings in reachable_clocks(board) if not link.clock_problem(settings.output_hz)]
    if not found:
        speed = f"{link.speed:,} {link.speed_unit}"
        raise InputError(
            f"board '{board.name}' has no PLL clock for a {link.title} of {speed}; lower {link.kind}.{link.speed_field}"
        )
    return tuple(found)


def first_clock(clocks: Sequence[PllSettings], requested_hz: float | None, target_hz: float) -> PllSettings:
    """Return the clock to begin with: the slowest that is as fast as requested, else the fastest within the target.

    Raises
    ------
    InputError: the PLL makes no clock as fast as requested.
    """
    if requested_hz is None:
        return next((settings for settings in reversed(clocks) if settings.output_hz <= target_hz), clocks[0])
    for settings in clocks:
        if settings.output_hz >= requested_hz:
            return settings
    raise InputError(
        f"--clock {requested_hz / 1e6:g} is not possible: the PLL makes at most {clocks[-1].output_hz / 1e6:g} MHz; "
        "ask for a slower clock"
    )


def check_board_clock(board: Board, requested_hz: float | None) -> None:
    """Raise InputError where the PLL of a board makes no clock as fast as requested."""
    if requested_hz is not None:
        first_clock(usable_clocks(board), requested_hz, board.target_clock_hz)


def close_timing(try_clock: TryClock, wanted: Wanted, serves: Serves, note: Note = silent) -> Closure:
    """Find a placement that meets an acceptable clock, and the best clock that it meets.

    Seeds are tried one after the other. Of the first two the better one is taken if its layout serves a clock that it
    holds, be it a slower one than it was placed for; further ones follow until one does, unless the first two miss the
    clock clearly. The first one is enough where a faster clock would not bring the host more results. The clock is then
    the best of those; a design is placed again only where its layout serves no such clock. A clock that was asked for
    is taken with the first seed that holds it. A seed that misses the clock of the link is of no use, and further ones
    follow, unless that is missed clearly, too.

    Raises
    ------
    TimingError: no placement holds; with the slowest path of the best, and the clock that it does hold.
    """
    placed, attempts = wanted.first, list[Attempt]()
    for _ in range(_MOST_CLOCKS):
        suited = partial(_suited, wanted, serves, placed)
        placements = _try_seeds(try_clock(placed), placed, wanted, suited, note)
        attempts += [Attempt(placed.output_hz, placement.seed, placement.fmax_hz) for placement in placements]
        if not placements:
            raise TimingError(
                f"place and route ended at none of its seeds for {placed.output_hz / 1e6:g} MHz: the router goes in "
                "circles, or cells find no place; try more --seeds, another --clock, or a smaller folding"
            )
        best = _best(placements)
        taken = suited(best)
        if taken is not None:
            return Closure(taken, placed, best, tuple(attempts), wanted.reason(taken, best))
        most_hz = min(best.fmax_hz, placed.output_hz - 1)
        slower = [other for other in wanted.clocks if other.output_hz <= most_hz]
        if wanted.requested or not slower:
            break
        note(
            f"{placed.output_hz / 1e6:g} MHz is not held by any of {len(placements)} seeds (best "
            f"{best.fmax_hz / 1e6:.2f} MHz); the next lower PLL clock is {slower[-1].output_hz / 1e6:g} MHz"
        )
        placed = slower[-1]
    else:
        slower = []
    raise TimingError(_missed(placed, placements, slower))


def _suited(wanted: Wanted, serves: Serves, placed: PllSettings, placement: PlacedDesign) -> PllSettings | None:
    """Return the best acceptable clock that a placement meets and that its layout serves; None if there is none."""
    return next((clock for clock in wanted.held(placement.fmax_hz) if serves(placed, clock)), None)


def _try_seeds(
    tries: Iterable[PlacedDesign],
    clock: PllSettings,
    wanted: Wanted,
    suited: Callable[[PlacedDesign], PllSettings | None],
    note: Note,
) -> list[PlacedDesign]:
    """Return the placements of seeds, until one is good enough or further ones are hopeless; see `close_timing`.

    Parameters
    ----------
    clock: the one that the design is placed for.
    suited: returns a clock at which a placement can be used, perhaps a slower one; None if there is none.
    """
    placements: list[PlacedDesign] = []
    for placement in tries:
        placements.append(placement)
        best = _best(placements)
        # A clock that was asked for is enough once it holds; otherwise a better seed may hold a faster one.
        enough = 1 if wanted.requested or not wanted.may_gain(best) else COMPARED
        if len(placements) >= enough and suited(best) is not None:
            break
        if max(placement.share for placement in placements) < CLEAR_MISS and len(placements) >= COMPARED:
            held_hz = best.missed[0] if best.missed else best.fmax_hz
            note(
                f"{clock.output_hz / 1e6:g} MHz is given up: the better one of {COMPARED} seeds holds "
                f"{held_hz / 1e6:.2f} MHz{' of the clock of the link' if best.missed else ''}"
            )
            break
    return placements


def _best(placements: Iterable[PlacedDesign]) -> PlacedDesign:
    """Return the placement with the highest Fmax; if all miss the clock of their link, that which comes nearest."""
    return max(placements, key=lambda placement: (placement.fmax_hz, placement.share))


def _missed(clock: PllSettings, placements: Sequence[PlacedDesign], slower: Sequence[PllSettings]) -> str:
    """Return the message that a clock is missed, why, and what to do.

    Parameters
    ----------
    slower: clocks that the best placement meets, slowest first.
    """
    best = _best(placements)
    if best.missed:
        reached_hz, needed_hz = best.missed
        return (
            f"timing: the clock of the link, {needed_hz / 1e6:.4g} MHz, is missed by all of {len(placements)} seeds; "
            f"the best reaches {reached_hz / 1e6:.2f} MHz (seed {best.seed}); try more --seeds, or a smaller folding"
        )
    is_clear = best.fmax_hz < CLEAR_MISS * clock.output_hz
    remedy = "try a smaller folding" if is_clear else "try more --seeds, or a smaller folding"
    if slower:
        slower_mhz = f"{slower[-1].output_hz / 1e6:g}"
        remedy = f"the nearest clock that holds is {slower_mhz} MHz: --clock {slower_mhz}, or {remedy}"
    return (
        f"timing: {clock.output_hz / 1e6:g} MHz is needed, but the best of {len(placements)} seeds reaches "
        f"{best.fmax_hz / 1e6:.2f} MHz (seed {best.seed}); the slowest path takes {describe_path(best.path)}; "
        f"{remedy}"
    )
