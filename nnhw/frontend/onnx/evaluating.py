"""Evaluation of a file by ONNX Runtime, and of QONNX's operators by QONNX's own functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import ModelProto, NodeProto, ValueInfoProto, helper
from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.errors import InputError
from nnhw.frontend.evaluation import Evaluator, QuantizerCall, call_of

from .module import OnnxModel, Tap
from .parsing import QONNX, array_of, needed_nodes
from .quantizing import QuantizeNode
from .unsigned_weights import with_unsigned_weights

# Every ONNX Runtime from 1.20 on reads this version. The meaning of operators depends on opset versions alone.
_IR_VERSION = 10


class OnnxEvaluator(Evaluator):
    """Evaluates the file of a model by ONNX Runtime, without any of its optimizations."""

    model: OnnxModel

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        file = self.model.file
        wanted = (name for tap in file.taps for name in (tap.tensor, tap.reads) if name)
        self._runner = _Runner(file.content, file.input, (file.output, *wanted))

    def _result(self, batch: Tensor, calls: list[QuantizerCall]) -> Tensor:
        """Return the result for a batch [N, *shape]; append quantizers' calls to `calls`, in the module's order."""
        file = self.model.file
        images = batch.numpy()
        batches = list(_parts(images, file.batch))
        parts = [self._runner(part) for part in batches]
        if file.bare:
            parts = [{**part, file.output: part[file.output][None]} for part in parts]
        for name in (file.output, *(tap.tensor for tap in file.taps if not tap.constant)):
            _check_counts(name, [len(part[name]) for part in parts], [len(part) for part in batches])
        for tap in file.taps:
            array = _joined(parts, tap.tensor, tap.constant, len(images))
            if tap.part:
                axis, start, end = tap.part
                array = array.take(range(start, end), axis)
            call = self._call(tap, array)
            if tap.reads:
                call = replace(call, numbers=_joined(parts, tap.reads, tap.constant, len(images)))
            calls.append(call)
        result = _joined(parts, file.output, False, len(images))
        return torch.from_numpy(result.astype(np.float32) if file.integers else np.array(result))

    def _call(self, tap: Tap, array: np.ndarray) -> QuantizerCall:
        codes = next(part for part in getattr(self.model, tap.layer).modules() if isinstance(part, QuantizeNode))
        made = torch.from_numpy(np.asarray((array.astype(np.float64) - tap.offset) * tap.factor))
        return call_of(made.float(), (made.float(), codes.scale, codes.zero_point, *codes.convention))


def evaluator(model: nn.Module | ExportedProgram) -> OnnxEvaluator:
    """Return the evaluator of a model from an ONNX file: ONNX Runtime on the file itself."""
    assert isinstance(model, nn.Module)
    return OnnxEvaluator(model)


def _check_counts(name: str, made: Sequence[int], given: Sequence[int]) -> None:
    """Raise InputError unless a tensor has one part for each image of each batch."""
    for results, count in zip(made, given, strict=True):
        if results != count:
            raise InputError(
                f"the file makes {results} parts of tensor '{name}' from {count} images, so its batch size is fixed; "
                f"export it with an open batch"
            )


def _joined(parts: Sequence[Mapping[str, np.ndarray]], name: str, constant: bool, count: int) -> np.ndarray:
    """Return a tensor of `count` images, joined from batches; one that is constant has no batch to be joined."""
    arrays = [part[name] for part in parts]
    return arrays[0] if constant else np.concatenate(arrays)[:count]


def _parts(images: np.ndarray, size: int | None) -> Iterator[np.ndarray]:
    """Cut images into batches of the only size that a file takes; the last one is filled up with its own images."""
    if size is None:
        yield images
        return
    for start in range(0, len(images), size):
        part = images[start : start + size]
        yield part[np.arange(size) % len(part)]


class _Runner:
    """Evaluates a graph: each run of standard nodes by a session of ONNX Runtime, QONNX's nodes by QONNX.

    Parameters
    ----------
    content: the serialized model.
    input: the name of its input.
    wanted: the names of the tensors that a call returns.
    """

    def __init__(self, content: bytes, input: str, wanted: Sequence[str]) -> None:
        model = ModelProto()
        model.ParseFromString(content)
        self._input, self._wanted = input, dict.fromkeys(wanted)
        self._opsets = {item.domain: item.version for item in model.opset_import if item.domain not in QONNX}
        self._versions = {item.domain: item.version for item in model.opset_import}
        self._initializers = {item.name: item for item in model.graph.initializer}
        # Only what is wanted runs: intermediate codes are outputs, too, so ONNX Runtime may not drop them.
        nodes = [part for node in needed_nodes(model.graph.node, *self._wanted) for part in _standard(node)]
        self._parts = _segments(with_unsigned_weights(nodes, self._initializers))
        self._sessions: dict[int, tuple[onnxruntime.InferenceSession, list[str], list[str]]] = {}

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Return the wanted tensors of images [N, *shape], by their names."""
        values: dict[str, np.ndarray] = {self._input: images}
        for number, nodes in enumerate(self._parts):
            if nodes[0].domain in QONNX:
                values[nodes[0].output[0]] = self._custom(nodes[0], values)
                continue
            if number not in self._sessions:
                self._sessions[number] = self._session(number, values)
            session, names, results = self._sessions[number]
            with _refused():
                made = session.run(results, {name: values[name] for name in names})
            values.update(zip(results, made, strict=True))
        return {name: values[name] if name in values else self._constant(name) for name in self._wanted}

    def _constant(self, name: str) -> np.ndarray:
        return array_of(self._initializers[name], "the file")

    def _custom(self, node: NodeProto, values: dict[str, np.ndarray]) -> np.ndarray:
        """Evaluate a node of QONNX by QONNX's function for its operator."""
        # Warnings of QONNX's package, and of what it imports, are of no use to the user of a file.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                from qonnx.custom_op.registry import getCustomOp
            except ImportError as error:
                raise InputError(
                    f"a file with operators of QONNX needs a package that is missing: {error}; it comes by: pip "
                    f"install 'nnhw[onnx]'"
                ) from error

            context: dict[str, Any] = {
                name: values[name] if name in values else self._constant(name) for name in node.input
            }
            own = NodeProto()
            own.CopyFrom(node)
            # QONNX registers its operators under this domain; files may have older names of it.
            own.domain = QONNX[0]
            getCustomOp(own, onnx_opset_version=self._versions.get(node.domain, 1)).execute_node(context, None)
        result: np.ndarray = np.asarray(context[node.output[0]])
        return result

    def _session(
        self, number: int, values: dict[str, np.ndarray]
    ) -> tuple[onnxruntime.InferenceSession, list[str], list[str]]:
        """Return a session for a part of the graph, and the names of the values that it reads and makes."""
        nodes = self._parts[number]
        made = {name for node in nodes for name in node.output if name}
        read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
        names = [name for name in read if name not in self._initializers]
        later = {name for part in self._parts[number + 1 :] for node in part for name in node.input}
        results = [name for node in nodes for name in node.output if name and name in later | self._wanted.keys()]
        graph = helper.make_graph(
            nodes,
            "part",
            [_untyped(name, values[name]) for name in names],
            [helper.make_empty_tensor_value_info(name) for name in results],
            [self._initializers[name] for name in read if name in self._initializers],
        )
        # Sessions are made at the first call, when the types of the values between parts are known.
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        options = onnxruntime.SessionOptions()
        # Optimizations fuse DequantizeLinear to QuantizeLinear into operators on integers, which round otherwise.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
        with _refused():
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return session, names, results


@contextmanager
def _refused() -> Iterator[None]:
    """Turn any exception of ONNX Runtime into an InputError with its first line."""
    try:
        yield
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise InputError(f"ONNX Runtime does not evaluate the file: {line}; export it in another form") from error


def _segments(nodes: Sequence[NodeProto]) -> list[list[NodeProto]]:
    """Return runs of standard nodes, and nodes of QONNX one by one, in an order in which they can run.

    Nodes go into the first run behind all that they read, so that there are few runs.
    """
    level: dict[str, int] = {}
    placed: dict[int, list[NodeProto]] = {}
    for node in nodes:
        custom = node.domain in QONNX
        before = max((level.get(name, 0) for name in node.input), default=0)
        # Odd levels are of QONNX, even ones of runs.
        own = before + 1 - before % 2 if custom else before + before % 2
        own = before + 2 if custom and before % 2 else own
        placed.setdefault(own, []).append(node)
        level.update(dict.fromkeys(node.output, own))
    segments: list[list[NodeProto]] = []
    for own in sorted(placed):
        segments += [[node] for node in placed[own]] if own % 2 else [placed[own]]
    return segments


def _standard(node: NodeProto) -> list[NodeProto]:
    """Return standard nodes that compute a node with channels last: Transpose, the node, Transpose. Others stay."""
    if node.domain != QONNX[-1] and node.op_type != "MaxPoolNHWC":
        return [node]
    sizes = next((item.ints for item in node.attribute if item.name == "kernel_shape"), (1, 1))
    rank, names, result = len(sizes) + 2, list(node.input), node.output[0]
    back, forth = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    moved = 2 if node.op_type == "Conv" else 1
    fronts = [f"{result}/operand{place}" for place in range(moved)]
    nodes = [helper.make_node("Transpose", [name], [to], perm=back) for name, to in zip(names, fronts, strict=False)]
    own = NodeProto()
    own.CopyFrom(node)
    own.domain, own.op_type = "", node.op_type.removesuffix("NHWC")
    own.input[:moved], own.output[0] = fronts, f"{result}/first"
    return [*nodes, own, helper.make_node("Transpose", [own.output[0]], [result], perm=forth)]


def _untyped(name: str, array: np.ndarray) -> ValueInfoProto:
    """Return the description of an input: its type and its number of axes; sizes stay open."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [None] * array.ndim)
