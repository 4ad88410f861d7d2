"""The parts of engines of all kinds, and what they and whole accelerators cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from nnhw.families.parts import Inventory, LogicFact, block_rams, dsp_blocks, luts, state, where
from nnhw.mapping.cost.branches import broadcast_parts, concat_parts, fifo_parts, fork_parts, state_parts, sum_parts
from nnhw.mapping.cost.channelwise import channelwise_parts
from nnhw.mapping.cost.matmul import matmul_parts
from nnhw.mapping.cost.matrix_product import matrix_product_parts
from nnhw.mapping.cost.pairwise import pairwise_parts
from nnhw.mapping.cost.rows import norm_parts, powers_parts, shares_parts
from nnhw.mapping.cost.stream_engines import convert_parts, pack_parts, pad_parts, pool_parts, slice_parts, unpack_parts
from nnhw.mapping.cost.window import window_parts

PARTS: dict[type, Callable[[Any], Inventory]] = {
    BroadcastConfig: broadcast_parts,
    ChannelwiseConfig: channelwise_parts,
    ConcatConfig: concat_parts,
    ConvertConfig: convert_parts,
    FifoConfig: fifo_parts,
    ForkConfig: fork_parts,
    MatmulConfig: matmul_parts,
    MatrixProductConfig: matrix_product_parts,
    NormConfig: norm_parts,
    PackConfig: pack_parts,
    PadConfig: pad_parts,
    PairConfig: pairwise_parts,
    PoolConfig: pool_parts,
    PowersConfig: powers_parts,
    SharesConfig: shares_parts,
    SliceConfig: slice_parts,
    StateConfig: state_parts,
    SumConfig: sum_parts,
    UnpackConfig: unpack_parts,
    WindowConfig: window_parts,
}
"""What lists the parts of each engine."""

_BETWEEN: dict[type, float] = {ConcatConfig: 0.5, ConvertConfig: 0.4, PadConfig: 0.6, SliceConfig: 0.6, SumConfig: 0.6}
"""Share of an engine's LUTs that remains, in families with wide LUTs, as synthesis merges others with neighbours' LUTs.

Rounded from a least-squares fit to 70 random networks on an ECP5, whose seeds `benchmarks.estimates` leaves out.
"""


def parts(config: EngineConfig | PackConfig | UnpackConfig) -> Inventory:
    """List the parts of any engine but a shared one, whose parts depend on its memory (`nnhw.mapping.shared`)."""
    # Users state logic cells as their hardware has them, for both kinds of families.
    if isinstance(config, OwnEngine):
        return where(LogicFact.WIDE_LUTS, _stated(config.cost(wide_luts=True)), _stated(config.cost(wide_luts=False)))
    found = PARTS[type(config)](config)
    left = _BETWEEN.get(type(config))
    return found if left is None else where(LogicFact.WIDE_LUTS, found.reduced(left), found)


def _stated(cost: Mapping[str, float]) -> Inventory:
    """List what an engine of the user's own is said to take."""
    logic = luts(cost.get("lc", 0)) + state(cost.get("ff", 0))
    return logic + block_rams(int(cost.get("ebr", 0))) + dsp_blocks(int(cost.get("dsp", 0)))


def cost(config: EngineConfig | PackConfig | UnpackConfig, family: Family = ICE40) -> Cost:
    """Return the cost of any engine but a shared one."""
    return family.price(parts(config))


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
