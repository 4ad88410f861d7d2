"""Networks of cycle models stepped by compiled C, some fifty times as fast as Python does it.

Networks with branches and long frames are stepped for millions of cycles until their FIFOs are known. Without a C
compiler, and where a model is none of those that `stepping.c` knows, Python steps them, to the same cycle.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Hashable, Sequence
from functools import cache, singledispatch
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.engines.broadcast import BroadcastModel
from nnhw.engines.fifo import FifoModel
from nnhw.engines.fork import ForkModel
from nnhw.engines.join import ConcatModel, JoinedPipelineModel
from nnhw.engines.network import Models, Sources, SteppedNetwork, late_inputs, number_streams
from nnhw.engines.pad import PadModel
from nnhw.engines.pool import PoolModel
from nnhw.engines.rows import RowModel
from nnhw.engines.shared.cycle_model import SharedModel
from nnhw.engines.slice import SliceModel
from nnhw.engines.state import StateModel
from nnhw.engines.timing import PipelineModel, RegisterModel
from nnhw.engines.unpack import UnpackModel
from nnhw.engines.window import WindowModel
from nnhw.errors import NnhwError
from nnhw.flow.tools.cache import Cache

from .native import LIBRARY, c_compiler, compile_library

LOGGER = logging.getLogger(__name__)
KINDS = (
    PipelineModel,
    RegisterModel,
    FifoModel,
    WindowModel,
    PoolModel,
    PadModel,
    SliceModel,
    RowModel,
    UnpackModel,
    ForkModel,
    JoinedPipelineModel,
    ConcatModel,
    BroadcastModel,
    SharedModel,
    StateModel,
)
"""In the order of `enum kind` in stepping.c."""
MOST_WIRES = 64
"""Inputs or outputs of a model; see stepping.c."""
Numbers = tuple[Sequence[int], Sequence[int]]
"""Parameters of a model, and its table."""


@singledispatch
def numbers_of(model: Any) -> Numbers:
    """Return the parameters of a model at rest, in the order in which stepping.c has them, and its table."""
    raise TypeError(type(model))


@numbers_of.register
def _(model: PipelineModel) -> Numbers:
    return (model.latency, model.period, model.silent, model.burst), ()


@numbers_of.register
def _(model: JoinedPipelineModel) -> Numbers:
    return numbers_of(model.pipeline)


@numbers_of.register
def _(model: RegisterModel) -> Numbers:
    return (model.take, model.give), ()


@numbers_of.register
def _(model: FifoModel) -> Numbers:
    return (model.words, model.large), ()


@numbers_of.register
def _(model: WindowModel) -> Numbers:
    rows = model.row_words, model.row_beats, model.block_rows, model.rows_step, model.rows_left
    return (*rows, model.large, model.reads, model.room, model.surplus), ()


@numbers_of.register
def _(model: PoolModel) -> Numbers:
    return (model.period, model.silent), ()


@numbers_of.register
def _(model: PadModel) -> Numbers:
    return (), model.inside


@numbers_of.register
def _(model: SliceModel) -> Numbers:
    return (model.period, model.first, model.end), ()


@numbers_of.register
def _(model: RowModel) -> Numbers:
    return (model.chunks, model.words, model.done, *numbers_of(model.pipeline)[0]), ()


@numbers_of.register
def _(model: UnpackModel) -> Numbers:
    config = model.config
    return (config.steps, config.i_steps, config.o_steps, config.o_beats), ()


@numbers_of.register
def _(model: ForkModel) -> Numbers:
    return (), ()


@numbers_of.register
def _(model: ConcatModel) -> Numbers:
    return (model.constants,), model.turns


@numbers_of.register
def _(model: BroadcastModel) -> Numbers:
    return (model.beats, model.start), ()


@numbers_of.register
def _(model: SharedModel) -> Numbers:
    kinds = ("wait", "take", "give")
    return (model.left,), [number for one in model.actions for number in (kinds.index(one.kind), one.cycles)]


@numbers_of.register
def _(model: StateModel) -> Numbers:
    return (model.chunks, model.beats, model.words, model.level), ()


_POINTER, _NUMBER, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "net_new": (_POINTER, [_INT, _INT]),
    "net_add": (None, [_POINTER, _INT, _INT, _POINTER, _INT, _POINTER, _POINTER, _POINTER, _NUMBER]),
    "net_late": (None, [_POINTER, _INT]),
    "net_beats": (None, [_POINTER, _INT, _NUMBER]),
    "net_free": (None, [_POINTER]),
    "net_run": (_NUMBER, [_POINTER, *[_NUMBER] * 4, _INT, _POINTER, _POINTER]),
    "net_rest": (_INT, [_POINTER, _NUMBER]),
    "net_hold": (None, [_POINTER, _INT]),
    "net_fill": (_INT, [_POINTER, _INT, _NUMBER]),
    "net_frame": (_INT, [_POINTER, _NUMBER, _POINTER]),
    "net_cycle": (_NUMBER, [_POINTER]),
    "net_ends": (_NUMBER, [_POINTER, _INT, _POINTER]),
    "net_fifo": (None, [_POINTER, _INT, _POINTER, _POINTER]),
    "net_state": (_NUMBER, [_POINTER, _POINTER]),
}


@cache
def load() -> ctypes.CDLL | None:
    """Return the compiled functions of stepping.c; None where there is no compiler, or no cache to keep them in."""
    source = files(__package__).joinpath("stepping.c").read_text(encoding="utf-8")
    try:
        kept = Cache.default().folder
        command = (*c_compiler(), "-O3", "-shared", "-fPIC", "stepping.c", "-o", LIBRARY)
        return _load(compile_library({"stepping.c": source}, command, kept)) if kept else None
    except NnhwError as error:
        LOGGER.info("cycle models are stepped by Python, which is slower: %s", error)
        return None


def _load(path: Path) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None  # a folder from which nothing may be loaded
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def compiled_network(
    models: Models, sources: Sources, o_beats: Sequence[int] | None = None, held: int | None = None
) -> SteppedNetwork | None:
    """Return a network that C steps; None where it cannot: see `nnhw.engines.network.Network` for the parameters."""
    known = all(type(model) in KINDS for model in models)
    known = known and all(len(row) <= MOST_WIRES for row in sources)
    library = load() if known else None
    return None if library is None else CompiledNetwork(library, models, sources, o_beats, held)


class CompiledNetwork:
    """A network that C steps; its members are those of `nnhw.engines.network.Network`."""

    def __init__(
        self,
        library: ctypes.CDLL,
        models: Models,
        sources: Sources,
        o_beats: Sequence[int] | None = None,
        held: int | None = None,
    ) -> None:
        inputs, self._outputs = number_streams(models, sources)
        self._library, self._models, self._held = library, models, held
        self._first = _NUMBER(-1)
        self._net = library.net_new(len(models), self._outputs[-1][0] + 1)
        weakref.finalize(self, library.net_free, self._net)
        for model, ins, outs in zip(models, inputs, self._outputs, strict=True):
            numbers, table = numbers_of(model)
            arrays = [np.array(row, dtype) for row, dtype in ((ins, np.int32), (outs, np.int32), (numbers, np.int64))]
            rows = np.array(table, np.int64)
            pointers = [array.ctypes.data for array in arrays]
            kind = KINDS.index(type(model))
            library.net_add(
                self._net, kind, len(ins), pointers[0], len(outs), *pointers[1:], rows.ctypes.data, len(rows)
            )
        for model, ins in zip(models, inputs, strict=True):
            for port in late_inputs(model):
                library.net_late(self._net, ins[port])
        for outs, beats in zip(self._outputs, o_beats or (), strict=bool(o_beats)):
            for number in outs:
                library.net_beats(self._net, number, beats)
        if held is not None:
            library.net_hold(self._net, held)

    @property
    def cycle(self) -> int:
        """Cycles since it was at rest."""
        return int(self._library.net_cycle(self._net))

    @property
    def first(self) -> int:
        """Cycle in which the first beat came in; -1: none has."""
        return self._first.value

    @property
    def ends(self) -> Sequence[int]:
        """The cycles in which frames of the network's output ended."""
        return self._ends(self._outputs[-1][0])

    @property
    def model_ends(self) -> tuple[tuple[int, ...], ...]:
        """The cycles in which the last results of frames left each model."""
        return tuple(tuple(self._ends(wires[0])) for wires in self._outputs)

    def _ends(self, number: int) -> list[int]:
        cycles = np.empty(self._library.net_ends(self._net, number, None), np.int64)
        self._library.net_ends(self._net, number, cycles.ctypes.data)
        found: list[int] = cycles.tolist()
        return found

    def run(self, beats: int, o_beats: int, frames: int, limit_cycles: int, patient: bool) -> list[int]:
        """Step until frames have ended; return the cycle of the last beat of each."""
        finish = np.empty(frames, np.int64)
        first = ctypes.addressof(self._first)
        ended = self._library.net_run(
            self._net, beats, o_beats, frames, limit_cycles, patient, first, finish.ctypes.data
        )
        found: list[int] = finish[:ended].tolist()
        return found

    def rest(self, limit_cycles: int) -> bool:
        """Step without input until nothing changes any more; return whether it came to that."""
        return bool(self._library.net_rest(self._net, limit_cycles))

    def fill(self, limit_cycles: int) -> bool:
        """Step until nothing moves in front of the held model, then release it; return whether it came to that."""
        return bool(self._library.net_fill(self._net, self._held, limit_cycles))

    def frame(self, limit_cycles: int) -> bool:
        """Step with an input that never pauses to the end of the next frame; return False if the network is stuck."""
        return bool(self._library.net_frame(self._net, limit_cycles, ctypes.addressof(self._first)))

    def state(self) -> Hashable:
        """Return all on which the network's behaviour depends."""
        numbers = np.empty(self._library.net_state(self._net, None), np.int64)
        self._library.net_state(self._net, numbers.ctypes.data)
        return numbers.tobytes()

    def settle(self) -> None:
        """Tell FIFOs how full they were."""
        high_water, was_full = _NUMBER(), _NUMBER()
        for index, model in enumerate(self._models):
            if isinstance(model, FifoModel):
                pointers = [ctypes.addressof(number) for number in (high_water, was_full)]
                self._library.net_fifo(self._net, index, *pointers)
                model.high_water, model.was_full = high_water.value, bool(was_full.value)
