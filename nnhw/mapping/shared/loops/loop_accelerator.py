"""The accelerator of a loop on a shared engine, on the array that fits a board."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.engines.shared import ArrayConfig, SharedConfig
from nnhw.engines.shared.array import Requantizing
from nnhw.errors import DoesNotFitError, MappingError
from nnhw.families import Cost, Family
from nnhw.ir import Graph, IntType, graph_hash
from nnhw.mapping.budget import Budget
from nnhw.mapping.loops import step_of
from nnhw.mapping.schedule import StreamNetwork
from nnhw.mapping.shared.loops.loop_program import CODES, LoopPlan, compile_loop
from nnhw.mapping.shared.loops.terms import STORED_BITS
from nnhw.mapping.shared.program.lines import at_shift, identity
from nnhw.mapping.shared.program.needs import choose_shifts, step_memory, with_rows
from nnhw.mapping.shared.search.array_cost import array_cost

LANES = (32, 16, 8)
"""Numbers of lanes that are tried, the fastest first; a word of memory has a code for each lane."""
LEAST_ROWS = 2
"""Rows of the weight cache, all of whose weights are streamed: one is used while the next one comes in."""
LEAST_WORDS_LOG2, MOST_WORDS_LOG2 = 8, 16
"""Logarithms of the fewest and the most words of a memory in block RAM."""
BYTE = IntType(0, 255)
"""Type of what leaves for the link."""


def map_loop(body: Graph, board: str, budget: Budget, family: Family) -> Accelerator:
    """Map a graph of sequences on a shared engine, whose program runs once for each step; the most lanes that fit.

    Raises
    ------
    MappingError: it does not fit, or has what a shared engine does not run in a loop.
    """
    plan, refused = LoopPlan.of(step_of(body)), list[str]()
    for lanes in LANES:
        # Large RAMs side by side make a word, which has to be the codes of all lanes.
        if budget.spram and family.large_ram and lanes * STORED_BITS != family.large_ram.bits * budget.spram:
            continue
        config = _smallest(plan, _array(plan, lanes, budget, family), budget, family)
        excess = budget.excess(_cost(config.array, budget, family))
        if not excess:
            return _assembled(plan, config, board)
        refused.append(f"with {lanes} lanes there are {excess}")
    raise DoesNotFitError(
        f"model '{body.name}' does not fit '{board}' as a program of a shared engine: {'; '.join(refused)}",
        "use a larger board, or fewer units",
    )


def _cost(array: ArrayConfig, budget: Budget, family: Family) -> Cost:
    return array_cost(array, family, bool(budget.spram and family.large_ram))


def _array(plan: LoopPlan, lanes: int, budget: Budget, family: Family) -> ArrayConfig:
    """Return an array with the widths that a step needs, and with as much memory as there may be."""
    functions = [*plan.lines.values(), (identity(1, CODES),)]
    shifts = choose_shifts(functions)
    lines = [at_shift(own, min(shift for shift in shifts if shift >= own[0].shift)) for own in functions]
    if any(line.tie_bits is not None for line in lines):
        raise MappingError("a loop of layers that round half away from zero needs --style streaming")
    large = family.large_ram.words if budget.spram and family.large_ram else 1 << MOST_WORDS_LOG2
    array = ArrayConfig(
        lanes=lanes,
        simd=1,
        weight_bits=STORED_BITS,
        activation_bits=STORED_BITS,
        word_bits=lanes * STORED_BITS,
        words=large,
        rows=LEAST_ROWS,
        sum_bits=max(2 * STORED_BITS + 1, *(plan.sum_bits(value) for value in plan.values)),
        # Lines of -1 and +1 complement codes and begin sequences.
        factor_bits=max(2, *(line.factor_bits for line in lines)),
        addend_bits=max(2, *(line.addend_bits for line in lines)),
        shifts=shifts,
        dsp=budget.dsp * family.dsp.products >= lanes,
        requantizing=Requantizing.LOGIC,
        weight_stream=True,
        step_memory=step_memory(plan.functions),
        partial_sums=True,
    )
    return with_rows(array, LEAST_ROWS, family)


def _smallest(plan: LoopPlan, array: ArrayConfig, budget: Budget, family: Family) -> SharedConfig:
    """Return the program, in block RAM with the smallest memory that holds it."""
    if budget.spram and family.large_ram:
        # Large RAMs have one size.
        return compile_loop(plan, array)
    for words_log2 in range(LEAST_WORDS_LOG2, MOST_WORDS_LOG2 + 1):
        try:
            return compile_loop(plan, replace(array, words=1 << words_log2))
        except MappingError:
            if words_log2 == MOST_WORDS_LOG2:
                raise
    raise AssertionError


def _assembled(plan: LoopPlan, config: SharedConfig, board: str) -> Accelerator:
    step, result = plan.step, plan.result
    source = step.graph.inputs[0]
    codes, zero = source.type.int_dtype, plan.zeros[source.name]
    # Codes that are stored as they are, or with the top bit inverted, travel as they are.
    if zero in (0, -CODES.low):
        i_format = InputFormat(source.type.shape, codes, 1, headed=True)
    else:
        element = IntType(codes.low - zero, codes.high - zero)
        i_format = InputFormat(source.type.shape, element, 1, offset=zero, headed=True)
    last_step = not step.whole.output_nodes[0].type.is_sequence
    shape = step.graph.output_nodes[0].type.shape
    if result.function is None:
        raw = -(-plan.sum_bits(result) // 8)
        half, offset = 1 << (8 * raw - 1), plan.sums[result.node].offset
        o_format = OutputFormat(shape, IntType(-half, half - 1), raw, 1, offset, last_step=last_step)
    else:
        zero = plan.zeros[result.node]
        shift = 0 if zero == -CODES.low else zero
        element = IntType(result.element.low - shift, result.element.high - shift)
        o_format = OutputFormat(shape, element, 1, 1, np.full(result.channels, shift), last_step=last_step)
    products = sum(value.products for value in plan.values)
    output = Stream(1, config.o_beats, BYTE)
    stage = Stage("program", "program", result.node, config, (INPUT,), output, products=products)
    schedule = StreamNetwork((stage,), i_format.frame_beats, o_format.frame_beats).schedule()
    whole = graph_hash(step.whole)
    return Accelerator(step.graph.name, whole, board, (stage,), i_format, o_format, schedule, step.rounds)
