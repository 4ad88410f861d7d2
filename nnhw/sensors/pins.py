"""The pins of sensors, and of results that no computer reads, as tables of a board file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

BCLK_PER_FRAME = 64
"""Bit clocks of an I2S frame: two slots of 32."""
RATE_TOLERANCE = 0.02
"""By what part the sampling rate may differ from the model's: it is the clock divided by a whole number."""
SHORTEST_HALF_CYCLES = 4
"""Fewest cycles of half a bit clock: two pass in the synchronizer, the others are for the wires and the microphone."""


class SensorPins(Protocol):
    """The pins of a sensor: a frozen dataclass whose fields are the keys of a table in the board file.

    Members
    -------
    kind: name of the table, and of the value of `--input`.
    title: of the sensor, for people.
    """

    kind: ClassVar[str]
    title: ClassVar[str]

    @property
    def io_standard(self) -> str:
        """I/O standard of the pins, as amaranth-boards calls it; empty: the family's default."""

    @property
    @abstractmethod
    def inputs(self) -> dict[str, str]:
        """Pins of the package that the sensor drives, by name, in the order of the gateware's port `pins_i`."""

    @property
    def outputs(self) -> dict[str, str]:
        """Pins of the package that the design drives, by name, in the order of the gateware's port `pins_o`."""
        return {}

    def problems(self) -> list[str]:
        """Return a message for each mistake in the fields."""
        return []

    def clock_problem(self, clock_hz: float, rate_hz: float) -> str:
        """Return why the sensor cannot run at a clock of the design, in Hz; empty if it can.

        Parameters
        ----------
        rate_hz: samples a second that the front end wants; 0: the sensor itself says when a number comes.
        """
        return ""


@dataclass(frozen=True)
class I2s(SensorPins):
    """An I2S microphone of 24 bits, whose clocks the design drives: 64 bit clocks a sample, the left slot is heard.

    Parameters
    ----------
    bclk: pin of the bit clock.
    ws: pin of the word select, low in the left slot.
    sd: pin on which the microphone sends.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "i2s"
    title: ClassVar[str] = "I2S microphone"

    bclk: str
    ws: str
    sd: str
    io_standard: str = ""

    @property
    def inputs(self) -> dict[str, str]:
        """See `SensorPins`."""
        return {"sd": self.sd}

    @property
    def outputs(self) -> dict[str, str]:
        """See `SensorPins`."""
        return {"bclk": self.bclk, "ws": self.ws}

    def clock_problem(self, clock_hz: float, rate_hz: float) -> str:
        """See `SensorPins`: half a bit clock is a whole number of cycles."""
        return _rate_problem(self.title, "half a bit clock", SHORTEST_HALF_CYCLES, clock_hz, rate_hz)


def _rate_problem(title: str, part: str, least: int, clock_hz: float, rate_hz: float) -> str:
    """Return why a clock makes no such sampling rate; empty if it does.

    Parameters
    ----------
    part: what 128 of are a sample. least: cycles that it must have.
    """
    cycles = half_cycles(clock_hz, rate_hz)
    made_hz = clock_hz / (2 * BCLK_PER_FRAME * cycles)
    if cycles >= least and abs(made_hz / rate_hz - 1) <= RATE_TOLERANCE:
        return ""
    return (
        f"{title}: the model wants {rate_hz:g} samples a second, and a clock of {clock_hz / 1e6:g} MHz makes "
        f"{made_hz:.0f} ({clock_hz / 1e6:g} MHz / {2 * BCLK_PER_FRAME} / {cycles}); it must be within "
        f"{RATE_TOLERANCE:.0%}, with {least} or more cycles in {part}; use another --clock"
    )


def half_cycles(clock_hz: float, rate_hz: float) -> int:
    """Return the cycles of a 128th of a sample, half a bit clock of I2S, that come nearest to a rate, 1 or more."""
    return max(1, round(clock_hz / (2 * BCLK_PER_FRAME * rate_hz)))


@dataclass(frozen=True)
class Pdm(SensorPins):
    """A PDM microphone, whose clock the design drives, 128 bits a sample; it sends where the clock falls.

    Parameters
    ----------
    clk: pin of the clock.
    data: pin on which the microphone sends.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "pdm"
    title: ClassVar[str] = "PDM microphone"

    clk: str
    data: str
    io_standard: str = ""

    @property
    def inputs(self) -> dict[str, str]:
        """See `SensorPins`."""
        return {"data": self.data}

    @property
    def outputs(self) -> dict[str, str]:
        """See `SensorPins`."""
        return {"clk": self.clk}

    def clock_problem(self, clock_hz: float, rate_hz: float) -> str:
        """See `SensorPins`: a bit is a whole number of cycles."""
        return _rate_problem(self.title, "a bit", 2 * SHORTEST_HALF_CYCLES, clock_hz, rate_hz)


@dataclass(frozen=True)
class Camera(SensorPins):
    """A camera with a parallel port of 8 bits; the design samples its clock, and reads `data` where it rises.

    Parameters
    ----------
    pclk: pin of the pixel clock, at most a quarter of the design's clock.
    href: pin that is high while the pixels of a row come.
    vsync: pin that is high between two images.
    data: the eight pins of a pixel, the lowest bit first.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "camera"
    title: ClassVar[str] = "camera"

    pclk: str
    href: str
    vsync: str
    data: tuple[str, ...]
    io_standard: str = ""

    @property
    def inputs(self) -> dict[str, str]:
        """See `SensorPins`."""
        return {"pclk": self.pclk, "href": self.href, "vsync": self.vsync, **_numbered("data", self.data)}

    def problems(self) -> list[str]:
        """See `SensorPins`: eight pins of data."""
        given = len(self.data)
        return [] if given == 8 else [f"field 'camera.data' must name 8 pins, the lowest bit first, but has {given}"]


@dataclass(frozen=True)
class ResultPins:
    """Pins that show the result of a network which no computer listens to, such as those of LEDs.

    Parameters
    ----------
    label: pins of the number of the largest result, the lowest bit first; higher bits are not shown.
    changes: pin that changes its level with each result; empty: none.
    io_standard: I/O standard of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str] = "result"

    label: tuple[str, ...]
    changes: str = ""
    io_standard: str = ""

    @property
    def outputs(self) -> dict[str, str]:
        """Pins of the package by name."""
        return {**_numbered("label", self.label), **({"changes": self.changes} if self.changes else {})}


def _numbered(name: str, pins: tuple[str, ...]) -> dict[str, str]:
    return {f"{name}_{number}": pin for number, pin in enumerate(pins)}


INPUTS: Mapping[str, type[I2s] | type[Pdm] | type[Camera]] = {pins.kind: pins for pins in (I2s, Pdm, Camera)}
"""The kinds of sensors by name: that of the table in a board file, and of the value of `--input`."""
