"""Layer boundaries: what the IR says must pass on the streams between the layers, beat by beat, and what did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nnhw.accelerator import Accelerator, Stream
from nnhw.engines.encoding import encode


@dataclass(frozen=True)
class Boundary:
    """The stream behind a stage, on which a value of the IR passes.

    Parameters
    ----------
    node: name of the value.
    layer: of the model.
    stream: how the value streams.
    """

    node: str
    layer: str
    stream: Stream

    @property
    def lanes(self) -> int:
        """Elements of a beat."""
        return self.stream.lanes

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return self.stream.element.bits

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.stream.beats

    @property
    def beat_bits(self) -> int:
        """Bits of a beat."""
        return self.lanes * self.bits


@dataclass(frozen=True)
class Comparison:
    """Frames at one boundary that differ from the IR.

    Parameters
    ----------
    name: of the value, or 'output'.
    frames: compared.
    mismatches: frames of which anything differs or is missing.
    extra: beats too many.
    """

    name: str
    frames: int
    mismatches: int
    extra: int = 0

    @property
    def equal(self) -> bool:
        """Whether everything arrived, nothing else did, and there was something to compare."""
        return self.frames > 0 and self.mismatches == 0 and self.extra == 0


def boundaries(accelerator: Accelerator) -> tuple[Boundary, ...]:
    """Return the boundaries of an accelerator, in the order of its taps."""
    return tuple(Boundary(stage.node, stage.layer, stage.output) for _, stage in accelerator.boundaries)


def expected_beats(accelerator: Accelerator, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what must pass at each boundary.

    Parameters
    ----------
    values: int64 [N, *shape] of each boundary's IR value.

    Returns
    -------
    uint32 [N * beats, words] for each boundary, the lowest bits first.
    """
    return [pack_beats(_patterns(boundary, values[boundary.node]), boundary) for boundary in boundaries(accelerator)]


def pack_beats(patterns: np.ndarray, boundary: Boundary) -> np.ndarray:
    """Return uint32 [beats, words] of bit patterns [any, elements] in stream order."""
    lanes = patterns.reshape(-1, boundary.lanes)
    bits = (lanes[:, :, None] >> np.arange(boundary.bits) & 1).astype(np.uint8).reshape(len(lanes), -1)
    words = -(-boundary.beat_bits // 32)
    packed = np.zeros((len(lanes), 4 * words), np.uint8)
    filled = np.packbits(bits, axis=1, bitorder="little")
    packed[:, : filled.shape[1]] = filled
    return packed.view("<u4").astype(np.uint32)


def compare(name: str, seen: np.ndarray, expected: np.ndarray, frames: int, came: int) -> Comparison:
    """Compare the beats of a boundary, or the bytes of the output, frame by frame.

    Parameters
    ----------
    seen, expected: [frames * beats, ...], of the same shape.
    came: beats that really came; what `seen` holds behind them was never there.
    """
    beats = len(expected) // frames
    wrong = (seen != expected).reshape(frames, -1).any(axis=1)
    wrong[came // beats :] = True
    return Comparison(name, frames, int(wrong.sum()), max(0, came - len(expected)))


def _patterns(boundary: Boundary, values: np.ndarray) -> np.ndarray:
    """Return bit patterns [N, elements] of a value, in stream order."""
    return encode(boundary.stream.elements_of(values), boundary.stream.element)
