"""Nodes that compute with constants and sizes alone: they are evaluated when a file is read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from .node import Build, OnnxNode
from .parsing import ELEMENTS_MAX, few_bits_kind
from .values import BATCH, EXAMPLES, Known, Traced, Value

_MOVES = frozenset({"Gather", "Concat", "Unsqueeze", "Squeeze", "Slice", "Cast", "Identity", "Reshape", "Split"})
"""Operators that copy or move numbers, so that `BATCH`, the mark for the batch's size, stays what it is."""
FOLDED = _MOVES | frozenset(
    {
        *("Abs", "Add", "And", "Ceil", "Clip", "ConstantOfShape", "Div", "Equal", "Exp", "Expand", "Flatten", "Floor"),
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or"),
        *("Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Round", "Shape", "Sign"),
        *("Size", "Sqrt", "Sub", "Tile", "Transpose", "Where", "Pad", "ReduceMean", "Relu", "Sigmoid", "Tanh"),
        *("Dropout", "CastLike", "DepthToSpace", "Trilu", "ScatterND", "GatherND", "Concat"),
    }
)
_INT64 = 7  # of the attribute `to`


def _can_fold(node: OnnxNode) -> bool:
    known = all(value is None or isinstance(value, Known) for value in node.inputs)
    return node.proto.domain in ("", "ai.onnx") and node.op in FOLDED and known and bool(node.inputs)


def folded(node: OnnxNode) -> list[Value] | None:
    """Return the results of a node that reads constants alone; None for any other node."""
    return _results(node) if _can_fold(node) else None


def _results(node: OnnxNode) -> list[Value]:
    values = [value for value in node.inputs if isinstance(value, Known)]
    # The size of the batch is not known when a file is read. Its mark goes through operators that only move it, as
    # exporters write x.shape[0] into the target of a Reshape.
    if any(value.depends_on_batch for value in values):
        if node.op not in _MOVES or (node.op == "Cast" and node.take("to") != _INT64):
            raise node.refusal("computes with the size of the batch; an image's result must not depend on it")
    _check_size(node, values)
    # Attributes of all kinds are known to the reference evaluator.
    for name in node.untaken:
        node.take(name)
    given = [value for value in node.inputs if isinstance(value, Known)]
    names = [name for name in node.proto.input if name]
    graph = helper.make_graph(
        [node.proto],
        "folded",
        [helper.make_tensor_value_info(value, 0, None) for value in dict.fromkeys(names)],
        [helper.make_tensor_value_info(name, 0, None) for name in node.proto.output if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.version)])
    # A name that is read twice is one input of the graph.
    feeds = {name: value.array for name, value in zip(names, given, strict=True)}
    try:
        # ONNX's own evaluator has the meaning of each operator and opset version, so none of them is written again
        # here.
        results = ReferenceEvaluator(model).run(None, feeds)
    # Broad: the reference evaluator is NumPy code without checks of its own.
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise node.refusal(
            f"does not fit its inputs: {type(error).__name__}: {line}; export the model again"
        ) from error
    # ONNX lets INT4 and its like be moved and cast alone, so that what is still int8 has the type of what was moved.
    kind = given[0].kind if given and node.op not in ("Cast", "CastLike") else ""
    arrays = map(np.asarray, results)
    return [
        Known(name, array, kind if array.dtype == np.int8 else "")
        for name, array in zip(node.proto.output, arrays, strict=False)
    ]


def _check_size(node: OnnxNode, values: Sequence[Known]) -> None:
    """Check that a result has at most `ELEMENTS_MAX` numbers, where inputs give its shape. Raises: CaptureError."""
    count = 0.0
    if node.op in ("ConstantOfShape", "Expand", "Tile", "Pad"):
        numbers = values[-1 if node.op != "Pad" else 1].array if values else np.zeros(0)
        # An upper bound: a border of p elements makes an axis at most p + 1 times as long.
        sizes = [abs(float(size)) + 1 for size in numbers.reshape(-1)[:64]]
        count = math.prod(sizes) * (values[0].array.size if node.op != "ConstantOfShape" else 1)
    elif node.op == "Range" and len(values) == 3:
        start, limit, step = (float(value.array) for value in values)
        count = abs((limit - start) / step) if step else math.inf
    if count > ELEMENTS_MAX:
        raise node.refusal(f"makes a constant of {count:.3g} numbers; {ELEMENTS_MAX} are accepted")


def shape(node: OnnxNode) -> Value:
    """Shape of a value, with `BATCH` in place of the batch's size."""
    value = node[0]
    sizes = list(value.array.shape if isinstance(value, Known) else value.shape)
    if isinstance(value, Traced) and value.bare:
        sizes = list(value.file_shape)
    start, end = node.take("start", 0), node.take("end", len(sizes))
    if isinstance(value, Traced) and not value.constant and not value.bare:
        sizes[0] = BATCH if sizes[0] == EXAMPLES else sizes[0]
    return Known(node.proto.output[0], np.array(sizes[start:end], np.int64))


def constant(node: OnnxNode) -> Value:
    """Constant: its numbers, of any of its attributes for numbers."""
    kinds = {
        "value": None,
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    for name, kind in kinds.items():
        value = node.take(name)
        if value is not None:
            few_bits = next((few_bits_kind(item.t) for item in node.proto.attribute if item.name == "value"), "")
            return Known(node.proto.output[0], np.asarray(value, kind), few_bits)
    raise node.refusal("has no numbers; export it with a plain tensor")


TABLE: dict[str, Build] = {"Shape": shape, "Constant": constant}
