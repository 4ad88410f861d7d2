"""Reading the layers off an integer graph: neighbours that one engine runs together become one layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnhw.accelerator import stream_order
from nnhw.engines.own import ENGINES, Port
from nnhw.errors import MappingError, raise_all
from nnhw.ir import Graph, IntType, Node
from nnhw.ir.ops import (
    Broadcast,
    Concat,
    Constant,
    Conv2d,
    Flatten,
    Input,
    IntegerNorm,
    IntegerSoftmax,
    Linear,
    MatrixProduct,
    Maximum,
    MaxPool2d,
    Minimum,
    Op,
    Pad,
    Permute,
    Product,
    Rescale,
    Reshape,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)
from nnhw.mapping.layers import (
    BroadcastLayer,
    ChannelLayer,
    ConcatLayer,
    DoubleScaling,
    Layer,
    Loops,
    MatrixLayer,
    MatrixProductLayer,
    NormLayer,
    OwnLayer,
    Padding,
    PadLayer,
    PairLayer,
    Shape,
    SliceLayer,
    SoftmaxLayer,
    StepFunction,
    SumLayer,
    TransposeLayer,
    UpsampleLayer,
    as_map,
)
from nnhw.mapping.matrix_products import ProductOperand, best_match
from nnhw.mapping.transpose import transposes

MOST_CODES = 1 << 16
"""Most codes of a rescaling, as each of them is a step."""


def read_layers(body: Graph) -> tuple[Layer, ...]:
    """Return the layers of an integer graph, each behind those that it reads.

    Raises
    ------
    MappingError: everything in the graph that no engine can run, all at once, each with its source line.
    """
    return _Reader(body).read()


class _Reader:
    """Walks a graph from its input; each layer takes the nodes behind it that belong to it, such as its function."""

    def __init__(self, body: Graph) -> None:
        self.body = body
        self.users = {
            name: tuple(user for user in users if not isinstance(user.op, Broadcast))
            for name, users in body.users().items()
        }
        """Who reads each value: a constant for each image reads nothing of it."""
        self.problems: list[MappingError] = []
        self.layers: list[Layer] = []
        self.taken: set[str] = set()
        self.left: set[str] = set()
        """The paddings that only window layers read, which become part of these."""
        self.streams: dict[str, str] = {node.name: node.name for node in body.inputs}
        """For each value, the value whose stream is read in its place, such as that in front of a reshape."""

    def read(self) -> tuple[Layer, ...]:
        for node in self.body.nodes:
            # Before any layer is read: its steps would take memory for each code.
            if isinstance(node.op, Rescale) and node.op.high - node.op.low >= MOST_CODES:
                self._refuse(node, _too_many_codes(node.op))
        raise_all(self.problems)
        for node in self.body.nodes:
            if node.name in self.taken or isinstance(node.op, Input | Constant):
                continue
            read = _Reader.own if type(node.op) in ENGINES else _READERS.get(type(node.op))
            if read is None:
                self._refuse(node, _ON_THE_HOST)
                continue
            read(self, node)
        raise_all(self.problems)
        if not any(layer.products for layer in self.layers):
            raise MappingError(
                f"model '{self.body.name}' has no layer to map; it needs at least one linear or convolution layer"
            )
        if len(self.body.outputs) == 1:
            # What leaves the last layer is what leaves the network.
            assert self.layers[-1].node in map(self._stream, self.body.outputs)
        return tuple(self.layers)

    def matrix(self, node: Node) -> None:
        """Read a convolution or a linear layer, with padding, function and tiling pooling."""
        source, padding = self._padded(node.inputs[0])
        weights = self.body.constants[node.inputs[1]]
        # A linear layer is a convolution with the plain attributes.
        op = node.op if isinstance(node.op, Conv2d) else Conv2d()
        # A pass moves padding into an op of its own; a graph that was not lowered has it here.
        if any(op.padding):
            self._refuse(node, "has padding of its own; lower the graph first (pass 'separate_padding')")
            return
        shape = self._unpadded_map(node.inputs[0])
        if isinstance(node.op, Linear):
            shape, weights = self._whole_map(source, weights)
        elif op.groups == shape[0] == len(weights) and op.groups > 1:
            self._depthwise(node, op, source, padding, weights)
            return
        names, function = self._function(node)
        pooled = self._tiling_pool(names[-1]) if function else None
        if pooled is not None:
            names.append(pooled.name)
        self._add(
            MatrixLayer(
                **self._common(node, names, (source,), function),
                activation=self._type(node.inputs[0]),
                source=shape,
                padding=padding,
                kernel=(weights.shape[2], weights.shape[3]),
                stride=op.stride,
                dilation=op.dilation,
                weights=weights,
                weight=self._type(node.inputs[1]),
                groups=op.groups,
                pool=pooled.op.kernel if pooled is not None else (1, 1),  # type: ignore[attr-defined]
            ),
            names,
        )

    def sum_pool(self, node: Node) -> None:
        """Read a pooling by sums."""
        assert isinstance(node.op, SumPool2d)
        source, padding = self._padded(node.inputs[0])
        self._channelwise(node, "sum", source, padding, node.op.kernel, node.op.stride)

    def max_pool(self, node: Node) -> None:
        """Read a pooling that no matrix layer took."""
        op = node.op
        assert isinstance(op, MaxPool2d)
        source, padding = self._stream(node.inputs[0]), None
        if any(op.before + op.after):
            # A border of the least value never exceeds the elements of a window.
            padding = Padding(op.before, op.after, self._type(node.inputs[0]).low)
        self._channelwise(node, "max", source, padding, op.kernel, op.stride)

    def join(self, node: Node) -> None:
        """Read a weighted sum with its function."""
        assert isinstance(node.op, WeightedSum)
        names, function = self._function(node)
        self._sum(node, names, node.op.factors, function)

    def pair(self, node: Node) -> None:
        """Read an op of two values with its function; an operand with axes of size 1 is upsampled first."""
        if any(not _is_repeated_inside(self.body.node(name).type.shape, node.type.shape) for name in node.inputs):
            self._refuse(node, "repeats an axis in front of one that it does not repeat; permute the axes first")
            return
        names, function = self._function(node)
        extent = self._map(node.name)
        inputs = tuple(self._repeated(name, extent, node, side) for side, name in enumerate(node.inputs))
        left, right = (self._type(name) for name in node.inputs)
        common = self._common(node, names, inputs, function)
        self._add(PairLayer(**common, op=node.op.name, kinds=(left, right), extent=extent), names)

    def matrix_product(self, node: Node) -> None:
        """Read a product of two computed matrices with its function, and what reorders its results if they come so."""
        names, function = self._function(node)
        behind = self._reorderings_behind(names[-1])
        # Equal rows of the function need not be told apart, which lets results repeat after fewer elements.
        alike = np.zeros(node.type.shape[0], np.int64)
        if function is not None:
            table = np.concatenate([function.thresholds, function.codes], axis=1)
            _, first, row = np.unique(table, axis=0, return_index=True, return_inverse=True)
            alike = first[row.reshape(-1)]
        sides = [self._operand(node, position) for position in range(2)]
        found = best_match([side for _, side in sides], node.type.shape, [step.op for step in behind], alike)
        names += [step.name for step in behind[: found.length]]
        streams = [
            self._transposed(source, f"{node.name}.turned_{word}", node, steps, (math.prod(side.shape), 1, 1))
            for (source, side), word, steps in zip(sides, ("left", "right"), found.steps, strict=True)
        ]
        if function is not None:
            function = function.of_channels(found.rows)
        order = (1, 0) if found.right_streams else (0, 1)
        common = self._common(node, names, tuple(streams[side] for side in order), function)
        kinds = self._type(streams[order[0]]), self._type(streams[order[1]])
        self._add(
            MatrixProductLayer(
                **common,
                form=found.form,
                kinds=kinds,
                sizes=found.sizes,
                period=len(found.rows),
                extent=self._map(names[-1]),
            ),
            names,
        )

    def _operand(self, node: Node, position: int) -> tuple[str, ProductOperand]:
        """Return the stream of an operand of a product, and how it lies in that; bipolar elements become numbers."""
        name = node.inputs[position]
        source = self._stream(name)
        path = self._reorderings(self.body.node(name)) if source != name else []
        shape = self.body.node(name).type.shape
        axes = math.prod(shape[:-2]), shape[-2], shape[-1]
        operand = ProductOperand(self.body.node(source).type.shape, tuple(step.op for step in path), axes)
        assert isinstance(node.op, MatrixProduct)
        if (node.op.transpose_left, node.op.transpose_right)[position]:
            operand = operand.transposed()
        return self._cast(name, IntType(-1, 1), node), operand

    def _reorderings_behind(self, name: str) -> list[Node]:
        """Return what reorders a value, one behind the other, each the only one that reads what is in front of it."""
        path: list[Node] = []
        while name not in self.body.outputs and len(self.users[name]) == 1:
            (reader,) = self.users[name]
            if not isinstance(reader.op, _ORDERS):
                break
            path.append(reader)
            name = reader.name
        return path

    def _repeated(self, name: str, extent: Shape, reader: Node, side: int) -> str:
        """Return the stream of a value after upsampling it to the size of a map.

        An upsampling repeats pixels only. So a value with one channel is first read as a map of one channel, whose
        pixels are repeated once for each channel; then its pixels are repeated.
        """
        source, shape = self._stream(name), self._map(name)
        channels, height, width = extent
        steps = [(shape, (1, channels))] if shape[0] < channels else []
        around = height // shape[1], width // shape[2]
        if around != (1, 1):
            steps.append(((channels, *shape[1:]), around))
        for number, (before, factor) in enumerate(steps, 1):
            result = f"{reader.name}.repeated{side}.{number}"
            common = self._common(reader, [name], (source,), None)
            common |= {"name": f"{common['name']}.repeat", "node": result}
            self._add(UpsampleLayer(**common, source=before, factor=factor), [result])
            source = result
        return source

    def requantize(self, node: Node) -> None:
        """Read a function that stands alone."""
        self._sum(node, [node.name], (1,), self._step_function(node))

    def norm(self, node: Node) -> None:
        """Read a normalization with its function."""
        assert isinstance(node.op, IntegerNorm)
        row = self._row(node, node.op.axis)
        if row is not None:
            names, function = self._function(node)
            common = self._common(node, names, (self._stream(node.inputs[0]),), function)
            self._add(NormLayer(**common, **row, op=node.op), names)

    def softmax(self, node: Node) -> None:
        """Read a softmax with its function."""
        assert isinstance(node.op, IntegerSoftmax)
        row = self._row(node, node.op.axis)
        if row is None:
            return
        table, kept = (self.body.constants[name] for name in node.inputs[1:])
        keep = stream_order(np.broadcast_to(kept, node.type.shape)[None]).reshape(-1, row["length"]).astype(bool)
        names, function = self._function(node)
        common = self._common(node, names, (self._stream(node.inputs[0]),), function)
        # Without a mask the engine has no memory of flags.
        only = None if keep.all() else keep
        self._add(SoftmaxLayer(**common, **row, op=node.op, table=table, keep=only), names)

    def _row(self, node: Node, axis: int) -> dict[str, Any] | None:
        """Return the rows of a value along an axis; None, with a problem, if they do not lie together in its stream."""
        shape = self.body.node(node.inputs[0]).type.shape
        inner = (*shape[axis + 1 :], shape[0]) if axis else ()  # channels stream innermost
        if math.prod(inner) > 1:
            self._refuse(
                node,
                f"works along axis {axis} of {list(shape)}, whose elements do not follow one another in its stream, "
                f"which has channels innermost; make it axis 0, or the last axis of a value with a single channel",
            )
            return None
        return {"kind": self._type(node.inputs[0]), "length": shape[axis], "extent": self._map(node.name)}

    def concat(self, node: Node) -> None:
        """Read a concatenation."""
        assert isinstance(node.op, Concat)
        extent, wanted = self._map(node.name), node.type.int_dtype
        inputs = tuple(self._cast(name, wanted, node) for name in node.inputs)
        turns, *parts = self._turns(node.inputs, node.op.axis)
        common = self._common(node, [node.name], inputs, None)
        constants = len(list(itertools.takewhile(self._constant_streams().__contains__, inputs)))
        self._add(
            ConcatLayer(**common, parts=tuple(parts), turns=turns, extent=extent, constants=constants), [node.name]
        )

    def _constant_streams(self) -> set[str]:
        """Return the streams with nothing of the input in them."""
        found = set[str]()
        for layer in self.layers:
            if found.issuperset(layer.inputs):
                found.add(layer.node)
        return found

    def broadcast(self, node: Node) -> None:
        """Read constants for each image."""
        name, constant = node.inputs
        if not self.users[name] and name not in self.body.outputs:
            self._refuse(node, f"is all that follows from '{name}', and it is the same for each image; leave that out")
            return
        values = stream_order(self.body.constants[constant][np.newaxis])[0].astype(np.int64)
        common = self._common(node, [node.name], (), None)
        self._add(BroadcastLayer(**common, values=values, extent=self._map(node.name)), [node.name])

    def slice(self, node: Node) -> None:
        """Read a slice."""
        op, (name,) = node.op, node.inputs
        assert isinstance(op, Slice)
        turns, period = self._turns([name], op.axis)
        run = period // self.body.node(name).type.shape[op.axis]
        common = self._common(node, [node.name], (self._stream(name),), None)
        self._add(
            SliceLayer(
                **common,
                turns=turns,
                period=period,
                first=op.start * run,
                count=(op.stop - op.start) * run,
                extent=self._map(node.name),
            ),
            [node.name],
        )

    def upsample(self, node: Node) -> None:
        """Read an upsampling."""
        assert isinstance(node.op, Upsample)
        source = self._stream(node.inputs[0])
        common = self._common(node, [node.name], (source,), None)
        self._add(UpsampleLayer(**common, source=self._map(node.inputs[0]), factor=node.op.factor), [node.name])

    def own(self, node: Node) -> None:
        """Read an operator with an engine from outside of nnhw."""
        sources = tuple(Port(self._type(name), self.body.node(name).type.shape) for name in node.inputs)
        common = self._common(node, [node.name], tuple(map(self._stream, node.inputs)), None)
        engine, extent = ENGINES[type(node.op)], self._map(node.name)
        self._add(OwnLayer(**common, op=node.op, engine=engine, sources=sources, extent=extent), [node.name])

    def pad(self, node: Node) -> None:
        """Leave padding to the window layers that read it; if others read it, or it is an output, it is a layer."""
        assert isinstance(node.op, Pad)
        # An output must exist as a stream of its own.
        leaves = node.name in self.body.outputs
        if not leaves and all(isinstance(user.op, _WINDOWS) for user in self.users[node.name]):
            self.left.add(node.name)
            return
        source, padding = self._border(node, node.op)
        common = self._common(node, [node.name], (source,), None)
        self._add(PadLayer(**common, source=self._map(node.inputs[0]), padding=padding), [node.name])

    def reorder(self, node: Node) -> None:
        """Read a reshape or permutation, which may change the order of a stream.

        Linear layers need no transposition: their weights are brought into the order in which their input streams.
        """
        self.streams[node.name] = source = self._stream(node.inputs[0])
        readers = [user for user in self.users[node.name] if not isinstance(user.op, _ORDERS)]
        if node.name in self.body.outputs or not all(isinstance(user.op, _ANY_ORDER) for user in readers):
            path = self._reorderings(node)
            # A message or a report names the permutation, since a reshape alone moves nothing.
            moved = next((step for step in path if isinstance(step.op, Permute)), node)
            self._transpose(node, moved, transposes(self.body.node(source).type.shape, [step.op for step in path]))

    def _transpose(self, node: Node, moved: Node, steps: Sequence[Loops]) -> None:
        """Add what brings a stream into the order of a node, which `moved` changes."""
        self._transposed(self.streams[node.name], node.name, moved, steps, self._map(node.name))

    def _transposed(self, source: str, result: str, moved: Node, steps: Sequence[Loops], extent: Shape) -> str:
        """Add what brings a stream into another order; return what then streams.

        Parameters
        ----------
        result: the name that it gets, with a number in front of the last step.
        moved: whose place in the user's model it has.
        extent: of what then streams.
        """
        for number, loops in enumerate(steps, 1):
            last = number == len(steps)
            name = result if last else f"{result}.{number}"
            common = self._common(moved, [moved.name], (source,), None)
            common |= {"name": f"{common['name']}.transpose", "node": name, "element": self._type(source)}
            self._add(
                TransposeLayer(**common, loops=loops, extent=extent if last else (math.prod(loops), 1, 1)), [name]
            )
            source = name
        return source

    def _reorderings(self, last: Node) -> list[Node]:
        """Return the chain of reorderings between a stream and `last`, first to last."""
        path = [last]
        while path[0].inputs[0] != self.streams[last.name]:
            path.insert(0, self.body.node(path[0].inputs[0]))
        return path

    def _depthwise(self, node: Node, op: Conv2d, source: str, padding: Padding | None, weights: np.ndarray) -> None:
        kernel = (weights.shape[2], weights.shape[3])
        self._channelwise(node, "dot", source, padding, kernel, op.stride, op.dilation, weights[:, 0])

    def _channelwise(
        self,
        node: Node,
        op: str,
        source: str,
        padding: Padding | None,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int] = (1, 1),
        weights: np.ndarray | None = None,
    ) -> None:
        # A shared engine requantizes in front of a maximum, so a function behind one is a layer of its own.
        names, function = ([node.name], None) if op == "max" else self._function(node)
        activation = self._type(node.inputs[0])
        # The engine reads the border as well, so its type takes part.
        if padding is not None and not activation.holds(np.array([padding.value])):
            activation = IntType(min(activation.low, padding.value), max(activation.high, padding.value))
        self._add(
            ChannelLayer(
                **self._common(node, names, (source,), function),
                activation=activation,
                source=self._unpadded_map(node.inputs[0]),
                padding=padding,
                kernel=kernel,
                stride=stride,
                dilation=dilation,
                op=op,
                weights=weights,
                weight=self._type(node.inputs[1]) if weights is not None else None,
            ),
            names,
        )

    def _sum(self, node: Node, names: list[str], factors: tuple[int, ...], function: StepFunction | None) -> None:
        data = [operand.name for operand in self.body.data_inputs(node)]
        inputs = tuple(self._stream(name) for name in (node.inputs if isinstance(node.op, WeightedSum) else data))
        common = self._common(node, names, inputs, function)
        self._add(SumLayer(**common, factors=factors, extent=self._map(node.name)), names)

    def _turns(self, names: Sequence[str], axis: int) -> list[int]:
        """Return the turns per frame of values that an axis joins or cuts, and the elements of each in a turn."""
        # In stream order, in which channels are innermost: a turn is all that is inside of the axis.
        sizes = [(*shape[1:], shape[0]) for shape in (self.body.node(name).type.shape for name in names)]
        # The place of the axis in stream order: channels, axis 0, come last.
        first = (axis - 1) % len(sizes[0])
        return [math.prod(sizes[0][:first]), *(math.prod(size[first:]) for size in sizes)]

    def _cast(self, name: str, wanted: IntType, reader: Node) -> str:
        """Return a stream that can be widened to another type; a bipolar one becomes the integers -1 and 1 first.

        The single bit of a bipolar element is no two's complement number.
        """
        source = self._stream(name)
        if not self._type(source).bipolar or wanted.bipolar:
            return source
        cast = f"{source}.as.{reader.name}"
        if cast in self.streams:
            return cast
        self._add(
            SumLayer(
                name=reader.location.module or reader.name,
                node=cast,
                location=reader.location,
                inputs=(source,),
                function=None,
                element=IntType(-1, 1),
                factors=(1,),
                extent=self._map(name),
            ),
            [cast],
        )
        return cast

    def _padded(self, name: str) -> tuple[str, Padding | None]:
        """Return the stream and the padding of a window layer's input."""
        if name not in self.left:
            return self._stream(name), None
        node = self.body.node(name)
        assert isinstance(node.op, Pad)
        return self._border(node, node.op)

    def _border(self, node: Node, op: Pad) -> tuple[str, Padding]:
        """Return the stream that a padding surrounds, and the padding.

        A bipolar stream with a border of zeros stays bipolar here: the engine makes numbers of it.
        """
        source, wanted = self._stream(node.inputs[0]), node.type.int_dtype
        bipolar = self._type(source).bipolar and not wanted.bipolar
        if not bipolar:
            source = self._cast(node.inputs[0], wanted, node)
        return source, Padding(op.before, op.after, int(op.value), bipolar)

    def _function(self, node: Node) -> tuple[list[str], StepFunction | None]:
        """Return the names of `node` and, if it is the only reader, its function, and the function's steps or None."""
        readers = self.users[node.name]
        if len(readers) == 1 and isinstance(readers[0].op, _FUNCTIONS) and node.name not in self.body.outputs:
            return [node.name, readers[0].name], self._step_function(readers[0])
        return [node.name], None

    def _step_function(self, node: Node) -> StepFunction:
        if isinstance(node.op, Rescale):
            constants = [self.body.constants[name] for name in node.inputs[1:]]
            return rescaled_steps(node.op, self._type(node.inputs[0]), *constants)
        thresholds, other = (self.body.constants[name] for name in node.inputs[1:])
        code = node.type.int_dtype
        if isinstance(node.op, StepTable):
            return StepFunction(thresholds, other, code)
        index = np.arange(thresholds.shape[1] + 1)
        # A threshold gives the code of how many steps are reached; falling channels have their codes in reverse.
        rising = 2 * index - 1 if code.bipolar else code.low + index
        return StepFunction(thresholds, np.where(other[:, None], rising[::-1], rising), code)

    def _tiling_pool(self, name: str) -> Node | None:
        """Return the max pooling behind a value whose windows tile it, if nothing else reads the value."""
        readers = self.users[name]
        if len(readers) != 1 or name in self.body.outputs:
            return None
        op = readers[0].op
        tiles = isinstance(op, MaxPool2d) and op.kernel == op.stride and not any(op.before + op.after)
        return readers[0] if tiles else None

    def _unpadded_map(self, name: str) -> Shape:
        """Return the map that a window layer reads, without the padding that it makes itself."""
        return self._map(self.body.node(name).inputs[0] if name in self.left else name)

    def _whole_map(self, source: str, weights: np.ndarray) -> tuple[Shape, np.ndarray]:
        """Return the map that a linear layer reads, and its weights as those of a kernel of that size."""
        channels, height, width = shape = self._map(source)
        return shape, weights.reshape(len(weights), channels, height, width)

    def _common(
        self, node: Node, names: list[str], inputs: tuple[str, ...], function: StepFunction | None
    ) -> dict[str, Any]:
        return {
            "name": node.location.module or node.name,
            "node": names[-1],
            "location": node.location,
            "inputs": inputs,
            "function": function,
            "element": self.body.node(names[-1]).type.int_dtype,
        }

    def _add(self, layer: Layer, names: list[str]) -> None:
        known = {other.name for other in self.layers}
        number = 2
        # A module of the model may give several layers, or be called several times.
        while layer.name in known:
            base = layer.name.partition("#")[0]
            layer = replace(layer, name=f"{base}#{number}")
            number += 1
        self.layers.append(layer)
        self.taken.update(names)
        self.streams[layer.node] = layer.node

    def _stream(self, name: str) -> str:
        return self.streams.get(name, name)

    def _type(self, name: str) -> IntType:
        # A layer may have another type than the IR value, such as bipolar elements that became numbers.
        made = next((layer for layer in self.layers if layer.node == name), None)
        return made.element if made is not None else self.body.node(name).type.int_dtype

    def _map(self, name: str) -> Shape:
        return as_map(self.body.node(name).type.shape)

    def _refuse(self, node: Node, why: str) -> None:
        self.problems.append(MappingError(f"{node.op.name} {node.location} {why}"))


def _is_repeated_inside(shape: tuple[int, ...], extent: tuple[int, ...]) -> bool:
    """Return whether the axes between the first and the last are repeated only from some axis on inwards.

    They are one axis, rows, of a feature map, and upsampling repeats each row several times in a row.
    """
    rows = [size < most for size, most in zip(shape, extent, strict=True)][1:-1]
    return rows == sorted(rows)


def rescaled_steps(
    op: Rescale, sums: IntType, multiplier: np.ndarray, exponent: np.ndarray, bias: np.ndarray
) -> StepFunction:
    """Return the step function of a rescaling; it never falls, so each step is found by bisection."""
    codes = np.arange(op.low + 1, op.high + 1)
    # All codes of all channels at once: each has its own interval, in which its step lies.
    below = np.full((len(multiplier), len(codes)), sums.low - 1)
    reached = np.full_like(below, sums.high + 1)
    while (reached - below > 1).any():
        middle = np.clip((below + reached) // 2, sums.low, sums.high)
        high = op.evaluate(middle[None], multiplier, exponent, bias)[0] >= codes
        open_ = reached - below > 1
        reached, below = np.where(open_ & high, middle, reached), np.where(open_ & ~high, middle, below)
    # A fraction shift in front of the product is not what the engine's double rounding computes.
    plain = op.rounding == "double" and not op.shift
    scaling = DoubleScaling(multiplier, exponent, bias, op.offset) if plain else None
    all_codes = np.arange(op.low, op.high + 1)[None].repeat(len(multiplier), axis=0)
    return StepFunction(reached, all_codes, IntType(op.low, op.high), scaling)


def _too_many_codes(op: Rescale) -> str:
    return (
        f"makes {op.high - op.low + 1:,} codes, an engine at most {MOST_CODES:,}; rescale to fewer bits, or let a sum "
        f"of two values of 8 bits be rescaled to 8 bits, which makes one function of all of it"
    )


_ON_THE_HOST = "runs on no engine; it is supported only behind the last layer, on the host"
"""End of the message for an op without a row in `_READERS`."""
_FUNCTIONS = (Threshold, StepTable, Rescale)
"""Functions from accumulators to codes, which become part of the layer in front."""
_WINDOWS = (Conv2d, SumPool2d)
"""What makes the padding in front of it itself."""
_ORDERS = (Flatten, Reshape, Permute)
"""What computes nothing, and moves elements at most."""
_ANY_ORDER = (Linear, MatrixProduct)
"""What reads a stream in whatever order it comes."""
_READERS: dict[type[Op], Callable[[_Reader, Node], None]] = {
    Conv2d: _Reader.matrix,
    Linear: _Reader.matrix,
    SumPool2d: _Reader.sum_pool,
    MaxPool2d: _Reader.max_pool,
    WeightedSum: _Reader.join,
    MatrixProduct: _Reader.matrix_product,
    Product: _Reader.pair,
    Maximum: _Reader.pair,
    Minimum: _Reader.pair,
    IntegerNorm: _Reader.norm,
    IntegerSoftmax: _Reader.softmax,
    Threshold: _Reader.requantize,
    StepTable: _Reader.requantize,
    Rescale: _Reader.requantize,
    Broadcast: _Reader.broadcast,
    Concat: _Reader.concat,
    Upsample: _Reader.upsample,
    Pad: _Reader.pad,
    Flatten: _Reader.reorder,
    Reshape: _Reader.reorder,
    Permute: _Reader.reorder,
    Slice: _Reader.slice,
}
"""The method that reads each op; functions and paddings that a layer has taken do not come here."""
