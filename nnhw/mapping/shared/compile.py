"""Compilation of the layers of a network to the program of a shared engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared import ArrayConfig, Emit, Fill, SharedConfig
from nnhw.engines.shared.cycles import program_cycles
from nnhw.engines.shared.program import load_words
from nnhw.engines.shared.records import Record, descriptor_words, record_words
from nnhw.errors import MappingError, raise_all
from nnhw.ir import Graph
from nnhw.mapping.layers import as_map
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared.program.bands import Bands, banded, most_tasks
from nnhw.mapping.shared.program.fusion import Fusion, fused, fused_cycles, lay_out_fused
from nnhw.mapping.shared.program.memory_plan import MemoryPlan, input_too_large, memory_map, plan_memory, too_large
from nnhw.mapping.shared.program.task_network import TaskNetwork, read_network
from nnhw.mapping.shared.program.tasks import STREAMING
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler

WHOLE = Bands()
"""No task runs in bands of the input."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A network as a program.

    Parameters
    ----------
    network: its tasks and values.
    config: the array and the records of the program.
    tensors: layout of each value in memory, by name.
    plan: places of the values in the memory behind the program.
    offsets: int64 [channels], what has to be added to the sums or codes that leave; for codes the same in all channels.
    fusions: groups of tasks that run band by band.
    """

    network: TaskNetwork
    config: SharedConfig
    tensors: dict[str, Tensor] = field(repr=False)
    plan: MemoryPlan
    offsets: np.ndarray = field(repr=False)
    fusions: tuple[Fusion, ...] = ()

    @property
    def cycles(self) -> int:
        """Cycles of a frame if neither its input nor its output waits."""
        return sum(record.total for record in program_cycles(self.config))

    @property
    def ideal_cycles(self) -> int:
        """Cycles of a frame if the array were busy in each of them."""
        return -(-self.network.products // self.config.array.products)

    @property
    def utilization(self) -> float:
        """Share of the array's products that are the network's."""
        return self.ideal_cycles / self.cycles

    @property
    def program_words(self) -> int:
        """Words of descriptors, constants and weights."""
        return len(self.config.words)

    @property
    def memory_map(self) -> str:
        """A table, for the report, of what lies where in memory during which layers; and which layers run in bands."""
        table = memory_map(self.network, self.tensors, self.plan, self.program_words, self.config.array)
        return "\n".join([table, *(fusion.title(self.network) for fusion in self.fusions)])


def network_of(body: Graph) -> TaskNetwork:
    """Return the tasks of an integer graph, which do not depend on the array.

    Raises
    ------
    MappingError: what no array runs, all at once.
    """
    if len(body.inputs) != 1 or len(body.outputs) != 1:
        raise MappingError(
            f"model '{body.name}' has {len(body.inputs)} inputs and {len(body.outputs)} outputs, a shared engine has "
            f"one of each",
            f"use {STREAMING}",
        )
    layers, source = read_layers(body), body.inputs[0]
    shape = as_map(source.type.shape)
    return read_network(layers, (source.name, shape, source.type.int_dtype), layers[-1].node)


def compile_network(
    network: TaskNetwork,
    array: ArrayConfig,
    bands: Bands = WHOLE,
    fusions: Sequence[Fusion] = (),
    plan: MemoryPlan | None = None,
) -> Compiled:
    """Return a network as a program.

    Parameters
    ----------
    bands: how the first tasks run in bands; with fewer tasks than stated if the next ones cannot.
    fusions: groups of tasks that run band by band, disjoint and in order.
    plan: the memory plan of the same tasks, bands and groups, for an array that differs in the size of its memory at
        most; None: it is made, which takes most of the time.

    Raises
    ------
    MappingError: it exceeds a limit of the array: which, by how much, and what helps.
    """
    tensors = lay_out_fused(network, array, fusions)
    tilers = tilers_of(network, tensors, array)
    # A task runs in the bands of the input or in those of a group, not in both.
    most = min([most_tasks(tilers, network.source), *(fusion.first for fusion in fusions)])
    bands = replace(bands, tasks=min(bands.tasks, most))
    # The program lies from address 0 on, the values behind it: so its size must be known before places are.
    words = program_words(network, tilers, bands, fusions)
    plan = plan or plan_memory(network, tensors, tilers, bands.tasks, fusions)
    if words + plan.words > array.words:
        raise too_large(plan, words, array)
    places = {name: words + place for name, place in plan.places.items()}
    config = SharedConfig(array, _records(network, tensors, tilers, bands, fusions, places), functions_of(tilers))
    # Counted without making a word, for the search; a difference would move all values.
    assert config.size == words
    return Compiled(network, config, tensors, plan, _offsets(network, tensors, tilers[-1]), tuple(fusions))


def refuse_program(network: TaskNetwork, array: ArrayConfig) -> None:
    """Raise ProgramTooLarge, without a plan, if program and input alone exceed the memory of an array.

    To know that takes far less time than to compile. The whole input is in memory in any case.
    """
    tensors = lay_out(network, array)
    words, source = program_words(network, tilers_of(network, tensors, array)), tensors[network.source].words(array)
    if words + source > array.words:
        raise input_too_large(source, words, array)


def _offsets(network: TaskNetwork, tensors: Mapping[str, Tensor], last: Tiler) -> np.ndarray:
    """Return what has to be added to the sums of the last task, or to the codes that leave, int64 [channels]."""
    if last.target is None:
        return np.broadcast_to(last.offset, last.task.channels)
    tensor = tensors[network.output]
    return np.full(tensor.value.shape[0], 0 if _is_unsigned(tensor, last.array) else tensor.zero)


def _is_unsigned(tensor: Tensor, array: ArrayConfig) -> bool:
    """Return whether unsigned codes travel for the signed numbers that are stored; any other shift is the host's."""
    return tensor.zero == 1 << (array.activation_bits - 1)


def _records(
    network: TaskNetwork,
    tensors: Mapping[str, Tensor],
    tilers: Sequence[Tiler],
    bands: Bands,
    fusions: Sequence[Fusion],
    places: Mapping[str, int],
) -> tuple[Record, ...]:
    """Return the records of a program."""
    fill = _fill(tensors[network.source], network, places, tilers[0].array)
    records: list[Record] = [*banded(fill, tilers, bands, places)] if bands.tasks else [fill]
    # Groups and single tasks alternate, in the order of the network.
    done = bands.tasks
    for fusion in fusions:
        records += [record for tiler in tilers[done : fusion.first] for record in tiler.records(places)]
        records += fused(fusion, tilers, places)
        done = fusion.end
    records += [record for tiler in tilers[done:] for record in tiler.records(places)]
    if network.output in tensors:
        records.append(_emit(tensors[network.output], network, places, tilers[0].array))
    return tuple(records)


def tilers_of(network: TaskNetwork, tensors: Mapping[str, Tensor], array: ArrayConfig) -> tuple[Tiler, ...]:
    """Return what makes the records of each task. Raises: MappingError, all at once."""
    problems: list[MappingError] = []
    found: list[Tiler] = []
    for task in network.tasks:
        try:
            # Functions are numbered in the order of the tasks that have one.
            found.append(Tiler(task, tensors, array, len(functions_of(found))))
        except MappingError as error:
            problems.append(error)
    raise_all(problems)
    return tuple(found)


def functions_of(tilers: Sequence[Tiler]) -> tuple[RankedSteps, ...]:
    """Return the step functions of tasks, in their order."""
    return tuple(tiler.function for tiler in tilers if tiler.function is not None)


def program_words(
    network: TaskNetwork, tilers: Sequence[Tiler], bands: Bands = WHOLE, fusions: Sequence[Fusion] = ()
) -> int:
    """Return the words of a program: step functions, descriptors, constants, weights."""
    words, head = [tiler.total(tiler.record_words) for tiler in tilers], descriptor_words(tilers[0].array)
    end = head * (network.output in network.values) + load_words(functions_of(tilers), tilers[0].array)
    for fusion in fusions:
        # The records of these tasks are those of their bands, which `fused_cycles` counts.
        words[fusion.first : fusion.end] = [0] * (fusion.end - fusion.first)
        end += fused_cycles(fusion, tilers)[1]
    if not bands.tasks:
        return head + sum(words) + end
    # How many words a record has does not depend on addresses, so that any will do here.
    (source,), nowhere = tilers[0].sources, dict.fromkeys(network.values, 0)
    start = banded(_fill(source, network, nowhere, tilers[0].array), tilers, bands, nowhere)
    return sum(record_words(record, tilers[0].array) for record in start) + sum(words[bands.tasks :]) + end


def _fill(tensor: Tensor, network: TaskNetwork, places: Mapping[str, int], array: ArrayConfig) -> Fill:
    channels, unsigned = tensor.value.shape[0], _is_unsigned(tensor, array)
    return Fill(places[network.source], tensor.pixels, channels, unsigned, network.source)


def _emit(tensor: Tensor, network: TaskNetwork, places: Mapping[str, int], array: ArrayConfig) -> Emit:
    channels, unsigned = tensor.value.shape[0], _is_unsigned(tensor, array)
    return Emit(places[network.output], tensor.pixels, channels, unsigned, network.output)
