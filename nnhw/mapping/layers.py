"""What the mapper maps: a chain of matrix layers, each with its thresholds and its pooling, read off the graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nnhw.errors import MappingError, raise_all
from nnhw.ir import Graph, IntType, Location, Node
from nnhw.ir.ops import Constant, Conv2d, Flatten, Input, Linear, MaxPool2d, Reshape, Threshold


@dataclass(frozen=True)
class Layer:
    """A convolution, or a linear layer as the convolution whose kernel is its whole input.

    Parameters
    ----------
    name: of the model's layer.
    node: the IR value that leaves the layer.
    location: where the user's model says it.
    weights: int64 [outputs, channels, kernel rows, kernel columns].
    weight, activation: their types.
    shape: (channels, height, width) of the input.
    stride: (rows, columns).
    steps, descending, code: thresholds on the accumulator (see the IR's `threshold`), or None each.
    pool: (rows, columns) of the max pooling behind, or (1, 1).
    """

    name: str
    node: str
    location: Location
    weights: np.ndarray = field(repr=False)
    weight: IntType
    activation: IntType
    shape: tuple[int, int, int]
    stride: tuple[int, int]
    steps: np.ndarray | None = field(repr=False)
    descending: np.ndarray | None = field(repr=False)
    code: IntType | None
    pool: tuple[int, int]

    @property
    def where(self) -> str:
        """The layer's name and source line, for messages."""
        return str(self.location) if self.location.module else f"'{self.name}'"

    @property
    def blocks(self) -> tuple[int, int]:
        """(rows, columns) of output pixels, after pooling."""
        _, height, width = self.shape
        out_height = (height - self.weights.shape[2]) // self.stride[0] + 1
        out_width = (width - self.weights.shape[3]) // self.stride[1] + 1
        return out_height // self.pool[0], out_width // self.pool[1]

    @property
    def vectors(self) -> int:
        """Output pixels that are computed for one frame."""
        return self.blocks[0] * self.blocks[1] * self.pool[0] * self.pool[1]

    @property
    def products(self) -> int:
        """Products of one frame."""
        return self.vectors * int(self.weights.size)


class _Reader:
    """Walk the body from its input, collecting layers and problems."""

    def __init__(self, body: Graph) -> None:
        self.body = body
        self.layers: list[Layer] = []
        self.problems: list[MappingError] = []

    def read(self) -> tuple[Layer, ...]:
        chain = self._chain()
        index = 0
        while index < len(chain):
            node = chain[index]
            if isinstance(node.op, Flatten | Reshape):
                index += 1
            elif isinstance(node.op, Linear | Conv2d):
                index = self._layer(chain, index)
            else:
                self._refuse(
                    node,
                    "stands alone; it is supported directly behind a linear or convolution layer "
                    "(quantizer first, then pooling); change the order of the layers",
                )
                index += 1
        raise_all(self.problems)
        if not self.layers:
            raise MappingError(
                f"model '{self.body.name}' has no layer to map; it needs at least one linear or convolution layer"
            )
        return tuple(self.layers)

    def _refuse(self, node: Node, why: str) -> None:
        self.problems.append(MappingError(f"{node.op.name} {node.location} {why}"))

    def _chain(self) -> list[Node]:
        """Return the compute nodes in order; each one's first input must be the node before."""
        compute = [node for node in self.body.nodes if not isinstance(node.op, Input | Constant)]
        before = self.body.inputs[0].name
        for node in compute:
            if node.inputs[0] != before:
                self._refuse(
                    node,
                    f"reads '{node.inputs[0]}', but only the value before it ('{before}') streams past; "
                    "networks with branches are not supported yet",
                )
            before = node.name
        raise_all(self.problems)
        return compute

    def _layer(self, chain: list[Node], index: int) -> int:
        """Read one layer that starts at `index`; return the index behind it."""
        node, rest = chain[index], chain[index + 1 :]
        last, steps, descending, code, pool = node, None, None, None, (1, 1)
        if rest and isinstance(rest[0].op, Threshold):
            last = rest.pop(0)
            steps, descending = (self.body.constants[name] for name in last.inputs[1:])
            code = last.type.int_dtype
        if rest and isinstance(rest[0].op, MaxPool2d):
            last = rest.pop(0)
            pool = self._pool(last, code)
        shape, weights, stride = self._geometry(node, chain[index - 1] if index else None)
        self.layers.append(
            Layer(
                name=node.location.module or node.name,
                node=last.name,
                location=node.location,
                weights=weights,
                weight=self.body.node(node.inputs[1]).type.int_dtype,
                activation=self.body.node(node.inputs[0]).type.int_dtype,
                shape=shape,
                stride=stride,
                steps=steps,
                descending=descending,
                code=code,
                pool=pool,
            )
        )
        return len(chain) - len(rest)

    def _geometry(self, node: Node, before: Node | None) -> tuple[tuple[int, int, int], np.ndarray, tuple[int, int]]:
        """Return (channels, height, width) of the input, the weights as those of a convolution, and the stride.

        A linear layer behind a flattened feature map takes the map as it streams: its kernel is the whole map.
        """
        weights = self.body.constants[node.inputs[1]]
        source = self.body.node(node.inputs[0])
        if isinstance(node.op, Conv2d):
            self._check_convolution(node, node.op)
            channels, height, width = source.type.shape
            return (channels, height, width), weights, node.op.stride
        if before is not None and isinstance(before.op, Flatten | Reshape):
            source = self.body.node(before.inputs[0])
        channels, height, width = source.type.shape if len(source.type.shape) == 3 else (source.type.size, 1, 1)
        return (channels, height, width), weights.reshape(len(weights), channels, height, width), (1, 1)

    def _check_convolution(self, node: Node, op: Conv2d) -> None:
        """List what the window engine cannot do."""
        for attribute, given, supported in (
            ("padding", op.padding, (0, 0)),
            ("dilation", op.dilation, (1, 1)),
            ("groups", op.groups, 1),
        ):
            if given != supported:
                self._refuse(
                    node,
                    f"has {attribute} {given}; the convolution engine needs {attribute} {supported}; "
                    "other values are not supported yet",
                )

    def _pool(self, node: Node, code: IntType | None) -> tuple[int, int]:
        """Return the pooling window, which must tile the feature map."""
        assert isinstance(node.op, MaxPool2d)
        kernel, stride = node.op.kernel, node.op.stride
        if code is None or kernel != stride:
            pools = "" if code else " and pools sums that are not quantized"
            self._refuse(
                node,
                f"has kernel {kernel} and stride {stride}{pools}; it needs kernel == stride, and a quantizer before it",
            )
            return (1, 1)
        return kernel


def read_layers(body: Graph) -> tuple[Layer, ...]:
    """Return the layers of an integer graph.

    Raises
    ------
    MappingError: everything in the graph that no engine can run, all at once, each with its source line.
    """
    return _Reader(body).read()
