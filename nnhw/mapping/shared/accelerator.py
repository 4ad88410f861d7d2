"""Accelerators with shared engines: all layers on one, the first and last few on engines of their own, or several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.families import Family
from nnhw.ir import Graph, IntType, TensorType, graph_hash
from nnhw.mapping.budget import Budget
from nnhw.mapping.schedule import StreamNetwork
from nnhw.mapping.shared.compile import Compiled, network_of
from nnhw.mapping.shared.program.network import TaskNetwork
from nnhw.mapping.shared.program.tasks import STREAMING
from nnhw.mapping.shared.search.arrays import choose_array, least_estimate, weights_exceed
from nnhw.mapping.shared.search.behind import Behind, map_behind
from nnhw.mapping.shared.search.chain import choose_chain
from nnhw.mapping.shared.search.fitting import compile_body
from nnhw.mapping.shared.search.fronts import Fronts
from nnhw.mapping.shared.search.pairs import Pairing
from nnhw.mapping.shared.search.partition import Partition, partitions
from nnhw.mapping.shared.settings import NEIGHBOURS

MOST_IN_FRONT, MOST_IN_FRONT_ROOMY = 2, 8
"""Layers in front of the shared engine: those that read wider codes than the others; or those of few channels, which
leave most of a large array idle, where there is logic for them."""
MOST_BEHIND, MOST_BEHIND_NEEDED = 2, 8
"""Layers behind the shared engine: those whose weights it would load for a few products each; or those that it does
not run."""
BYTE = IntType(0, 255)


@dataclass(frozen=True)
class SharedMapping:
    """A network on one shared engine or more.

    Parameters
    ----------
    programs: of its shared engines, with what the report says of them.
    title: how the network was cut, for people.
    """

    accelerator: Accelerator
    programs: tuple[Compiled, ...]
    title: str

    @property
    def cycles(self) -> int:
        """From frame to frame."""
        return self.accelerator.schedule.interval_cycles


@dataclass(frozen=True)
class _Way:
    """A way of cutting a network whose middle part a shared engine may run.

    Parameters
    ----------
    partition: the way.
    network: what the shared engine runs.
    cycles: that it takes for it at least, about.
    """

    partition: Partition
    network: TaskNetwork
    cycles: int


class _Ways:
    """Tries ways of cutting a network.

    Parameters
    ----------
    body, board, budget, family, most: see `map_shared`.
    """

    def __init__(self, body: Graph, board: str, budget: Budget, family: Family, most: int | None) -> None:
        self.body, self.board, self.budget, self.family, self.most = body, board, budget, family, most
        self.found: list[SharedMapping] = []
        self.refused: list[MappingError] = []
        self.products = 0
        self._least: dict[int, int] = {}

    def try_all(self) -> None:
        """Map the network in all ways that may be worth it: behind the shared engine no layer, then one, and so on."""
        for behind in range(MOST_BEHIND_NEEDED + 1):
            ways = list(self._runnable(behind))
            if self._is_roomy:
                ways.sort(key=lambda way: way.cycles)
            for way in ways:
                if self._is_roomy and self.found and way.cycles >= min(mapping.cycles for mapping in self.found):
                    break
                self._try(way)
            if self._least and behind >= MOST_BEHIND:
                break

    @property
    def _is_roomy(self) -> bool:
        return self.budget.lc > NEIGHBOURS.roomy_lc

    def _runnable(self, behind: int) -> Iterator[_Way]:
        """Yield ways with so many layers behind that an array runs and that may be faster than those with fewer."""
        for partition in partitions(self.body, MOST_IN_FRONT_ROOMY if self._is_roomy else MOST_IN_FRONT, behind):
            try:
                loaded, sent = partition.front is None, partition.behind is None
                network = replace(network_of(partition.shared), loaded=loaded, sent=sent)
                self.products = max(self.products, network.products)
                if self._is_roomy and network.products < NEIGHBOURS.least_shared * self.products:
                    return
            except MappingError as error:
                self.refused.append(error)
                continue
            cycles = self._estimate(partition, network)
            front, _ = partition.counts
            if front not in self._least or cycles < NEIGHBOURS.pays * self._least[front]:
                self._least[front] = cycles
                yield _Way(partition, network, cycles)

    def _estimate(self, partition: Partition, network: TaskNetwork) -> int:
        """Return about the cycles of the largest arrays; 0 where only smaller ones run the network."""
        try:
            beat = self._beat(partition, network)
            return least_estimate(network, self.budget, self.family, beat, fitting=self._is_roomy)
        except MappingError:
            return 0

    def _beat(self, partition: Partition, network: TaskNetwork) -> int:
        """Return the elements that come in a beat from layers in front."""
        if partition.front is None:
            return 1
        return gcd(
            NEIGHBOURS.most_beat_roomy if self._is_roomy else NEIGHBOURS.most_beat,
            network.values[network.source].shape[0],
        )

    def _try(self, way: _Way) -> None:
        try:
            self.found.append(self._map(way))
        except MappingError as error:
            self.refused.append(error)

    def _map(self, way: _Way) -> SharedMapping:
        """Map the network in one way."""
        partition, network, budget, most = way.partition, way.network, self.budget, self.most
        if partition.behind is not None and self.found:
            most = min(mapping.cycles for mapping in self.found)
        if most is not None and way.cycles >= most:
            raise MappingError(f"with {partition.title}, it takes at least about {way.cycles:,} cycles")
        if partition.front is not None and weights_exceed(network, budget, self.family):
            raise MappingError(f"with {partition.title}, the other weights exceed the memory of '{self.board}'")
        behind = None
        if partition.behind is not None:
            behind = map_behind(partition.behind, self.board, budget, self.family, way.cycles)
            budget = budget.without(behind.cost(self.family))
        if partition.front is None:
            compiled = choose_array(network, budget, self.family).compiled
            return self._mapping(partition, (), compiled, None, behind)
        pairing = Pairing(
            Fronts(partition.front, self.board, budget, self.family), network, self._beat(partition, network)
        )
        best = pairing.best(most)
        if best is None:
            raise MappingError(f"no array fits '{self.board}' beside engines for {partition.title}; use {STREAMING}")
        return self._mapping(partition, best.stages, best.compiled, best.front.input_format, behind)

    def _mapping(
        self,
        way: Partition,
        stages: tuple[Stage, ...],
        compiled: Compiled,
        i_format: InputFormat | None,
        behind: Behind | None,
    ) -> SharedMapping:
        accelerator = assemble(self.body, self.board, stages, (compiled,), i_format, behind)
        return SharedMapping(accelerator, (compiled,), way.title)

    def try_chain(self) -> None:
        """Map the network on several shared engines in a row, if that is faster than all that was found."""
        most = int(NEIGHBOURS.chain_pays * min(mapping.cycles for mapping in self.found)) if self.found else self.most
        try:
            chain = choose_chain(self.body, self.budget, self.family, most)
        except MappingError as error:
            self.refused.append(error)
            return
        if chain is not None:
            programs = tuple(part.choice.compiled for part in chain.parts)
            accelerator = assemble(self.body, self.board, (), programs)
            self.found.append(SharedMapping(accelerator, programs, chain.title))


def map_shared(
    body: Graph, board: str, budget: Budget, family: Family, most: int | None = None, reusable: bool = False
) -> tuple[SharedMapping, ...]:
    """Map an integer graph on a shared engine, with others in front of it and behind it where these help.

    Parameters
    ----------
    most: intervals at or above this are not worth keeping, in cycles per frame; None: there is no such limit.
    reusable: for other networks, too: no engines in front or behind, and an array with limits to spare.

    Returns
    -------
    All that were tried and fit, the fastest first.

    Raises
    ------
    MappingError: no way of doing so fits, or takes few enough cycles; why the one without other engines does not.
    """
    if reusable:
        compiled = choose_array(network_of(body), budget, family, reusable=True).compiled
        accelerator = assemble(body, board, (), (compiled,))
        return (SharedMapping(accelerator, (compiled,), next(partitions(body, 0)).title),)
    ways = _Ways(body, board, budget, family, most)
    ways.try_all()
    ways.try_chain()
    if not ways.found:
        raise ways.refused[0]
    return tuple(sorted(ways.found, key=lambda mapping: mapping.cycles))


def map_program(body: Graph, board: str, array: ArrayConfig) -> tuple[Accelerator, Compiled]:
    """Make a program of an integer graph for an array that is there already. Raises: MappingError."""
    compiled = compile_body(body, array)
    return assemble(body, board, (), (compiled,)), compiled


def assemble(
    body: Graph,
    board: str,
    stages: tuple[Stage, ...],
    programs: tuple[Compiled, ...],
    i_format: InputFormat | None = None,
    behind: Behind | None = None,
) -> Accelerator:
    """Return the accelerator of programs, of the stages in front of them with the format of their input, and behind."""
    (source,), (output,) = body.inputs, body.output_nodes
    every, last = list(stages), programs[-1]
    for number, compiled in enumerate(programs, 1):
        is_last = compiled is last and behind is None
        beats, element = compiled.config.o_beats, compiled.network.values.get(compiled.network.output)
        every.append(
            Stage(
                name=f"program_{number}" if len(programs) > 1 else "program",
                layer="program",
                node=compiled.network.output,
                config=compiled.config,
                sources=((len(every) - 1, 0) if every else INPUT,),
                output=Stream(1, beats, BYTE if is_last or element is None else element.element),
                products=compiled.network.products,
            )
        )
    i_format = i_format or _input_format(programs[0], source.type)
    every += behind.stages(len(every) - 1) if behind else ()
    if behind is None:
        o_format = _output_format(last, body.node(last.network.output).type.shape, output.type.shape)
    else:
        o_format = behind.accelerator.output_format
    schedule = StreamNetwork(tuple(every), i_format.frame_beats, o_format.frame_beats).schedule()
    return Accelerator(body.name, graph_hash(body), board, tuple(every), i_format, o_format, schedule)


def _input_format(compiled: Compiled, source: TensorType) -> InputFormat:
    """Return what the bytes that come in mean: a code each; shifted where it is neither stored so, nor without sign."""
    codes, zero = source.int_dtype, compiled.tensors[compiled.network.source].zero
    if zero in (0, 1 << (compiled.config.array.activation_bits - 1)):
        return InputFormat(source.shape, codes, 1)
    return InputFormat(source.shape, IntType(codes.low - zero, codes.high - zero), 1, offset=zero)


def _output_format(compiled: Compiled, streamed: tuple[int, ...], shape: tuple[int, ...]) -> OutputFormat:
    """Return what the bytes that leave mean: codes of a byte, or the sums of the last layer."""
    own = None if streamed == shape else streamed
    raw = getattr(compiled.config.records[-1], "raw", 0)
    if not raw:
        code, shift = compiled.network.values[compiled.network.output].element, int(compiled.offsets[0])
        # A number in every code: -1 as two bits where elsewhere a bipolar one is one bit.
        element = IntType(code.low - shift, code.high - shift)
        return OutputFormat(shape, element, 1, 1, np.full(streamed[0], shift), own)
    half = 1 << (8 * raw - 1)
    return OutputFormat(shape, IntType(-half, half - 1), raw, 1, compiled.offsets, own)
