"""Integer networks with products, maxima and minima of two values that both come from the input."""

from __future__ import annotations

from collections.abc import Callable

from nnhw.ir import BIPOLAR, Graph, IntType
from nnhw.ir.ops import Maximum, MaxPool2d, Minimum, Pad, Permute, Product, Reshape, Slice, SumPool2d, WeightedSum
from tests.mapping.networks import I4, U2, Network

U4 = IntType(0, 15)


def squeeze_and_excitation() -> Graph:
    """A gate for each channel, computed from the whole map, which waits; behind it another one, without a function."""
    net = Network((4, 6, 5), U2)
    x = net.code(net.conv(net.add(Pad((1, 1), (1, 1)), net.input), 6, (3, 3)), I4)
    x = net.code(net.add(Product(), _gate(net, x, (6, 5)), x), I4)
    return net.body(net.add(Product(), x, _gate(net, x, (6, 5))))


def _gate(net: Network, x: str, size: tuple[int, int]) -> str:
    """Return codes of four bits for each channel of a map."""
    pooled = net.code(net.add(SumPool2d(size, size), x), U4)
    narrow = net.code(net.conv(pooled, 2, (1, 1)), U2)
    return net.code(net.conv(narrow, net.builder.type_of(x).shape[0], (1, 1)), U4)


def gate_of_a_vector() -> Graph:
    """The gate by linear layers, whose vector becomes [channels, 1, 1]."""
    net = Network((4, 4, 4), U2)
    x = net.code(net.conv(net.input, 4, (2, 2)), I4)
    gate = net.code(net.linear(net.add(SumPool2d((3, 3), (3, 3)), x), 4), U4)
    x = net.code(net.add(Product(), x, net.add(Reshape((4, 1, 1)), gate)), U2)
    return net.body(net.linear(x, 3))


def gated_halves() -> Graph:
    """One half of the channels times a function of the other one, as in a gated linear unit."""
    net = Network((4, 5, 4), I4)
    x = net.code(net.conv(net.input, 12, (2, 2)), I4)
    value, half = net.add(Slice(0, 0, 6), x), net.add(Slice(0, 6, 12), x)
    x = net.table(net.add(Product(), value, net.code(half, U4)), I4)
    return net.body(net.conv(x, 3, (2, 1)))


def gated_vectors() -> Graph:
    """Features times features, of rows and of one vector, bipolar ones among them."""
    net = Network((8,), U2)
    a, b = net.code(net.linear(net.input, 6), BIPOLAR), net.code(net.linear(net.input, 6), BIPOLAR)
    c = net.code(net.add(Product(), a, b), BIPOLAR)
    d = net.code(net.add(Product(), net.code(net.linear(net.input, 6), I4), c), I4)
    return net.body(net.linear(net.code(net.add(Product(), d, d), U4), 3))


def number_for_a_map() -> Graph:
    """One number for a map, one for each pixel, and one for each column."""
    net = Network((3, 4, 5), U2)
    x = net.code(net.conv(net.input, 4, (1, 1)), I4)
    number = net.code(net.conv(net.add(SumPool2d((4, 5), (4, 5)), x), 1, (1, 1)), U4)
    x = net.code(net.add(Product(), number, x), I4)
    x = net.code(net.add(Product(), x, net.code(net.conv(x, 1, (1, 1)), U4)), I4)
    columns = net.code(net.conv(net.add(SumPool2d((4, 1), (4, 1)), x), 1, (1, 1)), U4)
    return net.body(net.conv(net.code(net.add(Product(), x, columns), U2), 2, (2, 2)))


def extremes() -> Graph:
    """The greater and the lesser of branches, the median among them, with and without a function."""
    net = Network((3, 5, 4), IntType(0, 255))
    a, b, c = (net.code(net.conv(net.input, 4, (2, 1)), kind) for kind in (I4, I4, U2))
    low, high = net.add(Minimum(), a, b), net.add(Maximum(), a, b)
    median = net.add(Maximum(), low, net.add(Minimum(), high, c))
    x = net.code(
        net.add(Maximum(), net.add(MaxPool2d((2, 2), (1, 1)), median), net.add(MaxPool2d((2, 2), (1, 1)), low))
    )
    return net.body(net.conv(x, 3, (2, 2)))


def product_of_the_input() -> Graph:
    """An input whose codes travel shifted, times codes; and its product with another permutation of itself."""
    net = Network((2, 4, 4), IntType(-100, 155))
    gate = net.code(net.conv(net.input, 2, (1, 1)), U4)
    x = net.code(net.add(Product(), net.input, gate), I4)
    y = net.code(net.add(Product(), x, net.add(Permute((0, 2, 1)), x)), U2)
    return net.body(net.linear(net.code(net.add(WeightedSum((1, 2)), x, y)), 3))


PRODUCTS: dict[str, Callable[[], Graph]] = {
    make.__name__: make
    for make in (
        squeeze_and_excitation,
        gate_of_a_vector,
        gated_halves,
        gated_vectors,
        number_for_a_map,
        extremes,
        product_of_the_input,
    )
}
