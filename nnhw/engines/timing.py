"""Cycle models: the sequencing of each engine without its data, stepped cycle by cycle.

A pipeline of these gives the latency and the interval of an accelerator exactly, because every
model makes the same decisions in the same cycle as the hardware that is made from the same configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nnhw.errors import MappingError


class CycleModel(Protocol):
    """The handshakes of one engine: one input stream, one output stream.

    `o_valid` is a register: it does not depend on this cycle's inputs.
    """

    o_valid: bool

    def ready(self, o_ready: bool) -> bool:
        """Return whether a beat that is offered in this cycle is taken."""

    def step(self, i_valid: bool, o_ready: bool) -> None:
        """Pass one clock edge."""


@dataclass(frozen=True)
class Schedule:
    """What a pipeline does with frames that come back to back.

    Parameters
    ----------
    latency_cycles: from the cycle in which the first beat of a frame is taken to the cycle in which its last
        result is handed over, both counted, in an empty pipeline.
    interval_cycles: between the last results of two frames, in the steady state.
    """

    latency_cycles: int
    interval_cycles: int


def run_pipeline(
    models: Sequence[CycleModel], i_beats: int, o_beats: int, frames: int, limit_cycles: int
) -> tuple[int, list[int]]:
    """Step a chain of models with an input that never pauses and an output that never blocks.

    Parameters
    ----------
    models: from input to output.
    i_beats, o_beats: beats of one frame at either end.
    frames: how many frames to run.
    limit_cycles: a bound on the cycles; passing it means that the pipeline is stuck.

    Returns
    -------
    (cycle of the first input beat taken, cycle of the last output beat of each frame).
    """
    left, done, finish = frames * i_beats, 0, []
    first: int | None = None
    for cycle in range(limit_cycles):
        readies = [True]
        for model in reversed(models):
            readies.append(model.ready(readies[-1]))
        readies.reverse()
        valids = [left > 0] + [model.o_valid for model in models]
        if valids[0] and readies[0]:
            left -= 1
            first = cycle if first is None else first
        if valids[-1]:
            done += 1
            if done % o_beats == 0:
                finish.append(cycle)
        if len(finish) == frames:
            return first or 0, finish
        for model, i_valid, o_ready in zip(models, valids[:-1], readies[1:], strict=True):
            model.step(i_valid, o_ready)
    raise MappingError(
        f"the pipeline did not finish {frames} frames in {limit_cycles} cycles: its configuration is stuck; "
        "this is a mistake of nnhw, please report the model"
    )


class RegisterModel:
    """A pipeline register that takes `take` beats for each `give` beats: FIFO of one beat, width converters."""

    def __init__(self, take: int = 1, give: int = 1) -> None:
        self.take, self.give = take, give
        self.taken = 0
        self.left = 0
        self.o_valid = False

    def ready(self, o_ready: bool) -> bool:
        """Return whether the register is empty, or is emptied in this cycle."""
        return not self.o_valid or (o_ready and self.left == 1)

    def step(self, i_valid: bool, o_ready: bool) -> None:
        """Hand out one of `give` beats, take one of `take`."""
        take = i_valid and self.ready(o_ready)
        if self.o_valid and o_ready:
            self.left -= 1
        if take:
            self.taken += 1
            if self.taken == self.take:
                self.taken, self.left = 0, self.give
        self.o_valid = self.left > 0
