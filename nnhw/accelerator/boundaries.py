"""Where values of the IR can be seen in an accelerator, for the comparison with what they should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.accelerator.streams import Stream
from nnhw.engines.encoding import encode
from nnhw.engines.shared import ArrayConfig, Compute


@dataclass(frozen=True)
class StreamBoundary:
    """The stream behind a stage, on which a value of the IR passes.

    Parameters
    ----------
    stage: its index.
    node: name of the value.
    layer: of the model.
    stream: how the value streams.
    """

    stage: int
    node: str
    layer: str
    stream: Stream

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.node

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.stream.beats

    @property
    def bits(self) -> int:
        """Bits of a beat."""
        return self.stream.lanes * self.stream.element.bits

    def patterns(self, values: np.ndarray) -> np.ndarray:
        """Return the bit patterns [N * beats, elements] of a value [N, *shape]; the bits of an element are `widths`."""
        elements = encode(self.stream.elements_of(values), self.stream.element)
        return elements.reshape(-1, self.stream.lanes)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each element of a beat."""
        return (self.stream.element.bits,) * self.stream.lanes


@dataclass(frozen=True)
class StoreBoundary:
    """What a record of a shared engine stores: the codes of some channels of a value, pixel by pixel.

    A beat is the codes that are stored at once, of a pixel, and the address of their first word.

    Parameters
    ----------
    stage: its index.
    number: of the record in the program.
    record: the record.
    array: the hardware.
    """

    stage: int
    number: int
    record: Compute
    array: ArrayConfig

    @property
    def node(self) -> str:
        """Name of the value."""
        return self.record.node

    @property
    def layer(self) -> str:
        """Of the model."""
        return self.record.layer

    @property
    def name(self) -> str:
        """What reports call it."""
        first, count = self.record.channels
        pixels = f"[{self.record.first_pixel}:]" if self.record.first_pixel else ""
        return f"{self.node}[{first}:{first + count}]{pixels}"

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.record.pixels

    @property
    def bits(self) -> int:
        """Bits of a beat."""
        return sum(self.widths)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each element of a beat."""
        lanes = min(self.record.channels[1], self.array.lanes)
        return (self.array.activation_bits,) * lanes + (self.array.address_bits,)

    def patterns(self, values: np.ndarray) -> np.ndarray:
        """Return the bit patterns [N * beats, elements] of a value [N, *shape]; the bits of an element are `widths`."""
        record, (first, count) = self.record, self.record.channels
        granules = max(1, count // self.array.lanes)
        pixels = slice(record.first_pixel, record.first_pixel + record.pixels // granules)
        channels = values.reshape(len(values), values.shape[1], -1)[:, first : first + count, pixels]
        codes = encode(np.moveaxis(channels, 1, 2) - record.zero, self.array.activation)
        addresses = (record.target + record.target_step * np.arange(record.pixels)) % self.array.words
        places = np.broadcast_to(addresses[None, :, None], (len(values), record.pixels, 1))
        if record.planar:
            codes = np.moveaxis(codes.reshape(*codes.shape[:2], -1, self.array.lanes), 2, 1)
        codes = codes.reshape(len(values), record.pixels, -1)
        return np.concatenate([codes, places], axis=2).reshape(-1, len(self.widths))


Boundary = StreamBoundary | StoreBoundary
