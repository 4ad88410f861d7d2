"""Accelerators with shared engines: one for all layers, one with other engines in front and behind, or several."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.engines.shared import ArrayConfig
from nnhw.errors import DoesNotFitError, MappingError
from nnhw.families import Family
from nnhw.ir import Graph, IntType, TensorType, graph_hash
from nnhw.mapping.budget import Budget
from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.least_weights import held_bits, least_weight_bits
from nnhw.mapping.reader import read_layers
from nnhw.mapping.schedule import StreamNetwork
from nnhw.mapping.settling import settle
from nnhw.mapping.shared.compile import Compiled, network_of
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tasks import STREAMING
from nnhw.mapping.shared.search.arrays import (
    choose_array,
    layer_weight_bits,
    least_estimate,
    memory_bits,
    weights_exceed,
)
from nnhw.mapping.shared.search.behind import Behind, Behinds
from nnhw.mapping.shared.search.chain import choose_chain
from nnhw.mapping.shared.search.fitting import compile_body
from nnhw.mapping.shared.search.fronts import Fronts
from nnhw.mapping.shared.search.pairs import Pairing
from nnhw.mapping.shared.search.partition import Partition, partitions
from nnhw.mapping.shared.search.segments import segment_of
from nnhw.mapping.shared.search.works import Works
from nnhw.mapping.shared.settings import NEIGHBOURS

LOGGER = logging.getLogger("nnhw.mapping")
MOST_IN_FRONT, MOST_IN_FRONT_ROOMY = 2, 8
"""Most layers in front of the shared engine, on small and on large devices. They read wider codes than others; on large
devices they may also have few channels, which would leave most of an array idle."""
MOST_BEHIND, MOST_BEHIND_NEEDED = 2, 8
"""Most layers behind the shared engine: if it could run them, but would load weights for a few products each; and if it
cannot run them."""
BYTE = IntType(0, 255)
"""Type of what leaves for the link."""


@dataclass(frozen=True)
class SharedMapping:
    """A network on one or more shared engines.

    Parameters
    ----------
    accelerator: with all engines.
    programs: the program of each shared engine, in stream order.
    title: how the network was cut, for the report.
    """

    accelerator: Accelerator
    programs: tuple[Compiled, ...]
    title: str

    @property
    def cycles(self) -> int:
        """Cycles from frame to frame."""
        return self.accelerator.schedule.interval_cycles


@dataclass(frozen=True)
class _Way:
    """A way of cutting a network, with a middle part that a shared engine may run.

    Parameters
    ----------
    partition: the parts.
    network: the tasks of the shared engine.
    cycles: estimate of the least cycles per frame that it takes for them.
    """

    partition: Partition
    network: TaskNetwork
    cycles: int


class _Ways:
    """Tries ways of cutting a network.

    Parameters
    ----------
    body, board, budget, family, most, enough: see `map_shared`.
    """

    def __init__(
        self,
        body: Graph,
        board: str,
        budget: Budget,
        family: Family,
        most: int | None,
        enough: int = 0,
    ) -> None:
        self.body, self.board, self.budget, self.family, self.most = body, board, budget, family, most
        self.enough = enough
        self.found: list[SharedMapping] = []
        self.refused: list[MappingError] = []
        self.products = 0
        self._least: dict[int, int] = {}
        self._works = Works()
        self._behind: dict[int, Behinds | MappingError] = {}

    def try_all(self) -> None:
        """Map the network in all ways that may be worth it: no layer behind the shared engine, then one, and so on."""
        # Noted first, as the message of the first refusal is the one that users get.
        if self.excess is not None:
            self.refused.append(self.excess)
            # Nor do engines in front and behind hold those that are too many.
            if self._least_weight_bits > held_bits(self.budget, self.family, large=True):
                return
        for behind in range(MOST_BEHIND_NEEDED + 1):
            ways = list(self._runnable(behind))
            # On a large device each way takes long: the fastest by estimate come first, and the rest is left out.
            if self._is_roomy:
                # Without other engines it takes a second or two, and may be fast enough.
                ways.sort(key=lambda way: (self.enough > 0 and way.partition.counts != (0, 0), way.cycles))
            for way in ways:
                if self._is_roomy and self.found and way.cycles >= min(mapping.cycles for mapping in self.found):
                    break
                self._try(way)
                if self.is_enough:
                    return
            # More layers behind only while no array runs the others.
            if self._least and behind >= MOST_BEHIND:
                break

    @property
    def is_enough(self) -> bool:
        """Whether a mapping was found that is fast enough."""
        return any(mapping.cycles <= self.enough for mapping in self.found)

    @cached_property
    def excess(self) -> DoesNotFitError | None:
        """Why no array holds the weights of all layers; None: one may."""
        need, held = layer_weight_bits(self._layers), memory_bits(self.budget, self.family)
        if need <= held:
            return None
        # Engines of their own are no remedy where block RAMs and logic hold fewer weights than there are.
        other = f", or {STREAMING}" if need <= held_bits(self.budget, self.family) else ""
        return DoesNotFitError(
            f"the weights take {need:,} bits, the memory has {held:,} ({need - held:,} bits too many)",
            f"use fewer bits for weights, fewer channels{',' if other else ' or'} a larger board{other}",
        )

    @property
    def _least_weight_bits(self) -> int:
        """Least bits of the weights of all layers, on engines of any kind."""
        dense = [layer for layer in self._layers if isinstance(layer, MatrixLayer)]
        return sum(least_weight_bits(layer.weights, layer.weight, layer.groups, self.family) for layer in dense)

    def _may_fit(self, layers: Sequence[Layer]) -> bool:
        """Return whether an array may hold the weights of layers: that is known without reading their functions."""
        return layer_weight_bits(layers) <= memory_bits(self.budget, self.family)

    @property
    def _is_roomy(self) -> bool:
        return self.budget.lc > NEIGHBOURS.roomy_lc

    def _runnable(self, behind: int) -> Iterator[_Way]:
        """Yield the ways with `behind` layers behind that an array can run and that may be faster than with fewer."""
        most = MOST_IN_FRONT_ROOMY if self._is_roomy else MOST_IN_FRONT
        for partition in partitions(self.body, most, behind, self._may_fit):
            try:
                network = self._network(partition)
                self.products = max(self.products, network.products)
                # With each further layer in front, fewer products are left.
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

    def _network(self, partition: Partition) -> TaskNetwork:
        """Return the tasks of a shared engine; all ways of cutting have the same ones. Raises: MappingError."""
        front, behind = partition.counts
        whole, end = self._whole, len(self._layers) - behind
        if whole is not None:
            ends = {self._layers[place - 1].node for place in (front, end) if 0 < place < len(self._layers)}
            if ends <= {task.node for task in whole.tasks}:
                return segment_of(whole, self._layers, front, end)
        return replace(network_of(partition.shared), loaded=not front, sent=not behind)

    @cached_property
    def _layers(self) -> Sequence[Layer]:
        return read_layers(self.body)

    @cached_property
    def _whole(self) -> TaskNetwork | None:
        """The tasks of all layers; None if no array runs some of them."""
        try:
            return network_of(self.body)
        except MappingError:
            return None

    def _estimate(self, partition: Partition, network: TaskNetwork) -> int:
        """Return an estimate of the cycles on the largest arrays; 0 if only smaller arrays run the network."""
        try:
            beat = self._beat(partition, network)
            return least_estimate(network, self.budget, self.family, beat, self._is_roomy, self._works)
        except MappingError:
            return 0

    def _beat(self, partition: Partition, network: TaskNetwork) -> int:
        """Return the elements of a beat that comes from engines in front; 1 if there are none."""
        if partition.front is None:
            return 1
        return gcd(
            NEIGHBOURS.most_beat_roomy if self._is_roomy else NEIGHBOURS.most_beat,
            network.values[network.source].shape[0],
        )

    def _try(self, way: _Way) -> None:
        LOGGER.info("a shared engine with %s is tried", way.partition.title)
        try:
            self.found.append(self._map(way))
        except MappingError as error:
            self.refused.append(error)

    def _map(self, way: _Way) -> SharedMapping:
        """Map the network in one way."""
        partition, network, budget, most = way.partition, way.network, self.budget, self.most
        # Engines behind take room from the array, so such a mapping has to be faster than what is there.
        if partition.behind is not None and self.found:
            most = min(mapping.cycles for mapping in self.found)
        if most is not None and way.cycles >= most:
            raise MappingError(f"with {partition.title}, it takes at least about {way.cycles:,} cycles")
        if partition.front is not None and weights_exceed(network, budget, self.family):
            raise MappingError(f"with {partition.title}, the other weights exceed the memory of '{self.board}'")
        behind = None
        if partition.behind is not None:
            behind = self._behinds(partition.behind, partition.counts[1]).find(way.cycles)
            budget = budget.without(behind.cost(self.family))
        if partition.front is None:
            compiled = choose_array(network, budget, self.family, works=self._works, enough=self.enough).compiled
            return self._mapping(partition, (), compiled, None, behind)
        fronts = Fronts(partition.front, self.board, budget, self.family)
        pairing = Pairing(fronts, network, self._beat(partition, network), self._works)
        best = pairing.best(most)
        if best is None:
            raise MappingError(f"no array fits '{self.board}' beside engines for {partition.title}", f"use {STREAMING}")
        return self._mapping(partition, best.stages, best.compiled, best.front.input_format, behind)

    def _behinds(self, body: Graph, count: int) -> Behinds:
        """Return the mappings of the layers behind a shared engine. Raises: MappingError: there are none."""
        # All ways with as many layers behind have the same ones.
        if count not in self._behind:
            try:
                self._behind[count] = Behinds(body, self.board, self.budget, self.family)
            except MappingError as error:
                self._behind[count] = error
        found = self._behind[count]
        if isinstance(found, MappingError):
            raise found.with_traceback(None)
        return found

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
        """Map the network on several shared engines in a row, if that is faster than all mappings found so far."""
        if self.excess is not None or self.is_enough:
            return
        most = int(NEIGHBOURS.chain_pays * min(mapping.cycles for mapping in self.found)) if self.found else self.most
        try:
            chain = choose_chain(self.body, self.budget, self.family, most, network=self._whole, enough=self.enough)
        except MappingError as error:
            self.refused.append(error)
            return
        if chain is not None:
            programs = tuple(part.choice.compiled for part in chain.parts)
            accelerator = assemble(self.body, self.board, (), programs)
            self.found.append(SharedMapping(accelerator, programs, chain.title))


def map_shared(
    body: Graph,
    board: str,
    budget: Budget,
    family: Family,
    most: int | None = None,
    reusable: bool = False,
    enough: int = 0,
) -> tuple[SharedMapping, ...]:
    """Map an integer graph on a shared engine, with other engines in front of it and behind it if these help.

    Parameters
    ----------
    body, board, budget, family: the integer graph, the board's name, its free resources, its device family.
    most: intervals at or above this are not worth keeping, in cycles per frame; None: there is no such limit.
    reusable: whether other networks are to run on it, too: then there are no engines in front or behind, and the array
        has more than this network needs.
    enough: cycles per frame of which fewer are no better: the search ends with a mapping that takes no more.

    Returns
    -------
    All mappings that were tried and fit, the fastest first.

    Raises
    ------
    MappingError: no mapping fits, or none is fast enough; the message is that of the one without other engines.
    """
    if reusable:
        compiled = choose_array(network_of(body), budget, family, reusable=True).compiled
        accelerator = assemble(body, board, (), (compiled,))
        # The title of the partition without other engines.
        return (SharedMapping(accelerator, (compiled,), next(partitions(body, 0)).title),)
    ways = _Ways(body, board, budget, family, most, enough)
    try:
        ways.try_all()
        ways.try_chain()
    except KeyboardInterrupt as stop:
        best = min(ways.found, key=lambda mapping: mapping.cycles, default=None)
        # It raises again unless the search alone was meant to end; then what was found is returned below.
        settle(None if best is None else best.accelerator, stop)
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
    """Return the accelerator of programs, with stages in front and behind.

    Parameters
    ----------
    stages: the stages in front. i_format: format of their input; None if there are none.
    programs: in stream order.
    behind: the engines behind; None if there are none.
    """
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
    """Return the format of the input: a byte for each code.

    Codes that are stored as they are, or with half of their range subtracted, travel as they are. For any other zero,
    the host subtracts it.
    """
    codes, zero = source.int_dtype, compiled.tensors[compiled.network.source].zero
    if zero in (0, 1 << (compiled.config.array.activation_bits - 1)):
        return InputFormat(source.shape, codes, 1)
    return InputFormat(source.shape, IntType(codes.low - zero, codes.high - zero), 1, offset=zero)


def _output_format(compiled: Compiled, streamed: tuple[int, ...], shape: tuple[int, ...]) -> OutputFormat:
    """Return the format of the output: a byte for each code, or the sums of the last layer."""
    own = None if streamed == shape else streamed
    # The last record sends codes (`Emit`), or is a `Compute` that sends its sums.
    raw = getattr(compiled.config.records[-1], "raw", 0)
    if not raw:
        code, shift = compiled.network.values[compiled.network.output].element, int(compiled.offsets[0])
        # Codes are numbers here, even of a bipolar value: its -1 is not the single bit 0 that it is elsewhere.
        element = IntType(code.low - shift, code.high - shift)
        return OutputFormat(shape, element, 1, 1, np.full(streamed[0], shift), own)
    half = 1 << (8 * raw - 1)
    return OutputFormat(shape, IntType(-half, half - 1), raw, 1, compiled.offsets, own)
