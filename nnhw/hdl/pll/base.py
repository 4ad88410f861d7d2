"""What a source of clocks says of itself, whatever the family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from amaranth.hdl import Module, Signal
from amaranth.lib import io

from nnhw.errors import BoardError

Limits = tuple[int, int]


@dataclass(frozen=True)
class PllSettings(ABC):
    """A clock that a board's device can make of its oscillator's.

    Parameters
    ----------
    input_hz, output_hz: clocks; the output is rounded to whole hertz.
    """

    input_hz: int
    output_hz: int

    @abstractmethod
    def connect(self, m: Module, port: io.PortLike, clock: Signal, lock: Signal, kind: str) -> None:
        """Add what makes the clock.

        Parameters
        ----------
        port: the oscillator's pin.
        clock, lock: the clock, and whether it is good; both are driven.
        kind: how the oscillator is wired; see `nnhw.boards.InputClock`.
        """


def check_input(input_hz: int, limits: Limits) -> None:
    """Compare an oscillator with what a PLL takes.

    Raises
    ------
    BoardError: it is outside.
    """
    low, high = limits
    if not low <= input_hz <= high:
        raise BoardError(
            f"the PLL takes an input clock of {low / 1e6:g} to {high / 1e6:g} MHz, "
            f"but the board's has {input_hz / 1e6:g} MHz"
        )
