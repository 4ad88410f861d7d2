"""The cost of engines of all kinds, and of whole accelerators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nnhw.accelerator import Accelerator, EngineConfig, InputFormat, OutputFormat, Stage
from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.engines.normalize import NormConfig
from nnhw.engines.own import OwnEngine
from nnhw.engines.pack import PackConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.softmax import PowersConfig, SharesConfig
from nnhw.engines.state import StateConfig
from nnhw.engines.unpack import UnpackConfig
from nnhw.engines.window import WindowConfig
from nnhw.families import ICE40, Cost, Family
from nnhw.mapping.cost.branches import broadcast_cost, concat_cost, fifo_cost, fork_cost, state_cost, sum_cost
from nnhw.mapping.cost.channelwise import channelwise_cost
from nnhw.mapping.cost.matmul import matmul_cost
from nnhw.mapping.cost.matrix_product import matrix_product_cost
from nnhw.mapping.cost.pairwise import pairwise_cost
from nnhw.mapping.cost.rows import norm_cost, powers_cost, shares_cost
from nnhw.mapping.cost.streams import convert_cost, pack_cost, pad_cost, pool_cost, slice_cost, unpack_cost
from nnhw.mapping.cost.window import window_cost

_COSTS: dict[type, Callable[[Any, Family], Cost]] = {
    BroadcastConfig: broadcast_cost,
    ChannelwiseConfig: channelwise_cost,
    ConcatConfig: concat_cost,
    ConvertConfig: convert_cost,
    FifoConfig: fifo_cost,
    ForkConfig: fork_cost,
    MatmulConfig: matmul_cost,
    MatrixProductConfig: matrix_product_cost,
    NormConfig: norm_cost,
    PackConfig: pack_cost,
    PadConfig: pad_cost,
    PairConfig: pairwise_cost,
    PoolConfig: pool_cost,
    PowersConfig: powers_cost,
    SharesConfig: shares_cost,
    SliceConfig: slice_cost,
    StateConfig: state_cost,
    SumConfig: sum_cost,
    UnpackConfig: unpack_cost,
    WindowConfig: window_cost,
}

_BETWEEN: dict[type, float] = {ConcatConfig: 0.5, ConvertConfig: 0.4, PadConfig: 0.6, SliceConfig: 0.6, SumConfig: 0.6}
"""Share of an engine's LUTs that remains, in families with wide LUTs, as synthesis merges others with neighbours' LUTs.

Rounded from a least-squares fit to 70 random networks on an ECP5, whose seeds `benchmarks.estimates` leaves out.
"""


def cost(config: EngineConfig | PackConfig | UnpackConfig, family: Family = ICE40) -> Cost:
    """Return the cost of any engine."""
    if isinstance(config, OwnEngine):
        stated = config.cost(wide_luts=family.logic.wide_luts > 1)
        given = Cost(stated.get("lc", 0), int(stated.get("ebr", 0)), int(stated.get("dsp", 0)), ff=stated.get("ff", 0))
        return replace(given, ff=0) if family.logic.flip_flop_packs else given
    found = _COSTS[type(config)](config, family)
    left = 1.0 if family.logic.wide_luts == 1 else _BETWEEN.get(type(config), 1.0)
    return replace(found, lc=left * found.lc)


def accelerator_cost(accelerator: Accelerator, family: Family) -> Cost:
    """Return the cost of an accelerator: all stages, and the packing between them and the bytes of the link."""
    return stages_cost(accelerator.stages, accelerator.input_format, accelerator.output_format, family)


def stages_cost(stages: Sequence[Stage], i_format: InputFormat, o_format: OutputFormat, family: Family) -> Cost:
    """Return the cost of stages and of the packing between them and the bytes of the link."""
    return sum((cost(stage.config, family) for stage in stages), _packing_cost(i_format, o_format, family))


def packing_cost(accelerator: Accelerator, family: Family) -> Cost:
    """Return the cost of the hardware that unpacks bytes of the link to beats, and packs results to bytes."""
    return _packing_cost(accelerator.input_format, accelerator.output_format, family)


def _packing_cost(i_format: InputFormat, o_format: OutputFormat, family: Family) -> Cost:
    wires = i_format.unpacking, o_format.packing
    return sum((cost(config, family) for config in wires if config is not None), Cost())
