"""The PLL of the ECP5 (EHXPLLL): which clocks it makes, and with which parameters."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import Const, Instance, Module, Signal
from amaranth.lib import io

from nnhw.hdl.pll.base import PllSettings, check_input

# Limits of the data sheet FPGA-DS-02012, "sysCLOCK PLL Timing".
_INPUT_HZ = (8_000_000, 400_000_000)
_VCO_HZ = (400_000_000, 800_000_000)
_OUTPUT_HZ = (3_125_000, 400_000_000)
_DIVIDERS = range(1, 129)

_SLOWEST_PHASE_HZ = 20_000_000
"""Below this an input is not divided: the limit is 10 MHz, but a slow phase detector jitters, and clocks abound."""


@dataclass(frozen=True)
class Ecp5Pll(PllSettings):
    """Parameters of an ECP5 PLL whose output CLKOP is its feedback and whose output CLKOS is the clock.

    Two outputs, because then the clock's divider is not in the loop, and ten times as many clocks are in reach.

    Parameters
    ----------
    input_divider: CLKI_DIV.
    multiplier: CLKOP_DIV: of the phase detector's clock, to that of the oscillator inside (VCO).
    output_divider: CLKOS_DIV.

    Range: output = input / input_divider * multiplier / output_divider.
    Source: Lattice, ECP5 sysCLOCK PLL/DLL design and usage guide (FPGA-TN-02200).
    """

    input_divider: int
    multiplier: int
    output_divider: int

    def connect(self, m: Module, port: io.PortLike, clock: Signal, lock: Signal, kind: str) -> None:
        """Add input buffer and PLL; see `PllSettings.connect`.

        Source: values of the analog part: `ecppll` of Project Trellis.
        """
        m.submodules.input = buffer = io.Buffer("i", port)
        feedback = Signal(name="pll_feedback")
        m.submodules.pll = Instance(
            "EHXPLLL",
            a_FREQUENCY_PIN_CLKI=f"{self.input_hz / 1e6:g}",
            a_FREQUENCY_PIN_CLKOS=f"{self.output_hz / 1e6:g}",
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_FEEDBK_PATH="CLKOP",
            p_CLKI_DIV=self.input_divider,
            p_CLKFB_DIV=1,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=self.multiplier,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=self.output_divider,
            # The phase does not matter; a divider's last count is no shift.
            p_CLKOP_CPHASE=self.multiplier - 1,
            p_CLKOS_CPHASE=self.output_divider - 1,
            **dict.fromkeys(("p_PLLRST_ENA", "p_INTFB_WAKE", "p_STDBY_ENABLE", "p_DPHASE_SOURCE"), "DISABLED"),
            **{f"p_OUTDIVIDER_MUX{output}": f"DIV{output}" for output in "ABCD"},
            **{f"i_{name}": Const(0, 1) for name in ("RST", "STDBY", "PHASESEL0", "PHASESEL1", "PLLWAKESYNC")},
            **{f"i_{name}": Const(1, 1) for name in ("PHASEDIR", "PHASESTEP", "PHASELOADREG")},
            i_ENCLKOP=Const(0, 1),
            i_CLKI=buffer.i,
            i_CLKFB=feedback,
            o_CLKOP=feedback,
            o_CLKOS=clock,
            o_LOCK=lock,
        )


def ecp5_clocks(input_hz: int) -> tuple[Ecp5Pll, ...]:
    """Return every clock that the PLL makes of an input clock, slowest first.

    Of several settings for one clock it is the one with the fastest phase detector, which jitters least, and of those
    the one whose VCO is nearest to the middle of its range.

    Raises
    ------
    BoardError: the input is outside what the PLL takes.
    """
    check_input(input_hz, _INPUT_HZ)
    found: dict[int, Ecp5Pll] = {}
    for input_divider in _DIVIDERS:
        phase_hz = Fraction(input_hz, input_divider)
        if input_divider > 1 and phase_hz < _SLOWEST_PHASE_HZ:
            break
        for multiplier in _multipliers(phase_hz):
            vco_hz = phase_hz * multiplier
            for output_divider in _DIVIDERS:
                output_hz = vco_hz / output_divider
                if _OUTPUT_HZ[0] <= output_hz <= _OUTPUT_HZ[1]:
                    settings = Ecp5Pll(input_hz, round(output_hz), input_divider, multiplier, output_divider)
                    found.setdefault(settings.output_hz, settings)
    return tuple(found[hz] for hz in sorted(found))


def _multipliers(phase_hz: Fraction) -> list[int]:
    """Return what brings a phase detector's clock into the range of the VCO, its middle first."""
    low, high = _VCO_HZ
    allowed = [number for number in _DIVIDERS if low <= phase_hz * number <= high]
    return sorted(allowed, key=lambda number: abs(phase_hz * number - Fraction(low + high, 2)))
