"""Rounds: how the host sends sequences to hardware that reads each of them from its first frame to its last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .types import IntType


@dataclass(frozen=True)
class SentPart:
    """A part of each frame.

    Parameters
    ----------
    channels: number of its channels, behind those of the parts in front of it.
    source: channel of a frame's result at which begins what was kept of the round before; -1: it is the model's input.
    reverses: whether the steps come from the last one to the first.
    ready: the first round in which it is known; before, it is filled with a code that means nothing.
    """

    channels: int
    source: int
    reverses: bool
    ready: int


@dataclass(frozen=True)
class Rounds:
    """What the host sends in each round, and what of the results counts.

    In a round, the host sends as many frames as the sequence has steps. What a loop has computed from the last step to
    the first is known when a round has ended: where something else needs it, the next round brings it.

    Parameters
    ----------
    count: number of rounds.
    shape, element: shape of a step of the model's input, and type of its codes.
    parts: the parts of a frame, in their order.
    filler: code of the parts that are not known yet.
    channels: channels of a frame's result that are the model's; those that are kept for the next round follow.
    reverses: whether the model's result comes from the last step to the first.
    last_step: whether only the result of the last frame counts.
    """

    count: int
    shape: tuple[int, ...]
    element: IntType
    parts: tuple[SentPart, ...]
    filler: int
    channels: int
    reverses: bool = False
    last_step: bool = False

    def check(self) -> None:
        """Check parameters that were read from a file. Raises: ValueError if they contradict one another."""
        sources = [part for part in self.parts if part.source >= 0]
        # Only the input is known from the first round on; anything else comes from the results of a round before.
        ready = all(0 <= part.ready < self.count and (part.ready > 0) == (part.source >= 0) for part in self.parts)
        if self.count < 1 or not self.parts or not self.shape or min(*self.shape, self.channels) < 1 or not ready:
            raise ValueError(f"no {self.count} rounds send {self.parts}")
        if any(part.channels != self.shape[0] for part in self.parts if part not in sources):
            raise ValueError(f"a part of the input has {self.shape[0]} channels")

    def frames(self, sequences: Sequence[np.ndarray], kept: Sequence[np.ndarray], number: int) -> list[np.ndarray]:
        """Return the frames of a round, int64 [steps, *shape] for each sequence.

        Parameters
        ----------
        sequences: codes of the model's input, [steps, *shape] each.
        kept: the results of all frames of the round before; empty in the first one.
        number: of the round, from 0 on.
        """
        found = []
        for index, codes in enumerate(sequences):
            parts = []
            for part in self.parts:
                if part.ready > number:
                    one = np.full((len(codes), part.channels, *codes.shape[2:]), self.filler, np.int64)
                else:
                    whole, first = (codes, 0) if part.source < 0 else (kept[index], part.source)
                    one = whole[:, first : first + part.channels]
                parts.append(one[::-1] if part.reverses else one)
            found.append(np.concatenate(parts, axis=1))
        return found

    def results(self, made: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the model's results of sequences, [steps, *shape] or [*shape] each, from those of the last round."""
        own = [values[:, : self.channels] for values in made]
        own = [values[::-1] if self.reverses else values for values in own]
        return [values[-1] for values in own] if self.last_step else own
