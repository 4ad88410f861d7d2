"""The array that a network needs: widths of codes, weights, sums and constants, and the best shifts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared import ArrayConfig
from nnhw.engines.shared.array import DSP_FACTOR_BITS, MOST_SHIFTS, Requantizing, StepMemory
from nnhw.engines.shared.program import memory_needs
from nnhw.errors import MappingError
from nnhw.families import Family
from nnhw.ir import IntType
from nnhw.mapping.shared.program.lines import Line, at_shift, signed_bits, tie_range
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tasks import STREAMING, Task
from nnhw.mapping.shared.program.tensors import Tensor, lay_out
from nnhw.mapping.shared.program.tiles import Tiler
from nnhw.mapping.shared.settings import LINES

WIDTHS = (2, 4, 8)
"""Bits that weights and activations may have."""


def activation_bits(network: TaskNetwork) -> int:
    """Return the bits of the widest codes. Raises: MappingError for codes of more than 8 bits."""
    widths = {name: _width(*value.range) for name, value in network.values.items()}
    name = max(widths, key=lambda name: widths[name])
    if widths[name] > WIDTHS[-1]:
        low, high = network.values[name].range
        raise MappingError(
            f"value '{name}' has the codes {low}..{high}, an array stores at most {WIDTHS[-1]} bits",
            f"put a quantizer behind the layer that makes it, or use {STREAMING}",
        )
    return widths[name]


def weight_bits(network: TaskNetwork) -> int:
    """Return the bits of the widest weights. Raises: MappingError for weights of more than 8 bits."""
    # Weights are signed: those that are never negative take a bit more.
    widths = {
        task: IntType(int(min(task.weights.min(), 0)), int(max(task.weights.max(), 0))).bits + (task.weights.min() >= 0)
        for task in network.tasks
        if not task.is_sum
    }
    task = max(widths, key=lambda task: widths[task])
    bits = next((bits for bits in WIDTHS if bits >= widths[task]), None)
    if bits is None:
        raise MappingError(
            f"layer {task.where} has weights of {task.weights.min()}..{task.weights.max()}, an array takes at most "
            f"{WIDTHS[-1]} signed bits",
            f"quantize them to fewer, or use {STREAMING}",
        )
    return bits


@dataclass(frozen=True)
class TaskNeeds:
    """What a task needs of an array, of whatever shape that is.

    Parameters
    ----------
    sum_bits: bits of its widest sum.
    lines: its possible lines, by ascending shift; empty: its sums leave.
    row_steps: whether it needs steps for rows.
    """

    sum_bits: int
    lines: tuple[Line, ...]
    row_steps: bool


Known = dict[tuple[Task | Tensor | None, ...], TaskNeeds]
"""Needs of tasks on one array, by the task, the layout of what it reads, and that of what it stores."""


def task_needs(network: TaskNetwork, array: ArrayConfig, known: Known | None = None) -> list[TaskNeeds]:
    """Return what each task of a network needs.

    Parameters
    ----------
    array: with limits that are wide enough for any network.
    known: needs on the same array that were found before, of other parts of the network; new ones are added.

    Raises
    ------
    MappingError: a task exceeds a limit all the same.
    """
    # Layouts depend on the network as a whole, needs only on the layouts next to the task.
    tensors, known = lay_out(network, array), {} if known is None else known
    found = []
    for task in network.tasks:
        key = (task, *(tensors[name] for name in task.sources), tensors.get(task.node))
        if key not in known:
            tiler = Tiler(task, tensors, array)
            known[key] = TaskNeeds(tiler.sum_bits, tiler.lines, task.needs_row_steps)
        found.append(known[key])
    return found


def with_widths(needs: Sequence[TaskNeeds], array: ArrayConfig, requantizing: Requantizing) -> ArrayConfig:
    """Return an array with the widths and shifts that tasks need; they do not depend on its lanes and memory.

    Parameters
    ----------
    needs: of the tasks on this array, see `task_needs`.
    requantizing: the kind of requantizers.

    Raises
    ------
    MappingError: such requantizers do not serve the tasks.
    """
    functions = [need.lines for need in needs if need.lines]
    shifts = choose_shifts(functions)
    lines = [at_shift(own, min(shift for shift in shifts if shift >= own[0].shift)) for own in functions]
    factors = max((line.factor_bits for line in lines), default=2) + (LINES.spare_factor_bits if array.dsp else 0)
    addends = max((line.addend_bits for line in lines), default=2)
    if requantizing == Requantizing.DSP and factors > DSP_FACTOR_BITS:
        # Factors are stored as sign and magnitude; addends make up for negative ones.
        factors = max(factors, *(signed_bits(-line.factor) for line in lines))
        addends = max(addends, *(signed_bits(line.addend - np.minimum(line.factor, 0)) for line in lines))
    return replace(
        array,
        sum_bits=max(need.sum_bits for need in needs),
        factor_bits=factors,
        addend_bits=addends,
        shifts=shifts,
        requantizing=requantizing,
        tie_bits=None if requantizing == Requantizing.STEPS else tie_range(lines),
        step_memory=step_memory([line.ranked for line in lines if line.ranked is not None]),
        row_steps=any(need.row_steps for need in needs),
    )


def step_memory(functions: Sequence[RankedSteps]) -> StepMemory | None:
    """Return the smallest memory that holds step functions."""
    if not functions:
        return None
    words, places, bits = memory_needs(functions)
    return StepMemory(1 << (words - 1).bit_length(), 1 << (places - 1).bit_length(), bits)


def with_rows(array: ArrayConfig, rows: int, family: Family) -> ArrayConfig:
    """Return an array whose weight cache has `rows` rows, or as many as the block RAMs for them hold anyway."""
    # Wide rows are several memories of a word each, of which one is looked at.
    bits = min(array.products * array.weight_bits, array.word_bits)
    taken, most = family.block_rams(rows, bits), rows
    for words, _ in family.block_ram.modes:
        full = -(-rows // words) * words
        if family.block_rams(full, bits) == taken:
            most = max(most, full)
    return replace(array, rows=most)


def choose_shifts(functions: Sequence[tuple[Line, ...]]) -> tuple[int, ...]:
    """Return the shifts, ascending, with which the widest factor is narrowest, and then the widest addend.

    A function takes the smallest of these shifts that is not below its own; a greater one makes its constants wider.

    Parameters
    ----------
    functions: the lines of each function, by ascending shift.
    """
    wanted = sorted({lines[0].shift for lines in functions})
    if not wanted:
        return (0,)
    widths: dict[tuple[int, int], tuple[int, int]] = {}
    for least, shift in itertools.combinations_with_replacement(wanted, 2):
        lines = [at_shift(own, shift) for own in functions if own[0].shift == least]
        widths[least, shift] = max(line.factor_bits for line in lines), max(line.addend_bits for line in lines)

    def widest(shifts: tuple[int, ...]) -> tuple[int, int]:
        chosen = [widths[least, min(shift for shift in shifts if shift >= least)] for least in wanted]
        return max(factor for factor, _ in chosen), max(addend for _, addend in chosen)

    # The greatest shift is needed in any case: all others serve to keep constants of small shifts narrow.
    count = min(MOST_SHIFTS, len(wanted))
    return min(((*some, wanted[-1]) for some in itertools.combinations(wanted[:-1], count - 1)), key=widest)


def _width(low: int, high: int) -> int:
    """Return the least of `WIDTHS` with which all integers low..high have different codes, or 9."""
    return next((bits for bits in WIDTHS if high - low < 1 << bits), WIDTHS[-1] + 1)
