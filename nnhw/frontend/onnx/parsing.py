"""An ONNX file as a checked graph: nothing in it is run, and nothing outside of its folder is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, defs, numpy_helper

from nnhw.errors import InputError

from .external import load_external

OLDEST_OPSET = 7  # from it on, arithmetic broadcasts as it does today
NODES_MAX = 20_000
"""Nodes of a graph that are read: far more than networks for FPGAs have, and few enough to refuse the rest at once."""
ELEMENTS_MAX = 1 << 28  # of all constants together
BYTES_MAX = (1 << 31) - 1  # protobuf parses no more
QONNX = ("qonnx.custom_op.general", "onnx.brevitas", "qonnx.custom_op.channels_last")
_FINN = "finn.custom_op.general"  # an older name of the first of them
QONNX_OPERATORS = frozenset({"Quant", "IntQuant", "BipolarQuant", "Trunc", "MultiThreshold"})
"""Operators of QONNX, whose names no operator of ONNX has."""
MICROSOFT = "com.microsoft"
_VERSIONS = {**dict.fromkeys(QONNX, 2), MICROSOFT: 1}
"""Domains --> their newest version that is supported. Files of QONNX use its domains without importing them."""
_INPUTS: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.UINT8: "uint8", TensorProto.INT8: "int8"}
"""Types that the input may have --> NumPy's names."""
_FEW_BITS = ("INT4", "UINT4", "INT2", "UINT2")  # NumPy has no such types
_FINN_DATATYPE = "finn_datatype"  # key of an annotation
_EXPORT_AGAIN = "export the model again"


@dataclass(frozen=True)
class OnnxGraph:
    """A file's graph after its checks.

    Parameters
    ----------
    model: the file, with external weights taken into it.
    constants: their numbers, by the names of tensors.
    kinds: names of constants' types that NumPy does not have, such as INT4, by the names of tensors.
    nodes: those that the output depends on, in an order in which they can run.
    input, output: the names of the tensors.
    opsets: opset versions, by domain.
    annotations: types of FINN, such as INT4, by the names of the tensors that are annotated with them.
    """

    model: ModelProto
    constants: dict[str, np.ndarray]
    kinds: dict[str, str]
    nodes: tuple[NodeProto, ...]
    input: str
    output: str
    opsets: dict[str, int]
    annotations: dict[str, str]

    @property
    def input_shape(self) -> list[int | None]:
        """The shape of the input; None for a size that the file leaves open."""
        return _shape(self._input())

    @property
    def input_dtype(self) -> np.dtype[np.generic]:
        """The dtype of the input."""
        return np.dtype(_INPUTS[self._input().type.tensor_type.elem_type])

    def _input(self) -> ValueInfoProto:
        return next(value for value in self.model.graph.input if value.name == self.input)


def read(path: Path) -> OnnxGraph:
    """Read and check a file.

    Raises
    ------
    InputError: it is no ONNX file, damaged, too large, of an unknown version, or not one graph from one input to one
        output; its external data is not in its own folder.
    """
    model = _parsed(path)
    _check_parts(model, path)
    _move_to_qonnx(model)
    opsets = _opsets(model, path)
    load_external(list(_tensors(model.graph, path)), path)
    return checked(model, path, opsets)


def checked(model: ModelProto, path: Path, opsets: dict[str, int] | None = None) -> OnnxGraph:
    """Check the graph of a model whose weights are all in it; see `read`.

    Parameters
    ----------
    path: for messages.
    opsets: opset versions by domain; None: they are checked, too.
    """
    graph = model.graph
    opsets = _opsets(model, path) if opsets is None else opsets
    constants = _constants(graph, path)
    _check_order(graph, path)
    needed = needed_nodes(graph.node, graph.output[0].name)
    name = _sole_input(graph, constants, needed, path)
    kinds = {item.name: kind for item in graph.initializer if (kind := few_bits_kind(item))}
    annotations = {
        item.tensor_name: entry.value
        for item in graph.quantization_annotation
        for entry in item.quant_parameter_tensor_names
        if entry.key == _FINN_DATATYPE
    }
    return OnnxGraph(model, constants, kinds, needed, name, graph.output[0].name, opsets, annotations)


def _parsed(path: Path) -> ModelProto:
    size = path.stat().st_size
    if not size:
        raise InputError(f"{path} is empty; {_EXPORT_AGAIN}")
    if size > BYTES_MAX:
        raise InputError(f"{path} has {size} bytes, but protobuf takes {BYTES_MAX}; export it with external data")
    model = ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except (DecodeError, ValueError) as error:
        raise InputError(f"{path} is no ONNX file, or a part of one: {error}; {_EXPORT_AGAIN}") from error
    # protobuf also takes bytes of other files, if they happen to fit.
    if not model.graph.node or not model.ir_version:
        raise InputError(f"{path} is no ONNX file, or has no nodes; {_EXPORT_AGAIN}")
    return model


def _check_parts(model: ModelProto, path: Path) -> None:
    graph = model.graph
    if not all(isinstance(text, str) for text in _texts(model)):
        raise InputError(f"{path} has names that are no text; {_EXPORT_AGAIN}")
    if model.functions:
        raise InputError(
            f"{path} has functions of its own, such as '{model.functions[0].name}'; put their nodes into the graph by "
            f"onnx.inliner.inline_local_functions"
        )
    if graph.sparse_initializer or model.training_info:
        raise InputError(f"{path} has sparse weights or a graph for training; save dense weights, for inference alone")
    if len(graph.node) > NODES_MAX:
        raise InputError(f"{path} has {len(graph.node)} nodes, but {NODES_MAX} are accepted; export a smaller model")
    if len(graph.output) != 1:
        names = ", ".join(f"'{value.name}'" for value in graph.output)
        raise InputError(
            f"{path} must have one output, got {len(graph.output)}: {names}; keep one, such as by "
            f"onnx.utils.extract_model"
        )


def _texts(model: ModelProto) -> Iterator[object]:
    """Yield all names of a file: str, but bytes where they are no UTF-8, as protobuf gives them."""
    graph = model.graph
    yield from (item.domain for item in model.opset_import)
    yield from (item.name for item in (*graph.initializer, *graph.input, *graph.output))
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.t.name)


def _move_to_qonnx(model: ModelProto) -> None:
    """Put operators of QONNX that are in the default domain, or in one of FINN's, into that of QONNX, as QONNX does."""
    for node in model.graph.node:
        # FINN's first domain was also that of its hardware, which a backend tells.
        is_first = node.domain == "finn" and not any(item.name == "backend" for item in node.attribute)
        if is_first or node.domain == _FINN or (not _domain(node.domain) and node.op_type in QONNX_OPERATORS):
            node.domain = QONNX[0]


def _opsets(model: ModelProto, path: Path) -> dict[str, int]:
    """Return the opset version of each domain. Raises: InputError for a domain or version that is not supported."""
    opsets = {_domain(item.domain): item.version for item in model.opset_import}
    newest = defs.onnx_opset_version()
    if not OLDEST_OPSET <= opsets.get("", 0) <= newest:
        given = opsets.get("") or "none"
        raise InputError(
            f"{path} needs an opset version from {OLDEST_OPSET} to {newest}, got {given}; convert it by "
            f"onnx.version_converter.convert_version, or install a newer onnx"
        )
    for domain in dict.fromkeys(_domain(node.domain) for node in model.graph.node):
        version = opsets.setdefault(domain, 1)
        if domain and not 1 <= version <= _VERSIONS.get(domain, 0):
            known = f"its version {version} is" if domain in _VERSIONS else "operators of this domain are"
            node = next(node for node in model.graph.node if _domain(node.domain) == domain)
            raise InputError(
                f"{path} has the operator {node.op_type} of the domain '{domain}', but {known} not known here; export "
                f"with operators of ONNX, of ONNX Runtime ({MICROSOFT}), or of QONNX ({QONNX[0]})"
            )
    return opsets


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _tensors(graph: GraphProto, path: Path) -> Iterator[TensorProto]:
    """Yield the constants of a graph. Raises: InputError for graphs inside of it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
                raise InputError(
                    f"{path}: {node.op_type} '{label_of(node)}' runs a graph inside of the graph; export the model "
                    f"with fixed branches and without loops"
                )
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.TENSORS:
                yield from attribute.tensors


def label_of(node: NodeProto) -> str:
    """Return the name of a node, or else that of its first result."""
    return node.name or next((name for name in node.output if name), "")


def _constants(graph: GraphProto, path: Path) -> dict[str, np.ndarray]:
    # Before any array is made, as a damaged file may claim any size.
    total = 0
    for tensor in _tensors(graph, path):
        count = math.prod(tensor.dims)
        total += max(count, 0)
        if min(tensor.dims, default=0) < 0 or total > ELEMENTS_MAX:
            raise InputError(
                f"{path}: tensor '{tensor.name}' has the shape {list(tensor.dims)}; constants may have {ELEMENTS_MAX} "
                f"numbers all together; export a smaller model"
            )
    constants: dict[str, np.ndarray] = {}
    for tensor in graph.initializer:
        if tensor.name in constants or not tensor.name:
            raise InputError(f"{path} has two constants with the name '{tensor.name}'; {_EXPORT_AGAIN}")
        constants[tensor.name] = array_of(tensor, str(path))
    return constants


def array_of(tensor: TensorProto, place: str) -> np.ndarray:
    """Return a tensor's numbers; float16 as float32, integers of 2 and 4 bits as int8.

    Parameters
    ----------
    place: whose tensor it is, for the message.

    Raises
    ------
    InputError: its bytes do not fit its shape and type, or it holds no numbers.
    """
    try:
        array = numpy_helper.to_array(tensor)
    # Broad: onnx and NumPy raise errors of many classes for bytes that do not fit.
    except Exception as error:
        raise InputError(
            f"{place}: the numbers of tensor '{tensor.name}' are not those of its shape {list(tensor.dims)} and type: "
            f"{error}; {_EXPORT_AGAIN}"
        ) from error
    if array.dtype.kind in "fiub":
        return array.astype(np.float32) if array.dtype == np.float16 else array
    kind = TensorProto.DataType.Name(tensor.data_type)
    if kind in _FEW_BITS:
        return array.astype(np.int8)
    raise InputError(f"{place}: tensor '{tensor.name}' holds {kind}; export with float32 or integers")


def few_bits_kind(tensor: TensorProto) -> str:
    """Return the name of a tensor's type where `array_of` gives it another one, such as INT4; else empty."""
    kind = TensorProto.DataType.Name(tensor.data_type)
    return kind if kind in _FEW_BITS else ""


def _check_order(graph: GraphProto, path: Path) -> None:
    """Check that each value is made once, and before it is read."""
    made = {item.name for item in graph.initializer} | {value.name for value in graph.input} | {""}
    for node in graph.node:
        for name in node.input:
            if name not in made:
                raise InputError(
                    f"{path}: {node.op_type} '{label_of(node)}' reads '{name}', which nothing makes before it; the "
                    f"nodes must be in the order in which they run, without cycles: {_EXPORT_AGAIN}"
                )
        for name in node.output:
            if name and name in made:
                raise InputError(
                    f"{path}: '{name}' is made twice, the second time by {node.op_type} '{label_of(node)}'; "
                    f"{_EXPORT_AGAIN}"
                )
            made.add(name)
    if graph.output[0].name not in made - {""}:
        raise InputError(f"{path}: nothing makes the output '{graph.output[0].name}'; {_EXPORT_AGAIN}")


def needed_nodes(nodes: Sequence[NodeProto], *outputs: str) -> tuple[NodeProto, ...]:
    """Return the nodes that the tensors `outputs` depend on, in the order of `nodes`."""
    wanted, needed = set(outputs), []
    # Once backwards is enough: nodes are in the order in which they run, so each maker is met behind its readers.
    for node in reversed(nodes):
        if wanted & set(node.output) - {""}:
            needed.append(node)
            wanted |= set(node.input)
    return tuple(reversed(needed))


def _sole_input(graph: GraphProto, constants: dict[str, np.ndarray], needed: tuple[NodeProto, ...], path: Path) -> str:
    # Files of IR versions before 4 list their constants among the inputs, too.
    names = [value.name for value in graph.input if value.name not in constants]
    if len(names) != 1:
        listed = ", ".join(f"'{name}'" for name in names) or "none"
        raise InputError(
            f"{path} must have one input, got {len(names)}: {listed}; make constants of the others, or export a model "
            f"with one input"
        )
    given = next(value.type.tensor_type.elem_type for value in graph.input if value.name == names[0])
    if given not in _INPUTS:
        kind = TensorProto.DataType.Name(given) if given in TensorProto.DataType.values() else "an unknown type"
        raise InputError(
            f"{path}: the input '{names[0]}' is {kind}, but needs to be float32, int8 or uint8; {_EXPORT_AGAIN}"
        )
    if not any(names[0] in node.input for node in needed):
        raise InputError(f"{path}: the output does not depend on the input '{names[0]}'; {_EXPORT_AGAIN}")
    return names[0]


def _shape(value: ValueInfoProto) -> list[int | None]:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return []
    return [axis.dim_value if axis.HasField("dim_value") and axis.dim_value > 0 else None for axis in tensor.shape.dim]
