"""What every front end of a sensor tells about itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from nnhw.errors import BuildError


class SensorFront(Protocol):
    """A front end: a frozen dataclass between the numbers of a sensor and the input codes of a network.

    Members
    -------
    kind: its name in files.
    inputs: kinds of sensors that it can stand behind, see `nnhw.sensors.INPUTS`.
    layer: name of its layer in `nnhw.nn`.
    signal_axes: axes of one signal: samples [n], or an image [height, width].
    shape: of a frame of the network, without the batch.
    low, high: range of the codes.
    scale: the network's input is code * scale.
    """

    kind: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    layer: ClassVar[str]
    signal_axes: ClassVar[int]

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...

    @property
    def scale(self) -> float: ...

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
