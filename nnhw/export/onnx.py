"""A graph as an ONNX model of standard operators that computes the same integers.

Importing this needs the package `onnx`. What each operator becomes is in `onnx_operators`; docs/ir.md has the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import nnhw
from nnhw.errors import LoweringError, NnhwError, raise_all
from nnhw.ir import Graph, IntType, Node, TensorType, graph_hash
from nnhw.ir.ops import Constant, Input

from .onnx_emitter import Emitter
from .onnx_operators import OPERATORS, REFUSED

OPSET = 17
"""Version of ONNX's operators that the model is of."""
IR_VERSION = 8
BATCH = "N"
"""Name of the first axis of every input and output."""


def to_onnx(graph: Graph) -> onnx.ModelProto:
    """Return an ONNX model that computes what a graph computes, by operators of ONNX's own domain.

    Integers are int64 [N, *shape] at inputs and outputs and between operators, floats are float64.

    Raises
    ------
    LoweringError, or ProblemList with all of them at once: operators that no standard operators compute exactly.
    """
    raise_all(_refusals(graph))
    emitter = _OnnxEmitter(graph)
    for node in graph.nodes:
        if not isinstance(node.op, Input | Constant):
            OPERATORS[node.op.name](emitter, node)
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
    """Return the file of a model; the same graph gives the same bytes."""
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _refusals(graph: Graph) -> list[NnhwError]:
    """Return a problem for each operator that has no exact counterpart."""
    bare = [node for node in graph.output_nodes if isinstance(node.op, Input | Constant)]
    problems: list[NnhwError] = [
        LoweringError(f"nothing computes output '{node.name}' of graph '{graph.name}'; return what an operator gives")
        for node in bare
    ]
    for node in graph.nodes:
        if node.op.name not in OPERATORS and not isinstance(node.op, Input | Constant):
            reason = REFUSED.get(node.op.name, "it is an operator of your own")
            problems.append(
                LoweringError(
                    f"{node} has no form in standard ONNX operators that gives the same numbers everywhere: {reason}; "
                    "export the integer part alone, or end the model in front of it"
                )
            )
    return problems


class _OnnxEmitter(Emitter):
    """Collects the nodes of an ONNX graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.infos: list[onnx.ValueInfoProto] = []
        self._numbers = count(1)
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._taken = {node.name for node in graph.nodes}

    def emit(self, operator: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Add one ONNX node; return the name of its result."""
        result = to or self._fresh(operator.lower())
        self.nodes.append(helper.make_node(operator, list(inputs), [result], name=result, **attributes))
        return result

    def constant(self, values: object, dtype: type[np.generic] = np.int64) -> str:
        """Return the name of a constant tensor; equal ones are one."""
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
        """Give a result the name of the graph's node."""
        self.emit("Identity", value, to=node.name)
        self.infos.append(_value_info(node.name, node.type))

    def output(self, node: Node) -> onnx.ValueInfoProto:
        """Return what the model says of an output."""
        self.infos = [info for info in self.infos if info.name != node.name]
        return _value_info(node.name, node.type)

    def _fresh(self, stem: str) -> str:
        return next(name for number in self._numbers if (name := f"{stem}.{number}") not in self._taken)


def _value_info(name: str, type: TensorType) -> onnx.ValueInfoProto:
    kind = TensorProto.INT64 if isinstance(type.dtype, IntType) else TensorProto.DOUBLE
    shape: Sequence[str | int] = (BATCH, *type.shape)
    return helper.make_tensor_value_info(name, kind, shape, doc_string=str(type))
