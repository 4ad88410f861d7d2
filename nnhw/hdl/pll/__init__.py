"""Clocks: what the PLL of a board's device makes of its oscillator."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nnhw.boards import Board
from nnhw.errors import BoardError
from nnhw.hdl.pll.base import PllSettings
from nnhw.hdl.pll.direct import DirectClock
from nnhw.hdl.pll.ecp5 import Ecp5Pll, ecp5_clocks
from nnhw.hdl.pll.ice40 import Ice40Pll, ice40_clocks

__all__ = ["DirectClock", "Ecp5Pll", "Ice40Pll", "PllSettings", "nearest_at_most", "reachable_clocks"]

_SEARCHES: Mapping[str, Callable[[int], tuple[PllSettings, ...]]] = {"ice40": ice40_clocks, "ecp5": ecp5_clocks}


def reachable_clocks(board: Board) -> tuple[PllSettings, ...]:
    """Return every clock that a board's device can run at, slowest first.

    Raises
    ------
    BoardError: the oscillator is outside what the PLL takes.
    """
    input_hz = board.input_clock.hz
    if board.input_clock.pll == "none":
        return (DirectClock(input_hz, input_hz),)
    return _SEARCHES[board.family](input_hz)


def nearest_at_most(board: Board, hz: float) -> PllSettings:
    """Return the fastest clock that is not faster than `hz`.

    Raises
    ------
    BoardError: there is no clock so slow.
    """
    clocks = reachable_clocks(board)
    slower = [settings for settings in clocks if settings.output_hz <= hz]
    if not slower:
        source = "PLL makes" if board.input_clock.pll != "none" else "board has"
        raise BoardError(
            f"the {source} no clock of {hz / 1e6:g} MHz or less; its slowest is {clocks[0].output_hz / 1e6:g} MHz"
        )
    return slower[-1]
