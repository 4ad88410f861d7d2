"""Foldings: the free choices of a layer's engines, such as the number of cells, which trade cycles for hardware."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnhw.mapping.layers import ChannelLayer, Layer, MatrixLayer, MatrixProductLayer
from nnhw.mapping.matrix_products import lane_choices

MOST_LANES = 4096
"""Foldings with more products per cycle are not considered."""
MOST_CHANNELS = 64
"""For engines without a matrix, foldings with more channels per cycle are not considered."""
PREFERRED_HOP = 4
"""Preferred number of cells that share an activation register: wires are short, and registers few."""


@dataclass(frozen=True)
class Folding:
    """The free choices of one layer's engines. For a layer without a matrix only the lanes matter.

    Parameters
    ----------
    channel_lanes: channels of a pixel that an engine takes in a cycle.
    row_lanes: kernel rows that it takes in a cycle.
    pe: number of cells of the array; each computes one output at a time.
    hop: number of neighbouring cells that share an activation register.
    drain: number of sums that leave the array in a cycle.
    logic_pe: number of cells whose weights are constants in logic instead of block RAM.
    logic_thresholds: whether thresholds are constants in logic.
    logic_tails: whether the last words of memories of weights are in logic, where that saves block RAMs.
    dsp_pe: number of cells whose products are made in DSP blocks.
    dsp_scaler: whether DSP blocks may be used to scale sums to codes.
    lean_scaler: whether to scale sums to codes with the fewest block RAMs possible.
    roomy: whether line buffers have room for the first rows of a frame while the last rows of the one before are read.
    large: whether line buffers are in large RAM.
    lut_buffer: whether line buffers are in writable LUTs.
    """

    channel_lanes: int
    row_lanes: int = 1
    pe: int = 1
    hop: int = 1
    drain: int = 1
    logic_pe: int = 0
    logic_thresholds: bool = True
    logic_tails: bool = False
    dsp_pe: int = 0
    dsp_scaler: bool = False
    lean_scaler: bool = False
    roomy: bool = False
    large: bool = False
    lut_buffer: bool = False

    @property
    def simd(self) -> int:
        """Products of a cell per cycle."""
        return self.channel_lanes * self.row_lanes

    def depth(self, layer: MatrixLayer) -> int:
        """Return the words of weights of a cell: one for each step of each fold, of all groups."""
        return layer.weights.size // (self.pe * self.simd)


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending."""
    # Each divisor up to the square root has a partner above it.
    small = [value for value in range(1, int(number**0.5) + 1) if number % value == 0]
    return sorted({*small, *(number // value for value in small)})


def foldings(layer: Layer) -> Iterator[Folding]:
    """Yield every folding of a layer that its engines accept."""
    if isinstance(layer, MatrixLayer):
        yield from _matrix_foldings(layer)
        return
    if isinstance(layer, MatrixProductLayer):
        yield from _product_foldings(layer)
        return
    rows = {1, layer.kernel[0]} if isinstance(layer, ChannelLayer) and not layer.is_global else {1}
    for row_lanes in sorted(rows):
        for lanes in divisors(layer.run):
            if lanes <= MOST_CHANNELS:
                yield Folding(lanes, row_lanes)


def _matrix_foldings(layer: MatrixLayer) -> Iterator[Folding]:
    outputs, channels, kernel_rows, _ = layer.weights.shape
    inputs = layer.weights[0].size
    for row_lanes in sorted({1, kernel_rows}):
        for channel_lanes in divisors(channels):
            simd = channel_lanes * row_lanes
            for pe in divisors(outputs // layer.groups):
                if pe * simd > MOST_LANES:
                    continue
                choice = drain_and_hop(pe, inputs // simd)
                if choice is not None:
                    for tails in (False, True):
                        yield Folding(channel_lanes, row_lanes, pe, choice[1], choice[0], logic_tails=tails)


def _product_foldings(layer: MatrixProductLayer) -> Iterator[Folding]:
    for lanes, cells, _ in lane_choices(layer):
        if lanes <= MOST_LANES:
            steps = layer.sizes[2] * cells // lanes
            # The smallest drain that is fast enough takes the fewest requantizers.
            drains = [drain for drain in divisors(cells) if cells // drain <= steps and layer.period % drain == 0]
            if drains:
                yield Folding(lanes, drain=drains[0])


def drain_and_hop(pe: int, steps: int) -> tuple[int, int] | None:
    """Return (drain, hop): the smallest drain, and for it the hop closest to the preferred one; None if there is none.

    Parameters
    ----------
    pe: number of cells.
    steps: beats of a fold, which is the time in which the cells compute one sum each. The last of `pe / hop` groups of
        cells is done `pe / hop - 1` cycles after the first, and then the sums leave in `pe / drain` cycles: both must
        fit in a fold.
    """
    for drain in divisors(pe):
        # Sums would come faster than they drain.
        if pe // drain > steps:
            continue
        hops = [hop for hop in divisors(pe) if hop % drain == 0 and pe // hop - 1 + pe // drain <= steps]
        if hops:
            return drain, min(hops, key=lambda hop: (abs(hop - PREFERRED_HOP), hop))
    return None
