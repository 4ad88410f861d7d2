"""Clocks of a board: those that the PLL of its device can make from its oscillator, and the hardware that does so."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import io

from nnhw.boards import Board
from nnhw.errors import BoardError
from nnhw.families import FAMILIES
from nnhw.families.pll import PllSettings
from nnhw.hdl.cells import CELLS

__all__ = ["PllSettings", "connect_clock", "nearest_at_most", "reachable_clocks"]

NO_PLL = "none"
"""Value of `input_clock.pll` in a board file if the design runs at the oscillator's own clock."""


def reachable_clocks(board: Board) -> tuple[PllSettings, ...]:
    """Return every clock at which a board's device can run, slowest first.

    Raises
    ------
    BoardError: the PLL cannot take the oscillator's frequency.
    """
    input_hz = board.input_clock.hz
    # The only clock then is that of the oscillator: no divider is made of logic.
    if board.input_clock.pll == NO_PLL:
        return (PllSettings(input_hz, input_hz),)
    return FAMILIES[board.family].pll.clocks(input_hz)


def nearest_at_most(board: Board, hz: float) -> PllSettings:
    """Return the fastest clock of a board that is not faster than `hz` hertz.

    Raises
    ------
    BoardError: all clocks are faster.
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
) -> Value | None:
    """Add what makes the design's clock: a PLL, or just an input buffer, whose clock is always stable.

    Parameters
    ----------
    settings: of the PLL.
    port: the oscillator's pin.
    clock, lock: driven with the clock, and with whether it is stable.

    Returns
    -------
    The oscillator's clock, for other uses; None where it reaches the PLL alone.
    """
    source = board.input_clock.pll
    if source == NO_PLL:
        m.submodules.input = buffer = io.Buffer("i", port)
        m.d.comb += [clock.eq(buffer.i), lock.eq(1)]
        return clock
    return CELLS[board.family].pll(m, settings, port, clock, lock, source)
