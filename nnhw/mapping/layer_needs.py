"""The resources that each layer takes, and for what purpose, for the message that a network does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nnhw.accelerator import Accelerator
from nnhw.errors import LayerNeed
from nnhw.families import Cost
from nnhw.mapping.cost import cost
from nnhw.mapping.cost.requantizer import requantizer_cost
from nnhw.mapping.design_space import DesignSpace
from nnhw.mapping.folding import Folding
from nnhw.mapping.layers import Layer, MatrixLayer, MatrixProductLayer


def needs_of(
    space: DesignSpace, placed: Sequence[Folding], accelerator: Accelerator | None = None
) -> tuple[LayerNeed, ...]:
    """Return the resources that each layer takes with its folding.

    Parameters
    ----------
    placed: folding of each layer.
    accelerator: of these foldings; if given, the FIFOs in front of layers count, too.
    """
    fifos: Counter[str] = Counter()
    for stage in accelerator.stages if accelerator is not None else ():
        if stage.config.fifo is not None:
            fifos[stage.layer] += cost(stage.config, space.family).ebr
    return tuple(
        _need(space, layer, folding, fifos[layer.name]) for layer, folding in zip(space.layers, placed, strict=True)
    )


def _need(space: DesignSpace, layer: Layer, folding: Folding, fifo_rams: int) -> LayerNeed:
    total, weights, steps, buffers = Cost(), 0, 0, fifo_rams
    for config in space.engines(layer, folding):
        taken = cost(config, space.family)
        total += taken
        requantizer = config.requantizing
        # As many sums are requantized at once as leave a systolic array in one cycle, or an engine has lanes.
        lanes = folding.drain if isinstance(layer, MatrixLayer | MatrixProductLayer) else folding.channel_lanes
        own = requantizer_cost(requantizer, None, lanes, folding.logic_thresholds, space.family).ebr
        steps += own
        if config.product_array is None:
            buffers += taken.ebr - own
        else:
            weights += taken.ebr - own
    return LayerNeed(layer.name, total.lc, total.ff, total.dsp, weights, steps, buffers)
