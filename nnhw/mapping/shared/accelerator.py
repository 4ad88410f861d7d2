"""Accelerators with a shared engine: all layers on it, or the first few on engines of their own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.shared.model import actions
from nnhw.errors import MappingError
from nnhw.ir import Graph, IntType, graph_hash
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.family import Family
from nnhw.mapping.resources import Cost
from nnhw.mapping.schedule import Network
from nnhw.mapping.shared.bands import Bands
from nnhw.mapping.shared.compile import Compiled, compile_body, compile_network, network_of
from nnhw.mapping.shared.fronts import Fronts
from nnhw.mapping.shared.memory import ProgramTooLarge
from nnhw.mapping.shared.network import Network as Tasks
from nnhw.mapping.shared.partition import Partition, partitions
from nnhw.mapping.shared.search import (
    EXACT,
    SLOWER,
    Choice,
    by_speed,
    choose_array,
    compiled_choice,
    cost_fits,
    least_cost,
    least_estimate,
    with_blocks,
)
from nnhw.mapping.shared.tasks import STREAMING

MOST_IN_FRONT, MOST_IN_FRONT_ROOMY = 2, 8
"""Layers in front of the shared engine: those that read wider codes than the others; or those of few channels, which
leave most of a large array idle, where there is logic for them."""
MOST_BEAT, MOST_BEAT_ROOMY = 4, 32
"""Elements that come in a beat from layers in front."""
ROOMY_LC = 30_000
"""Logic cells of a device on which either may be more."""
BANDS = tuple(
    Bands(*ways) for ways in ((1, 4), (1, 8), (2, 5), (2, 8), (4, 5), (6, 2), (6, 3), (6, 4), (8, 2), (8, 3), (4, 10))
)
"""Ways in which a program may begin, where it waits for layers in front."""
WAITS = 1.01
"""Cycles of an engine whose input makes it wait, as a multiple of its own, that are not worth a longer program."""
MUCH_SLOWER = 1.1
"""Cycles of an engine whose input makes it wait, as a multiple of its own, for which those in front are made faster."""
FASTER = (1, 2, 4)
"""How much faster than the array the engines in front may be, where it waits for their first rows."""
LEAST_SHARED = 0.67
"""Of the products, those that the shared engine makes at least where layers stand in front because they are small."""
FRAMES = 3
"""Frames until a queue is as full in front of each as in front of the next."""
QUEUE_LC = 60
"""About the logic cells of a queue."""
LEAST_QUEUE = 128
"""Beats that a queue in front of the shared engine holds at least, to be worth its block RAM."""
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
    found = list[Pair]()
    for pair in _pairs(Fronts(partition.front, board, budget, family), network, budget, family, most):
        found.append(pair)
        if len(found) == EXACT or budget.lc > ROOMY_LC:
            break
    if not found:
        raise MappingError(
            f"no array fits '{board}' beside engines of the first {partition.layers} layers; use {STREAMING}"
        )
    about = SLOWER * min(pair.interval for pair in found)
    best = min((pair for pair in found if pair.interval <= about), key=lambda pair: (pair.cost.lc, pair.interval))
    return _assembled(body, board, best.stages, best.compiled, best.front.input_format), best.compiled


@dataclass(frozen=True)
class Pair:
    """A shared engine with engines in front of it.

    Parameters
    ----------
    front: the engines in front.
    stages: these, and what brings their elements to the shared engine.
    compiled: the program.
    cost: of all of them.
    """

    front: Accelerator
    stages: tuple[Stage, ...]
    compiled: Compiled
    cost: Cost

    @cached_property
    def interval(self) -> int:
        """About the cycles from frame to frame: beats come evenly, as long as the queue has room."""
        beats = self.compiled.config.i_beats
        queue = [stage.config.depth for stage in self.stages[-2:] if isinstance(stage.config, FifoConfig)]
        depth = sum(queue) or 1
        rate, level, cycles = min(1.0, beats / self.front.schedule.interval_cycles), 0.0, 0.0
        for _ in range(FRAMES):
            cycles = 0.0
            for action in actions(self.compiled.config):
                count = action.cycles
                taken = count * (action.kind == "take")
                passed = max(count, (taken - level) / rate)
                level = min(depth, level + passed * rate - taken)
                cycles += passed
        return round(cycles)


def _pairs(fronts: Fronts, network: Tasks, budget: Budget, family: Family, most: int | None) -> Iterator[Pair]:
    """Yield shared engines that fit beside engines that keep up with them, until no other can be faster."""
    best, i_lanes = most, _beat(network, budget)
    arrays = by_speed(network, budget, family, i_lanes)
    if budget.lc > ROOMY_LC:
        arrays = _small_first(arrays, budget, family)
    for cycles, array in arrays:
        if best is not None and cycles > SLOWER * best:
            return
        limit = None if best is None else SLOWER * best
        pair = _fastest(fronts, network, array, cycles, i_lanes, budget, family, limit)
        if pair is not None:
            best = pair.interval if best is None else min(best, pair.interval)
            yield pair


def _fastest(
    fronts: Fronts,
    network: Tasks,
    array: ArrayConfig,
    cycles: int,
    i_lanes: int,
    budget: Budget,
    family: Family,
    most: float | None,
) -> Pair | None:
    """Return a shared engine with engines in front that keep up with it, or that are faster, where it waits; or None.

    Parameters
    ----------
    cycles: that the array takes, about.
    most: cycles from which on engines in front are too slow.
    """
    best: Pair | None = None
    for faster in FASTER if budget.spram else FASTER[:1]:
        pair = _beside(fronts, network, array, cycles // faster, i_lanes, budget, family, most)
        if pair is None:
            break
        if budget.spram:
            pair = _banded(pair, network)
        best = min(best or pair, pair, key=lambda pair: pair.interval)
        if best.interval <= MUCH_SLOWER * cycles:
            break
    return best


def _beside(
    fronts: Fronts,
    network: Tasks,
    array: ArrayConfig,
    cycles: int,
    i_lanes: int,
    budget: Budget,
    family: Family,
    most: float | None,
) -> Pair | None:
    """Return a shared engine and the smallest engines in front that take about so many cycles, or None; see `_fastest`.

    DSP blocks that the engines in front leave are those of lanes.
    """
    own = array.drains * (array.requantizing == Requantizing.DSP)
    source = network.values[network.source].shape
    queue_ebr = family.block_rams(prod(source) // i_lanes, i_lanes * array.activation_bits)
    least = least_cost(array, budget, family)
    if not budget.spram and cost_fits(least, budget):
        # What block RAMs the memory takes is known only now.
        choice = _choice(network, array, budget, family)
        if choice is None:
            return None
        least = choice.cost
    saved = max(0.0, least.lc - least_cost(with_blocks(array, budget.dsp, family), budget, family).lc)
    left = _left(replace(budget, lc=budget.lc + saved), least, i_lanes * array.activation_bits)
    front = fronts.find(cycles, left, queue_ebr) if left is not None else None
    if front is None or left is None or (most is not None and front.schedule.interval_cycles > most):
        return None
    mixed = with_blocks(array, own + left.dsp - fronts.cost(front).dsp, family)
    return _joined_pair(fronts, front, network, mixed, i_lanes, budget, family)


def _joined_pair(
    fronts: Fronts,
    front: Accelerator,
    network: Tasks,
    array: ArrayConfig,
    i_lanes: int,
    budget: Budget,
    family: Family,
) -> Pair | None:
    """Return a shared engine with engines in front, or None if its memory is too small."""
    left = _left(budget, least_cost(array, budget, family) + fronts.cost(front), i_lanes * array.activation_bits)
    choice = _choice(network, array, budget, family) if left is not None else None
    left = _left(budget, choice.cost, 0) if choice is not None else None
    if choice is None or left is None:
        return None
    return Pair(front, _joined(front, i_lanes, left, family), choice.compiled, choice.cost + fronts.cost(front))


def _banded(pair: Pair, network: Tasks) -> Pair:
    """Return a shared engine with the best of some ways in which its program may begin."""
    least = max(pair.front.schedule.interval_cycles, pair.compiled.cycles)
    for bands in BANDS:
        if pair.interval <= WAITS * least:
            break
        try:
            other = replace(pair, compiled=compile_network(network, pair.compiled.config.array, bands))
        except MappingError:
            continue
        pair = min(pair, other, key=lambda pair: pair.interval)
    return pair


def _small_first(
    arrays: Iterable[tuple[int, ArrayConfig]], budget: Budget, family: Family
) -> Iterator[tuple[int, ArrayConfig]]:
    """Yield arrays by their cycles, but the smallest first of those that are about as fast as the fastest left."""
    left = list(arrays)
    while left:
        count = sum(cycles <= SLOWER * left[0][0] for cycles, _ in left)
        yield from sorted(left[:count], key=lambda pair: (least_cost(pair[1], budget, family).lc, pair[0]))
        left = left[count:]


def _choice(network: Tasks, array: ArrayConfig, budget: Budget, family: Family) -> Choice | None:
    """Return an array with its program, or None if the memory is too small for it."""
    try:
        return compiled_choice(network, array, budget, family)
    except ProgramTooLarge:
        return None


def _left(budget: Budget, cost: Cost, beat_bits: int) -> Budget | None:
    """Return what a shared engine leaves, and what brings beats together and keeps them; None: too little."""
    joining = 3 * beat_bits + QUEUE_LC if beat_bits else 0
    if not cost_fits(cost + Cost(joining), budget):
        return None
    return Budget(budget.lc - cost.lc - joining, budget.ebr - cost.ebr, budget.dsp - cost.dsp, 0)


def _joined(front: Accelerator, lanes: int, left: Budget, family: Family) -> tuple[Stage, ...]:
    """Return the engines in front, what joins their elements to beats of the shared engine, and a queue of those.

    A register ends the path through the multiplexers of the queue's block RAMs: without it, it was the slowest.
    """
    stages = front.stages
    output = stages[-1].output
    if lanes > 1:
        config = ConvertConfig(1, lanes, output.element.bits, output.beats)
        output = replace(output, lanes=lanes)
        stages = (*stages, Stage("program.convert", "program", "", config, ((len(stages) - 1, 0),), output))
    queue = _queue(stages, left, family)
    if queue is None:
        return stages
    register = FifoConfig(1, queue.lanes, queue.bits, queue.beats)
    for name, fifo in (("queue", queue), ("queue.register", register)):
        stages = (*stages, Stage(name, "program", "", fifo, ((len(stages) - 1, 0),), output))
    return stages


def _queue(stages: tuple[Stage, ...], left: Budget, family: Family) -> FifoConfig | None:
    """Return a FIFO for as much of a frame as the block RAMs hold that are left, or None for next to nothing."""
    output = stages[-1].output
    bits, spare = (
        output.lanes * output.element.bits,
        left.ebr - sum(cost(stage.config, family).ebr for stage in stages),
    )
    depth = bisect_right(range(output.beats), spare, lo=1, key=lambda depth: family.block_rams(depth, bits))
    if depth <= LEAST_QUEUE // output.lanes:
        return None
    return FifoConfig(min(depth, output.beats), output.lanes, output.element.bits, output.beats)


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
