"""What the mapper maps: a chain of matrix layers, each with its thresholds and its pooling, read off the integer graph."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nnhw.errors import MappingError, raise_all
from nnhw.ir import Graph, IntType, Location, Node


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
        return f"'{self.name}' ({self.location.file}:{self.location.line})"

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
        self.nodes = {node.name: node for node in body.nodes}
        self.layers: list[Layer] = []
        self.problems: list[MappingError] = []

    def read(self) -> tuple[Layer, ...]:
        chain = self._chain()
        index = 0
        while index < len(chain):
            if chain[index].op.name in ("flatten", "reshape"):
                index += 1
                continue
            index = self._layer(chain, index)
        raise_all(self.problems)
        if not self.layers:
            raise MappingError(f"model '{self.body.name}' has no layer to map; it needs at least one linear or convolution layer")
        return tuple(self.layers)

    def _chain(self) -> list[Node]:
        """Return the compute nodes in order; each one's first input must be the node before."""
        compute = [node for node in self.body.nodes if node.op.name not in ("input", "constant")]
        before = next(node.name for node in self.body.nodes if node.op.name == "input")
        for node in compute:
            if node.inputs[0] != before:
                self.problems.append(
                    MappingError(
                        f"{node.op.name} {_where(node)} reads '{node.inputs[0]}', but only the value before it ('{before}') "
                        "streams past; networks with branches are not supported yet"
                    )
                )
            before = node.name
        raise_all(self.problems)
        return compute

    def _layer(self, chain: list[Node], index: int) -> int:
        """Read one layer that starts at `index`; return the index behind it."""
        node = chain[index]
        if node.op.name not in ("linear", "conv2d"):
            self.problems.append(
                MappingError(
                    f"{node.op.name} {_where(node)} stands alone; it is supported directly behind a linear or convolution "
                    "layer (quantizer first, then pooling); change the order of the layers"
                )
            )
            return index + 1
        last, pool = index, (1, 1)
        steps = descending = code = None
        if self._is(chain, last + 1, "threshold"):
            last += 1
            threshold = chain[last]
            steps, descending = (self._constant(threshold, number) for number in (1, 2))
            code = threshold.type.dtype
        if self._is(chain, last + 1, "max_pool2d"):
            last += 1
            pool = self._pool(chain[last], code)
        shape = self.nodes[node.inputs[0]].type.shape
        weights = self._constant(node, 1)
        if node.op.name == "linear":
            before = chain[index - 1] if index else None
            if before is not None and before.op.name in ("flatten", "reshape"):
                shape = self.nodes[before.inputs[0]].type.shape
            shape = shape if len(shape) == 3 else (shape[0], 1, 1)
            weights = weights.reshape(len(weights), *shape)
            stride = (1, 1)
        else:
            self._check_convolution(node)
            stride = node.op.stride
        self.layers.append(
            Layer(
                name=node.location.module or node.name,
                node=chain[last].name,
                location=node.location,
                weights=weights,
                weight=self.nodes[node.inputs[1]].type.dtype,
                activation=self.nodes[node.inputs[0]].type.dtype,
                shape=shape,
                stride=stride,
                steps=steps,
                descending=descending,
                code=code,
                pool=pool,
            )
        )
        return last + 1

    def _is(self, chain: list[Node], index: int, name: str) -> bool:
        return index < len(chain) and chain[index].op.name == name

    def _constant(self, node: Node, number: int) -> np.ndarray:
        return self.body.constants[self.nodes[node.inputs[number]].name]

    def _check_convolution(self, node: Node) -> None:
        """List what the window engine cannot do."""
        given = {"padding": (0, 0), "dilation": (1, 1), "groups": 1}
        for attribute, supported in given.items():
            value = getattr(node.op, attribute)
            if value != supported:
                self.problems.append(
                    MappingError(
                        f"conv2d {_where(node)} has {attribute} {value}; the convolution engine needs {attribute} {supported}; "
                        "other values are not supported yet"
                    )
                )

    def _pool(self, node: Node, code: IntType | None) -> tuple[int, int]:
        """Return the pooling window, which must tile the feature map."""
        if code is None or node.op.kernel != node.op.stride:
            self.problems.append(
                MappingError(
                    f"max_pool2d {_where(node)} has kernel {node.op.kernel} and stride {node.op.stride}"
                    + ("" if code else " and pools sums that are not quantized")
                    + "; it needs kernel == stride, and a quantizer before it"
                )
            )
            return (1, 1)
        return node.op.kernel


def _where(node: Node) -> str:
    return f"'{node.location.module or node.name}' ({node.location.file}:{node.location.line})"


def read_layers(body: Graph) -> tuple[Layer, ...]:
    """Return the layers of an integer graph.

    Raises
    ------
    MappingError: everything in the graph that no engine can run, all at once, each with its source line.
    """
    return _Reader(body).read()
