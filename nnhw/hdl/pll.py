"""Clocks: what the PLL of a board's device makes of its oscillator."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import io

from nnhw.boards import Board
from nnhw.errors import BoardError
from nnhw.families import FAMILIES
from nnhw.families.pll import PllSettings
from nnhw.hdl.cells import CELLS

__all__ = ["PllSettings", "connect_clock", "nearest_at_most", "reachable_clocks"]

NO_PLL = "none"
"""What a board file says where the design runs at the oscillator's clock."""


def reachable_clocks(board: Board) -> tuple[PllSettings, ...]:
    """Return every clock that a board's device can run at, slowest first.

    Raises
    ------
    BoardError: the oscillator is outside what the PLL takes.
    """
    input_hz = board.input_clock.hz
    if board.input_clock.pll == NO_PLL:
        return (PllSettings(input_hz, input_hz),)
    return FAMILIES[board.family].pll.clocks(input_hz)


def nearest_at_most(board: Board, hz: float) -> PllSettings:
    """Return the fastest clock that is not faster than `hz`.

    Raises
    ------
    BoardError: there is no clock so slow.
    """
    clocks = reachable_clocks(board)
    slower = [settings for settings in clocks if settings.output_hz <= hz]
    if not slower:
        source = "PLL makes" if board.input_clock.pll != NO_PLL else "board has"
        raise BoardError(
            f"the {source} no clock of {hz / 1e6:g} MHz or less; its slowest is {clocks[0].output_hz / 1e6:g} MHz"
        )
    return slower[-1]


def connect_clock(
    m: Module, board: Board, settings: PllSettings, port: io.PortLike, clock: Signal, lock: Signal
) -> None:
    """Add what makes a board's clock: its PLL, or the oscillator's clock as it is, which is always good.

    Parameters
    ----------
    port: the oscillator's pin.
    clock, lock: the clock, and whether it is good; both are driven.
    """
    source = board.input_clock.pll
    if source == NO_PLL:
        m.submodules.input = buffer = io.Buffer("i", port)
        m.d.comb += [clock.eq(buffer.i), lock.eq(1)]
    else:
        CELLS[board.family].pll(m, settings, port, clock, lock, source)
