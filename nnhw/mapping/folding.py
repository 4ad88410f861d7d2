"""Foldings: the free choices of a layer's engines, which trade cycles for hardware."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnhw.mapping.layers import ChannelLayer, Layer, MatrixLayer, MatrixProductLayer
from nnhw.mapping.matrix_products import lane_choices

MOST_LANES = 4096
"""Products a cycle above which a folding is not considered."""
MOST_CHANNELS = 64
"""Channels a cycle above which an engine without products is not considered."""
PREFERRED_HOP = 4
"""Cells that share an activation register, where the drain leaves the choice: short wires at few registers."""


@dataclass(frozen=True)
class Folding:
    """The free choices of one layer. A layer without a matrix has lanes alone.

    Parameters
    ----------
    channel_lanes: channels of a pixel that an engine takes at once.
    row_lanes: kernel rows that it takes at once.
    pe: cells.
    hop: cells that share an activation register.
    drain: sums that leave in one cycle.
    logic_pe: cells whose weights are constants in logic.
    logic_thresholds: thresholds are constants in logic.
    logic_tails: the last words of block RAMs with weights are constants in logic, where that saves block RAMs.
    dsp_pe: cells whose products are made in DSP blocks.
    dsp_scaler: sums may be scaled to codes in DSP blocks.
    lean_scaler: sums are scaled to codes with as few block RAMs as there is a way.
    large: line buffers are in large RAM.
    lut_buffer: line buffers are in LUTs that can be written.
    roomy: line buffers take the first rows of a frame while the last ones of the frame before are read.
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
        """Lanes of a cell."""
        return self.channel_lanes * self.row_lanes


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending."""
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
            drains = [drain for drain in divisors(cells) if cells // drain <= steps and layer.period % drain == 0]
            if drains:
                yield Folding(lanes, drain=drains[0])


def drain_and_hop(pe: int, steps: int) -> tuple[int, int] | None:
    """Return the smallest drain, and for it the hop nearest the preferred one, that a fold of `steps` beats allows.

    Sums leave in `pe / drain` cycles after the last of `pe / hop` groups is done; both must fit in a fold.
    """
    for drain in divisors(pe):
        if pe // drain > steps:
            continue
        hops = [hop for hop in divisors(pe) if hop % drain == 0 and pe // hop - 1 + pe // drain <= steps]
        if hops:
            return drain, min(hops, key=lambda hop: (abs(hop - PREFERRED_HOP), hop))
    return None
