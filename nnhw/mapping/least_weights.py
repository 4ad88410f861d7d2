"""A lower bound of the memory that the weights of a network take on any folding, found without costing a design."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nnhw.engines.encoding import encode
from nnhw.errors import DoesNotFitError
from nnhw.families import Family
from nnhw.ir import Graph, IntType, Node
from nnhw.ir.graph import levels
from nnhw.ir.ops import Conv2d, Linear
from nnhw.mapping.budget import REMEDY, Budget
from nnhw.mapping.folding import MOST_LANES, divisors
from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.plans import MOST_TAIL

FEW_WEIGHTS = 300_000
"""Networks of up to so many weights are costed exactly in seconds, and the refusal then says what each layer takes."""


FAR_TOO_LARGE = 1.5
"""A graph whose weights take at least this multiple of what a board holds is not compared with its model."""


def refuse_weights(layers: Sequence[Layer], budget: Budget, family: Family) -> None:
    """Refuse a large network whose weights alone take more bits than all block RAMs and all logic of a budget hold.

    Raises
    ------
    DoesNotFitError: with the bits that are too many.
    """
    matrices = [layer for layer in layers if isinstance(layer, MatrixLayer)]
    if sum(layer.weights.size for layer in matrices) <= FEW_WEIGHTS:
        return
    taken = {layer.where: least_weight_bits(layer.weights, layer.weight, layer.groups, family) for layer in matrices}
    held = held_bits(budget, family)
    if sum(taken.values()) > held:
        places = f"the {budget.ebr} block RAMs and {budget.lc:.0f} logic cells"
        raise DoesNotFitError(_message(taken, held, f"{places} that the board leaves to the engines hold"), REMEDY)


def refuse_graph(graph: Graph, budget: Budget, family: Family) -> None:
    """Refuse a graph whose weights are far too many for a board, with engines of any style.

    Raises
    ------
    DoesNotFitError: with the bits that are too many.
    """
    dense = [(part, node) for _, part in levels(graph) for node in part.nodes if _is_dense(part, node)]
    if sum(part.constants[node.inputs[1]].size for part, node in dense) <= FEW_WEIGHTS:
        return
    held = held_bits(budget, family, large=True)
    taken = {}
    for part, node in dense:
        where = str(node.location) if node.location.module else f"'{node.name}'"
        values = part.constants[node.inputs[1]]
        groups = node.op.groups if isinstance(node.op, Conv2d) else 1
        shaped = values.reshape(*values.shape, *[1] * (4 - values.ndim))
        taken[where] = least_weight_bits(shaped, part.node(node.inputs[1]).type.int_dtype, groups, family)
    if sum(taken.values()) > FAR_TOO_LARGE * held:
        raise DoesNotFitError(_message(taken, held, "all memories and logic cells that the board leaves hold"), REMEDY)


def _is_dense(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies by weights that are no depthwise kernels."""
    if isinstance(node.op, Conv2d):
        return node.op.groups < len(graph.constants[node.inputs[1]])
    return isinstance(node.op, Linear)


def held_bits(budget: Budget, family: Family, large: bool = False) -> int:
    """Return an upper bound of the bits of weights that block RAMs and logic hold; with `large`, large RAMs, too."""
    # A logic cell holds a bit of so many words of a deep ROM, or of the words that fill up a ROM in block RAM.
    each = max(family.logic.rom_words + family.logic.rom_rest_words, MOST_TAIL)
    held = budget.ebr * family.block_ram.bits + int(family.room.stretch * budget.lc) * each
    if large and family.large_ram is not None:
        held += budget.spram * family.large_ram.words * family.large_ram.bits
    return held


def _message(taken: Mapping[str, int], held: int, places: str) -> str:
    total, largest = sum(taken.values()), max(taken, key=lambda where: taken[where])
    return (
        f"the network does not fit: its weights alone take at least {total:,} bits, but {places} at most {held:,} "
        f"(less than {held / total:.1%} of them); the largest layer is {largest} with at least {taken[largest]:,} "
        f"bits"
    )


def least_weight_bits(weights: np.ndarray, weight: IntType, groups: int, family: Family) -> int:
    """Return a number of bits that memories of a layer's weights have at least, with any folding.

    A memory leaves out bits that are the same in all its words. More cells and lanes divide the weights among more
    memories, each with fewer words, so that more bits are left out: only the foldings with most of them are looked at.
    In a layer small enough for memories of a few words, bits with equal words share their logic, so it counts as none.

    Parameters
    ----------
    weights: [outputs, channels of a group, rows, columns]. weight: their type. groups: of the outputs.
    """
    outputs, channels, rows, columns = weights.shape
    if weights.size <= MOST_LANES * family.logic.rom_words:
        return 0
    patterns = encode(weights, weight).astype(np.min_scalar_type((1 << weight.bits) - 1))
    found = []
    for pe, channel_lanes, row_lanes in _finest(outputs // groups, channels, rows):
        shape = (-1, pe, channels // channel_lanes, channel_lanes, rows // row_lanes, row_lanes, columns)
        # A memory holds the words of one cell, lane and row lane; bits that never change in them are constants.
        words = patterns.reshape(shape)
        changed = np.bitwise_or.reduce(words, axis=(0, 2, 4, 6)) ^ np.bitwise_and.reduce(words, axis=(0, 2, 4, 6))
        found.append(int(np.bitwise_count(changed).sum()) * (weights.size // changed.size))
    return min(found)


def _finest(outputs: int, channels: int, rows: int) -> Iterator[tuple[int, int, int]]:
    """Yield (cells, channel lanes, row lanes) that no other folding divides further."""
    choices = [
        (pe, lanes, row_lanes)
        for row_lanes in {1, rows}
        for lanes in divisors(channels)
        for pe in divisors(outputs)
        if pe * lanes * row_lanes <= MOST_LANES
    ]
    for one in choices:
        # A folding whose parts are divided further by another one leaves out no more bits than that.
        finer = (other for other in choices if other != one)
        if not any(all(many % few == 0 for few, many in zip(one, other, strict=True)) for other in finer):
            yield one
