"""Plans: the engines that run a layer with a given folding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatchmethod

import numpy as np

from nnhw.accelerator import EngineConfig, Stream
from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import encode
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.matrix_product import MatrixProductConfig, factor_type
from nnhw.engines.normalize import NormConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.softmax import PowersConfig, SharesConfig
from nnhw.engines.window import WindowConfig
from nnhw.families import Cost, Family
from nnhw.ir import IntType
from nnhw.mapping.cost import cost
from nnhw.mapping.cost.inner_product import pays
from nnhw.mapping.datapaths import Datapaths
from nnhw.mapping.encodings import Encodings
from nnhw.mapping.folding import Folding
from nnhw.mapping.layers import (
    BroadcastLayer,
    ChannelLayer,
    ConcatLayer,
    Layer,
    MatrixLayer,
    MatrixProductLayer,
    NormLayer,
    OwnLayer,
    Padding,
    PadLayer,
    PairLayer,
    Shape,
    SliceLayer,
    SoftmaxLayer,
    SumLayer,
    TransposeLayer,
    UpsampleLayer,
    WindowLayer,
)
from nnhw.mapping.line_buffers import buffered_window
from nnhw.mapping.matrix_products import held_window, lane_choices, rows_window
from nnhw.mapping.own import planned

MOST_TAIL = 32
"""Most words of a memory of weights that are moved to logic so that the others fill whole block RAMs."""
Engine = tuple[str, EngineConfig, Stream]
"""Kind, parameters, and what leaves."""


@dataclass(frozen=True)
class LayerPlan:
    """The engines of one layer, in stream order.

    Parameters
    ----------
    i_lanes: elements of a beat that each input must have.
    engines: kind, parameters and output of each.
    fronts: of several inputs, the engine that each one passes first; none: there is none in front.
    """

    i_lanes: tuple[int, ...]
    engines: tuple[Engine, ...]
    fronts: tuple[Engine, ...] = ()

    @property
    def configs(self) -> list[EngineConfig]:
        """The parameters of all engines."""
        return [config for _, config, _ in (*self.fronts, *self.engines)]

    @property
    def cycles(self) -> int:
        """Cycles of one frame on the slowest of the engines, none of which waits for another."""
        return max(config.cycles for config in self.configs)


class Planner:
    """Makes plans of the layers of one network.

    Parameters
    ----------
    layers: all layers, each behind those that it reads.
    source: name and type of the network's input.
    family: device family.
    states: names and types of the states of loops.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        source: tuple[str, IntType],
        family: Family,
        states: Sequence[tuple[str, IntType]] = (),
    ) -> None:
        self.family = family
        self.encodings = Encodings(layers, source, states)
        self.datapaths = Datapaths(self.encodings, family)
        # The array of the folding that was planned last, and its cost: the next one often differs in its buffer only.
        self._last_array: tuple[tuple[str, Folding], MatmulConfig] | None = None
        self._pairs: dict[tuple[IntType | int, ...], bool] = {}
        self._last_cost: tuple[EngineConfig, Cost] | None = None
        self._windows: dict[tuple[str | int, ...], WindowConfig] = {}
        # By identity: these are kept above, and equal ones are the same.
        self._window_costs: dict[int, Cost] = {}

    def cost(self, plan: LayerPlan) -> Cost:
        """Return the resources of the engines of a plan."""
        return sum(map(self._cost, plan.configs), Cost())

    def _cost(self, config: EngineConfig) -> Cost:
        if (known := self._window_costs.get(id(config))) is not None:
            return known
        # Arrays are costly to price: their weights are looked at bit by bit.
        if self._last_array is None or config is not self._last_array[1]:
            return cost(config, self.family)
        if self._last_cost is None or self._last_cost[0] is not config:
            self._last_cost = config, cost(config, self.family)
        return self._last_cost[1]

    @singledispatchmethod
    def plan(self, layer: Layer, folding: Folding) -> LayerPlan:
        """Return the engines of a folded layer.

        Raises: MappingError for a folding that an engine does not accept, or values that it cannot take.
        """
        raise NotImplementedError(type(layer))

    @plan.register
    def _(self, layer: MatrixLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        outputs = len(layer.weights)
        lanes = folding.channel_lanes
        # The window is read once for each fold of the outputs of its group.
        repeats = outputs // layer.groups // folding.pe
        window = self._window(layer, folding, repeats)
        matmul, sums = self._matmul(layer, folding, window), outputs * layer.vectors
        output = self.encodings.stream(layer, folding.drain, sums)
        engines = [*self._padding(layer, lanes), self._windowed(window, layer), ("matmul", matmul, output)]
        if layer.pool != (1, 1):
            taps, windows = layer.pool[0] * layer.pool[1], layer.blocks[0] * layer.blocks[1]
            # Positions of a pooling window come one after the other (`WindowConfig.block`), so no line buffer is
            # needed.
            pool = PoolConfig(taps, outputs // folding.drain, folding.drain, layer.element, windows)
            engines.append(("pool", pool, replace(output, elements=sums // taps)))
        return LayerPlan((lanes,), tuple(engines))

    @plan.register
    def _(self, layer: ChannelLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        lanes, channels = folding.channel_lanes, layer.source[0]
        engines = self._padding(layer, lanes)
        # Without a window, pixels come one after the other.
        rows = 1 if layer.is_global else folding.row_lanes
        if not layer.is_global:
            engines.append(self._windowed(self._window(layer, folding, 1), layer))
        positions = layer.positions[0] * layer.positions[1]
        config = ChannelwiseConfig(
            op=layer.op,
            taps=layer.kernel[0] * layer.kernel[1],
            chunks=channels // lanes,
            lanes=lanes,
            row_lanes=rows,
            windows=positions,
            weights=None if layer.weights is None else tap_order(layer.weights, rows),
            activation=layer.activation,
            weight=layer.weight,
            requantizer=self.datapaths.chosen(layer, lanes, folding),
            logic_weights=folding.logic_pe > 0,
            dsp=folding.dsp_pe > 0,
        )
        engines.append(("channelwise", config, self.encodings.stream(layer, lanes, channels * positions)))
        return LayerPlan((lanes,), tuple(engines))

    @plan.register
    def _(self, layer: SumLayer, folding: Folding) -> LayerPlan:
        lanes, channels = folding.channel_lanes, layer.extent[0]
        elements = int(np.prod(layer.extent))
        config = SumConfig(
            inputs=self.encodings.elements(layer),
            factors=self.encodings.factors(layer),
            lanes=lanes,
            chunks=channels // lanes,
            pixels=elements // channels,
            requantizer=self.datapaths.chosen(layer, lanes, folding),
        )
        return LayerPlan(
            (lanes,) * len(layer.inputs), (("sum", config, self.encodings.stream(layer, lanes, elements)),)
        )

    @plan.register
    def _(self, layer: PairLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        lanes, elements = folding.channel_lanes, int(np.prod(layer.extent))
        left, right = layer.kinds
        config = PairConfig(
            op=layer.op,
            left=left,
            right=right,
            lanes=lanes,
            chunks=layer.extent[0] // lanes,
            pixels=elements // layer.extent[0],
            requantizer=self.datapaths.chosen(layer, lanes, folding),
            dsp=folding.dsp_pe > 0,
        )
        return LayerPlan((lanes, lanes), ((layer.op, config, self.encodings.stream(layer, lanes, elements)),))

    @plan.register
    def _(self, layer: MatrixProductLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        lanes, cells, spread = next(choice for choice in lane_choices(layer) if choice[0] == folding.channel_lanes)
        rows, columns, inner, heads = layer.sizes
        left, right = layer.kinds
        config = MatrixProductConfig(
            left=factor_type(left),
            right=factor_type(right),
            cells=cells,
            simd=lanes // cells,
            spread=spread,
            steps=inner * cells // lanes,
            folds=rows * columns * heads // cells,
            drain=folding.drain,
            period=layer.period,
            requantizer=self.datapaths.chosen(layer, folding.drain, folding),
            dsp=folding.dsp_pe > 0,
        )

        def make_rows(address_bits: int) -> WindowConfig:
            # Cells that share an element of this stream read it once.
            return rows_window(layer, config.lanes[0], columns // spread, left.bits, address_bits)

        def make_held(address_bits: int) -> WindowConfig:
            return held_window(layer, config.lanes[1], right.bits, address_bits)

        fronts = []
        for make, kind, width in zip((make_rows, make_held), layer.kinds, config.lanes, strict=True):
            window = buffered_window(make, width * kind.bits, folding, self.family, layer.where)
            fronts.append(("window", window, Stream(width, config.i_beats * width, kind)))
        output = self.encodings.stream(layer, folding.drain, int(np.prod(layer.shape)))
        return LayerPlan(config.lanes, (("matrix_product", config, output),), tuple(fronts))

    @plan.register
    def _(self, layer: BroadcastLayer, folding: Folding) -> LayerPlan:
        config = BroadcastConfig(layer.values, layer.element, folding.channel_lanes)
        output = self.encodings.stream(layer, folding.channel_lanes, len(layer.values))
        return LayerPlan((), (("broadcast", config, output),))

    @plan.register
    def _(self, layer: NormLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        lanes = folding.channel_lanes
        config = NormConfig(
            source=layer.kind,
            lanes=lanes,
            chunks=layer.length // lanes,
            rows=layer.rows,
            op=layer.op,
            requantizer=self.datapaths.chosen(layer, lanes, folding),
            dsp=folding.dsp_pe > 0,
        )
        return LayerPlan((lanes,), (("norm", config, self.encodings.stream(layer, lanes, layer.rows * layer.length)),))

    @plan.register
    def _(self, layer: SoftmaxLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        lanes, elements = folding.channel_lanes, layer.rows * layer.length
        powers = PowersConfig(layer.kind, lanes, layer.length // lanes, layer.rows, layer.table, layer.keep)
        shares = SharesConfig(
            source=powers.element,
            lanes=lanes,
            chunks=powers.chunks,
            rows=layer.rows,
            op=layer.op,
            requantizer=self.datapaths.chosen(layer, lanes, folding),
            dsp=folding.dsp_pe > 0,
        )
        between = Stream(lanes, elements, powers.element)
        output = self.encodings.stream(layer, lanes, elements)
        return LayerPlan((lanes,), (("powers", powers, between), ("shares", shares, output)))

    @plan.register
    def _(self, layer: ConcatLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_joined(layer)
        lanes = folding.channel_lanes
        chunks = tuple(part // lanes for part in layer.parts)
        output = self.encodings.stream(layer, lanes, int(np.prod(layer.shape)))
        config = ConcatConfig(
            lanes=lanes, bits=output.element.bits, chunks=chunks, turns=layer.turns, constants=layer.constants
        )
        return LayerPlan((lanes,) * len(layer.inputs), (("concat", config, output),))

    @plan.register
    def _(self, layer: SliceLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_alike(layer)
        lanes = folding.channel_lanes
        output = self.encodings.stream(layer, lanes, int(np.prod(layer.shape)))
        period, first, count = (elements // lanes for elements in (layer.period, layer.first, layer.count))
        config = SliceConfig(lanes, output.element.bits, layer.turns, period, first, count)
        return LayerPlan((lanes,), (("slice", config, output),))

    @plan.register
    def _(self, layer: TransposeLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_alike(layer)
        lanes, (outer, rows, columns, run) = folding.channel_lanes, layer.loops
        output = self.encodings.stream(layer, lanes, int(np.prod(layer.shape)))

        def make(address_bits: int) -> WindowConfig:
            # Each outer iteration is a row of pixels, a window covers it, and each column is a group of channels.
            return WindowConfig(
                height=outer,
                width=rows,
                channels=columns * run,
                kernel=(1, rows),
                stride=(1, 1),
                block=(1, 1),
                channel_lanes=lanes,
                row_lanes=1,
                repeats=1,
                bits=output.element.bits,
                address_bits=address_bits,
                groups=columns,
            )

        window = buffered_window(make, lanes * output.element.bits, folding, self.family, layer.where)
        return LayerPlan((lanes,), (("window", window, output),))

    @plan.register
    def _(self, layer: UpsampleLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        channels, height, width = layer.source
        lanes = folding.channel_lanes

        def make(address_bits: int) -> WindowConfig:
            return WindowConfig(
                height=height,
                width=width,
                channels=channels,
                kernel=(1, 1),
                stride=(1, 1),
                block=(1, 1),
                channel_lanes=lanes,
                row_lanes=1,
                repeats=1,
                bits=layer.element.bits,
                address_bits=address_bits,
                upsample=layer.factor,
            )

        window = buffered_window(make, lanes * layer.element.bits, folding, self.family, layer.where)
        return LayerPlan(
            (lanes,), (("upsample", window, self.encodings.stream(layer, lanes, int(np.prod(layer.shape)))),)
        )

    @plan.register
    def _(self, layer: PadLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        lanes = folding.channel_lanes
        config = pad_config(layer.source, layer.padding, lanes, layer.element)
        return LayerPlan((lanes,), (("pad", config, self.encodings.stream(layer, lanes, int(np.prod(layer.shape)))),))

    @plan.register
    def _(self, layer: OwnLayer, folding: Folding) -> LayerPlan:
        self.encodings.check_plain(layer)
        lanes = folding.channel_lanes
        engine = planned(layer, lanes)
        output = self.encodings.stream(layer, lanes, int(np.prod(layer.shape)))
        return LayerPlan((engine.i_lanes,) * len(layer.inputs), ((layer.op.name, engine, output),))

    def _window(self, layer: WindowLayer, folding: Folding, repeats: int) -> WindowConfig:
        """Return the sliding window of a layer; foldings that differ in their array alone share it."""
        lanes, memory = (folding.channel_lanes, folding.row_lanes), (folding.roomy, folding.large, folding.lut_buffer)
        key = layer.name, repeats, *lanes, *memory
        if key not in self._windows:
            self._windows[key] = window = self._made_window(layer, folding, repeats)
            self._window_costs[id(window)] = cost(window, self.family)
        return self._windows[key]

    def _made_window(self, layer: WindowLayer, folding: Folding, repeats: int) -> WindowConfig:
        channels, height, width = layer.padded
        groups, block = (layer.groups, layer.pool) if isinstance(layer, MatrixLayer) else (1, (1, 1))

        def make(address_bits: int) -> WindowConfig:
            return WindowConfig(
                height=height,
                width=width,
                channels=channels,
                kernel=layer.kernel,
                stride=layer.stride,
                dilation=layer.dilation,
                groups=groups,
                block=block,
                channel_lanes=folding.channel_lanes,
                row_lanes=folding.row_lanes,
                repeats=repeats,
                bits=layer.activation.bits,
                address_bits=address_bits,
            )

        return buffered_window(make, folding.channel_lanes * layer.activation.bits, folding, self.family, layer.where)

    def tail_words(self, layer: MatrixLayer, folding: Folding) -> int:
        """Return how many words of each memory of weights are in logic: the fewest with which block RAMs are fewest."""
        if not folding.logic_tails:
            return 0
        depth, weight = folding.depth(layer), layer.weight
        bits, family = folding.hop * folding.simd * weight.bits, self.family
        # Without these words, the others fill block RAMs of some shape exactly.
        tails = [
            0,
            *(depth % words for words, _ in family.block_ram.modes if words < depth and depth % words <= MOST_TAIL),
        ]
        return min(tails, key=lambda tail: (family.block_rams(depth - tail, bits, rom=True), tail))

    def _registered(self, folding: Folding, depth: int) -> bool:
        """Return whether weights from block RAM go through its output register; see `Family.block_ram.slow`."""
        return self.family.block_ram.slow and folding.logic_pe < folding.pe and depth > 1

    def _matmul(self, layer: MatrixLayer, folding: Folding, window: WindowConfig) -> MatmulConfig:
        """Return the array of a folded layer; it does not depend on the memory of its line buffer."""
        key = layer.name, replace(folding, roomy=False, large=False, lut_buffer=False)
        if self._last_array is not None and self._last_array[0] == key:
            return self._last_array[1]
        outputs = len(layer.weights)
        # The window gives taps and channels in an order of its own, in which the weights have to follow one another.
        weights = np.ascontiguousarray(layer.weights.reshape(outputs, -1)[:, window.weight_order()])
        matmul = MatmulConfig(
            pe=folding.pe,
            simd=folding.simd,
            hop=folding.hop,
            drain=folding.drain,
            weights=weights,
            activation=layer.activation,
            weight=layer.weight,
            thresholds=self.datapaths.chosen(layer, folding.drain, folding),
            vectors=layer.vectors,
            logic_pe=folding.logic_pe,
            logic_thresholds=folding.logic_thresholds,
            dsp_pe=folding.dsp_pe,
            tail_words=self.tail_words(layer, folding),
            registered=self._registered(folding, folding.depth(layer)),
            paired=self.family.dense_dsp,
        )
        if self._takes_pairs(matmul):
            matmul = replace(matmul, winograd=True)
        self._last_array = key, matmul
        return matmul

    def _takes_pairs(self, matmul: MatmulConfig) -> bool:
        """Return whether one multiplication serves two lanes of an array; see `pays`."""
        formats = matmul.activation, matmul.weight, matmul.raw.bits
        key = (*formats, matmul.pe, matmul.simd, matmul.drain, matmul.folds, matmul.steps == 1)
        if key not in self._pairs:
            self._pairs[key] = pays(matmul, self.family)
        return self._pairs[key]

    def _padding(self, layer: WindowLayer, lanes: int) -> list[Engine]:
        if layer.padding is None:
            return []
        config = pad_config(layer.source, layer.padding, lanes, layer.activation)
        return [("pad", config, Stream(lanes, config.o_beats * lanes, layer.activation))]

    def _windowed(self, window: WindowConfig, layer: WindowLayer) -> Engine:
        return "window", window, Stream(window.simd, window.o_beats * window.simd, layer.activation)


def pad_config(source: Shape, padding: Padding, lanes: int, element: IntType) -> PadConfig:
    """Return the engine that puts a border around a feature map."""
    channels, height, width = source
    return PadConfig(
        height=height,
        width=width,
        chunks=channels // lanes,
        lanes=lanes,
        bits=element.bits,
        before=padding.before,
        after=padding.after,
        pattern=int(encode(np.array(padding.value), element)),
        bipolar=padding.bipolar,
    )


def tap_order(weights: np.ndarray, row_lanes: int) -> np.ndarray:
    """Return the weights [channels, taps] of a depthwise convolution in the order of a window's beats."""
    channels, rows, columns = weights.shape
    shaped = weights.reshape(channels, rows // row_lanes, row_lanes, columns)
    return np.ascontiguousarray(shaped.transpose(0, 1, 3, 2)).reshape(channels, -1)
