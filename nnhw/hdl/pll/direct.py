"""No PLL: the design runs at the oscillator's clock."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Module, Signal
from amaranth.lib import io

from nnhw.hdl.pll.base import PllSettings


@dataclass(frozen=True)
class DirectClock(PllSettings):
    """The oscillator's clock as it is; it is always good."""

    def connect(self, m: Module, port: io.PortLike, clock: Signal, lock: Signal, kind: str) -> None:
        """Add the input buffer; see `PllSettings.connect`."""
        m.submodules.input = buffer = io.Buffer("i", port)
        m.d.comb += [clock.eq(buffer.i), lock.eq(1)]
