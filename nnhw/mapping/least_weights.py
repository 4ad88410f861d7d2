"""A lower bound of the memory that the weights of a network take on any folding, found without costing a design."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nnhw.engines.encoding import encode
from nnhw.errors import DoesNotFitError
from nnhw.families import Family
from nnhw.mapping.budget import Budget
from nnhw.mapping.folding import MOST_LANES, divisors
from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.plans import MOST_TAIL

FEW_WEIGHTS = 300_000
"""Networks of up to so many weights are costed exactly in seconds, and the refusal then says what each layer takes."""


def refuse_weights(layers: Sequence[Layer], budget: Budget, family: Family) -> None:
    """Refuse a large network whose weights alone take more bits than all block RAMs and all logic of a budget hold.

    Raises
    ------
    DoesNotFitError: with the bits that are too many.
    """
    matrices = [layer for layer in layers if isinstance(layer, MatrixLayer)]
    if sum(layer.weights.size for layer in matrices) <= FEW_WEIGHTS:
        return
    taken = {layer.where: least_weight_bits(layer, family) for layer in matrices}
    # A logic cell holds a bit of so many words of a deep ROM, or of the words that fill up a ROM in block RAM.
    each = max(family.logic.rom_words + family.logic.rom_rest_words, MOST_TAIL)
    held = budget.ebr * family.block_ram.bits + int(family.room.stretch * budget.lc) * each
    total = sum(taken.values())
    if total > held:
        largest = max(taken, key=lambda where: taken[where])
        raise DoesNotFitError(
            f"the network does not fit: its weights alone take at least {total:,} bits, but the {budget.ebr} block "
            f"RAMs and {budget.lc:.0f} logic cells that the board leaves to the engines hold at most {held:,} "
            f"({total - held:,} bits too many); the largest layer is {largest} with at least {taken[largest]:,} bits; "
            f"less than {held / total:.1%} of the network's present size would fit: use fewer channels or fewer bits, "
            "or a board with more resources ('nnhw boards')"
        )


def least_weight_bits(layer: MatrixLayer, family: Family) -> int:
    """Return a number of bits that memories of the layer's weights have at least, with any folding.

    A memory leaves out bits that are the same in all its words. More cells and lanes divide the weights among more
    memories, each with fewer words, so that more bits are left out: only the foldings with most of them are looked at.
    In a layer small enough for memories of a few words, bits with equal words share their logic, so it counts as none.
    """
    outputs, channels, rows, columns = layer.weights.shape
    size = layer.weights.size
    if size <= MOST_LANES * family.logic.rom_words:
        return 0
    bits = layer.weight.bits
    patterns = encode(layer.weights, layer.weight).astype(np.min_scalar_type((1 << bits) - 1))
    found = []
    for pe, channel_lanes, row_lanes in _finest(outputs // layer.groups, channels, rows):
        shape = (-1, pe, channels // channel_lanes, channel_lanes, rows // row_lanes, row_lanes, columns)
        # A memory holds the words of one cell, lane and row lane; bits that never change in them are constants.
        words = patterns.reshape(shape)
        changed = np.bitwise_or.reduce(words, axis=(0, 2, 4, 6)) ^ np.bitwise_and.reduce(words, axis=(0, 2, 4, 6))
        found.append(int(np.bitwise_count(changed).sum()) * (size // changed.size))
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
