"""Accelerators with a shared engine: all layers on it, or the first few on engines of their own."""

from __future__ import annotations

from contextlib import suppress
from math import gcd

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.ir import Graph, IntType, graph_hash
from nnhw.mapping.budget import Budget
from nnhw.mapping.family import Family
from nnhw.mapping.schedule import Network
from nnhw.mapping.shared.compile import Compiled, compile_body, network_of
from nnhw.mapping.shared.fronts import Fronts
from nnhw.mapping.shared.network import Network as Tasks
from nnhw.mapping.shared.pairs import ROOMY_LC, Pairing
from nnhw.mapping.shared.partition import Partition, partitions
from nnhw.mapping.shared.search import choose_array, least_estimate
from nnhw.mapping.shared.tasks import STREAMING

MOST_IN_FRONT, MOST_IN_FRONT_ROOMY = 2, 8
"""Layers in front of the shared engine: those that read wider codes than the others; or those of few channels, which
leave most of a large array idle, where there is logic for them."""
MOST_BEAT, MOST_BEAT_ROOMY = 4, 32
"""Elements that come in a beat from layers in front."""
LEAST_SHARED = 0.67
"""Of the products, those that the shared engine makes at least where layers stand in front because they are small."""
BYTE = IntType(0, 255)


def map_shared(
    body: Graph, board: str, budget: Budget, family: Family, most: int | None = None
) -> tuple[Accelerator, Compiled]:
    """Map an integer graph on a shared engine, with engines in front of it where that is faster.

    Parameters
    ----------
    most: cycles a frame from which on nobody wants it; None: there is no such limit.

    Returns
    -------
    The accelerator, and its program with what the report says of it.

    Raises
    ------
    MappingError: no way of doing so fits, or takes few enough cycles; why the one without engines in front does not.
    """
    found: list[tuple[Accelerator, Compiled]] = []
    refused: list[MappingError] = []
    is_roomy = budget.lc > ROOMY_LC
    ways = _by_cycles(partitions(body, MOST_IN_FRONT_ROOMY), budget, family) if is_roomy else None
    for partition in ways or partitions(body, MOST_IN_FRONT):
        try:
            found.append(_map_partition(body, partition, board, budget, family, most))
        except MappingError as error:
            refused.append(error)
        if is_roomy and found:
            break
    if not found:
        raise refused[0]
    return min(found, key=lambda pair: pair[0].schedule.interval_cycles)


def _by_cycles(ways: list[Partition], budget: Budget, family: Family) -> list[Partition]:
    """Return those ways of cutting that may run, the one first whose shared engine takes the fewest cycles."""
    cycles, products = dict[int, int](), 0
    for way in ways:
        with suppress(MappingError):
            network = network_of(way.back)
            products = max(products, network.products)
            if network.products < LEAST_SHARED * products:
                break
            cycles[way.layers] = least_estimate(network, budget, family, _beat(network, budget) if way.front else 1)
    return sorted((way for way in ways if way.layers in cycles), key=lambda way: cycles[way.layers])


def _beat(network: Tasks, budget: Budget) -> int:
    """Return the elements that come in a beat from layers in front."""
    return gcd(MOST_BEAT_ROOMY if budget.lc > ROOMY_LC else MOST_BEAT, network.values[network.source].shape[0])


def map_program(body: Graph, board: str, array: ArrayConfig) -> tuple[Accelerator, Compiled]:
    """Make a program of an integer graph for an array that is there already. Raises: MappingError."""
    compiled = compile_body(body, array)
    return _assembled(body, board, (), compiled), compiled


def _map_partition(
    body: Graph, partition: Partition, board: str, budget: Budget, family: Family, most: int | None
) -> tuple[Accelerator, Compiled]:
    network = network_of(partition.back)
    i_lanes = _beat(network, budget) if partition.front else 1
    if most is not None and (least := least_estimate(network, budget, family, i_lanes)) >= most:
        behind = f" behind the first {partition.layers}" if partition.layers else ""
        raise MappingError(f"the layers{behind} take at least about {least:,} cycles")
    if partition.front is None:
        choice = choose_array(network, budget, family)
        return _assembled(body, board, (), choice.compiled), choice.compiled
    best = Pairing(Fronts(partition.front, board, budget, family), network, i_lanes).best(most)
    if best is None:
        raise MappingError(
            f"no array fits '{board}' beside engines of the first {partition.layers} layers; use {STREAMING}"
        )
    return _assembled(body, board, best.stages, best.compiled, best.front.input_format), best.compiled


def _assembled(
    body: Graph, board: str, stages: tuple[Stage, ...], compiled: Compiled, i_format: InputFormat | None = None
) -> Accelerator:
    """Return the accelerator of a program, and of the stages in front of it with the format of their input."""
    config, (source,), (output,) = compiled.config, body.inputs, body.output_nodes
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
    i_format = i_format or InputFormat(source.type.shape, source.type.int_dtype, 1)
    o_format = _output_format(compiled, body.node(compiled.network.output).type.shape, output.type.shape)
    schedule = Network((*stages, program), i_format.frame_beats, config.o_beats).schedule()
    return Accelerator(body.name, graph_hash(body), board, (*stages, program), i_format, o_format, schedule)


def _output_format(compiled: Compiled, streamed: tuple[int, ...], shape: tuple[int, ...]) -> OutputFormat:
    """Return what the bytes that leave mean: codes of a byte, or the sums of the last layer."""
    own = None if streamed == shape else streamed
    raw = getattr(compiled.config.records[-1], "raw", 0)
    if not raw:
        code = compiled.network.values[compiled.network.output].element
        # A number in every code: -1 as two bits where elsewhere a bipolar one is one bit.
        element = IntType(code.low, code.high)
        return OutputFormat(shape, element, 1, 1, np.zeros(streamed[0], dtype=np.int64), own)
    assert compiled.offsets is not None
    half = 1 << (8 * raw - 1)
    return OutputFormat(shape, IntType(-half, half - 1), raw, 1, compiled.offsets, own)
