"""Where values of the IR can be seen in an accelerator, so that hardware can be compared with the IR there."""

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
    stage: index of the stage.
    node: name of the value.
    layer: name of the model's layer.
    stream: how the value streams.
    """

    stage: int
    node: str
    layer: str
    stream: Stream

    @property
    def name(self) -> str:
        """Name of it in reports."""
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
        """Return the bit patterns int64 [N * beats, lanes] of a value [N, *shape]; an element has `widths` bits."""
        elements = encode(self.stream.elements_of(values), self.stream.element)
        return elements.reshape(-1, self.stream.lanes)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each element of a beat."""
        return (self.stream.element.bits,) * self.stream.lanes


@dataclass(frozen=True)
class StoreBoundary:
    """The writes of a record of a shared engine to its memory: codes of some channels of a value, pixel by pixel.

    A beat is the codes of a pixel that are stored at once, and the address of their first word.

    Parameters
    ----------
    stage: index of the shared engine's stage.
    number: index of the record in the program.
    record: the record.
    array: the parameters of the engine's hardware.
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
        """Name of the model's layer."""
        return self.record.layer

    @property
    def name(self) -> str:
        """Name of it in reports: value, channels, and the first pixel if that is not 0 or pixels are apart."""
        record, (first, count) = self.record, self.record.channels
        apart = "..." if record.pixel_row else ""
        pixels = f"[{record.first_pixel}:{apart}]" if record.first_pixel or apart else ""
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
        """Bits of each element of a beat: the codes, then the address."""
        lanes = min(self.record.channels[1], self.array.lanes)
        return (self.array.activation_bits,) * lanes + (self.array.address_bits,)

    def patterns(self, values: np.ndarray) -> np.ndarray:
        """Return the bit patterns int64 [N * beats, codes + 1] of a value [N, *shape]; an element has `widths` bits."""
        record, (first, count) = self.record, self.record.channels
        # `record.pixels` counts writes: a pixel with more channels than lanes takes several.
        pixels = record.stored_pixels[: record.pixels // max(1, count // self.array.lanes)]
        channels = values.reshape(len(values), values.shape[1], -1)[:, first : first + count, pixels]
        # Memory holds codes less the zero of the tensor, so that they fit two's complement of few bits.
        codes = encode(np.moveaxis(channels, 1, 2) - record.zero, self.array.activation)
        # Programs count addresses modulo the memory: a tensor may lie around its end.
        addresses = record.targets % self.array.words
        places = np.broadcast_to(addresses[None, :, None], (len(values), record.pixels, 1))
        # Planar: all pixels of the first channels are written before those of the next ones.
        if record.planar:
            codes = np.moveaxis(codes.reshape(*codes.shape[:2], -1, self.array.lanes), 2, 1)
        codes = codes.reshape(len(values), record.pixels, -1)
        return np.concatenate([codes, places], axis=2).reshape(-1, len(self.widths))


Boundary = StreamBoundary | StoreBoundary
