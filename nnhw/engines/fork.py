"""Fork: one stream becomes several with the same beats, each of which is taken at its own pace."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.engines.contract import EngineConfig


@dataclass(frozen=True)
class ForkConfig(EngineConfig):
    """Parameters of a fork.

    Parameters
    ----------
    outputs: streams that leave.
    lanes: elements of one beat.
    bits: bits of an element.
    beats: beats of one frame.

    Timing: one beat a cycle, which leaves one cycle after it came in. The next one comes in when the last copy leaves.
    """

    outputs: int
    lanes: int
    bits: int
    beats: int

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.beats

    @property
    def o_beats(self) -> int:
        """Beats of one frame at each output."""
        return self.beats

    @property
    def o_ports(self) -> int:
        """Output streams."""
        return self.outputs

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the beats that leave at every output: those that came in."""
        return np.asarray(beats[0])

    def model(self) -> ForkModel:
        """Return the cycle model."""
        return ForkModel(self)


class ForkModel:
    """Cycle model: a bit for each output that has not yet handed over its copy."""

    def __init__(self, config: ForkConfig) -> None:
        self.o_valids = [False] * config.outputs

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return [whether a beat is taken]: no copy is left, or the last ones leave in this cycle."""
        for pending, taken in zip(self.o_valids, o_readies, strict=True):
            if pending and not taken:
                return [False]
        return [True]

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Hand over copies, take a beat when none is left."""
        # A beat goes to all outputs at once, so it comes in only when no copy of the one before is left.
        pending = [valid and not ready for valid, ready in zip(self.o_valids, o_readies, strict=True)]
        after = [True] * len(pending) if i_valids[0] and not any(pending) else pending
        # The same copies may be pending before and after, of two beats: that is a change, too.
        changed = after != self.o_valids or pending != self.o_valids
        self.o_valids = after
        return changed

    def state(self) -> Hashable:
        """Return which copies are still there."""
        return tuple(self.o_valids)
