"""Clocks that a PLL can make: its limits, and the settings within them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from nnhw.errors import BoardError

Hertz = tuple[int, int]
"""The lowest and the highest frequency that is allowed, in hertz."""


@dataclass(frozen=True)
class PllSettings:
    """A clock that a board's device can have: input_hz / input_divider * multiplier / output_divider.

    Parameters
    ----------
    input_hz, output_hz: the oscillator's clock, and the clock that is made, rounded to whole hertz.
    input_divider: divides the oscillator's clock; the result is the clock of the phase detector.
    multiplier: multiplies that; the result is the clock of the oscillator within the PLL (VCO).
    output_divider: divides that. Without a PLL all three are 1.
    """

    input_hz: int
    output_hz: int
    input_divider: int = 1
    multiplier: int = 1
    output_divider: int = 1


@dataclass(frozen=True)
class PllLimits:
    """The limits of a family's PLL.

    Parameters
    ----------
    input_hz, phase_hz, vco_hz, output_hz: frequencies that are allowed for the oscillator, the phase detector, the VCO
        and the clock that is made. An oscillator that is not divided may be outside of `phase_hz`.
    input_dividers, multipliers, output_dividers: the numbers that can be set, ascending.
    middle_first: of several settings with the same input divider, prefer the one whose VCO is nearest to the middle of
        its range; else the one with the smallest multiplier.
    """

    input_hz: Hertz
    phase_hz: Hertz
    vco_hz: Hertz
    output_hz: Hertz
    input_dividers: Sequence[int]
    multipliers: Sequence[int]
    output_dividers: Sequence[int]
    middle_first: bool

    def clocks(self, input_hz: int) -> tuple[PllSettings, ...]:
        """Return every clock that the PLL can make from an input clock, slowest first.

        Of several settings for the same clock, the one with the fastest phase detector is taken: it jitters least.

        Raises
        ------
        BoardError: the input clock is outside of `input_hz`.
        """
        low, high = self.input_hz
        if not low <= input_hz <= high:
            raise BoardError(
                f"the PLL takes an input clock of {low / 1e6:g} to {high / 1e6:g} MHz, "
                f"but the board's has {input_hz / 1e6:g} MHz"
            )
        found: dict[int, PllSettings] = {}
        # The first setting of a clock stays: they come in the order of preference.
        for settings in self._settings(input_hz):
            found.setdefault(settings.output_hz, settings)
        return tuple(found[hz] for hz in sorted(found))

    def _settings(self, input_hz: int) -> Iterator[PllSettings]:
        """Yield all settings, the fastest phase detector first."""
        for input_divider in self.input_dividers:
            # Fractions: whether a clock is within a limit must not depend on rounding.
            phase_hz = Fraction(input_hz, input_divider)
            # Undivided, the detector has the clock of the oscillator, whose own limits are checked already.
            if input_divider > 1 and not _within(phase_hz, self.phase_hz):
                continue
            for multiplier in self._multipliers(phase_hz):
                vco_hz = phase_hz * multiplier
                for output_divider in self.output_dividers:
                    if _within(vco_hz / output_divider, self.output_hz):
                        output_hz = round(vco_hz / output_divider)
                        yield PllSettings(input_hz, output_hz, input_divider, multiplier, output_divider)

    def _multipliers(self, phase_hz: Fraction) -> list[int]:
        """Return the multipliers that bring a phase detector's clock into the range of the VCO, the preferred first."""
        allowed = [number for number in self.multipliers if _within(phase_hz * number, self.vco_hz)]
        middle = Fraction(sum(self.vco_hz), 2)
        return sorted(allowed, key=lambda number: abs(phase_hz * number - middle)) if self.middle_first else allowed


def _within(hz: Fraction, limits: Hertz) -> bool:
    return limits[0] <= hz <= limits[1]
