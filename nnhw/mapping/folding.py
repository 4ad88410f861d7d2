"""Foldings of one layer: how many cells and lanes it gets, and the cycles that follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnhw.engines.matmul import MatmulConfig, Thresholds
from nnhw.engines.window import WindowConfig
from nnhw.mapping.layers import Layer

MOST_LANES = 4096
"""Products a cycle above which a folding is not considered."""
PREFERRED_HOP = 4
"""Cells that share an activation register, where the drain leaves the choice: short wires at few registers."""


@dataclass(frozen=True)
class Folding:
    """The free choices of one layer.

    Parameters
    ----------
    pe: cells.
    channel_lanes, row_lanes: lanes of a cell: channels of a pixel times kernel rows.
    hop: cells that share an activation register.
    drain: sums that leave in one cycle.
    logic_pe: cells whose weights are constants in logic.
    logic_thresholds: thresholds are constants in logic.
    """

    pe: int
    channel_lanes: int
    row_lanes: int
    hop: int
    drain: int
    logic_pe: int = 0
    logic_thresholds: bool = True

    @property
    def simd(self) -> int:
        """Lanes of a cell."""
        return self.channel_lanes * self.row_lanes


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending."""
    return [value for value in range(1, number + 1) if number % value == 0]


def cycles(layer: Layer, folding: Folding) -> int:
    """Return the cycles of one frame on the layer's array."""
    outputs, inputs = layer.weights.shape[0], layer.weights[0].size
    return layer.vectors * (outputs // folding.pe) * (inputs // folding.simd)


def foldings(layer: Layer) -> Iterator[Folding]:
    """Yield every folding of a layer that its engines accept."""
    outputs, channels, kernel_rows, _ = layer.weights.shape
    inputs = layer.weights[0].size
    for row_lanes in sorted({1, kernel_rows}):
        for channel_lanes in divisors(channels):
            simd = channel_lanes * row_lanes
            for pe in divisors(outputs):
                if pe * simd > MOST_LANES:
                    continue
                choice = drain_and_hop(pe, inputs // simd)
                if choice is not None:
                    yield Folding(pe, channel_lanes, row_lanes, choice[1], choice[0])


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


def window_config(layer: Layer, folding: Folding, address_bits: int) -> WindowConfig:
    """Return the sliding window of a folded layer."""
    channels, height, width = layer.shape
    outputs, _, kernel_rows, kernel_columns = layer.weights.shape
    return WindowConfig(
        height=height,
        width=width,
        channels=channels,
        kernel=(kernel_rows, kernel_columns),
        stride=layer.stride,
        block=layer.pool,
        channel_lanes=folding.channel_lanes,
        row_lanes=folding.row_lanes,
        repeats=outputs // folding.pe,
        bits=layer.activation.bits,
        address_bits=address_bits,
    )


def matmul_config(layer: Layer, folding: Folding, order: np.ndarray) -> MatmulConfig:
    """Return the array of a folded layer.

    Parameters
    ----------
    order: of the inputs in the stream, see `WindowConfig.weight_order`.
    """
    weights = np.ascontiguousarray(layer.weights.reshape(len(layer.weights), -1)[:, order])
    config = MatmulConfig(
        pe=folding.pe,
        simd=folding.simd,
        hop=folding.hop,
        drain=folding.drain,
        weights=weights,
        activation=layer.activation,
        weight=layer.weight,
        thresholds=None,
        vectors=layer.vectors,
        logic_pe=folding.logic_pe,
        logic_thresholds=folding.logic_thresholds,
    )
    if layer.steps is None or layer.descending is None or layer.code is None:
        return config
    offsets = config.arithmetic.offsets(weights)[:, None]
    raw_steps = -((offsets - layer.steps) // config.arithmetic.multiplier)  # rounds up
    return replace(config, thresholds=Thresholds(raw_steps, layer.descending, layer.code))
