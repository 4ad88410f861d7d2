"""What every front end of a sensor tells about itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from nnhw.errors import BuildError


@dataclass(frozen=True)
class FrontParts:
    """What a front end is made of, whatever the family; a family prices it.

    Parameters
    ----------
    memories, roms: words, and bits of a word, of each memory that it writes and of each one that it only reads.
    multipliers: of 16 x 16 bits.
    logic_cells: logic of the front end, of the buffer of a frame, of the largest result and of the serial port.
    """

    memories: tuple[tuple[int, int], ...]
    roms: tuple[tuple[int, int], ...]
    multipliers: int
    logic_cells: int


class SensorFront(Protocol):
    """A front end: a frozen dataclass between the numbers of a sensor and the input codes of a network.

    All that builds, hardware and benches ask of it stands here; its gateware is a row of
    `nnhw.hdl.sensors.sensor_device.CONNECTIONS`. Nobody asks of which class it is.

    Members
    -------
    kind: its name in files.
    inputs: kinds of sensors that it can stand behind, see `nnhw.sensors.INPUTS`.
    layer: name of its layer in `nnhw.nn`.
    signal_axes: axes of one signal: samples [n], or an image [height, width].
    """

    kind: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    layer: ClassVar[str]
    signal_axes: ClassVar[int]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame of the network, without the batch."""

    @property
    def low(self) -> int:
        """Least code."""

    @property
    def high(self) -> int:
        """Greatest code."""

    @property
    def scale(self) -> float:
        """Factor from codes to the network's input: the input is code * scale."""

    @property
    def silence(self) -> int:
        """Code of every element before the sensor has sent anything."""

    @property
    def sample_rate_hz(self) -> int:
        """Samples a second for which the design drives the sensor; 0: the sensor says when one comes."""

    @property
    def frames_per_s(self) -> float:
        """Frames a second for which a network is mapped where the user asks for no rate."""

    @property
    def may_drop_frames(self) -> bool:
        """Whether a frame that is complete while the network is at work may be left out."""

    @property
    def parts(self) -> FrontParts:
        """What it is made of."""

    def received(self, kind: str, signals: np.ndarray) -> np.ndarray:
        """Return signals [N, ..] as it gets them from a simulated sensor of a kind, one of `inputs`.

        Parameters
        ----------
        kind: of the sensor; empty: there is none, and the signals come as they are.
        """

    def codes(self, signals: np.ndarray) -> np.ndarray:
        """Return the codes int64 [N, frames, *shape] of signals [N, ..], each of which begins at the start."""

    def frame_cycles(self, clock_hz: float) -> int:
        """Return the fewest cycles from one frame to the next, at a clock of the design in Hz."""

    def problems(self, clock_hz: float) -> list[str]:
        """Return why it cannot work at a clock of the design, in Hz."""


def front_of(table: Mapping[str, Any]) -> SensorFront:
    """Return the front end of a table: `kind`, and the fields of its class.

    Raises
    ------
    BuildError: it is of no front end.
    """
    from nnhw.sensors.log_mel import LogMelConfig
    from nnhw.sensors.pixels import PixelsConfig

    kinds: dict[Any, Any] = {front.kind: front for front in (LogMelConfig, PixelsConfig)}
    try:
        given = dict(table)
        found: SensorFront = kinds[given.pop("kind")](**given)
    except (KeyError, TypeError, ValueError) as error:
        raise BuildError(f"no front end of a sensor is described by {dict(table)!r}: {error!r}; build again") from None
    return found


def table_of(front: Any) -> dict[str, Any]:
    """Return the table from which `front_of` makes the same front end."""
    return {"kind": front.kind, **dataclasses.asdict(front)}
