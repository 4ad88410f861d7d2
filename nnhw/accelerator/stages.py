"""The stages of an accelerator: an engine each, with the streams that it reads and makes."""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.accelerator.streams import Stream
from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.contract import EngineConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.engines.normalize import NormConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.shared import SharedConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.softmax import PowersConfig, SharesConfig
from nnhw.engines.state import StateConfig
from nnhw.engines.window import WindowConfig

BUILT_IN: tuple[type[EngineConfig], ...] = (
    BroadcastConfig,
    ChannelwiseConfig,
    ConcatConfig,
    ConvertConfig,
    FifoConfig,
    ForkConfig,
    MatmulConfig,
    MatrixProductConfig,
    NormConfig,
    PadConfig,
    PairConfig,
    PoolConfig,
    PowersConfig,
    SharedConfig,
    SharesConfig,
    SliceConfig,
    StateConfig,
    SumConfig,
    WindowConfig,
)
"""The parameter classes of nnhw's engines; those that users register are in `nnhw.engines.own.ENGINES`."""
INPUT = (-1, 0)
"""The source of a stage that reads the input of the accelerator."""


@dataclass(frozen=True)
class Stage:
    """One engine in its place.

    Parameters
    ----------
    name: unique: layer and kind of engine, `layer.kind`.
    layer: name of the model's layer of which it computes a part.
    node: name of the IR value that leaves it, in the form `output`; "" if what leaves is no value of the IR.
    config: the engine's parameters.
    sources: for each input port, (index of an earlier stage, its output port); (-1, 0) is the input of the accelerator.
        A source of constants has none. What feeds a late input, the next state of a loop, is a later stage.
    output: what leaves, from every output port the same.
    products: of one frame that it computes, those with a border of padding not counted.
    """

    name: str
    layer: str
    node: str
    config: EngineConfig
    sources: tuple[tuple[int, int], ...]
    output: Stream
    products: int = 0
