"""Integer networks with branches, padding, depthwise and grouped convolutions, pooling of all kinds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnhw.ir import BIPOLAR, BIT, Graph, GraphBuilder, IntType, Location, TensorType
from nnhw.ir.ops import (
    Concat,
    Conv2d,
    Flatten,
    Linear,
    MaxPool2d,
    Op,
    Pad,
    Rescale,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)
from tests.mapping.bodies import codes_of

U2, I4 = IntType(0, 3), IntType(-8, 7)


class Network:
    """Builds an integer graph node by node, with seeded weights."""

    def __init__(self, shape: tuple[int, ...], element: IntType, seed: int = 3) -> None:
        self.builder = GraphBuilder("net")
        self.rng = np.random.default_rng(seed)
        self.input = self.builder.input("x", TensorType(shape, element))
        self.count = 0

    def add(self, op: Op, *inputs: str) -> str:
        """Add a node; return its name."""
        self.count += 1
        name = f"{op.name}{self.count}"
        return self.builder.add(name, op, inputs, Location(name, "net.py", self.count))

    def constant(self, array: np.ndarray, dtype: IntType) -> str:
        """Add a constant; return its name."""
        return self.builder.constant("constant", array, TensorType(array.shape, dtype))

    def conv(self, x: str, outputs: int, kernel: tuple[int, int], weight: IntType = I4, **attributes: object) -> str:
        """Add a convolution; return its sums."""
        groups = attributes.get("groups", 1)
        assert isinstance(groups, int)
        channels = self.builder.type_of(x).shape[0] // groups
        weights = codes_of(weight, (outputs, channels, *kernel), self.rng)
        return self.add(Conv2d(**attributes), x, self.constant(weights, weight))  # type: ignore[arg-type]

    def linear(self, x: str, outputs: int) -> str:
        """Add a linear layer behind a flatten; return its sums."""
        flat = self.add(Flatten(), x) if len(self.builder.type_of(x).shape) > 1 else x
        weights = codes_of(I4, (outputs, self.builder.type_of(flat).shape[0]), self.rng)
        return self.add(Linear(), flat, self.constant(weights, I4))

    def code(self, x: str, code: IntType = U2) -> str:
        """Add thresholds; return the codes."""
        dtype = self.builder.type_of(x).int_dtype
        steps = np.sort(self.rng.integers(dtype.low, dtype.high + 1, (self._channels(x), self._levels(code))), axis=1)
        falls = self.rng.random(len(steps)) < 0.5
        op = Threshold(-1 if code.bipolar else code.low, code.bipolar)
        return self.add(op, x, self.constant(steps, IntType(dtype.low, dtype.high + 1)), self.constant(falls, BIT))

    def rescale(self, x: str, rounding: str) -> str:
        """Add a fixed-point requantization that uses most of the codes; return the codes."""
        dtype, channels = self.builder.type_of(x).int_dtype, self._channels(x)
        exponents = self.rng.integers(2, 4, channels) + 4 - max(-dtype.low, dtype.high).bit_length()
        rows = [self.rng.integers(1 << 30, 1 << 31, channels), exponents, self.rng.integers(-20, 21, channels)]
        names = [self.constant(row, IntType(-(1 << 31), (1 << 31) - 1)) for row in rows]
        return self.add(Rescale(-3, -35, 60, rounding), x, *names)

    def table(self, x: str, code: IntType = U2) -> str:
        """Add a function that goes up and down; return the codes."""
        dtype = self.builder.type_of(x).int_dtype
        steps = np.sort(self.rng.integers(dtype.low, dtype.high + 1, (self._channels(x), 5)), axis=1)
        codes = self.rng.integers(code.low, code.high + 1, (len(steps), 6))
        op = StepTable(code.low, code.high)
        return self.add(op, x, self.constant(steps, IntType(dtype.low, dtype.high + 1)), self.constant(codes, code))

    def body(self, x: str) -> Graph:
        """Return the graph with one output."""
        return self.builder.build([x])

    def _channels(self, x: str) -> int:
        return self.builder.type_of(x).shape[0]

    def _levels(self, code: IntType) -> int:
        return 1 if code.bipolar else code.high - code.low


def padded() -> Graph:
    net = Network((3, 7, 6), U2)
    x = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 6, (3, 3)))
    x = net.code(net.conv(net.add(Pad((0, 1), (1, 0)), x), 4, (2, 2), stride=(2, 1)), BIPOLAR)
    return net.body(net.linear(x, 3))


def padded_bipolar() -> Graph:
    net = Network((4, 6, 6), BIPOLAR)
    x = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 4, (3, 3), BIPOLAR), BIPOLAR)
    return net.body(net.conv(x, 3, (3, 3), BIPOLAR, dilation=(2, 1)))


def bordered() -> Graph:
    """Borders around what pooling reads, around what a sum reads beside a convolution, and twice around what leaves."""
    net = Network((4, 6, 5), I4)
    x = net.code(net.conv(net.input, 6, (1, 1)), I4)
    x = net.add(MaxPool2d((2, 2), (2, 2)), net.add(Pad((1, 1), (1, 1), 1), x))
    x = net.code(net.add(SumPool2d((2, 2), (2, 1)), net.add(Pad((1, 1), (0, 1)), x)))
    x = net.add(Pad((1, 0), (1, 2)), x)
    y = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), x), 6, (3, 3)))
    x = net.code(net.add(WeightedSum((1, 2, 1)), x, y, net.code(net.conv(x, 6, (1, 1)))), I4)
    return net.body(net.add(Pad((1, 0), (0, 2), 1), net.add(Pad((1, 2), (1, 0)), x)))


def bordered_bipolar() -> Graph:
    """Borders of zeros, which make numbers of bipolar codes, around what pooling reads and around what leaves."""
    net = Network((4, 5, 6), BIPOLAR)
    x = net.code(net.conv(net.input, 6, (2, 3), BIPOLAR), BIPOLAR)
    x = net.add(MaxPool2d((2, 2), (2, 2)), net.add(Pad((1, 1), (1, 1)), x))
    return net.body(net.add(Pad((2, 1), (0, 1)), net.code(net.conv(x, 5, (2, 1)), BIPOLAR)))


def depthwise() -> Graph:
    net = Network((4, 8, 7), U2)
    x = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 4, (3, 3), groups=4))
    x = net.code(net.conv(x, 6, (1, 1)), I4)
    x = net.code(net.conv(x, 6, (3, 2), groups=6, stride=(2, 2)))
    return net.body(net.linear(net.add(SumPool2d((3, 3), (3, 3)), x), 2))


def grouped() -> Graph:
    net = Network((6, 6, 6), I4)
    x = net.code(net.conv(net.input, 4, (3, 3), groups=2))
    return net.body(net.code(net.conv(x, 8, (2, 2), groups=4), BIPOLAR))


def rescaled() -> Graph:
    """Depthwise with two outputs a channel, grouped, and a join, each behind fixed-point scales of either rounding."""
    net = Network((3, 6, 5), IntType(0, 255))
    x = net.conv(net.add(Pad((1, 0), (0, 1)), net.input), 6, (2, 2), IntType(-128, 127), groups=3)
    a, b = (
        net.rescale(value, rounding) for value, rounding in ((x, "double"), (net.conv(net.input, 6, (1, 1)), "single"))
    )
    return net.body(net.rescale(net.add(WeightedSum((5, -3)), a, b), "double"))


def residual() -> Graph:
    net = Network((4, 8, 8), U2)
    a = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 4, (3, 3)))
    b = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), a), 4, (3, 3)), I4)
    c = net.code(net.add(WeightedSum((3, 5)), a, b))
    d = net.code(net.conv(c, 8, (1, 1), stride=(2, 2)), I4)
    e = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), c), 8, (3, 3), stride=(2, 2)), I4)
    f = net.table(net.add(WeightedSum((1, -2)), d, e))
    return net.body(net.linear(net.code(net.add(SumPool2d((4, 4), (1, 1)), f), I4), 3))


def residual_of_sums() -> Graph:
    net = Network((4, 5, 5), BIPOLAR)
    a, b = net.conv(net.input, 6, (2, 2), BIPOLAR), net.conv(net.input, 6, (2, 2), BIPOLAR)
    c = net.code(net.add(WeightedSum((2, -1)), a, b), U2)
    return net.body(net.add(WeightedSum((1, 3)), c, net.conv(c, 6, (1, 1), BIPOLAR)))


def residual_vectors() -> Graph:
    net = Network((8,), U2)
    a = net.code(net.linear(net.input, 8), U2)
    b = net.code(net.linear(net.code(net.linear(a, 8), U2), 8), U2)
    return net.body(net.linear(net.code(net.add(WeightedSum((1, 1)), a, b), U2), 4))


def concatenated() -> Graph:
    net = Network((4, 6, 6), U2)
    a = net.code(net.conv(net.input, 4, (1, 1)), I4)
    b = net.code(net.conv(net.input, 6, (1, 1)), U2)
    c = net.add(Concat(0), a, b, net.input)
    return net.body(net.conv(c, 3, (3, 3)))


def pooled() -> Graph:
    net = Network((4, 9, 9), I4)
    x = net.add(MaxPool2d((3, 3), (2, 2), (1, 1), (1, 1)), net.input)
    x = net.code(net.conv(x, 6, (2, 2)), BIPOLAR)
    x = net.add(MaxPool2d((2, 2), (1, 1)), x)
    return net.body(net.add(SumPool2d((2, 2), (2, 2)), x))


def upsampled() -> Graph:
    net = Network((2, 4, 3), U2)
    x = net.add(Upsample((2, 3)), net.code(net.conv(net.input, 4, (1, 1))))
    return net.body(net.conv(net.add(Pad((1, 1), (1, 1)), x), 2, (3, 3)))


def series() -> Graph:
    net = Network((3, 1, 20), I4)
    x = net.code(net.conv(net.add(Pad((0, 2), (0, 2)), net.input), 4, (1, 5), stride=(1, 2)))
    return net.body(net.linear(net.add(MaxPool2d((1, 2), (1, 2)), x), 3))


def wide_input() -> Graph:
    net = Network((60,), IntType(0, 7))
    return net.body(net.linear(net.code(net.linear(net.input, 8)), 2))


def zero_point() -> Graph:
    """An input of 256 codes that are no bytes, read with borders by sums of products and by a sum with what follows."""
    net = Network((3, 6, 5), IntType(-127, 128))
    a = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 3, (3, 3)), I4)
    b = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 3, (3, 3), groups=3), I4)
    c = net.code(net.add(WeightedSum((1, 9)), net.input, net.code(net.add(WeightedSum((1, 1)), a, b), U2)))
    return net.body(net.linear(net.add(SumPool2d((2, 5), (2, 1)), c), 4))


def zero_point_moved() -> Graph:
    """Such an input of elements that are moved, picked and joined."""
    net = Network((2, 4, 4), IntType(-100, 155))
    a = net.add(MaxPool2d((3, 3), (2, 2), (1, 1), (1, 1)), net.input)
    b = net.code(net.conv(net.code(net.add(SumPool2d((2, 2), (2, 2)), net.input)), 3, (1, 1)))
    c = net.conv(net.add(Concat(0), net.add(Upsample((2, 2)), a), net.input), 2, (2, 2))
    return net.body(
        net.add(WeightedSum((1, 2)), net.code(c), net.code(net.conv(net.add(Upsample((2, 2)), b), 2, (2, 2))))
    )


NETWORKS: dict[str, Callable[[], Graph]] = {
    make.__name__: make
    for make in (
        padded,
        padded_bipolar,
        bordered,
        bordered_bipolar,
        depthwise,
        grouped,
        rescaled,
        residual,
        residual_of_sums,
        concatenated,
        pooled,
        upsampled,
        series,
        wide_input,
        zero_point,
        zero_point_moved,
    )
}
