"""Layer boundaries: what the IR says must pass on the streams between the layers, beat by beat, and what did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.accelerator import Accelerator


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


def expected_beats(accelerator: Accelerator, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what must pass at each boundary.

    Parameters
    ----------
    values: int64 [N, *shape] of each boundary's IR value.

    Returns
    -------
    uint32 [N * beats, words] for each boundary, the lowest bits first.
    """
    return [
        pack_beats(boundary.patterns(values[boundary.node]), boundary.widths) for boundary in accelerator.boundaries
    ]


def pack_beats(patterns: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    """Return uint32 [beats, words] of bit patterns [beats, elements], each element so many bits."""
    bits = [(patterns[:, [index]] >> np.arange(width)) & 1 for index, width in enumerate(widths)]
    packed = np.zeros((len(patterns), 4 * -(-sum(widths) // 32)), np.uint8)
    filled = np.packbits(np.concatenate(bits, axis=1).astype(np.uint8), axis=1, bitorder="little")
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
