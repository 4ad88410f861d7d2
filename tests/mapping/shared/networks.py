"""Integer networks whose functions are lines, as quantizers with equal steps make them, for shared engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnhw.ir import BIPOLAR, BIT, Graph, IntType
from nnhw.ir.ops import (
    Concat,
    MaxPool2d,
    Pad,
    Permute,
    Reshape,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)
from tests.mapping.networks import I4, U2, Network

U4, U8, I8, I2 = IntType(0, 15), IntType(0, 255), IntType(-128, 127), IntType(-2, 1)
Make = Callable[[int], Graph]
Function = Callable[[np.ndarray], np.ndarray]


class Lined(Network):
    """Builds graphs with equal steps."""

    def line(self, x: str, code: IntType = U4, alike: bool = False) -> str:
        """Add equal steps over most of the range of sums, rising or falling, all alike or not; return the codes."""
        dtype, channels, levels = self.builder.type_of(x).int_dtype, self._channels(x), self._levels(code)
        span, drawn = dtype.high - dtype.low, 1 if alike else channels
        size = span * self.rng.uniform(0.3, 0.8, (drawn, 1)) / levels
        start = dtype.low + span * self.rng.uniform(0.1, 0.3, (drawn, 1))
        steps = np.ceil(start + size * np.arange(levels)).astype(np.int64).repeat(channels // drawn, axis=0)
        falls = (self.rng.random(drawn) < 0.5).repeat(channels // drawn)
        op = Threshold(-1 if code.bipolar else code.low, code.bipolar)
        steps_type = IntType(min(dtype.low, int(steps.min())), max(dtype.high, int(steps.max())) + 1)
        return self.add(op, x, self.constant(steps, steps_type), self.constant(falls, BIT))

    def curve(self, x: str, code: IntType, function: Function, alike: bool = False) -> str:
        """Add an activation of a scale and a bias of each channel, some negative; return the codes."""
        dtype, channels = self.builder.type_of(x).int_dtype, self._channels(x)
        drawn, reach = 1 if alike else channels, max(-dtype.low, dtype.high)
        gain = self.rng.uniform(3, 6, (drawn, 1)) / reach * self.rng.choice([-1, 1, 1], (drawn, 1))
        sums = np.arange(dtype.low, dtype.high + 1)
        value = function(gain * sums + self.rng.normal(size=(drawn, 1)) / 2)
        wanted = np.rint(value * code.high).clip(code.low, code.high).astype(np.int64)
        rows = [(np.flatnonzero(np.diff(row)) + 1, row) for row in wanted]
        most = max(len(places) for places, _ in rows)
        steps = np.full((drawn, most), dtype.high + 1)
        codes = wanted[:, -1:].repeat(most + 1, axis=1)
        for channel, (places, row) in enumerate(rows):
            steps[channel, : len(places)] = sums[places]
            codes[channel, : len(places) + 1] = row[[0, *places]]
        steps, codes = (table.repeat(channels // drawn, axis=0) for table in (steps, codes))
        kind = IntType(dtype.low, dtype.high + 1)
        return self.add(StepTable(code.low, code.high), x, self.constant(steps, kind), self.constant(codes, code))

    def shuffle(self, x: str, factor: tuple[int, int]) -> str:
        """Put parts of the channels of each pixel at pixels of their own; return the larger map."""
        channels, height, width = self.builder.type_of(x).shape
        (down, right), kept = factor, channels // (factor[0] * factor[1])
        apart = self.add(Permute((0, 3, 1, 4, 2)), self.add(Reshape((kept, down, right, height, width)), x))
        return self.add(Reshape((kept, height * down, width * right)), apart)

    def pad(self, x: str, before: tuple[int, int] = (1, 1), after: tuple[int, int] = (1, 1), value: int = 0) -> str:
        """Add a border; return the larger map."""
        return self.add(Pad(before, after, value), x)


def plain(seed: int) -> Graph:
    """Convolutions with borders, strides, dilation and odd numbers of channels; sums leave."""
    net = Lined((3, 9, 8), U4, seed)
    x = net.line(net.conv(net.pad(net.input), 6, (3, 3)), I4)
    x = net.line(net.conv(net.pad(x, (0, 1), (1, 0)), 20, (2, 3), stride=(2, 1)))
    x = net.line(net.conv(net.pad(x), 5, (2, 2), dilation=(1, 2)))
    return net.body(net.linear(x, 7))


def depthwise(seed: int) -> Graph:
    """Depthwise and pointwise layers, global pooling by sums, two tiles of outputs."""
    net = Lined((5, 8, 7), I4, seed)
    x = net.line(net.conv(net.pad(net.input), 12, (3, 3)))
    x = net.line(net.conv(net.pad(x), 12, (3, 3), groups=12), I4)
    x = net.line(net.conv(x, 18, (1, 1)))
    x = net.line(net.conv(net.pad(x, value=1), 18, (3, 2), groups=18, stride=(2, 2)))
    x = net.line(net.add(SumPool2d((4, 4), (4, 4)), x))
    return net.body(net.linear(x, 11))


def shallow(seed: int) -> Graph:
    """Depthwise layers of fewer channels than most arrays have lanes, the first one on the input."""
    net = Lined((3, 6, 5), I4, seed)
    x = net.line(net.conv(net.pad(net.input), 3, (3, 3), groups=3))
    x = net.line(net.conv(net.pad(x), 3, (3, 3), groups=3), I4)
    x = net.line(net.conv(x, 20, (1, 1)))
    return net.body(net.linear(x, 11))


def residual(seed: int) -> Graph:
    """Branches that are added, with factors of either sign, some large."""
    net = Lined((4, 8, 8), U4, seed)
    a = net.line(net.conv(net.pad(net.input), 6, (3, 3)))
    b = net.line(net.conv(net.pad(a), 6, (3, 3)), I4)
    c = net.line(net.add(WeightedSum((3, -5)), a, b))
    d = net.line(net.conv(c, 20, (1, 1), stride=(2, 2)), I4)
    e = net.line(net.conv(net.pad(c), 20, (3, 3), stride=(2, 2)), I4)
    f = net.line(net.add(WeightedSum((1, 19)), d, e))
    return net.body(net.line(net.conv(f, 3, (1, 1)), I4))


def pooled(seed: int) -> Graph:
    """Pooling whose windows tile the map, overlap, or have a border; behind a convolution or behind nothing."""
    net = Lined((4, 13, 12), I4, seed)
    x = net.line(net.conv(net.input, 10, (2, 3)))
    x = net.add(MaxPool2d((2, 2), (2, 2)), x)
    x = net.add(MaxPool2d((3, 3), (2, 1), (1, 1), (1, 1)), x)
    x = net.line(net.conv(net.pad(x), 10, (2, 2), groups=10))
    x = net.add(MaxPool2d((1, 2), (1, 2)), x)
    return net.body(x)


def bipolar(seed: int) -> Graph:
    """Codes of -1 and +1, with and without borders of 0."""
    net = Lined((4, 6, 6), BIPOLAR, seed)
    x = net.line(net.conv(net.pad(net.input), 9, (3, 3), BIPOLAR), BIPOLAR)
    x = net.line(net.conv(x, 6, (3, 3), I2), I2)
    return net.body(net.line(net.conv(net.pad(x), 4, (2, 2), BIPOLAR), BIPOLAR))


def grouped(seed: int) -> Graph:
    """Groups of channels smaller than a word, and a border that a layer leaves to one that is not a window."""
    net = Lined((8, 5, 6), I4, seed)
    x = net.line(net.conv(net.input, 12, (2, 2), groups=4))
    x = net.line(net.conv(x, 24, (1, 1), groups=12), I4)
    y = net.pad(x)
    return net.body(net.line(net.add(WeightedSum((1, 1)), y, y)))


def bordered(seed: int) -> Graph:
    """Borders around what pooling reads, around what a sum reads beside a convolution, and twice around what leaves."""
    net = Lined((4, 6, 5), I4, seed)
    x = net.line(net.conv(net.input, 10, (1, 1)), I4)
    x = net.add(MaxPool2d((2, 2), (2, 2)), net.pad(x, value=1))
    x = net.line(net.add(SumPool2d((2, 2), (2, 1)), net.pad(x)))
    x = net.pad(x, (1, 0), (1, 2))
    x = net.line(net.add(WeightedSum((1, 2)), x, net.line(net.conv(x, 10, (1, 1)))), I4)
    return net.body(net.pad(net.pad(x, (1, 2), (1, 0)), (1, 0), (0, 2), 1))


def bordered_bipolar(seed: int) -> Graph:
    """Borders of zeros, which make numbers of bipolar codes, around what pooling reads and around what leaves."""
    net = Lined((4, 5, 6), BIPOLAR, seed)
    x = net.line(net.conv(net.input, 9, (2, 3), BIPOLAR), BIPOLAR)
    x = net.add(MaxPool2d((2, 2), (2, 2)), net.pad(x))
    return net.body(net.pad(net.line(net.conv(x, 5, (2, 1), I2), BIPOLAR), (2, 1), (0, 1)))


def wide(seed: int) -> Graph:
    """Codes of 8 bits, each layer with a requantizer that rounds as fixed-point code does."""
    net = Lined((3, 6, 5), U8, seed)
    x = net.rescale(net.conv(net.pad(net.input, (1, 0), (0, 1)), 17, (2, 2), I8), "single")
    y = net.rescale(net.conv(x, 17, (1, 1), I8), "single")
    z = net.line(net.add(WeightedSum((5, -3)), x, y), U8)
    return net.body(net.linear(z, 3))


def joined(seed: int) -> Graph:
    """A concatenation whose parts keep to 8 and 16 lanes."""
    net = Lined((4, 6, 6), U2, seed)
    a = net.line(net.conv(net.input, 16, (1, 1)), I2)
    b = net.line(net.conv(a, 16, (1, 1)), U2)
    c = net.add(Concat(0), b, a)
    return net.body(net.line(net.conv(net.pad(c), 6, (3, 3)), U2))


def alike(seed: int) -> Graph:
    """Sums and pooling whose channels have the same weights and steps: one record for all of them."""
    net = Lined((4, 6, 5), U4, seed)
    a, b = net.line(net.conv(net.input, 32, (1, 1))), net.line(net.conv(net.input, 32, (1, 1)), I4)
    c = net.line(net.add(WeightedSum((2, -3)), a, b), alike=True)
    d = net.line(net.add(WeightedSum((1, 1)), c, a), I4, alike=True)
    e = net.line(net.add(SumPool2d((6, 5), (6, 5)), net.add(MaxPool2d((3, 3), (1, 1), (1, 1), (1, 1)), d)), alike=True)
    return net.body(net.linear(e, 5))


def zero_point(seed: int) -> Graph:
    """An input of 256 codes that are no bytes, read with borders and by a sum."""
    net = Lined((4, 6, 5), IntType(-127, 128), seed)
    x = net.line(net.conv(net.pad(net.input), 4, (3, 3), I8), I8)
    y = net.line(net.add(WeightedSum((2, -3)), net.input, x), U8)
    return net.body(net.linear(y, 5))


def zero_point_out(seed: int) -> Graph:
    """Codes that leave are no bytes, and their zero point is no half of their range."""
    net = Lined((4, 6, 5), U4, seed)
    x = net.line(net.conv(net.pad(net.input), 5, (3, 3)))
    return net.body(net.line(net.conv(x, 6, (3, 2)), IntType(-3, 12)))


def perceptron(seed: int) -> Graph:
    """Linear layers only, the first of a map, with many inputs and more than one tile of outputs."""
    net = Lined((13, 4, 5), U4, seed)
    x = net.line(net.linear(net.input, 40), I4)
    x = net.line(net.linear(x, 9))
    return net.body(net.linear(x, 33))


def upsampled(seed: int) -> Graph:
    """A map that is upsampled and joined with what it is made from, one that is upsampled along rows, and a part."""
    net = Lined((4, 6, 5), I4, seed)
    skip = net.line(net.conv(net.pad(net.input, (0, 0), (0, 1)), 16, (1, 1)), I4)
    x = net.line(net.conv(net.pad(skip), 16, (3, 3), stride=(2, 2)), I4)
    x = net.add(Concat(0), net.add(Upsample((2, 2)), x), skip)
    x = net.add(Upsample((1, 3)), net.line(net.conv(net.pad(x), 16, (3, 3)), I4))
    x = net.line(net.conv(net.pad(net.add(Slice(1, 1, 5), x)), 16, (3, 3), stride=(2, 2)))
    return net.body(net.add(Upsample((3, 2)), x))


def shuffled(seed: int) -> Graph:
    """Transposed convolutions: of channels at pixels of their own, with a pooling, cropped, and joined."""
    net = Lined((3, 5, 6), U4, seed)
    skip = net.line(net.conv(net.pad(net.input, (1, 1), (2, 2)), 16, (1, 1)))
    x = net.line(net.conv(net.pad(net.input), 4 * 16, (2, 2), stride=(2, 2)))
    x = net.add(Slice(2, 1, 7), net.shuffle(x, (2, 2)))
    y = net.line(net.conv(net.pad(x, (0, 1), (2, 2)), 16, (1, 1)))
    x = net.line(net.conv(net.add(Concat(0), y, skip), 32, (2, 2), groups=2))
    x = net.add(MaxPool2d((2, 3), (2, 3)), net.line(net.conv(x, 6 * 16, (1, 1)), I4))
    return net.body(net.line(net.conv(net.pad(net.shuffle(x, (2, 3))), 10, (3, 3)), I4))


NETWORKS: dict[str, Make] = {
    make.__name__: make
    for make in (
        *(plain, depthwise, shallow, residual, pooled, bipolar, grouped, wide, joined, alike, perceptron),
        *(zero_point, zero_point_out, bordered, bordered_bipolar, upsampled, shuffled),
    )
}


def curved(seed: int) -> Graph:
    """Tanh, a function that turns, a line, and a pooling behind a leaky function: codes of 8 bits."""
    net = Lined((3, 6, 5), U8, seed)
    x = net.curve(net.conv(net.pad(net.input), 17, (2, 2), I8), I8, np.tanh)
    x = net.add(MaxPool2d((2, 2), (2, 2)), net.curve(net.conv(x, 9, (2, 1), I8), I8, leaky))
    y = net.line(net.conv(x, 12, (1, 1), I8), U8)
    z = net.curve(net.conv(y, 12, (2, 2), I8), I8, turning)
    return net.body(net.linear(z, 3))


def curved_narrow(seed: int) -> Graph:
    """Functions of 4 bits, one of a sum and alike in all channels, and one whose codes leave without a line."""
    net = Lined((4, 6, 5), U4, seed)
    a, b = net.curve(net.conv(net.input, 32, (1, 1)), I4, np.tanh), net.line(net.conv(net.input, 32, (1, 1)), I4)
    c = net.curve(net.add(WeightedSum((2, -3)), a, b), I4, leaky, alike=True)
    return net.body(net.curve(net.conv(c, 6, (3, 2)), I4, turning))


CURVED: dict[str, Make] = {"curved": curved, "curved_narrow": curved_narrow}
"""Networks with functions that are no lines."""


def leaky(z: np.ndarray) -> np.ndarray:
    """Return a leaky ReLU."""
    return np.where(z > 0, z, 0.1 * z)


def turning(z: np.ndarray) -> np.ndarray:
    """Return about what GELU is."""
    return z / (1 + np.exp(-1.7 * z))


def turned() -> Graph:
    """What no array runs."""
    net = Lined((2, 5, 4), U2)
    x = net.add(Permute((0, 2, 1)), net.line(net.conv(net.input, 4, (1, 1)), U2))
    return net.body(net.conv(net.pad(x), 2, (3, 3)))


def decoder(code: IntType) -> Graph:
    """Layers for an array, and behind them some that none runs, which read codes of a given type."""
    net = Lined((3, 4, 5), U4)
    x = net.line(net.conv(net.pad(net.input), 12, (3, 3)), I4)
    x = net.line(net.conv(net.pad(x), 10, (3, 3)), U4)
    x = net.line(net.conv(x, 6, (1, 1)), code)
    x = net.add(Permute((0, 2, 1)), x)
    return net.body(net.conv(x, 24, (2, 2), stride=(2, 1)))


def three_summands() -> Graph:
    """A sum of more values than the array adds at once."""
    net = Lined((4, 4, 4), U4)
    a, b = net.line(net.conv(net.input, 4, (1, 1))), net.line(net.conv(net.input, 4, (1, 1)))
    return net.body(net.line(net.add(WeightedSum((1, 1, 1)), a, b, net.input)))
