"""The PLL of the iCE40: which clocks it makes, and with which parameters."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import Const, Instance, Module, Signal
from amaranth.lib import io

from nnhw.hdl.pll.base import PllSettings, check_input

# Limits of the data sheets FPGA-DS-02029 (LP/HX) and FPGA-DS-02008 (UltraPlus), "sysCLOCK PLL Timing"; they are equal.
_INPUT_HZ = (10_000_000, 133_000_000)
_PHASE_DETECTOR_HZ = (10_000_000, 133_000_000)
_VCO_HZ = (533_000_000, 1_066_000_000)
_OUTPUT_HZ = (16_000_000, 275_000_000)
_DIVR, _DIVF, _DIVQ = range(16), range(128), range(1, 7)

_FILTER_LIMITS_HZ = (17_000_000, 26_000_000, 44_000_000, 66_000_000, 101_000_000)
"""Phase detector frequencies below which the loop filter is 1, 2, ... Source: icepll of Project IceStorm."""


@dataclass(frozen=True)
class Ice40Pll(PllSettings):
    """Parameters of an iCE40 PLL with simple feedback.

    Parameters
    ----------
    divr: divider of the input, less 1.
    divf: divider of the feedback, less 1.
    divq: log2 of the divider of the output.

    Range: output = input / (divr + 1) * (divf + 1) / 2 ** divq.
    """

    divr: int
    divf: int
    divq: int

    @property
    def filter_range(self) -> int:
        """FILTER_RANGE, from the frequency at the phase detector."""
        phase_hz = Fraction(self.input_hz, self.divr + 1)
        return 1 + sum(phase_hz >= limit for limit in _FILTER_LIMITS_HZ)

    def connect(self, m: Module, port: io.PortLike, clock: Signal, lock: Signal, kind: str) -> None:
        """Add the PLL, at its own pad or behind an input buffer; see `PllSettings.connect`."""
        if kind == "pad":
            cell, source = "SB_PLL40_PAD", {"i_PACKAGEPIN": port.io}
        else:
            reference = Signal(name="pll_reference")
            # A plain input buffer: the pin's attribute GLOBAL would ask for a clock net, which the PLL cannot take.
            m.submodules.input = Instance(
                "SB_IO", p_PIN_TYPE=Const(0b000001, 6), io_PACKAGE_PIN=port.io, o_D_IN_0=reference
            )
            cell, source = "SB_PLL40_CORE", {"i_REFERENCECLK": reference}
        m.submodules.pll = Instance(
            cell,
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=Const(self.divr, 4),
            p_DIVF=Const(self.divf, 7),
            p_DIVQ=Const(self.divq, 3),
            p_FILTER_RANGE=Const(self.filter_range, 3),
            i_RESETB=Const(1, 1),
            i_BYPASS=Const(0, 1),
            o_PLLOUTGLOBAL=clock,
            o_LOCK=lock,
            **source,
        )


def ice40_clocks(input_hz: int) -> tuple[Ice40Pll, ...]:
    """Return every clock that the PLL makes of an input clock, slowest first.

    Of several settings for one clock it is the one with the fastest phase detector, which jitters least.

    Raises
    ------
    BoardError: the input is outside what the PLL takes.
    """
    check_input(input_hz, _INPUT_HZ)
    found: dict[int, Ice40Pll] = {}
    for divr in _DIVR:
        phase_hz = Fraction(input_hz, divr + 1)
        if not _PHASE_DETECTOR_HZ[0] <= phase_hz <= _PHASE_DETECTOR_HZ[1]:
            continue
        for divf in _DIVF:
            vco_hz = phase_hz * (divf + 1)
            if not _VCO_HZ[0] <= vco_hz <= _VCO_HZ[1]:
                continue
            for divq in _DIVQ:
                output_hz = vco_hz / 2**divq
                if _OUTPUT_HZ[0] <= output_hz <= _OUTPUT_HZ[1]:
                    settings = Ice40Pll(input_hz, round(output_hz), divr, divf, divq)
                    found.setdefault(settings.output_hz, settings)
    return tuple(found[hz] for hz in sorted(found))
