"""From a layer and its folding to the engines that run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatchmethod

import numpy as np

from nnhw.accelerator import EngineConfig, Stream
from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import encode
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.requantize import DoubleScaler, Requantizer
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.ir import BIPOLAR, IntType
from nnhw.mapping.cost import cost
from nnhw.mapping.family import Family
from nnhw.mapping.folding import Folding
from nnhw.mapping.layers import (
    ChannelLayer,
    ConcatLayer,
    Layer,
    MatrixLayer,
    Padding,
    PadLayer,
    Shape,
    StepFunction,
    SumLayer,
    UpsampleLayer,
    WindowLayer,
)
from nnhw.mapping.requantize import choose, implementations
from nnhw.mapping.resources import Cost

MOST_BUFFER_LOG2 = 17
MOST_LUT_RAM = 128
"""Words of a line buffer in LUTs: beyond, what chooses among them takes more than the memory."""
MOST_TAIL = 32
"""Words of a memory that are worth being constants in logic so that the others fill whole block RAMs."""
Engine = tuple[str, EngineConfig, Stream]
"""Kind, parameters, and what leaves."""


@dataclass(frozen=True)
class Encoding:
    """How the values of a node stream: value = multiplier * element + offset of the channel; see `Stream`."""

    element: IntType
    multiplier: int = 1
    offsets: np.ndarray | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the elements are the values."""
        return self.multiplier == 1 and (self.offsets is None or not self.offsets.any())


@dataclass(frozen=True)
class Plan:
    """The engines of one layer, in stream order.

    Parameters
    ----------
    i_lanes: elements of a beat that each input must have.
    engines: kind, parameters and output of each.
    """

    i_lanes: tuple[int, ...]
    engines: tuple[Engine, ...]

    @property
    def cycles(self) -> int:
        """Cycles of one frame on the slowest of the engines, none of which waits for another."""
        return max(cycle_share(config) for _, config, _ in self.engines)

    @property
    def output(self) -> Stream:
        """What leaves the last engine."""
        return self.engines[-1][2]

    def cost(self, family: Family) -> Cost:
        """Return the resources of the engines."""
        return sum((cost(config, family) for _, config, _ in self.engines), Cost())


class Planner:
    """Makes plans of the layers of one network.

    Parameters
    ----------
    layers: all of them, each behind those that it reads.
    source: name and type of the value that comes into the first.
    family: of the device.
    """

    def __init__(self, layers: Sequence[Layer], source: tuple[str, IntType], family: Family) -> None:
        self.family = family
        self.encodings = {source[0]: Encoding(source[1])}
        self._choices: dict[str, list[Requantizer]] = {}
        self._chosen: dict[tuple[str, int, tuple[bool, bool, bool]], Requantizer] = {}
        for layer in layers:
            self.encodings[layer.node] = self._encoding_of(layer)

    @singledispatchmethod
    def plan(self, layer: Layer, folding: Folding) -> Plan:
        """Return the engines of a folded layer.

        Raises: MappingError for a folding that an engine does not accept, or values that it cannot take.
        """
        raise NotImplementedError(type(layer))

    @plan.register
    def _(self, layer: MatrixLayer, folding: Folding) -> Plan:
        outputs = len(layer.weights)
        lanes = folding.channel_lanes
        repeats = outputs // layer.groups // folding.pe
        window = self._window(layer, folding, repeats)
        weights = np.ascontiguousarray(layer.weights.reshape(outputs, -1)[:, window.weight_order()])
        depth = repeats * layer.groups * window.steps
        matmul = MatmulConfig(
            pe=folding.pe,
            simd=folding.simd,
            hop=folding.hop,
            drain=folding.drain,
            weights=weights,
            activation=layer.activation,
            weight=layer.weight,
            thresholds=self._requantizer(layer, folding.drain, folding),
            vectors=layer.vectors,
            logic_pe=folding.logic_pe,
            logic_thresholds=folding.logic_thresholds,
            dsp_pe=folding.dsp_pe,
            tail_words=self._tail_words(folding, depth, layer.weight),
            registered=self._registered(folding, depth),
        )
        sums = outputs * layer.vectors
        output = self._stream(layer, folding.drain, sums)
        engines = [*self._padding(layer, lanes), self._windowed(window, layer), ("matmul", matmul, output)]
        if layer.pool != (1, 1):
            taps, windows = layer.pool[0] * layer.pool[1], layer.blocks[0] * layer.blocks[1]
            pool = PoolConfig(taps, outputs // folding.drain, folding.drain, layer.element, windows)
            engines.append(("pool", pool, replace(output, elements=sums // taps)))
        return Plan((lanes,), tuple(engines))

    @plan.register
    def _(self, layer: ChannelLayer, folding: Folding) -> Plan:
        self._check_plain(layer)
        lanes, channels = folding.channel_lanes, layer.source[0]
        engines = self._padding(layer, lanes)
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
            requantizer=self._requantizer(layer, lanes, folding),
            logic_weights=folding.logic_pe > 0,
            dsp=folding.dsp_pe > 0,
        )
        engines.append(("channelwise", config, self._stream(layer, lanes, channels * positions)))
        return Plan((lanes,), tuple(engines))

    @plan.register
    def _(self, layer: SumLayer, folding: Folding) -> Plan:
        lanes, channels = folding.channel_lanes, layer.extent[0]
        elements = int(np.prod(layer.extent))
        config = SumConfig(
            inputs=self._elements(layer),
            factors=self._factors(layer),
            lanes=lanes,
            chunks=channels // lanes,
            pixels=elements // channels,
            requantizer=self._requantizer(layer, lanes, folding),
        )
        return Plan((lanes,) * len(layer.inputs), (("sum", config, self._stream(layer, lanes, elements)),))

    @plan.register
    def _(self, layer: ConcatLayer, folding: Folding) -> Plan:
        self._check_plain(layer)
        lanes = folding.channel_lanes
        chunks = tuple(part // lanes for part in layer.parts)
        pixels = layer.extent[1] * layer.extent[2]
        config = ConcatConfig(lanes=lanes, bits=layer.element.bits, chunks=chunks, pixels=pixels)
        output = self._stream(layer, lanes, pixels * layer.extent[0])
        return Plan((lanes,) * len(layer.inputs), (("concat", config, output),))

    @plan.register
    def _(self, layer: UpsampleLayer, folding: Folding) -> Plan:
        self._check_plain(layer)
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

        window = self._deepest(make, lanes * layer.element.bits, layer, folding)
        return Plan((lanes,), (("upsample", window, self._stream(layer, lanes, int(np.prod(layer.shape)))),))

    @plan.register
    def _(self, layer: PadLayer, folding: Folding) -> Plan:
        self._check_plain(layer)
        lanes = folding.channel_lanes
        config = pad_config(layer.source, layer.padding, lanes, layer.element)
        return Plan((lanes,), (("pad", config, self._stream(layer, lanes, int(np.prod(layer.shape)))),))

    def _stream(self, layer: Layer, lanes: int, elements: int) -> Stream:
        encoding = self.encodings[layer.node]
        return Stream(lanes, elements, encoding.element, encoding.multiplier, encoding.offsets)

    def _encoding_of(self, layer: Layer) -> Encoding:
        """Return how the values that leave a layer are encoded: raw results where no function follows them."""
        return Encoding(layer.element) if layer.function is not None else self._raw_of(layer)

    def _raw_of(self, layer: Layer) -> Encoding:
        """Return how the results of a layer are encoded in front of its function."""
        if isinstance(layer, SumLayer):
            offsets = self._offsets(layer)
            element = _sum_range(self._elements(layer), self._factors(layer))
            return Encoding(element, 1, offsets if offsets.any() else None)
        if isinstance(layer, MatrixLayer):
            arithmetic = LaneArithmetic(layer.activation, layer.weight)
            factors = layer.weights.reshape(len(layer.weights), -1)
        elif isinstance(layer, ChannelLayer) and layer.op != "max":
            taps = layer.kernel[0] * layer.kernel[1]
            ones = BIPOLAR if layer.activation.bipolar else IntType(1, 1)
            arithmetic = LaneArithmetic(layer.activation, layer.weight or ones)
            factors = np.ones((layer.source[0], taps), np.int64) if layer.weights is None else layer.weights
            factors = factors.reshape(len(factors), -1)
        else:
            return Encoding(layer.activation if isinstance(layer, ChannelLayer) else layer.element)
        element = IntType(*arithmetic.raw_range(factors))
        return Encoding(element, arithmetic.multiplier, arithmetic.offsets(factors))

    def _elements(self, layer: SumLayer) -> tuple[IntType, ...]:
        return tuple(self.encodings[name].element for name in layer.inputs)

    def _factors(self, layer: SumLayer) -> tuple[int, ...]:
        """Return the factors of a weighted sum for the elements that stream, instead of the values they stand for."""
        pairs = zip(layer.factors, layer.inputs, strict=True)
        return tuple(factor * self.encodings[name].multiplier for factor, name in pairs)

    def _offsets(self, layer: SumLayer) -> np.ndarray:
        """Return what the sum of the elements lacks, int64 [channels]."""
        total = np.zeros(layer.extent[0], dtype=np.int64)
        for factor, name in zip(layer.factors, layer.inputs, strict=True):
            offsets = self.encodings[name].offsets
            total += 0 if offsets is None else factor * offsets
        return total

    def _check_plain(self, layer: Layer) -> None:
        for name in layer.inputs:
            if not self.encodings[name].is_plain:
                raise MappingError(
                    f"layer {layer.where} reads the sums of '{name}', which no quantizer follows; put a quantizer "
                    "between the two"
                )

    def _requantizer(self, layer: Layer, lanes: int, folding: Folding) -> Requantizer | None:
        """Return the cheapest datapath of a layer's function, at so many values a cycle."""
        if layer.function is None:
            return None
        if layer.node not in self._choices:
            self._choices[layer.node] = self._implementations(layer, layer.function)
        options = (folding.logic_thresholds, folding.dsp_scaler, folding.lean_scaler)
        key = (layer.node, lanes, options)
        if key not in self._chosen:
            choices = self._choices[layer.node]
            in_logic, dsp, lean = options
            self._chosen[key] = choose(choices, lanes, in_logic, self.family, dsp, lean)
        return self._chosen[key]

    def _implementations(self, layer: Layer, function: StepFunction) -> list[Requantizer]:
        """Return all exact datapaths of a layer's function, in terms of raw sums."""
        raw = self._raw_of(layer)
        offsets = np.zeros((len(function.codes), 1), dtype=np.int64) if raw.offsets is None else raw.offsets[:, None]
        thresholds = -((offsets - function.thresholds) // raw.multiplier)  # rounds up
        low, high = raw.element.low, raw.element.high
        further = _double_scalers(function, raw.element) if raw.is_plain else []
        return implementations(np.clip(thresholds, low, high + 1), function.codes, function.code, raw.element, further)

    def _window(self, layer: WindowLayer, folding: Folding, repeats: int) -> WindowConfig:
        """Return the sliding window of a layer."""
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

        return self._deepest(make, folding.channel_lanes * layer.activation.bits, layer, folding)

    def _deepest(self, make: Callable[[int], WindowConfig], bits: int, layer: Layer, folding: Folding) -> WindowConfig:
        """Return a window whose line buffer is where a folding wants it; see `deepest_window`."""
        if folding.large:
            return large_window(make, bits, self.family, layer.where)
        if folding.lut_buffer:
            return lut_window(make, self.family, layer.where, folding.roomy)
        return deepest_window(make, bits, self.family, layer.where, folding.roomy)

    def _tail_words(self, folding: Folding, depth: int, weight: IntType) -> int:
        """Return how many words of each memory of weights are constants in logic: as few as save most block RAMs."""
        if not folding.logic_tails:
            return 0
        bits, family = folding.hop * folding.simd * weight.bits, self.family
        tails = [
            0,
            *(depth % words for words, _ in family.block_ram_modes if words < depth and depth % words <= MOST_TAIL),
        ]
        return min(tails, key=lambda tail: (family.block_rams(depth - tail, bits, rom=True), tail))

    def _registered(self, folding: Folding, depth: int) -> bool:
        """Return whether weights from block RAM wait in a register; see `Family.slow_block_ram`."""
        return self.family.slow_block_ram and folding.logic_pe < folding.pe and depth > 1

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


def deepest_window(
    make: Callable[[int], WindowConfig], bits: int, family: Family, where: str, roomy: bool = False
) -> WindowConfig:
    """Return the window with the deepest line buffer that costs no more block RAM than the shallowest.

    It must hold the rows of one row of blocks, and one more so that the next row can come in.

    Parameters
    ----------
    make: returns the window of so many address bits; MappingError where they are too few.
    bits: of a word.
    roomy: it must hold the rows of a frame's last row of blocks and those of the next frame's first one.
    """
    fitting: list[WindowConfig] = []
    for address_bits in range(1, MOST_BUFFER_LOG2):
        try:
            window = make(address_bits)
        except MappingError:
            continue
        if window.rows < window.block_rows + (window.rows_left if roomy else 1):
            continue
        if fitting and family.block_rams(1 << address_bits, bits) > family.block_rams(
            1 << fitting[0].address_bits, bits
        ):
            break
        fitting.append(window)
        if 1 << address_bits >= family.block_ram_modes[-1][0]:
            break
    if not fitting:
        make(MOST_BUFFER_LOG2 - 1)
        raise MappingError(
            f"layer {where} needs a line buffer of more than {1 << MOST_BUFFER_LOG2 - 1} words; use a smaller input or "
            "more lanes"
        )
    return fitting[-1]


def large_window(make: Callable[[int], WindowConfig], bits: int, family: Family, where: str) -> WindowConfig:
    """Return the window with the smallest line buffer in large RAM that takes the next frame; see `deepest_window`.

    Raises: MappingError where the family has no large RAM, or none that deep.
    """
    for address_bits in range(1, MOST_BUFFER_LOG2):
        if family.large_rams(1 << address_bits, bits) is None:
            break
        try:
            window = make(address_bits)
        except MappingError:
            continue
        if window.rows >= window.block_rows + window.rows_left:
            return replace(window, large=True)
    raise MappingError(f"layer {where} has no line buffer that fits into large RAM; leave it in block RAM")


def lut_window(make: Callable[[int], WindowConfig], family: Family, where: str, roomy: bool) -> WindowConfig:
    """Return the window with the smallest line buffer in LUTs; see `deepest_window`.

    Raises: MappingError where the family has no such memory, or the line buffer needs too many words.
    """
    for address_bits in range(1, MOST_LUT_RAM.bit_length() if family.lut_ram_words else 0):
        try:
            window = make(address_bits)
        except MappingError:
            continue
        if window.rows >= window.block_rows + (window.rows_left if roomy else 1):
            return replace(window, in_luts=True)
    raise MappingError(f"layer {where} has no line buffer that fits into LUTs; leave it in block RAM")


def cycle_share(config: EngineConfig) -> int:
    """Return the cycles of a frame in which an engine takes or gives a beat, or has no port for either."""
    if isinstance(config, FifoConfig | WindowConfig):
        return config.cycles
    return max(_most(config.i_beats), config.o_beats)


def tap_order(weights: np.ndarray, row_lanes: int) -> np.ndarray:
    """Return the weights [channels, taps] of a depthwise convolution in the order of a window's beats."""
    channels, rows, columns = weights.shape
    shaped = weights.reshape(channels, rows // row_lanes, row_lanes, columns)
    return np.ascontiguousarray(shaped.transpose(0, 1, 3, 2)).reshape(channels, -1)


def _double_scalers(function: StepFunction, raw: IntType) -> list[Requantizer]:
    """Return the datapaths with two roundings, in logic and in DSP blocks, that a function says it is."""
    scaling = function.scaling
    if scaling is None:
        return []
    try:
        scaler = DoubleScaler.of(scaling.multiplier, scaling.exponent, scaling.bias, scaling.offset, function.code, raw)
    except MappingError:  # its product is too wide
        return []
    return [scaler, replace(scaler, dsp=True)]


def _sum_range(types: Sequence[IntType], factors: Sequence[int]) -> IntType:
    ends = [sorted((factor * kind.low, factor * kind.high)) for factor, kind in zip(factors, types, strict=True)]
    return IntType(sum(end[0] for end in ends), sum(end[1] for end in ends))


def _most(beats: int | tuple[int, ...]) -> int:
    """Return the beats of the busiest input."""
    return max(beats) if isinstance(beats, tuple) else beats
