"""The PLL of the iCE40: which clocks it makes, and with which parameters."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from nnhw.errors import BoardError

# Limits of the data sheets FPGA-DS-02029 (LP/HX) and FPGA-DS-02008 (UltraPlus), "sysCLOCK PLL Timing"; they are equal.
_INPUT_HZ = (10_000_000, 133_000_000)
_PHASE_DETECTOR_HZ = (10_000_000, 133_000_000)
_VCO_HZ = (533_000_000, 1_066_000_000)
_OUTPUT_HZ = (16_000_000, 275_000_000)
_DIVR, _DIVF, _DIVQ = range(16), range(128), range(1, 7)

_FILTER_LIMITS_HZ = (17_000_000, 26_000_000, 44_000_000, 66_000_000, 101_000_000)
"""Phase detector frequencies below which the loop filter is 1, 2, ... Source: icepll of Project IceStorm."""


@dataclass(frozen=True)
class PllSettings:
    """Parameters of an iCE40 PLL with simple feedback.

    Parameters
    ----------
    input_hz, output_hz: clocks; the output is rounded to whole hertz.
    divr: divider of the input, less 1.
    divf: divider of the feedback, less 1.
    divq: log2 of the divider of the output.

    Range: output = input / (divr + 1) * (divf + 1) / 2 ** divq.
    """

    input_hz: int
    output_hz: int
    divr: int
    divf: int
    divq: int

    @property
    def filter_range(self) -> int:
        """FILTER_RANGE, from the frequency at the phase detector."""
        phase_hz = Fraction(self.input_hz, self.divr + 1)
        return 1 + sum(phase_hz >= limit for limit in _FILTER_LIMITS_HZ)


def reachable_clocks(input_hz: int) -> tuple[PllSettings, ...]:
    """Return every clock that the PLL makes of an input clock, slowest first.

    Of several settings for one clock it is the one with the fastest phase detector, which jitters least.

    Raises
    ------
    BoardError: the input is outside what the PLL takes.
    """
    if not _INPUT_HZ[0] <= input_hz <= _INPUT_HZ[1]:
        raise BoardError(f"the PLL takes an input clock of 10 to 133 MHz, but the board's has {input_hz / 1e6:g} MHz")
    found: dict[int, PllSettings] = {}
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
                    settings = PllSettings(input_hz, round(output_hz), divr, divf, divq)
                    found.setdefault(settings.output_hz, settings)
    return tuple(found[hz] for hz in sorted(found))


def nearest_at_most(input_hz: int, hz: float) -> PllSettings:
    """Return the fastest clock that is not faster than `hz`.

    Raises
    ------
    BoardError: the PLL makes no clock so slow.
    """
    slower = [settings for settings in reachable_clocks(input_hz) if settings.output_hz <= hz]
    if not slower:
        slowest = reachable_clocks(input_hz)[0].output_hz
        raise BoardError(f"the PLL makes no clock of {hz / 1e6:g} MHz or less; its slowest is {slowest / 1e6:g} MHz")
    return slower[-1]
