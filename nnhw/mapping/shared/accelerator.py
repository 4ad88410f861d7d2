"""Accelerators with a shared engine: all layers on it, or the first few on engines of their own."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.ir import Graph, IntType, graph_hash
from nnhw.mapping.cost import cost
from nnhw.mapping.family import Family
from nnhw.mapping.mapper import Budget, map_body
from nnhw.mapping.resources import Cost
from nnhw.mapping.schedule import Network
from nnhw.mapping.shared.compile import Compiled, compile_body, network_of
from nnhw.mapping.shared.partition import Partition, partitions
from nnhw.mapping.shared.search import choose_array

MOST_IN_FRONT = 2
"""Layers in front of the shared engine: those that read wider codes than the others."""
RESERVES = (0.15, 0.3, 0.5)
"""Shares of the logic and block RAMs that are kept for layers in front, as they are tried."""
LEAST_QUEUE = 128
"""Beats that a queue in front of the shared engine holds at least, to be worth its block RAM."""
BYTE = IntType(0, 255)


def map_shared(body: Graph, board: str, budget: Budget, family: Family) -> tuple[Accelerator, Compiled]:
    """Map an integer graph on a shared engine, with engines in front of it where that is faster.

    Returns
    -------
    The accelerator, and its program with what the report says of it.

    Raises
    ------
    MappingError: no way of doing so fits; why the one without engines in front does not.
    """
    found: list[tuple[Accelerator, Compiled]] = []
    refused: list[MappingError] = []
    for partition in partitions(body, MOST_IN_FRONT):
        try:
            found.append(_map_partition(body, partition, board, budget, family))
        except MappingError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return min(found, key=lambda pair: pair[0].schedule.interval_cycles)


def map_program(body: Graph, board: str, array: ArrayConfig) -> tuple[Accelerator, Compiled]:
    """Make a program of an integer graph for an array that is there already. Raises: MappingError."""
    compiled = compile_body(body, array)
    return _assembled(body, board, None, compiled), compiled


def _map_partition(
    body: Graph, partition: Partition, board: str, budget: Budget, family: Family
) -> tuple[Accelerator, Compiled]:
    network = network_of(partition.back)
    if partition.front is None:
        choice = choose_array(network, budget, family)
        return _assembled(body, board, None, choice.compiled), choice.compiled
    for share in RESERVES:
        kept = replace(budget, lc=budget.lc * (1 - share), ebr=int(budget.ebr * (1 - share)))
        try:
            choice = choose_array(network, kept, family)
            # The shared engine takes no input while it computes: those in front work on into a queue.
            left = _left(budget, choice.cost)
            front = map_body(partition.front, board, left, family=family)
            queue = _queue(front, left, family)
            return _assembled(body, board, front, choice.compiled, queue), choice.compiled
        except MappingError as error:
            reason = error
    raise reason


def _left(budget: Budget, cost: Cost) -> Budget:
    """Return what a shared engine leaves."""
    return Budget(budget.lc - cost.lc, budget.ebr - cost.ebr, budget.dsp - cost.dsp, budget.spram - cost.spram)


def _queue(front: Accelerator, left: Budget, family: Family) -> FifoConfig | None:
    """Return a FIFO for as much of a frame as the block RAMs hold that are left, or None for next to nothing."""
    output = front.stages[-1].output
    bits, spare = (
        output.lanes * output.element.bits,
        left.ebr - sum(cost(one.config, family).ebr for one in front.stages),
    )
    depth = bisect_right(range(output.beats), spare, lo=1, key=lambda depth: family.block_rams(depth, bits))
    if depth <= LEAST_QUEUE:
        return None
    return FifoConfig(min(depth, output.beats), output.lanes, output.element.bits, output.beats)


def _assembled(
    body: Graph, board: str, front: Accelerator | None, compiled: Compiled, queue: FifoConfig | None = None
) -> Accelerator:
    """Return the accelerator of a program, and of the engines in front of it, with a queue between them."""
    config, (source,), (output,) = compiled.config, body.inputs, body.output_nodes
    stages = front.stages if front else ()
    if queue is not None:
        stages = (*stages, Stage("queue", "program", "", queue, ((len(stages) - 1, 0),), stages[-1].output))
    entry = (len(stages) - 1, 0) if stages else INPUT
    program = Stage(
        name="program",
        layer="program",
        node=compiled.network.output,
        config=config,
        sources=(entry,),
        output=Stream(1, config.o_beats, BYTE),
        products=compiled.network.products,
    )
    i_format = front.input_format if front else InputFormat(source.type.shape, source.type.int_dtype, 1)
    o_format = _output_format(compiled, body.node(compiled.network.output).type.shape, output.type.shape)
    schedule = Network((*stages, program), i_format.frame_beats, config.o_beats).schedule()
    return Accelerator(body.name, graph_hash(body), board, (*stages, program), i_format, o_format, schedule)


def _output_format(compiled: Compiled, streamed: tuple[int, ...], shape: tuple[int, ...]) -> OutputFormat:
    """Return what the bytes that leave mean: codes of a byte, or the sums of the last layer."""
    own = None if streamed == shape else streamed
    raw = getattr(compiled.config.records[-1], "raw", 0)
    if not raw:
        element = compiled.network.values[compiled.network.output].element
        return OutputFormat(shape, element, 1, 1, np.zeros(streamed[0], dtype=np.int64), own)
    assert compiled.offsets is not None
    half = 1 << (8 * raw - 1)
    return OutputFormat(shape, IntType(-half, half - 1), raw, 1, compiled.offsets, own)
