"""The choice of the array for a network: the smallest of those that are about as fast as the fastest one that fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.array import (
    MOST_PLACE_BITS,
    MOST_SHIFTS,
    MOST_STEP_BITS,
    MOST_TIE_BITS,
    Requantizing,
    StepMemory,
)
from nnhw.errors import DoesNotFitError, MappingError
from nnhw.families import Cost, Family
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost.arithmetic import dsp_blocks
from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.shared.compile import Compiled, compile_network, refuse_program
from nnhw.mapping.shared.program.memory_plan import ProgramTooLarge
from nnhw.mapping.shared.program.needs import (
    TaskNeeds,
    activation_bits,
    task_needs,
    weight_bits,
    with_rows,
    with_widths,
)
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.search.array_cost import array_cost
from nnhw.mapping.shared.search.fitting import compile_fitting
from nnhw.mapping.shared.search.works import Work, Works, together
from nnhw.mapping.shared.settings import ARRAYS, LINES

ROOMY = {"rows": ARRAYS.most_rows, "sum_bits": 28, "factor_bits": 36, "addend_bits": 60, "shifts": (60,)}
"""Limits of an array that are wide enough for any network."""
SPARE_BITS, SPARE_SHIFT, SPARE_TIE_BITS = {"sum_bits": 2, "factor_bits": 4, "addend_bits": 4}, 2, 2
SPARE_PLACE_BITS = 1
"""What arrays that are made for other networks, too, have beyond what the first one needs, in bits: their widths, their
greatest shift, the fraction bits that tell ties, and the places of their step memory."""
WIDTHS = ("sum_bits", "factor_bits", "addend_bits", "shifts", "requantizing", "tie_bits", "step_memory", "row_steps")
"""What does not depend on the shape of an array."""


@dataclass(frozen=True)
class Choice:
    """An array with a program.

    Parameters
    ----------
    compiled: the program.
    cost: of the hardware.
    """

    compiled: Compiled
    cost: Cost


def choose_array(
    network: TaskNetwork,
    budget: Budget,
    family: Family,
    i_lanes: int = 1,
    reusable: bool = False,
    works: Works | None = None,
    enough: int = 0,
) -> Choice:
    """Return the smallest array that fits a budget and on which a network takes few more cycles than on any other.

    Parameters
    ----------
    i_lanes: elements of a beat of the input.
    reusable: whether its requantizers get wider limits than this network needs, so that others run on it, too.
    works: see `by_speed`.
    enough: cycles per frame of which fewer are no better: no further array is looked at then.

    Raises
    ------
    MappingError: none fits; the message says what the smallest one needs.
    """
    reasons: list[tuple[Cost, ArrayConfig]] = []
    refused: list[ProgramTooLarge] = []
    found: list[Choice] = []
    for _, plain in by_speed(network, budget, family, i_lanes, reusable, works):
        array = with_blocks(plain, budget.dsp, family)
        cost = least_cost(array, budget, family)
        if not cost_fits(cost, budget):
            reasons.append((cost, array))
            continue
        try:
            choice = compiled_choice(network, array, budget, family)
        except ProgramTooLarge as error:
            refused.append(error)
            # No other array has more memory.
            if weights_exceed(network, budget, family):
                break
            continue
        if choice is not None:
            found.append(choice)
        # Arrays come by their estimates, so that later ones are hardly faster: a few exact programs are enough.
        if len(found) == ARRAYS.exact or (choice is not None and choice.compiled.cycles <= enough):
            break
    if found:
        most = ARRAYS.slower * min(choice.compiled.cycles for choice in found)
        fast = [choice for choice in found if choice.compiled.cycles <= most]
        return min(fast, key=lambda choice: (choice.cost.lc, choice.compiled.cycles))
    if refused:
        least = min(refused, key=lambda error: error.bits)
        if least.plan is None:
            # Compiled after all, it says more: which values take most.
            compile_network(network, least.array)
        raise least
    raise _too_small(reasons, budget)


def with_blocks(array: ArrayConfig, blocks: int, family: Family) -> ArrayConfig:
    """Return an array with as many lanes in DSP blocks as `blocks` allows, in addition to its requantizers."""
    each = dsp_blocks(LaneArithmetic(array.activation, array.weight), array.simd, family)
    if array.dsp or not each or not array.can_mix:
        return array
    # Requantizers come first: they save most logic for a block.
    left = blocks - array.drains * (array.requantizing == Requantizing.DSP)
    return replace(array, dsp_lanes=max(0, min(array.lanes, left // each)))


def least_cost(array: ArrayConfig, budget: Budget, family: Family) -> Cost:
    """Return the least cost of an array; in block RAM that of the smallest memory, as its program is not known yet."""
    least = array if budget.spram else replace(array, words=family.block_ram.modes[0][0])
    return array_cost(least, family, budget.spram > 0)


def compiled_choice(network: TaskNetwork, array: ArrayConfig, budget: Budget, family: Family) -> Choice | None:
    """Return an array with its program, and a memory in block RAM as small as possible; None if no memory fits.

    Raises
    ------
    ProgramTooLarge: the memory has too little room for the program and the values.
    """
    if budget.spram:
        refuse_program(network, array)
        return Choice(compile_fitting(network, array), array_cost(array, family, True))
    # Memories come in whole block RAMs of the widest shape. The first program is made for the largest one: it tells
    # what is needed.
    unit = family.block_ram.modes[0][0]
    most = _most_words(array, unit, budget, family)
    if not most:
        return None
    largest = replace(array, words=most)
    refuse_program(network, largest)
    return _in_block_ram(compile_fitting(network, largest), unit, family)


def _most_words(array: ArrayConfig, unit: int, budget: Budget, family: Family) -> int:
    """Return the words of the largest memory in block RAM, a multiple of `unit`, with which an array fits, or 0."""

    def is_too_large(count: int) -> bool:
        return not cost_fits(array_cost(replace(array, words=count * unit), family, False), budget)

    return unit * bisect_left(range(1, array.words // unit + 1), True, key=is_too_large)


def _in_block_ram(compiled: Compiled, unit: int, family: Family) -> Choice:
    """Return a program for the same array with a memory in block RAM of only as many words as it needs."""
    need = compiled.program_words + compiled.plan.words
    small = replace(compiled.config.array, words=-(-need // unit) * unit)
    fitted = compile_network(compiled.network, small, fusions=compiled.fusions, plan=compiled.plan)
    return Choice(fitted, array_cost(small, family, False))


def by_speed(
    network: TaskNetwork,
    budget: Budget,
    family: Family,
    i_lanes: int = 1,
    reusable: bool = False,
    works: Works | None = None,
) -> Iterator[tuple[int, ArrayConfig]]:
    """Yield (estimated cycles, array) for all arrays with just the widths that a network needs, the fastest first.

    Arrays that stream weights are included if that makes them faster.

    Parameters
    ----------
    works: the work of tasks that is known; more is added.

    Raises
    ------
    MappingError: no array runs the network, however large: what the last one had too little of.
    """
    found: list[tuple[int, ArrayConfig]] = []
    # Those whose programs exceed the memory of any array: only if there are no others, for the message.
    too_large: list[tuple[int, ArrayConfig]] = []
    widths: list[ArrayConfig] = []
    refusal, works, most_bits = None, works or Works(), memory_bits(budget, family)
    can_stream = any(task.window.is_global for task in network.tasks)
    for shape in arrays_of(network, budget, family):
        try:
            # They do not depend on the shape, and to fit all lines takes long: once is enough.
            if not widths:
                widths = all_widths(task_needs(network, shape), shape, budget, family)
                widths = with_spare(widths) if reusable else widths
            arrays = [with_own(shape, own, i_lanes) for own in widths]
        except MappingError as error:
            refusal = error
            continue
        most = None
        for weight_stream in (False, True) if can_stream else (False,):
            chosen = [replace(array, weight_stream=weight_stream) for array in arrays]
            try:
                work = together(works.of(network, shape, weight_stream))
                cycles = _frame_cycles(network, chosen[0], work)
            except MappingError as error:
                refusal = error
                continue
            # Streamed weights are worth their hardware only if that is clearly faster.
            if most is None or cycles * ARRAYS.slower < most:
                most = cycles
                least_bits = (work.words + min(map(work.heads, chosen))) * shape.word_bits
                (too_large if least_bits > most_bits else found).extend(
                    (cycles, with_rows(array, work.rows, family)) for array in chosen
                )
    if refusal is not None and not found and not too_large:
        raise refusal
    yield from sorted(found or too_large, key=lambda pair: (pair[0], pair[1].products, pair[1].lanes))


def least_estimate(
    network: TaskNetwork,
    budget: Budget,
    family: Family,
    i_lanes: int,
    fitting: bool = False,
    works: Works | None = None,
) -> int:
    """Return an estimate of the fewest cycles on the largest arrays; it is quick. Raises: MappingError if none runs it.

    Parameters
    ----------
    fitting: whether only arrays count that may fit the budget.
    works: see `by_speed`.
    """
    shapes, found, widths = list(arrays_of(network, budget, family)), list[int](), None
    works = works or Works()
    for most in sorted({(shape.products, shape.drains) for shape in shapes}, reverse=True):
        for shape in (shape for shape in shapes if (shape.products, shape.drains) == most):
            with suppress(MappingError):
                widths = widths or with_widths(task_needs(network, shape), shape, Requantizing.LOGIC)
                array = with_own(shape, widths, i_lanes)
                least = least_cost(with_blocks(replace(array, rows=1), budget.dsp, family), budget, family)
                if not fitting or cost_fits(least, budget):
                    work = together(works.of(network, shape, array.weight_stream))
                    found.append(_frame_cycles(network, array, work))
        if found:
            return min(found)
        if not fitting:
            break
    raise MappingError("no array runs these layers")


def with_own(shape: ArrayConfig, widths: ArrayConfig, i_lanes: int = 1) -> ArrayConfig:
    """Return an array with the shape of one and the widths of another."""
    return replace(shape, i_lanes=i_lanes, **{name: getattr(widths, name) for name in WIDTHS})


def all_widths(needs: Sequence[TaskNeeds], array: ArrayConfig, budget: Budget, family: Family) -> list[ArrayConfig]:
    """Return arrays with the widths that tasks need, for each way to requantize that may be the smallest."""
    logic = with_widths(needs, array, Requantizing.LOGIC)
    few = array.activation_bits <= MOST_STEP_BITS and logic.step_memory is None
    if few and logic.sum_bits <= ARRAYS.most_step_sum_bits:
        return [replace(logic, requantizing=Requantizing.STEPS, tie_bits=None)]
    if family.dsp.multiplies_and_adds and budget.dsp and logic.fits_dsp:
        try:
            return [with_widths(needs, array, Requantizing.DSP), logic]
        except MappingError:
            # An addend is too wide together with the part that makes up for its negative factor.
            pass
    return [logic]


def with_spare(arrays: Iterable[ArrayConfig]) -> list[ArrayConfig]:
    """Return arrays with wider limits; those that cannot have them, because of DSP blocks, are left out."""
    found = []
    for array in arrays:
        shifts = (*array.shifts[: MOST_SHIFTS - 1], array.shifts[-1] + SPARE_SHIFT)
        wider = {name: getattr(array, name) + bits for name, bits in SPARE_BITS.items()}
        ties, memory = array.tie_bits, array.step_memory
        if memory is not None:
            bits = min(max(memory.place_bits + SPARE_PLACE_BITS, LINES.narrow_place_bits), MOST_PLACE_BITS)
            memory = StepMemory(2 * memory.words, 2 * memory.places, bits)
        if ties is not None:
            ties = max(ties[0] - SPARE_TIE_BITS, 1), min(ties[1] + SPARE_TIE_BITS, MOST_TIE_BITS)
        with suppress(MappingError):
            found.append(replace(array, shifts=shifts, tie_bits=ties, step_memory=memory, **wider))  # type: ignore[arg-type]
    if not found:
        raise MappingError("no array has limits to spare; leave out --reusable")
    return found


def arrays_of(network: TaskNetwork, budget: Budget, family: Family) -> Iterator[ArrayConfig]:
    """Yield arrays of all sizes that the budget's logic or DSP blocks may hold, with all other limits wide enough."""
    activations, weights = activation_bits(network), weight_bits(network)
    bits = {"activation_bits": activations, "weight_bits": weights}
    blocks = budget.dsp * family.dsp.products if min(activations, weights) > ARRAYS.most_logic_bits else 0
    # Logic cells of a product, far below what it takes: only shapes that are out of the question go.
    least = activations * weights // 2
    large = family.large_ram.words if budget.spram and family.large_ram else 0
    words = (min(ARRAYS.large_word_bits, 16 * budget.spram),) if large else ARRAYS.word_bits
    for lanes in ARRAYS.lanes:
        for simd in ARRAYS.simd:
            for word in words:
                for drains in ARRAYS.drains:
                    dsp = lanes * simd <= blocks
                    # Too small for the DSP blocks that there are, or too large for the logic, at a coarse price of a
                    # product in logic.
                    if ARRAYS.least_share * lanes * simd < blocks or (lanes * simd - blocks) * least > budget.lc:
                        continue
                    own = {"lanes": lanes, "simd": simd, "word_bits": word, "drains": drains, "dsp": dsp}
                    try:
                        yield ArrayConfig(words=large or 1 << 16, **own, **bits, **ROOMY)  # type: ignore[arg-type]
                    except MappingError:
                        continue


def _frame_cycles(network: TaskNetwork, array: ArrayConfig, work: Work) -> int:
    """Return an estimate of the cycles of a frame, without its output.

    Parameters
    ----------
    array: with the widths that the network needs. work: of all tasks, on an array of that shape.
    """
    return prod(network.values[network.source].shape) // array.i_lanes + work.cycles_on(array)


def weights_exceed(network: TaskNetwork, budget: Budget, family: Family) -> bool:
    """Return whether the weights of dense layers alone need more bits than the memories of all arrays have."""
    weights = sum(task.weights.size for task in network.tasks if not task.channelwise)
    return weights * weight_bits(network) > memory_bits(budget, family)


def layer_weight_bits(layers: Sequence[Layer]) -> int:
    """Return a lower bound of the bits that weights of dense layers take in the memory of an array."""
    return sum(layer.weights.size * layer.weight.bits for layer in layers if isinstance(layer, MatrixLayer))


def memory_bits(budget: Budget, family: Family) -> int:
    """Return the bits of the memories of all arrays together."""
    if budget.spram and family.large_ram:
        return budget.spram * family.large_ram.words * family.large_ram.bits
    return budget.ebr * family.block_ram.bits


def cost_fits(cost: Cost, budget: Budget) -> bool:
    """Return whether a budget has all that a cost takes."""
    return not budget.excess(cost)


def _too_small(reasons: list[tuple[Cost, ArrayConfig]], budget: Budget) -> DoesNotFitError:
    if not reasons:
        return DoesNotFitError("no array runs this network", remedy="use --style streaming")
    cost, array = min(reasons, key=lambda pair: (pair[0].ebr, pair[0].lc))
    return DoesNotFitError(
        f"the smallest array that runs this network, of {array.lanes} lanes and {array.products} products, takes about "
        f"{cost.lc:.0f} logic cells, {cost.ebr} block RAMs, {cost.dsp} DSP blocks and {cost.spram} large RAMs; there "
        f"are {budget.lc:.0f}, {budget.ebr}, {budget.dsp} and {budget.spram}",
        remedy="use a larger board, or --style streaming",
    )


def least_cycles(products: int, budget: Budget, family: Family) -> int:
    """Return a lower bound of the cycles for a number of products on any array, even with the narrowest numbers."""
    return -(-products // max(ARRAYS.most_narrow_products, budget.dsp * family.dsp.products))
