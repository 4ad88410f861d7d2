"""Random graphs and small helpers for tests of the IR."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from nnhw.ir import BIPOLAR, BIT, FLOAT, Graph, GraphBuilder, IntType, Location, TensorType
from nnhw.ir.ops import (
    Add,
    BatchNorm,
    Clamp,
    Conv2d,
    Dequantize,
    Flatten,
    Linear,
    LogSoftmax,
    MaxPool2d,
    Multiply,
    Quantize,
    Relu,
    Threshold,
)

NAMES = st.text('abXY0129_.-+ ()"\\\\:@éλ', min_size=1, max_size=6) | st.sampled_from(
    ["nan", "-inf", "true", "1e5", "NAN", "1_0"]
)
LOCATIONS = st.builds(Location, NAMES, NAMES, st.integers(0, 10**6))


def floats(builder: GraphBuilder, name: str, values: object) -> str:
    """Add a float64 constant."""
    array = np.asarray(values, dtype=np.float64)
    return builder.constant(name, array, TensorType(array.shape, FLOAT))


def integers(builder: GraphBuilder, name: str, values: object, dtype: IntType | None = None) -> str:
    """Add an integer constant; its type is the least one without `dtype`."""
    array = np.asarray(values, dtype=np.int64)
    return builder.constant(name, array, TensorType(array.shape, dtype or IntType(int(array.min()), int(array.max()))))


def booleans(builder: GraphBuilder, name: str, values: object) -> str:
    """Add a constant of booleans."""
    array = np.asarray(values, dtype=np.bool_)
    return builder.constant(name, array, TensorType(array.shape, BIT))


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Draw a small network: quantizer, layers with thresholds or float chains, float tail."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    builder = GraphBuilder(draw(NAMES))
    shape = (draw(st.integers(1, 3)), draw(st.integers(3, 6)), draw(st.integers(3, 6)))
    value = builder.input(draw(NAMES), TensorType(shape, FLOAT), draw(LOCATIONS))
    value = _quantized(draw, builder, rng, value)
    for _ in range(draw(st.integers(0, 2))):
        value = _convolution(draw, builder, rng, value)
        value = _codes(draw, builder, rng, value)
        if min(builder.type_of(value).shape[1:]) >= 2 and draw(st.booleans()):
            value = builder.add(draw(NAMES), MaxPool2d((2, 2), (draw(st.integers(1, 3)), 2)), [value])
    value = builder.add(draw(NAMES), Flatten(), [value], draw(LOCATIONS))
    weight = rng.integers(-3, 4, (draw(st.integers(1, 5)), builder.type_of(value).size))
    value = builder.add(draw(NAMES), Linear(), [value, integers(builder, draw(NAMES), weight)])
    value = builder.add(draw(NAMES), Dequantize(), [value, floats(builder, "scale", rng.uniform(0.1, 2))])
    value = builder.add(draw(NAMES), Add(), [value, floats(builder, "bias", rng.normal(size=weight.shape[0]))])
    return builder.build([builder.add(draw(NAMES), LogSoftmax(0), [value])])


def images_of(graph: Graph, count: int, seed: int = 0) -> np.ndarray:
    """Return random images for a graph with one float input."""
    return np.random.default_rng(seed).normal(size=(count, *graph.inputs[0].type.shape))


def _quantized(draw: st.DrawFn, builder: GraphBuilder, rng: np.random.Generator, value: str) -> str:
    bits = draw(st.integers(1, 4))
    op = Quantize(-1, 1, bipolar=True) if bits == 1 else Quantize(-(1 << bits - 1), (1 << bits - 1) - 1)
    return builder.add(draw(NAMES), op, [value, floats(builder, draw(NAMES), rng.uniform(0.1, 1))], draw(LOCATIONS))


def _convolution(draw: st.DrawFn, builder: GraphBuilder, rng: np.random.Generator, value: str) -> str:
    channels, height, width = builder.type_of(value).shape
    kernel = (draw(st.integers(1, min(3, height))), draw(st.integers(1, min(3, width))))
    bipolar = draw(st.booleans())
    shape = (draw(st.integers(1, 4)), channels, *kernel)
    weight = rng.choice([-1, 1], shape) if bipolar else rng.integers(-4, 4, shape)
    name = integers(builder, draw(NAMES), weight, BIPOLAR if bipolar else IntType(-4, 3))
    op = Conv2d((draw(st.integers(1, 2)), 1), (draw(st.integers(0, 1)), draw(st.integers(0, 1))))
    return builder.add(draw(NAMES), op, [value, name], draw(LOCATIONS))


def _codes(draw: st.DrawFn, builder: GraphBuilder, rng: np.random.Generator, value: str) -> str:
    channels = builder.type_of(value).shape[0]
    if draw(st.booleans()):
        steps = np.sort(rng.integers(-9, 10, (channels, draw(st.integers(1, 3)))), axis=1)
        names = [integers(builder, draw(NAMES), steps), booleans(builder, draw(NAMES), rng.random(channels) < 0.5)]
        return builder.add(draw(NAMES), Threshold(0), [value, *names])
    value = builder.add(draw(NAMES), Dequantize(), [value, floats(builder, draw(NAMES), rng.uniform(0.1, 2))])
    statistics = [rng.normal(size=channels), rng.normal(size=channels), rng.normal(size=channels)]
    names = [floats(builder, draw(NAMES), array) for array in (*statistics, rng.uniform(0.5, 2, channels))]
    value = builder.add(draw(NAMES), BatchNorm(1e-5), [value, *names], draw(LOCATIONS))
    factor = floats(builder, draw(NAMES), rng.choice([-1.5, 0.75], (channels, 1, 1)))
    value = builder.add(draw(NAMES), Multiply(), [value, factor])
    value = builder.add(draw(NAMES), draw(st.sampled_from([Relu(), Clamp(-1.0, float("inf"))])), [value])
    return _quantized(draw, builder, rng, value)
