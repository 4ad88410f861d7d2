"""How values stream between engines: the order of a tensor's elements, and what an element stands for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.ir.types import IntType


def stream_order(values: np.ndarray) -> np.ndarray:
    """Return a batch in the order in which it streams: pixels row by row, channels innermost.

    Parameters
    ----------
    values: [N, channels, height, width], [N, channels, length] or [N, elements].

    Returns
    -------
    [N, elements].
    """
    return np.moveaxis(values, 1, -1).reshape(len(values), -1)


def tensor_order(stream: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return [N, *shape] of a batch [N, elements] in stream order: the inverse of `stream_order`."""
    # A vector has no sides: its elements are the channels of one pixel.
    channels, *sides = shape
    return np.moveaxis(stream.reshape(-1, *sides, channels), -1, 1)


@dataclass(frozen=True)
class Stream:
    """What streams out of a stage; the value of an element is multiplier * element + offset of its channel.

    Parameters
    ----------
    lanes: elements of a beat.
    elements: elements of a frame.
    element: type of the elements: codes, or raw sums.
    multiplier, offsets: from elements to values, see `nnhw.engines.arithmetic`; offsets are int64 [channels], or [1]
        for all channels; None: zeros.
    """

    lanes: int
    elements: int
    element: IntType
    multiplier: int = 1
    offsets: np.ndarray | None = None

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.elements // self.lanes

    def elements_of(self, values: np.ndarray) -> np.ndarray:
        """Return the elements int64 [N, elements], in stream order, of values [N, *shape]."""
        streamed = stream_order(values)
        # Channels are innermost, so the offsets repeat with every pixel.
        if self.offsets is not None:
            streamed = streamed - np.tile(self.offsets, streamed.shape[1] // len(self.offsets))
        return streamed // self.multiplier
