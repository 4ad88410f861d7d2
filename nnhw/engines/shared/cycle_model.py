"""The cycle model of a shared engine with its program, as a stage among others."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.cycles import (
    POINT_CYCLES,
    finish_latency,
    load_cycles,
    position_cycles,
    program_cycles,
    record_cycles,
    tail_cycles,
)
from nnhw.engines.shared.records import Compute, Emit, Fill, Record
from nnhw.engines.timing import Schedule

if TYPE_CHECKING:
    from nnhw.engines.shared.program import SharedConfig

START_CYCLES = 16
"""Cycles after a reset within which an engine has begun its program; it takes one or two."""
BUFFERED = 2
"""Bytes of output that the buffer behind the engine holds."""


@dataclass(frozen=True)
class Action:
    """A number of cycles that are all spent in the same way.

    Parameters
    ----------
    kind: 'wait': no stream is involved; 'take': a beat of input in each cycle; 'give': a byte of output in each.
    cycles: how many, if input and output are always ready.
    """

    kind: str
    cycles: int


def actions(config: SharedConfig) -> Iterator[Action]:
    """Yield the actions of a program for one frame, in order."""
    for record in config.records:
        yield from _actions_of(record, config.array)


def _actions_of(record: Record, array: ArrayConfig) -> Iterator[Action]:
    """Yield the actions of one record, in order."""
    cycles = record_cycles(record, array)
    if isinstance(record, Fill):
        yield Action("wait", cycles.fetch + POINT_CYCLES)
        yield Action("take", record.pixels * record.elements // array.i_lanes)
        yield Action("wait", 1 + POINT_CYCLES)
    elif isinstance(record, Emit):
        yield Action("wait", cycles.fetch + POINT_CYCLES)
        for _ in range(record.pixels):
            # Each word is read before its codes leave, in two cycles.
            for first in range(0, record.elements, array.codes_per_word):
                yield Action("wait", 2)
                yield Action("give", min(array.codes_per_word, record.elements - first))
        yield Action("wait", 1 + POINT_CYCLES)
    elif record.raw:
        yield from _raw_actions(record, cycles.fetch, array)
    else:
        yield Action("wait", cycles.total)


def _raw_actions(record: Compute, fetch: int, array: ArrayConfig) -> Iterator[Action]:
    """Yield the actions of a record with raw results: a position begins when those of the one before have left."""
    count, finish, gap = record.channels[1] * record.raw, finish_latency(array), max(record.gap, 1)
    # With raw results there is one idle cycle at least between positions, see `raw_cycles`.
    sent, work = finish + count, position_cycles(record, array) + finish
    for position in range(record.positions):
        idle = max(gap, sent) - sent if position else fetch + POINT_CYCLES + gap - 1
        yield Action("wait", idle + work)
        yield Action("give", count)
    yield Action("wait", POINT_CYCLES + 1 + max(0, tail_cycles(array) - sent))


def lone_schedule(config: SharedConfig) -> Schedule:
    """Return latency and interval of an engine by itself, with input and output that are always ready."""
    cycle, first, last = 0, None, 0
    for action in actions(config):
        if action.kind == "take" and first is None:
            first = cycle
        cycle += action.cycles
        if action.kind == "give":
            last = cycle
    # The last byte takes one more cycle through the output buffer.
    return Schedule(latency_cycles=last - (first or 0) + 1, interval_cycles=cycle)


def rest_cycles(config: SharedConfig) -> int:
    """Return a bound on the cycles from a reset until an engine waits for the first beat of its input."""
    before = itertools.takewhile(lambda action: action.kind != "take", actions(config))
    return START_CYCLES + load_cycles(config) + sum(action.cycles for action in before)


class SharedModel:
    """Cycle model of a shared engine; see `nnhw.engines.timing.CycleModel`.

    Parameters
    ----------
    actions: those of its program for one frame, in order.
    left: cycles of the current action that are left; before the first frame step functions are loaded, too.
    """

    def __init__(self, config: SharedConfig) -> None:
        self.actions = tuple(actions(config))
        assert sum(action.cycles for action in self.actions) == sum(one.total for one in program_cycles(config))
        # Step functions are loaded once, in front of the first frame.
        self._index, self.left = 0, self.actions[0].cycles + load_cycles(config)
        self._buffered = 0
        self.o_valid = False

    @property
    def _kind(self) -> str:
        return self.actions[self._index].kind

    def ready(self, o_ready: bool) -> bool:
        """Return whether a beat that is offered in this cycle is taken."""
        return self._kind == "take"

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge; return False only if nothing changed."""
        kind = self._kind
        # A byte goes into the buffer even in the cycle in which another leaves, but not into a full one: its room is a
        # register.
        gives = kind == "give" and self._buffered < BUFFERED
        leaves = self.o_valid and o_ready
        moves = gives or kind == "wait" or (kind == "take" and i_valid)
        self._buffered += gives - leaves
        self.o_valid = self._buffered > 0
        if moves:
            self.left -= 1
            # Some actions take no cycle, such as a wait without a gap.
            while not self.left:
                self._index = (self._index + 1) % len(self.actions)
                self.left = self.actions[self._index].cycles
        return moves or leaves

    def state(self) -> Hashable:
        """Return the index of the current action, its cycles that are left, and the bytes in the buffer."""
        return self._index, self.left, self._buffered
