"""From an integer graph to the functions of a C file: what is fused, where values are, in which order layers run."""

from __future__ import annotations

from dataclasses import dataclass, field

from nnhw.errors import ExportError
from nnhw.ir import Graph, Node
from nnhw.ir.ops import (
    ArgMax,
    Broadcast,
    Concat,
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
    Pad,
    Permute,
    Product,
    Reshape,
    Slice,
    StepTable,
    SumPool2d,
    Threshold,
    Upsample,
    WeightedSum,
)

from . import attention, channels, moves
from .c_text import CFunction, identifier, indented, loop, loops
from .products import conv2d_sums, linear_sums
from .quads import SLACK_BYTES, fits, quad_sums, reads_beyond
from .step_functions import STEP_OPS, CStepFunction, step_function
from .sums import Sums
from .value_storage import Storage, c_strides

PAIR_OPS = (Product, Maximum, Minimum)
"""Operators on two values whose smaller axes are repeated."""
SUM_OPS = (Linear, Conv2d, SumPool2d, WeightedSum, *PAIR_OPS)
"""Operators that fill the array `sums` of a pixel; a step function that alone reads them becomes part of their loop."""


@dataclass
class PlacedValue:
    """The memory of a value of the graph.

    Parameters
    ----------
    buffer: name of the memory; values may share it, such as a map and its flat form.
    storage: layout of the elements in it.
    """

    buffer: str
    storage: Storage


@dataclass
class FilePlan:
    """The functions of a C file in their order, and the buffers between them.

    Parameters
    ----------
    graph: the integer graph.
    layers: the functions, in the order in which they run.
    values: memory of each value, by name.
    buffers: bytes of each buffer, without the caller's input, output and states.
    states: names of the fields in the caller's struct of states, by the graph's inputs that they are.
    """

    graph: Graph
    layers: list[CFunction] = field(default_factory=list)
    values: dict[str, PlacedValue] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


def make_plan(graph: Graph, small: bool = False) -> FilePlan:
    """Return the plan of an integer graph. Its first input and output are the caller's arrays, all others are states.

    Parameters
    ----------
    small: weights are packed, and not padded to whole vectors.

    Raises
    ------
    ExportError: an operator has no form in C.
    """
    return _Planner(graph, small).plan()


class _Planner:
    """Visits the nodes of a graph once, in order; what a node becomes may depend on its readers, which come later."""

    def __init__(self, graph: Graph, small: bool) -> None:
        self.graph = graph
        self.small = small
        self.slack = 0 if small else SLACK_BYTES
        self.users = graph.users()
        self.result = graph.outputs[0]
        self.kept = set(graph.outputs)
        self.made = FilePlan(graph)
        self.names: set[str] = set()
        self.fused: dict[str, Node] = {}
        for node in graph.nodes:
            # Only maps and vectors: other shapes are in C order, where loops over sums do not know an element's
            # channel.
            in_channels = len(node.type.shape) in (1, 3)
            if in_channels and isinstance(node.op, SUM_OPS) and (reader := self._only_reader(node, STEP_OPS)):
                self.fused[node.name] = reader

    def plan(self) -> FilePlan:
        skipped = {node.name for node in self.fused.values()}
        self._input()
        self._states()
        for node in self.graph.nodes:
            if node.inputs and node.name not in skipped:
                self._node(node)
        return self._ended()

    def _only_reader(self, node: Node, kinds: tuple[type, ...]) -> Node | None:
        """Return a value's only reader if it is of one of these kinds; None if there are others, or it is a result."""
        readers = self.users[node.name]
        alone = len(readers) == 1 and node.name not in self.kept and isinstance(readers[0].op, kinds)
        return readers[0] if alone and readers[0].inputs.count(node.name) == 1 else None

    def _input(self) -> None:
        node = self.graph.inputs[0]
        given, wanted = Storage.of(node.type), self._storage(node)
        if wanted == given and given.in_c_order and not self._read_beyond(node, wanted):
            self.made.values[node.name] = PlacedValue("input", given)
            return
        place = Node(f"{node.name}.load", node.op, (), node.type, node.location)
        layer = self._layer(place, "its codes, as layers read them")
        layer.reads = [(given.ctype, "x", "input")]
        self._finish(layer, node, moves.load(given, wanted))

    def _states(self) -> None:
        """Place states in the caller's struct, where layers read them, with the usual layout."""
        for node in self.graph.inputs[1:]:
            name = identifier(node.name.lower())
            while name in self.made.states.values():
                name += "_"
            self.made.states[node.name] = name
            self.made.values[node.name] = PlacedValue(f"state {name}", Storage.of(node.type))

    def _read_beyond(self, node: Node, storage: Storage) -> bool:
        """Return whether a layer reads beyond the end of a value, which then cannot be the caller's array."""
        convolutions = [reader for reader in self.users[node.name] if isinstance(reader.op, Conv2d)]
        weights = [self.graph.constants[reader.inputs[1]] for reader in convolutions]
        return not self.small and any(
            reads_beyond(reader, weight, storage) for reader, weight in zip(convolutions, weights, strict=True)
        )

    def _ended(self) -> FilePlan:
        """Let the result go to the caller's array: written there if it is in C order, else copied."""
        value = self.made.values[self.result]
        node = self.graph.node(self.result)
        writer = next((one for one in self.made.layers if self._buffer(one.writes[2]) == value.buffer), None)
        # Values that share the result's buffer move with it; layers that read one of these read the caller's array.
        plain = value.storage.in_c_order and writer is not None and not self.users[self.result]
        if plain:
            old = value.buffer
            for each in self.made.values.values():
                each.buffer = "output" if each.buffer == old else each.buffer
            self.made.buffers.pop(old, None)
        else:
            target = Storage.of(node.type)
            layer = self._layer(Node(f"{node.name}.store", node.op, (), node.type, node.location), "the result")
            layer.reads = [(value.storage.ctype, "x", self.result)]
            layer.writes = (target.ctype, "y", "output")
            layer.body = self._stored(value.storage, target)
            self.made.layers.append(layer)
        return self.made

    def _stored(self, x: Storage, target: Storage) -> list[str]:
        if len(x.type.shape) == 3:
            counts, order = x.type.shape, c_strides(x.type.shape)
            return moves.copied(counts, (x.base, moves.strided(x.strides(), counts)), (0, moves.strided(order, counts)))
        return moves.reshaped(x, target)

    def _buffer(self, name: str) -> str:
        return self.made.values[name].buffer if name in self.made.values else name

    def _wants_bits(self, node: Node) -> bool:
        """Return whether a value is stored as bits: its layer can pack them, and all readers can read them."""
        root = node
        # Poolings and flattening keep the form of their input, so their root decides.
        while isinstance(root.op, MaxPool2d | Flatten):
            root = self.graph.data_inputs(root)[0]
        is_state = root.name in self.made.states
        return isinstance(root.op, Input | Threshold | StepTable) and not is_state and self._all_take_bits(root)

    def _all_take_bits(self, node: Node) -> bool:
        type = node.type
        if not type.is_int or not type.int_dtype.bipolar or node.name in self.kept or len(type.shape) not in (1, 3):
            return False
        return all(self._takes_bits(reader) for reader in self.users[node.name])

    def _takes_bits(self, reader: Node) -> bool:
        if isinstance(reader.op, Linear | Conv2d):
            one_group = isinstance(reader.op, Linear) or reader.op.groups == 1
            return one_group and self.graph.node(reader.inputs[1]).type.int_dtype.bipolar
        return isinstance(reader.op, MaxPool2d | Flatten) and self._all_take_bits(reader)

    def _storage(self, node: Node) -> Storage:
        """Return a value's layout: as bits, or as the inner part of the padded map that is made from it, or plain."""
        storage = Storage.of(node.type, self._wants_bits(node))
        pad = self._only_reader(node, (Pad,))
        if pad is None or storage.bits or isinstance(node.op, Pad):
            return storage
        outer, op = Storage.of(pad.type), pad.op
        assert isinstance(op, Pad)
        return storage.inside(outer, *op.before) if outer.ctype == storage.ctype else storage

    def _layer(self, node: Node, about: str) -> CFunction:
        base = identifier(node.name).lower()
        name, number = base, 1
        while name in self.names:
            number += 1
            name = f"{base}_{number}"
        self.names.add(name)
        where = f" '{node.location.module}'" if node.location.module else ""
        return CFunction(f"layer_{name}", f"{node.op.name}{where}: {about}", [], ("", "", ""), [])

    def _finish(self, layer: CFunction, node: Node, body: list[str]) -> None:
        """Give a layer its buffer and its body, and append it to the plan."""
        storage, buffer = self._storage(node), node.name
        if storage.bordered:
            pad = self.users[node.name][0]
            buffer, outer = pad.name, Storage.of(pad.type)
            assert isinstance(pad.op, Pad)
            # The border is filled in each run, as other buffers may have been in its memory.
            body = [*moves.filled(outer, int(pad.op.value)), *body]
            # One buffer for both, under the name of the pad: `_pad` then has nothing to do.
            self.made.buffers[buffer] = outer.bytes + self.slack
        else:
            self.made.buffers[buffer] = storage.bytes + self.slack
        self.made.values[node.name] = PlacedValue(buffer, storage)
        if any("packed(" in line for line in body):
            layer.helpers.append("packed")
        layer.writes, layer.body = (storage.ctype, "y", node.name), body
        self.made.layers.append(layer)

    def _node(self, node: Node) -> None:
        op = node.op
        if isinstance(op, SUM_OPS):
            self._sums(node)
        elif isinstance(op, STEP_OPS):
            self._steps(node)
        elif isinstance(op, Pad):
            self._pad(node)
        elif isinstance(op, Flatten | Reshape):
            self._reshape(node)
        elif isinstance(op, MatrixProduct | IntegerSoftmax | IntegerNorm | Broadcast):
            self._attention(node)
        else:
            self._move(node)

    def _attention(self, node: Node) -> None:
        """Append the layer of a product of two computed matrices, a softmax, a normalization, or a constant."""
        op, sources, y = node.op, self._sources(node), self._storage(node)
        layer = self._layer(node, _shapes(sources[0].type.shape, node.type.shape))
        self._reads(layer, node)
        constants = [self.graph.constants[name] for name in node.inputs if name in self.graph.constants]
        if isinstance(op, MatrixProduct):
            body = attention.matrix_product(node, sources, y)
        elif isinstance(op, IntegerSoftmax):
            powers, keep = constants
            body, layer.tables, layer.scratch = attention.integer_softmax(node, powers, keep, sources[0], y, layer.name)
            layer.helpers = ["bits_of"]
        elif isinstance(op, IntegerNorm):
            body = attention.integer_norm(node, sources[0], y)
            layer.helpers = ["rounded", "bits_of", "reciprocal_root"]
        else:
            body, layer.tables = attention.broadcast(constants[0], y, layer.name)
        self._finish(layer, node, body)

    def _sources(self, node: Node) -> list[Storage]:
        return [self.made.values[one.name].storage for one in self.graph.data_inputs(node)]

    def _reads(self, layer: CFunction, node: Node) -> None:
        names = [one.name for one in self.graph.data_inputs(node)]
        several = isinstance(node.op, (Concat, WeightedSum, MatrixProduct, *PAIR_OPS))
        layer.reads = [
            (self.made.values[name].storage.ctype, f"x_{k}" if several else "x", name) for k, name in enumerate(names)
        ]

    def _sums(self, node: Node) -> None:
        reader = self.fused.get(node.name)
        layer = self._layer(node, _shapes(self._sources(node)[0].type.shape, node.type.shape))
        self._reads(layer, node)
        target = reader or node
        storage = self._storage(target)
        sums, seen = self._sums_of(node, layer.name, storage)
        step = None
        if reader is not None:
            step = step_function(
                self.graph, reader, node.type.int_dtype, sums.ctype, f"{layer.name}_code", storage.bits, self.small
            )
            layer.about += f"; {reader.op.name} by {step.form}"
            layer.helpers += step.helpers
            layer.tables += step.tables
            layer.functions += step.lines
        layer.tables += sums.tables
        layer.helpers += sums.helpers
        layer.scratch += sums.scratch
        self._finish(layer, target, [*sums.start, *_rows(sums, step, seen)])

    def _sums_of(self, node: Node, name: str, y: Storage) -> tuple[Sums, Storage]:
        """Return the sums of a layer, and the layout of its codes as the loops write them."""
        op, sources = node.op, self._sources(node)
        if isinstance(op, WeightedSum):
            return moves.weighted_sums(node, sources, op.factors), y
        if isinstance(op, PAIR_OPS):
            return moves.pair_sums(node, sources, name), y
        if isinstance(op, SumPool2d):
            return moves.pooled_sums(node, sources[0]), y
        weight = self.graph.constants[node.inputs[1]]
        # A state is an array of the caller, as large as its elements need: nothing may be read behind it.
        given = self.made.values[self.graph.data_inputs(node)[0].name].buffer
        over = given.startswith("state ") and reads_beyond(node, weight, sources[0])
        if not self.small and fits(node, weight, sources[0]) and not over:
            return quad_sums(node, weight, sources[0], y, name)
        if not self.small and channels.fits(node, weight, sources[0]):
            return channels.channel_sums(node, weight, sources[0], name), y
        kind = self.graph.node(node.inputs[1]).type.int_dtype
        make = linear_sums if isinstance(op, Linear) else conv2d_sums
        return make(node, weight, kind, sources[0], name, self.small), y

    def _steps(self, node: Node) -> None:
        """Append the layer of a step function that is not fused: pixel by pixel, for other shapes row by row."""
        x, y = self._sources(node)[0], self._storage(node)
        layer = self._layer(node, _shapes(x.type.shape, node.type.shape))
        self._reads(layer, node)
        step = step_function(self.graph, node, x.dtype, _sum_type(x), f"{layer.name}_code", y.bits, self.small)
        layer.about += f"; by {step.form}"
        layer.helpers, layer.tables, layer.functions = step.helpers, step.tables, step.lines
        if len(x.type.shape) in (1, 3):
            body = [f"const {x.ctype} *from = x + {x.pixel('row', 'column')};", *_codes(step, "from", y)]
            body = loops([("row", y.height), ("column", y.width)], body)
        else:
            rows, size = x.type.shape[0], x.type.size // x.type.shape[0]
            place = f"channel * {size} + i"
            body = loops([("channel", rows), ("i", size)], [f"y[{place}] = {step.name}(x[{place}], channel);"])
        self._finish(layer, node, body)

    def _pad(self, node: Node) -> None:
        source = self.graph.data_inputs(node)[0]
        value = self.made.values[source.name]
        outer = Storage.of(node.type)
        if value.storage.bordered:
            # The layer in front has written into the padded map, and filled its border, see `_finish`.
            self.made.values[node.name] = PlacedValue(value.buffer, outer)
            return
        op = node.op
        assert isinstance(op, Pad)
        layer = self._layer(node, _shapes(source.type.shape, node.type.shape))
        self._reads(layer, node)
        inner = value.storage.inside(outer, *op.before)
        self._finish(layer, node, [*moves.filled(outer, int(op.value)), *moves.bordered(value.storage, inner)])

    def _reshape(self, node: Node) -> None:
        source = self.graph.data_inputs(node)[0]
        value = self.made.values[source.name]
        x, y = value.storage, self._storage(node)
        only_linear = all(isinstance(reader.op, Linear) for reader in self.users[node.name])
        if len(node.type.shape) == 1 and len(x.type.shape) in (1, 3) and not x.bordered:
            # Linear layers read a flat map in the order of its memory, as their weights are permuted to it.
            # Results and states leave in C order: others than these layers read them.
            if x.bits or (only_linear and node.name not in self.kept):
                self.made.values[node.name] = PlacedValue(value.buffer, x.flat(node.type))
                return
        # Not the caller's input: a layer that reads this value might read beyond its end (`_read_beyond`).
        if x.in_c_order and y.in_c_order and value.buffer != "input":
            self.made.values[node.name] = PlacedValue(value.buffer, y)
            return
        layer = self._layer(node, _shapes(x.type.shape, node.type.shape))
        self._reads(layer, node)
        self._finish(layer, node, moves.reshaped(x, y))

    def _move(self, node: Node) -> None:
        op, sources, y = node.op, self._sources(node), self._storage(node)
        layer = self._layer(node, _shapes(sources[0].type.shape, node.type.shape))
        self._reads(layer, node)
        if isinstance(op, MaxPool2d):
            body = moves.max_pool(node, sources[0], y)
        elif isinstance(op, Slice):
            body = moves.sliced(op, sources[0], y)
        elif isinstance(op, Permute):
            body = moves.permuted(op, sources[0], y)
        elif isinstance(op, Upsample):
            body = moves.upsampled(op, sources[0], y)
        elif isinstance(op, Concat):
            body = moves.joined(op, sources, y)
        elif isinstance(op, ArgMax):
            body = moves.arg_max(op, sources[0], y)
        else:
            raise ExportError(f"{node} has no C; operators of integers that have are listed in docs/c.md")
        self._finish(layer, node, body)


def _rows(sums: Sums, step: CStepFunction | None, y: Storage) -> list[str]:
    """Return the loops over a map: the sums of a pixel, or of several in a row, then their codes."""
    if sums.pixels == 1:
        return loops([("row", y.height), ("column", y.width)], [*sums.body, *_codes(step, "sums", y)])
    whole = y.width % sums.pixels == 0
    left = f"{y.width} - column < {sums.pixels} ? {y.width} - column : {sums.pixels}"
    body = [f"int pixels = {sums.pixels if whole else left};", *sums.body]
    made = f"const {sums.ctype} *made = sums + pixel * {sums.pitch};"
    codes = [made, *_codes(step, "made", y, "column + pixel")]
    body += ["for (int pixel = 0; pixel < pixels; ++pixel) {", *indented(codes), "}"]
    head = f"for (int column = 0; column < {y.width}; column += {sums.pixels}) {{"
    return loop("row", y.height, [head, *indented(body), "}"])


def _codes(step: CStepFunction | None, sums: str, y: Storage, column: str = "column") -> list[str]:
    """Return the statements that make the codes of a pixel from its sums."""
    value = f"{sums}[channel]"
    code = f"({y.ctype}){value}" if step is None else f"{step.name}({value}, channel)"
    into = [f"{y.ctype} *into = y + {y.pixel('row', column)};"]
    if y.bits:
        return [*into, *moves.packed_bits(y.channels, code)]
    return [*into, *loop("channel", y.channels, [f"into[channel] = {code};"])]


def _sum_type(x: Storage) -> str:
    return "int64_t" if x.ctype == "int64_t" else "int32_t"


def _shapes(given: tuple[int, ...], made: tuple[int, ...]) -> str:
    return f"{list(given)} --> {list(made)}"
