"""Regions: all float ops between a quantizer and the integers that it is computed from, as one function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import FLOAT, Graph, GraphBuilder, IntType, Node, TensorType, run
from nnhw.ir.domains import remedy_for_nan
from nnhw.ir.ops import ArgMax, Dequantize, FixedSoftmax, Input, LogSoftmax, Quantize, Softmax

from .edit import SHAPE_OPS, is_channel_list

CHUNK = 2**17
"""Elements that are evaluated at a time: a few arrays of this size stay in a processor's cache."""
_LISTED = 8
"""Channels that a message lists; of more it shows the first ones."""


@dataclass(frozen=True)
class Region:
    """A function from integers to codes, the same at each position of a channel.

    Parameters
    ----------
    graph: the graph that it is part of.
    quantizer: its last op.
    sources: the integer values that it starts from, such as the sums of a linear layer.
    nodes: its ops from dequantize to quantize, in the graph's order; they read one another and constants only.
    """

    graph: Graph
    quantizer: Node
    sources: tuple[Node, ...]
    nodes: tuple[Node, ...]

    @property
    def source(self) -> Node:
        """The only source of a region with one source."""
        (source,) = self.sources
        return source

    @property
    def codes(self) -> IntType:
        """The type of its results, the codes."""
        return self.quantizer.type.int_dtype

    @property
    def channels(self) -> int:
        """Size of the channel axis. Raises: LoweringError if the value has none."""
        shape = self.sources[0].type.shape
        if not shape:
            raise LoweringError(f"{self.sources[0]} has no channel axis; use a layer with a list of outputs")
        return shape[0]

    @cached_property
    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes of channels: channels whose constants are all equal are one class, which is evaluated once.

        Returns: the first channel of each class, int [classes], and the class of each channel, int [channels].
        """
        rows = [
            np.broadcast_to(self.per_channel(node, self.graph.constants[name]), self.channels)
            for node in self.nodes
            for name in node.inputs
            if name in self.graph.constants
        ]
        # Compared as bits, so that NaN equals NaN, and 0.0 and -0.0 are different.
        bits = np.array(rows, dtype=np.float64).view(np.int64)
        _, first, classes = np.unique(bits, axis=1, return_index=True, return_inverse=True)
        return first, classes.reshape(-1)

    def per_channel(self, node: Node, array: np.ndarray) -> np.ndarray:
        """Return a constant of `node` with shape [channels], or [] if it is one number for all channels.

        Raises: LoweringError for one that differs from position to position.
        """
        rank = len(node.type.shape)
        if is_channel_list(node.op) and array.ndim == 1:
            return array
        if array.size == 1:
            return array.reshape(())
        if array.ndim == rank == 1:
            return array
        if array.shape == (self.channels,) + (1,) * (rank - 1):
            return array.reshape(-1)
        alike = array.shape == node.type.shape and (array == array.take([0], axis=0)).all()
        raise LoweringError(
            f"{node} has a constant of shape {list(array.shape)}, which differs from position to position; "
            f"use one number, or one per channel: shape {[self.channels] + [1] * (rank - 1)}"
            + (
                ", or put a quantizer between the layer and the permutation behind it"
                if alike and self.channels > 1
                else ""
            )
        )

    def per_class(self, node: Node, array: np.ndarray) -> np.ndarray:
        """Return a constant of `node` in each class: [classes]. Raises: see `per_channel`."""
        return np.broadcast_to(self.per_channel(node, array), self.channels)[self.classes[0]]

    def flat(self, outputs: Sequence[str]) -> Graph:
        """Return the region as a graph with inputs and outputs [classes], a batch row for each set of integers.

        Regions are only evaluated by this graph, so that its ops' NumPy definitions are their one meaning.

        Parameters
        ----------
        outputs: names of the nodes whose values it gives.
        """
        builder = GraphBuilder(f"{self.graph.name}.{self.quantizer.name}")
        size = len(self.classes[0])
        # Every integer of the range, also those that bipolar sums of one parity cannot take.
        ranges = {node.name: node.type.int_dtype for node in self.sources}
        names = {
            name: builder.input(name, TensorType((size,), IntType(codes.low, codes.high)))
            for name, codes in ranges.items()
        }
        for node in self.nodes:
            for name in node.inputs:
                if name not in names:
                    names[name] = self._flat_constant(builder, node, name)
            inputs = [names[name] for name in node.inputs]
            names[node.name] = builder.add(node.name, node.op, inputs, node.location)
        return builder.build([names[name] for name in outputs]).pruned()

    def _flat_constant(self, builder: GraphBuilder, node: Node, name: str) -> str:
        array = self.per_channel(node, self.graph.constants[name])
        array = array[self.classes[0]] if array.ndim else array
        return builder.constant(name, array, TensorType(array.shape, FLOAT))


class RegionEvaluator:
    """Evaluates nodes of a region for given integers of its sources.

    Parameters
    ----------
    outputs: names of the nodes; by default the quantizer alone.

    Raises
    ------
    LoweringError, when called, if any node of the region gives NaN or infinity.
    """

    def __init__(self, region: Region, outputs: Sequence[str] = ()) -> None:
        self._region = region
        self._graph = region.flat(outputs or [region.quantizer.name])
        self._classes = len(region.classes[0])

    def __call__(self, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the values of each output, [N, classes], for integers [N] or [N, classes] of each source."""
        rows = max(CHUNK // self._classes, 1)
        spread = [array if array.ndim == 2 else array[:, np.newaxis] for array in values]
        parts = [
            self._run([array[start : start + rows] for array in spread]) for start in range(0, len(spread[0]), rows)
        ]
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def _run(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        return run(self._graph, [np.broadcast_to(array, (len(array), self._classes)) for array in values], self._check)

    def _check(self, name: str, values: np.ndarray) -> None:
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return
        bad = np.flatnonzero(~np.isfinite(values).all(axis=0))
        channels = np.flatnonzero(np.isin(self._region.classes[1], bad))
        sources = " and ".join(f"{node} in {node.type.int_dtype}" for node in self._region.sources)
        raise LoweringError(
            f"{self._region.graph.node(name)} gives NaN or infinity for sums of {sources}, in channels "
            f"{listed(channels)}; {remedy_for_nan(self._region.graph.node(name).op)}"
        )


def find_region(graph: Graph, quantizer: Node) -> Region | None:
    """Return the region that ends in `quantizer`; None if it depends on the model's float input instead of integers.

    Raises: LoweringError if it depends on both.
    """
    found: dict[str, Node] = {}
    waiting = [quantizer]
    while waiting:
        node = waiting.pop()
        found[node.name] = node
        if not isinstance(node.op, Dequantize):
            waiting += [data for data in graph.data_inputs(node) if data.name not in found]
    nodes = graph.in_order(found)
    inputs = [node for node in nodes if isinstance(node.op, Input)]
    entries = [graph.data_inputs(node)[0] for node in nodes if isinstance(node.op, Dequantize)]
    sources = tuple({node.name: node for node in entries}.values())
    if inputs and sources:
        raise LoweringError(
            f"{quantizer} reads the float input '{inputs[0].name}' of the model and {sources[0]}; quantize the input "
            f"once, and use its codes everywhere"
        )
    return Region(graph, quantizer, sources, nodes) if sources else None


def check_elementwise(region: Region) -> None:
    """Raise LoweringError if an op of a region mixes or moves elements, so that it is no function of each position."""
    for node in region.nodes:
        if isinstance(node.op, (Softmax, LogSoftmax, FixedSoftmax, ArgMax)):
            raise LoweringError(
                f"{node} stands before quantizer '{region.quantizer.name}' and mixes elements; let it be the "
                f"model's end{', or use nnhw.nn.QuantSoftmax, whose shares are codes' * isinstance(node.op, Softmax)}"
            )
        if isinstance(node.op, SHAPE_OPS) or node.op.along_steps:
            raise LoweringError(
                f"{node} stands before quantizer '{region.quantizer.name}' and can move neither behind it nor in front "
                f"of the ops between; put it directly behind the quantizer"
            )


def quantizers(graph: Graph) -> tuple[Node, ...]:
    """Return the quantize nodes in order."""
    return tuple(node for node in graph.nodes if isinstance(node.op, Quantize))


def listed(channels: np.ndarray) -> str:
    """Return the first few channels as text."""
    return ", ".join(map(str, channels[:_LISTED])) + (", .." if len(channels) > _LISTED else "")
