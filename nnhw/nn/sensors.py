"""Front ends of sensors as layers: the exact integers that the gateware between sensor and network computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nnhw.errors import InputError
from nnhw.sensors import LogMelConfig, PixelsConfig, SensorFront


class FrontLayer(nn.Module):
    """A front end: signals of a sensor to frames of a network, [N, ..] --> [N, frames, *shape], code * scale.

    Parameters
    ----------
    config: what it computes; its method `codes` is the definition, here and in gateware.
    """

    def __init__(self, config: SensorFront) -> None:
        super().__init__()
        self.config = config

    def codes(self, signals: Tensor | np.ndarray) -> Tensor:
        """Return the integer codes int64 [N, frames, *shape] of signals [N, ..] of whole numbers.

        Raises
        ------
        InputError: signals of another shape or range.
        """
        array = signals.detach().cpu().numpy() if isinstance(signals, Tensor) else np.asarray(signals)
        try:
            return torch.from_numpy(np.ascontiguousarray(self.config.codes(array)))
        # A front end knows neither model nor layer, so it raises plain errors; the message gets the layer's name here.
        except ValueError as error:
            raise InputError(f"{type(self).__name__}: {error}") from None

    def forward(self, signals: Tensor) -> Tensor:
        """Return the network's frames float32 [N, frames, *shape]; exact, as each is a code of 8 bits times 2**-n."""
        return self.codes(signals).to(torch.float32) * self.config.scale

    def extra_repr(self) -> str:
        """Its parameters."""
        return str(self.config)


class LogMel(FrontLayer):
    """Log-mel features of samples: int16 [N, samples] --> float32 [N, samples // hop, 1, steps, bands].

    Parameters
    ----------
    parameters: those of `nnhw.sensors.LogMelConfig`, all by name.

    Raises
    ------
    InputError: a parameter out of range.
    """

    def __init__(self, **parameters: Any) -> None:
        super().__init__(_made(LogMelConfig, parameters))


class AveragePixels(FrontLayer):
    """A part of each camera image, averaged: uint8 [N, height, width] --> float32 [N, 1, 1, rows, columns].

    Parameters
    ----------
    parameters: those of `nnhw.sensors.PixelsConfig`, all by name.

    Raises
    ------
    InputError: a parameter out of range.
    """

    def __init__(self, **parameters: Any) -> None:
        super().__init__(_made(PixelsConfig, parameters))


def _made(kind: Any, parameters: dict[str, Any]) -> Any:
    try:
        return kind(**parameters)
    except (TypeError, ValueError) as error:
        raise InputError(f"{kind.layer}: {error}") from None


class SensorModel(nn.Module):
    """A front end and the network behind it: signals [N, ..] --> results [N, frames, *result].

    `nnhw build --input` makes a device of both; without it, of the network alone, whose frames `front` then computes
    on the computer.

    Parameters
    ----------
    front: the front end.
    network: from frames [N, *shape]; it begins with a quantizer whose codes are those of the front end.
    """

    def __init__(self, front: FrontLayer, network: nn.Module) -> None:
        super().__init__()
        self.front = front
        self.network = network

    def forward(self, signals: Tensor) -> Tensor:
        """Return the network's result for each frame."""
        frames = self.front(signals)
        results: Tensor = self.network(frames.flatten(0, 1))
        return results.unflatten(0, frames.shape[:2])
