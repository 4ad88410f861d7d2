"""Integer graphs to map: chains of layers with seeded weights and thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.ir import BIPOLAR, Graph, GraphBuilder, IntType, Location, TensorType
from nnhw.ir.ops import Conv2d, Flatten, Linear, MaxPool2d, Threshold


@dataclass(frozen=True)
class LayerSpec:
    """One layer to add.

    Parameters
    ----------
    outputs: channels.
    kernel: of a convolution; None: linear.
    steps: thresholds of each channel; 0: the layer ends in sums.
    """

    outputs: int
    kernel: tuple[int, int] | None = None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    pool: int = 1
    weight: IntType = BIPOLAR
    steps: int = 1


def codes_of(dtype: IntType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return random codes of a type, int64."""
    if dtype.bipolar:
        return rng.choice(np.array([-1, 1]), size=shape)
    return rng.integers(dtype.low, dtype.high, endpoint=True, size=shape)


def make_body(shape: tuple[int, ...], element: IntType, specs: list[LayerSpec], seed: int = 0) -> Graph:
    """Return the chain of layers, with about half of all channels falling."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder("chain")
    value = builder.input("x", TensorType(shape, element))
    for number, spec in enumerate(specs):
        value = _add_layer(builder, value, spec, f"layer{number}", rng)
    return builder.build([value])


def _add_layer(builder: GraphBuilder, value: str, spec: LayerSpec, name: str, rng: np.random.Generator) -> str:
    location = Location(name, "net.py", 10)
    shape = builder.type_of(value).shape
    if spec.kernel is None and len(shape) == 3:
        value = builder.add(f"{name}.flatten", Flatten(), [value], location)
        shape = builder.type_of(value).shape
    inputs = (shape[0],) if spec.kernel is None else (shape[0], *spec.kernel)
    weights = codes_of(spec.weight, (spec.outputs, *inputs), rng)
    constant = builder.constant(f"{name}.weight", weights, TensorType(weights.shape, spec.weight))
    op = Linear() if spec.kernel is None else Conv2d(stride=spec.stride, padding=spec.padding)
    value = builder.add(name, op, [value, constant], location)
    if spec.steps:
        sums = builder.type_of(value).int_dtype
        steps = np.sort(rng.integers(sums.low, sums.high + 1, endpoint=True, size=(spec.outputs, spec.steps)), axis=1)
        falls = rng.random(spec.outputs) < 0.5
        thresholds = builder.constant(
            f"{name}.steps", steps, TensorType(steps.shape, IntType(int(steps.min()), int(steps.max())))
        )
        descending = builder.constant(f"{name}.falls", falls, TensorType(falls.shape, IntType(0, 1)))
        op = Threshold(-1, bipolar=True) if spec.steps == 1 else Threshold(0)
        value = builder.add(f"{name}.code", op, [value, thresholds, descending], location)
    if spec.pool > 1:
        value = builder.add(
            f"{name}.pool", MaxPool2d((spec.pool, spec.pool), (spec.pool, spec.pool)), [value], location
        )
    return value
