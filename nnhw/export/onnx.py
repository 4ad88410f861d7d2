"""A graph as an ONNX model of standard operators that computes the same integers.

Importing this needs the package `onnx`. What each operator becomes is in `onnx_operators`; docs/ir.md has the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import nnhw
from nnhw.errors import LoweringError, NnhwError, raise_all
from nnhw.ir import Graph, IntType, Node, TensorType, graph_hash
from nnhw.ir.graph import inner_name, levels
from nnhw.ir.ops import AsSteps, Constant, Input, LastStep, ReverseSteps, Scan

from .onnx_emitter import Emitter
from .onnx_operators import OPERATORS, REFUSED

OPSET = 17
"""Version of ONNX's operator set that exported models use."""
IR_VERSION = 8
BATCH = "N"
"""Name of the first axis of every input and output."""
STEPS = "steps"
"""Name of the second axis of a sequence."""
SEQUENCES = Scan | AsSteps | LastStep | ReverseSteps


def to_onnx(graph: Graph) -> onnx.ModelProto:
    """Return an ONNX model that computes what a graph computes, by operators of ONNX's own domain.

    Integers are int64 [N, *shape] at inputs and outputs and between operators, [N, steps, *shape] if they are
    sequences; floats are float64. A loop is ONNX's Scan.

    Raises
    ------
    LoweringError, or ProblemList with all of them at once: operators that no standard operators compute exactly.
    """
    raise_all(_refusals(graph))
    emitter = _OnnxEmitter(graph)
    emitter.emit_all()
    inputs = [_value_info(node.name, node.type) for node in graph.inputs]
    outputs = [emitter.output(node) for node in graph.output_nodes]
    made = helper.make_graph(
        emitter.nodes, graph.name, inputs, outputs, initializer=emitter.initializers, value_info=emitter.infos
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opset, ir_version=IR_VERSION, producer_name="nnhw")
    model.producer_version = nnhw.__version__
    ranges = {f"range of {node.name}": str(node.type) for node in (*graph.inputs, *graph.output_nodes)}
    helper.set_model_props(model, {"graph": graph_hash(graph), **ranges})
    onnx.checker.check_model(model, full_check=True)
    return model


def to_bytes(model: onnx.ModelProto) -> bytes:
    """Return the bytes of a model's file; the same graph gives the same bytes."""
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _refusals(graph: Graph) -> list[NnhwError]:
    """Return a problem for each operator that has no exact counterpart."""
    bare = [node for node in graph.output_nodes if isinstance(node.op, Input | Constant)]
    problems: list[NnhwError] = [
        LoweringError(f"nothing computes output '{node.name}' of graph '{graph.name}'; return what an operator gives")
        for node in bare
    ]
    for node in (node for _, level in levels(graph) for node in level.nodes):
        if node.op.name not in OPERATORS and not isinstance(node.op, Input | Constant | SEQUENCES):
            reason = REFUSED.get(node.op.name, "it is an operator of your own")
            problems.append(
                LoweringError(
                    f"{node} has no form in standard ONNX operators that gives the same numbers everywhere: {reason}; "
                    "export the integer part alone, or end the model in front of it"
                )
            )
    return problems


class _OnnxEmitter(Emitter):
    """Collects the nodes of an ONNX graph.

    A sequence is [N, steps, *shape]. Operators that work on each step alone read it as [N * steps, *shape].

    Parameters
    ----------
    stem: prefix of generated names, as names in a loop's body must differ from those of the graph around it.
    """

    def __init__(self, graph: Graph, stem: str = "") -> None:
        super().__init__(graph)
        self._stem = stem
        self._flat: dict[str, str] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.infos: list[onnx.ValueInfoProto] = []
        self._numbers = count(1)
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._taken = {node.name for node in graph.nodes}

    def emit_all(self) -> None:
        """Write all nodes of the graph."""
        for node in self.graph.nodes:
            if isinstance(node.op, SEQUENCES):
                self._emit_sequence(node)
            elif not isinstance(node.op, Input | Constant):
                OPERATORS[node.op.name](self, self._flattened(node))

    def emit(self, operator: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Add one ONNX node; return the name of its result."""
        result = to or self._fresh(operator.lower())
        self.nodes.append(helper.make_node(operator, list(inputs), [result], name=result, **attributes))
        return result

    def constant(self, values: object, dtype: type[np.generic] = np.int64) -> str:
        """Return the name of a constant tensor; equal tensors are stored once."""
        array = np.ascontiguousarray(np.asarray(values, dtype))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._shared:
            name = self._fresh("constant")
            self.initializers.append(numpy_helper.from_array(array, name))
            self._shared[key] = name
        return self._shared[key]

    def cast(self, value: str, dtype: type[np.generic]) -> str:
        """Add a conversion; return the name of its result."""
        result = self._fresh("cast")
        node = helper.make_node("Cast", [value], [result], name=result)
        node.attribute.append(helper.make_attribute("to", helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
        self.nodes.append(node)
        return result

    def finish(self, node: Node, value: str) -> None:
        """Name the result of a node like the node, after its axis of steps is restored if it is a sequence."""
        own = self.graph.node(node.name)
        if own.type.is_sequence and not isinstance(own.op, SEQUENCES):
            source = next(name for name in own.inputs if self.type(name).is_sequence)
            shape = self.emit("Concat", self._axes(source, 2), self.constant(own.type.shape), axis=0)
            value = self.emit("Reshape", value, shape)
        self.emit("Identity", value, to=node.name)
        self.infos.append(_value_info(node.name, own.type))

    def _flattened(self, node: Node) -> Node:
        """Return a node that reads its sequences as [N * steps, *shape]; the node itself if it is no sequence."""
        if not node.type.is_sequence:
            return node
        inputs = [self._flat_value(name) if self.type(name).is_sequence else name for name in node.inputs]
        return replace(node, inputs=tuple(inputs), type=node.type.step)

    def _flat_value(self, name: str) -> str:
        if name not in self._flat:
            step = self.type(name).step
            self._flat[name] = flat = self.emit("Reshape", name, self.constant([-1, *step.shape]))
            self.made_types[flat] = step
        return self._flat[name]

    def _axes(self, value: str, count: int) -> str:
        """Return the sizes of the first `count` axes of a value."""
        return self.emit("Slice", self.emit("Shape", value), self.constant([0]), self.constant([count]))

    def _emit_sequence(self, node: Node) -> None:
        """Write an operator on whole sequences."""
        if isinstance(node.op, LastStep):
            ends = (self.constant([value]) for value in (-1, np.iinfo(np.int64).max, 1))
            last = self.emit("Slice", node.inputs[0], *ends)
            self.finish(node, self.emit("Squeeze", last, self.constant([1])))
        elif isinstance(node.op, AsSteps):
            self.finish(node, node.inputs[0])  # the same array, in which the steps are an axis as any other
        elif isinstance(node.op, ReverseSteps):
            # ONNX's way to reverse an axis: from the last index in steps of -1 to beyond the first.
            ends = (self.constant([value]) for value in (-1, np.iinfo(np.int64).min, 1, -1))
            self.finish(node, self.emit("Slice", node.inputs[0], *ends))
        else:
            assert isinstance(node.op, Scan)
            self._emit_scan(node, node.op)

    def _emit_scan(self, node: Node, op: Scan) -> None:
        """Write a loop as ONNX's Scan, whose states come before its sequences, in inputs and outputs."""
        count = len(op.body.inputs) - len(op.states)
        starts = [self._start(name, node.inputs[0]) for name in node.inputs[count:]]
        body = _renamed(op.body, inner_name(node.name, ""))
        inner = _OnnxEmitter(body, inner_name(self._stem + node.name, ""))
        inner.emit_all()
        inputs = [*body.inputs[count:], *body.inputs[:count]]
        # An output has a name of its own: a state may become another one's old value, and two may become the same.
        order = [*body.outputs[1:], body.outputs[0]]
        outputs = []
        for number, name in enumerate(order):
            made = inner.emit("Identity", name, to=inner_name(node.name, f"output.{number}"))
            outputs.append(_value_info(made, body.node(name).type))
        graph = helper.make_graph(
            inner.nodes,
            op.body.name,
            [_value_info(one.name, one.type) for one in inputs],
            outputs,
            initializer=inner.initializers,
            value_info=inner.infos,
        )
        lasts = [self._fresh("last") for _ in op.states]
        result = self._fresh("scan")
        self.nodes.append(
            helper.make_node(
                "Scan",
                [*starts, *node.inputs[:count]],
                [*lasts, result],
                name=result,
                body=graph,
                num_scan_inputs=count,
                scan_input_axes=[1] * count,
                scan_output_axes=[1],
            )
        )
        self.finish(node, result)

    def _start(self, name: str, sequence: str) -> str:
        """Return the start value of a state for each image; a constant is repeated for the batch."""
        if name not in self.graph.constants:
            return name
        values = self.graph.constants[name]
        shape = self.emit("Concat", self._axes(sequence, 1), self.constant(values.shape), axis=0)
        return self.emit("Expand", self.constant(values, values.dtype.type), shape)

    def output(self, node: Node) -> onnx.ValueInfoProto:
        """Return the description of an output, which is then no inner value any more."""
        self.infos = [info for info in self.infos if info.name != node.name]
        return _value_info(node.name, node.type)

    def _fresh(self, stem: str) -> str:
        return next(name for number in self._numbers if (name := f"{self._stem}{stem}.{number}") not in self._taken)


def _renamed(body: Graph, stem: str) -> Graph:
    """Return a loop's body with `stem` in front of all its names."""
    nodes = [
        replace(node, name=stem + node.name, inputs=tuple(stem + name for name in node.inputs)) for node in body.nodes
    ]
    constants = {stem + name: array for name, array in body.constants.items()}
    return Graph(body.name, tuple(nodes), tuple(stem + name for name in body.outputs), constants)


def _value_info(name: str, type: TensorType) -> onnx.ValueInfoProto:
    kind = TensorProto.INT64 if isinstance(type.dtype, IntType) else TensorProto.DOUBLE
    shape: Sequence[str | int] = (BATCH, *((STEPS,) if type.is_sequence else ()), *type.shape)
    return helper.make_tensor_value_info(name, kind, shape, doc_string=str(type))
