"""The same network with fewer bits: what it would take of a board, without training or calibrating it again.

    quantizer of B bits, scale s             -->  quantizer of b bits, scale s * 2**(B - b)
    weights of B bits, scale s behind them   -->  round(weights / 2**(B - b)), scale s * 2**(B - b)

Every layer gets the shape and the widths that it would have if it were quantized with fewer bits, so what is mapped is
a network that could be built. Its accuracy says nothing: to use fewer bits, quantize or train the model again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnhw.errors import InputError
from nnhw.ir import Graph, IntType, Node, Op, TensorType
from nnhw.ir.graph import GraphBuilder
from nnhw.ir.ops import (
    Broadcast,
    Clamp,
    Concat,
    Constant,
    Conv2d,
    Dequantize,
    Elu,
    Flatten,
    Gelu,
    HardSigmoid,
    HardSwish,
    Input,
    IntegerNorm,
    IntegerSoftmax,
    LeakyRelu,
    Linear,
    MatrixProduct,
    Maximum,
    MaxPool2d,
    Minimum,
    Mish,
    Pad,
    Permute,
    PRelu,
    Product,
    Quantize,
    Relu,
    Reshape,
    Sigmoid,
    Silu,
    Slice,
    Softplus,
    SumPool2d,
    Tanh,
    Upsample,
)

BITS_MIN = 2
"""Fewest bits that codes and weights are narrowed to: with 1 they are signs, which need other training."""
_ALIKE = (Flatten, Reshape, Permute, Slice, Pad, MaxPool2d, SumPool2d, Upsample, Concat, Minimum, Maximum)
"""Ops of integers that commute with a factor in front of all that they read."""
_WEIGHTED = (Linear, Conv2d)
"""Ops whose second operand is a matrix of weights."""
_PLAIN: dict[type[Op], Op] = {
    **dict.fromkeys((LeakyRelu, PRelu, Elu, HardSwish, Silu, Mish, Gelu, Softplus), Relu()),
    Tanh: Clamp(-1.0, 1.0),
    Sigmoid: HardSigmoid(),
}
"""Each activation whose steps are searched, and the piecewise linear function that replaces it: that one needs one
multiplication, one addition and one shift."""


class NotNarrowedError(InputError):
    """The graph has integers that this module cannot narrow."""


def width_of(graph: Graph) -> tuple[int, int]:
    """Return the bits of the widest weights and of the widest codes between layers; 0 where there are none."""
    layers = [node for node in graph.nodes if isinstance(node.op, _WEIGHTED)]
    inputs = _first_codes(graph)
    weights = [_code(graph.node(node.inputs[1])).bits for node in layers]
    codes = [_code(graph.node(node.inputs[0])).bits for node in layers if node.inputs[0] not in inputs]
    return max(weights, default=0), max(codes, default=0)


def narrowed(graph: Graph, weight_bits: int, act_bits: int) -> Graph:
    """Return a captured graph with weights and codes of no more bits than given; the input's codes stay.

    Parameters
    ----------
    weight_bits, act_bits: most bits of weights and of codes between layers; at least `BITS_MIN`.

    Raises
    ------
    NotNarrowedError: integers are operands of an op whose result would change its meaning, such as a bias that a file
        format adds to sums as an integer; or the graph has loops.
    """
    narrow = _Narrowing(graph, weight_bits, act_bits).graph()
    found = width_of(narrow)
    # Codes that come from elsewhere than a quantizer, such as from a bias in integers, kept their width.
    if found[0] > weight_bits or found[1] > act_bits:
        raise NotNarrowedError(
            f"the layers of '{graph.name}' read codes of {found[1]} bits that no quantizer makes, so they have no "
            "narrower form; quantize the model with fewer bits to see what they bring"
        )
    return narrow


def with_plain_activations(graph: Graph) -> Graph:
    """Return a graph in which a piecewise linear function replaces each activation whose steps are searched.

    Tanh becomes a clamp to -1..1, sigmoid a hard sigmoid, all others ReLU.
    """
    nodes = [_made_plain(node) for node in graph.nodes]
    return replace(graph, nodes=tuple(nodes)).pruned()


def activations_of(graph: Graph) -> tuple[str, ...]:
    """Return the names of the activations that `with_plain_activations` replaces, each once."""
    return tuple(dict.fromkeys(node.op.name for node in graph.nodes if type(node.op) in _PLAIN))


def _made_plain(node: Node) -> Node:
    plain = _PLAIN.get(type(node.op))
    # PReLU has its slopes as a second operand, which ReLU has not.
    return node if plain is None else replace(node, op=plain, inputs=node.inputs[:1])


def _first_quantizers(graph: Graph) -> set[str]:
    """Return the quantizers of the model's input: those that depend on no other quantizer."""
    coded: set[str] = set()
    for node in graph.nodes:
        if isinstance(node.op, Quantize) or any(name in coded for name in node.inputs):
            # Nodes stand behind their operands, so one pass over them follows all paths from quantizers.
            coded.add(node.name)
    return {
        node.name
        for node in graph.nodes
        if isinstance(node.op, Quantize) and not any(name in coded for name in node.inputs)
    }


def _first_codes(graph: Graph) -> set[str]:
    """Return the values that hold codes of the model's input as they were quantized."""
    found = _first_quantizers(graph)
    for node in graph.nodes:
        if isinstance(node.op, _ALIKE) and node.inputs and all(name in found for name in node.inputs):
            found.add(node.name)
    return found


def _code(node: Node) -> IntType:
    return node.type.int_dtype


class _Narrowing:
    """One walk over a graph. Each integer value gets an exponent e: one step of its new codes is 2**e old steps."""

    def __init__(self, graph: Graph, weight_bits: int, act_bits: int) -> None:
        self._old, self._bits = graph, (weight_bits, act_bits)
        self._first = _first_quantizers(graph)
        self._builder = GraphBuilder(graph.name)
        self._names: dict[str, str] = {}
        self._exponents: dict[str, int] = {}

    def graph(self) -> Graph:
        """Return the narrow graph."""
        for node in self._old.nodes:
            self._names[node.name] = self._added(node)
        return self._builder.build([self._names[name] for name in self._old.outputs])

    def _added(self, node: Node) -> str:
        op, place = node.op, node.location
        if isinstance(op, Input):
            return self._builder.input(node.name, node.type, place)
        if isinstance(op, Constant):
            return self._builder.constant(node.name, self._old.constants[node.name], node.type, place)
        if isinstance(op, Quantize):
            return self._quantizer(node, op)
        return self._computed(node)

    def _computed(self, node: Node) -> str:
        """Add what computes with narrow operands; return its name."""
        op = node.op
        exponents = [self._exponents.get(name, 0) for name in node.inputs]
        inputs = [self._names[name] for name in node.inputs]
        if isinstance(op, Dequantize):
            # The coarser codes mean the same real numbers only with a scale that is larger by the same factor.
            inputs[1] = self._scaled(node.inputs[1], exponents[0])
        elif isinstance(op, _WEIGHTED):
            inputs[1], taken = self._fewer_bits(node.inputs[1], self._bits[0])
            # A sum of products counts in the product of both steps, so the exponents add.
            self._exponents[node.name] = exponents[0] + taken
        elif isinstance(op, Product | MatrixProduct):
            self._exponents[node.name] = sum(exponents)
        elif isinstance(op, Broadcast):
            # Of the first operand only the number of images counts.
            inputs[1], self._exponents[node.name] = self._fewer_bits(node.inputs[1], self._bits[1])
        elif isinstance(op, IntegerSoftmax):
            op, inputs[1] = self._softmax(node, op, exponents[0])
        elif isinstance(op, IntegerNorm):
            # Its results count in steps of their own; only the epsilon is in those of its operand, squared.
            op = replace(op, epsilon=op.epsilon >> (2 * exponents[0]))
        elif any(exponents):
            self._exponents[node.name] = self._common(node, exponents)
        return self._builder.add(node.name, op, inputs, node.location)

    def _quantizer(self, node: Node, op: Quantize) -> str:
        code, wanted = _code(node), self._bits[1]
        # A bipolar code has one bit already; the input's codes are what the host sends, so they stay.
        less = 0 if op.bipolar or node.name in self._first else max(0, code.bits - wanted)
        self._exponents[node.name] = less
        if less:
            # The offset moves ties alone (see `Quantize`), which says nothing about what hardware it takes.
            op = replace(op, low=_fewer(op.low, less), high=_fewer(op.high, less), offset=0)
        inputs = (self._names[node.inputs[0]], self._scaled(node.inputs[1], less))
        return self._builder.add(node.name, op, inputs, node.location)

    def _scaled(self, scale: str, exponent: int) -> str:
        """Return a constant that is 2**exponent of another one."""
        if not exponent:
            return self._names[scale]
        # A constant of its own, as other quantizers may read this scale with another exponent.
        values = self._old.constants[scale] * 2.0**exponent
        return self._builder.constant(scale, values, self._old.node(scale).type)

    def _softmax(self, node: Node, op: IntegerSoftmax, exponent: int) -> tuple[IntegerSoftmax, str]:
        """Return a softmax whose operand has coarser steps and whose shares have fewer bits, and its table."""
        less = min(max(0, _code(node).bits - self._bits[1]), op.bits - 1)
        self._exponents[node.name] = less
        # The table has a power for each distance of old steps; a new step is 2**exponent of them.
        powers = self._old.constants[node.inputs[1]][:: 1 << exponent]
        old = self._old.node(node.inputs[1])
        table = self._builder.constant(node.inputs[1], powers, TensorType(powers.shape, _code(old)), old.location)
        return replace(op, bits=op.bits - less, high=max(1, _fewer(op.high, less))), table

    def _fewer_bits(self, name: str, most: int) -> tuple[str, int]:
        """Return the name of a constant with codes of at most so many bits, and how many bits fewer these are."""
        node = self._old.node(name)
        less = max(0, _code(node).bits - most) if node.type.is_int else 0
        if not less:
            return self._names[name], 0
        # Rounding may reach past the end of the range, such as 127 / 16 = 7.9 to 8, hence the clip.
        narrow = IntType(_fewer(_code(node).low, less), _fewer(_code(node).high, less))
        values = np.clip(np.rint(self._old.constants[name] / 2.0**less), narrow.low, narrow.high).astype(np.int64)
        return self._builder.constant(name, values, TensorType(node.type.shape, narrow), node.location), less

    def _common(self, node: Node, exponents: list[int]) -> int:
        if isinstance(node.op, _ALIKE) and len(set(exponents)) == 1:
            return exponents[0]
        raise NotNarrowedError(
            f"{node} computes with integers in a way that has no narrower form; quantize the model with fewer bits "
            "to see what they bring"
        )


def _fewer(end: int, less: int) -> int:
    """Return one end of a range of codes, counted in steps of 2**less and rounded towards 0."""
    return end >> less if end >= 0 else -(-end >> less)
