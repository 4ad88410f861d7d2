"""From layers and their foldings to the stages of an accelerator: windows, arrays, pools, and converters between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from nnhw.accelerator import Accelerator, EngineConfig, InputFormat, OutputFormat, Stage
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.timing import Schedule, run_pipeline
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.ir import IntType
from nnhw.mapping.cost import EBR_MODES, block_rams
from nnhw.mapping.folding import Folding, matmul_config, window_config
from nnhw.mapping.layers import Layer

LINK_BITS = 8
FRAMES = 6
"""Frames that are stepped to find the interval; the steady state is reached after the first two or three."""


@dataclass(frozen=True)
class _Stream:
    """What is on the stream between two stages: lanes of elements, and elements of a frame."""

    lanes: int
    bits: int
    elements: int


class _Assembler:
    """Collects stages from input to output."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []

    def add(self, layer: str, kind: str, config: EngineConfig, node: str = "") -> None:
        taken = sum(stage.name.startswith(f"{layer}.{kind}") for stage in self.stages)
        self.stages.append(Stage(f"{layer}.{kind}{taken or ''}", layer, node, config))

    def convert(self, layer: str, stream: _Stream, lanes: int) -> _Stream:
        """Bring a stream to `lanes`, over their greatest common divisor where neither divides the other."""
        for target in (gcd(stream.lanes, lanes), lanes):
            if target != stream.lanes:
                beats = stream.elements // stream.lanes
                self.add(layer, "convert", ConvertConfig(stream.lanes, target, stream.bits, beats))
                stream = replace(stream, lanes=target)
        return stream

    def layer(self, layer: Layer, folding: Folding, stream: _Stream) -> _Stream:
        """Add the stages of one layer; return the stream behind it."""
        stream = self.convert(layer.name, stream, folding.channel_lanes)
        window = fit_window(layer, folding)
        matmul = matmul_config(layer, folding, window.weight_order())
        pooled = layer.pool != (1, 1)
        self.add(layer.name, "window", window)
        self.add(layer.name, "matmul", matmul, "" if pooled else layer.node)
        bits = matmul.raw_bits[0] if layer.code is None else layer.code.bits
        if pooled and layer.code is not None:
            windows = layer.blocks[0] * layer.blocks[1]
            chunks = matmul.outputs // folding.drain
            pool = PoolConfig(layer.pool[0] * layer.pool[1], chunks, folding.drain, layer.code, windows)
            self.add(layer.name, "pool", pool, layer.node)
        return _Stream(folding.drain, bits, matmul.outputs * layer.blocks[0] * layer.blocks[1])


def fit_window(layer: Layer, folding: Folding) -> WindowConfig:
    """Return the window with the deepest line buffer that costs no more block RAM than the shallowest.

    It must hold the rows of one row of blocks, and one more so that the next row can come in.
    """
    bits = folding.channel_lanes * layer.activation.bits
    fitting: list[WindowConfig] = []
    for address_bits in range(1, 17):
        try:
            window = window_config(layer, folding, address_bits)
        except MappingError:
            continue
        if window.rows <= window.block_rows:
            continue
        if fitting and block_rams(1 << address_bits, bits) > block_rams(1 << fitting[0].address_bits, bits):
            break
        fitting.append(window)
        if 1 << address_bits >= EBR_MODES[-1][0]:
            break
    if not fitting:
        raise MappingError(
            f"layer {layer.where} needs a line buffer of more than 65536 words; use a smaller input or more lanes"
        )
    return fitting[-1]


def input_format(layer: Layer, lanes: int, shape: tuple[int, ...]) -> InputFormat:
    """Return how codes travel in bytes: as many in a byte as fit, divide a frame, and go well with `lanes`."""
    bits = layer.activation.bits
    if bits > LINK_BITS:
        raise MappingError(
            f"layer {layer.where} has inputs of {bits} bits; the link carries at most {LINK_BITS} bits an element; "
            "quantize the input to 8 bits or fewer"
        )
    elements = int(np.prod(shape))
    choices = [
        count
        for count in range(1, LINK_BITS // bits + 1)
        if elements % count == 0 and (lanes % count == 0 or count % lanes == 0)
    ]
    return InputFormat(shape, layer.activation, max(choices))


def output_format(layer: Layer, matmul: MatmulConfig) -> OutputFormat:
    """Return how results travel in bytes, and what they mean."""
    outputs = matmul.outputs
    height, width = layer.blocks
    shape = (outputs,) if layer.shape[1:] == layer.weights.shape[2:] else (outputs, height, width)
    if layer.code is None:
        low, high = matmul.arithmetic.raw_range(matmul.weights)
        element = IntType(low, high)
        multiplier, offsets = matmul.arithmetic.multiplier, matmul.arithmetic.offsets(matmul.weights)
    else:
        element, multiplier, offsets = layer.code, 1, np.zeros(outputs, dtype=np.int64)
    return OutputFormat(shape, element, -(-element.bits // 8), multiplier, offsets)


def assemble(
    layers: Sequence[Layer],
    foldings: Sequence[Folding],
    name: str,
    model_hash: str,
    board: str,
    input_shape: tuple[int, ...],
) -> Accelerator:
    """Return the accelerator of folded layers, its schedule included.

    Raises
    ------
    MappingError: a folding that an engine does not accept.
    """
    assembler = _Assembler()
    first = layers[0]
    i_format = input_format(first, foldings[0].channel_lanes, input_shape)
    stream = _Stream(i_format.per_byte, first.activation.bits, i_format.elements)
    for layer, folding in zip(layers, foldings, strict=True):
        stream = assembler.layer(layer, folding, stream)
    last = next(stage.config for stage in reversed(assembler.stages) if isinstance(stage.config, MatmulConfig))
    o_format = output_format(layers[-1], last)
    stream = assembler.convert("output", stream, 1)
    if o_format.element_bytes > 1:
        assembler.add("output", "bytes", ConvertConfig(o_format.element_bytes, 1, 8, o_format.elements))
    stages = tuple(assembler.stages)
    schedule = predict(stages, i_format.frame_bytes, o_format.frame_bytes)
    return Accelerator(name, model_hash, board, stages, i_format, o_format, schedule)


def predict(stages: Sequence[Stage], i_bytes: int, o_bytes: int, frames: int = FRAMES) -> Schedule:
    """Return latency and interval of a chain of stages, by stepping their cycle models."""
    bound = sum(cycle_bound(stage.config) for stage in stages) + i_bytes + o_bytes
    models = [stage.config.model() for stage in stages]
    start, ends = run_pipeline(models, i_bytes, o_bytes, frames, (frames + 1) * bound + 1000)
    return Schedule(latency_cycles=ends[0] - start + 1, interval_cycles=ends[-1] - ends[-2])


def cycle_bound(config: EngineConfig) -> int:
    """Return cycles that a stage surely needs no more than, for one frame alone."""
    if isinstance(config, ConvertConfig):
        return config.beats + config.o_beats
    bound = config.i_beats + config.o_beats
    return bound + config.latency if isinstance(config, MatmulConfig) else bound
