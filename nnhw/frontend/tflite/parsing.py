"""From a TFLite file's bytes to checked dataclasses. Nothing in the file is run, and no other file is opened."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from nnhw.errors import InputError, raise_all

from .beyond import WINDOW, Beyond, beyond_of
from .model_file import FileOperator, FileTensor, ModelFile, Quantization
from .second_reading import check_reading

_IDENTIFIER = b"TFL3"
_GREATEST_FILE = 1 << 28
_GREATEST_COUNT = 100_000
_GREATEST_ELEMENTS = 1 << 28
_GREATEST_RANK = 6
"""Limits of a file: its bytes, entries of a list, elements and axes of a tensor. Networks for FPGAs are far below."""
_NUMPY = {"FLOAT32": "<f4", "INT32": "<i4", "INT64": "<i8", "INT8": "i1", "UINT8": "u1", "INT16": "<i2", "BOOL": "?"}
_MALFORMED = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError)
"""Exceptions of flatbuffers where offsets lead out of the file, or to something that is no table."""


def read_model(path: Path) -> ModelFile:
    """Return the content of a file.

    Raises
    ------
    InputError: it is no whole TFLite file, or its graph has a form that is not supported; the message says which.
    """
    size = path.stat().st_size
    if size > _GREATEST_FILE:
        raise InputError(f"{path} has {size} bytes, and at most {_GREATEST_FILE} are read; give a smaller network")
    return parse_model(path.read_bytes(), path.name)


def parse_model(data: bytes, title: str) -> ModelFile:
    """Return the content of a file from its bytes; `title` names it in messages. Raises: as `read_model`."""
    if len(data) < 8 or data[4:8] != _IDENTIFIER:
        raise InputError(
            f"{title} is no TFLite file: such a file has the letters TFL3 behind its first four bytes, this one has "
            f"{data[4:8]!r} in {len(data)} bytes; convert the model again"
        )
    try:
        model = _Reader(data, title).model()
        check_reading(data, model)
        return model
    except _MALFORMED as error:
        raise InputError(
            f"{title} is damaged: a part of it lies outside of the file, or is not what it should be "
            f"({type(error).__name__}); copy or convert it again"
        ) from error


class _Reader:
    """Reads one file. Its methods may raise anything of `_MALFORMED` where the file is damaged.

    Parameters
    ----------
    data: the bytes of the file.
    title: its name, for messages.
    """

    def __init__(self, data: bytes, title: str) -> None:
        self._data, self._title = data, title
        # flatbuffers reads each field where it is asked for, without any check, so that damage shows late and anywhere.
        self._file = tflite.Model.GetRootAs(data, 0)

    def model(self) -> ModelFile:
        graph = self._graph()
        tensors = tuple(self._tensor(graph, index) for index in range(self._count(graph.TensorsLength(), "tensors")))
        operators = tuple(self._operators(graph, tensors))
        ends = {}
        for kind in ("Inputs", "Outputs"):
            found = [
                getattr(graph, kind)(place) for place in range(self._count(getattr(graph, f"{kind}Length")(), kind))
            ]
            if len(found) != 1:
                raise self._refusal(
                    f"has {len(found)} {kind.lower()}, and an accelerator has one of each; cut the graph"
                )
            self._check_index(found[0], tensors)
            ends[kind] = found[0]
        model = ModelFile(self._title, tensors, operators, ends["Inputs"], ends["Outputs"])
        self._check_order(model)
        return model

    def _graph(self) -> Any:
        if self._file.Version() != 3:
            raise self._refusal(
                f"has version {self._file.Version()} of the format, and version 3 is read; convert it again"
            )
        if self._file.SubgraphsLength():
            self._check_kinds(self._file.Subgraphs(0))
        if self._file.SubgraphsLength() != 1:
            raise self._refusal(
                f"has {self._file.SubgraphsLength()} graphs, and one is needed; loops and branches, which keep others, "
                f"have no engine"
            )
        return self._file.Subgraphs(0)

    def _check_kinds(self, graph: Any) -> None:
        """Refuse operators that are more than a layer, before their tensors are read, which have forms of their own."""
        found: dict[Beyond, list[str]] = {}
        for place in range(self._count(graph.OperatorsLength(), "operators")):
            entry = graph.Operators(place)
            kind = self._kind(entry.OpcodeIndex())
            beyond = beyond_of(kind)
            if beyond is not None:
                # Some have no result and some no input; CALL_ONCE has neither.
                ends = [getattr(entry, end)(0) for end in ("Outputs", "Inputs") if getattr(entry, f"{end}Length")()]
                name = graph.Tensors(ends[0]).Name() if ends and 0 <= ends[0] < graph.TensorsLength() else None
                label = f"{kind} '{name.decode('utf-8', 'replace')}'" if name else kind
                found.setdefault(beyond, []).append(label)
        raise_all([self._refusal(beyond.message(labels)) for beyond, labels in found.items()])

    def _tensor(self, graph: Any, index: int) -> FileTensor:
        entry = graph.Tensors(index)
        name = (entry.Name() or b"").decode("utf-8", "replace") or f"tensor {index}"
        type = _name(tflite.TensorType, entry.Type())
        shape = tuple(entry.Shape(axis) for axis in range(self._count(entry.ShapeLength(), f"axes of '{name}'")))
        if len(shape) > _GREATEST_RANK or any(size < 1 for size in shape) or math.prod(shape) > _GREATEST_ELEMENTS:
            raise self._refusal(
                f"has the tensor '{name}' of shape {list(shape)}; each size must be at least 1, and known"
            )
        signature = [entry.ShapeSignature(axis) for axis in range(entry.ShapeSignatureLength())]
        if -1 in signature[1:]:
            raise self._refusal(
                f"has the tensor '{name}' of shape {signature}, where -1 is not known before it runs; only the batch "
                f"may be of any size: convert it with fixed shapes"
            )
        # Before the buffer is looked at: a variable has none, like a computed tensor.
        if entry.IsVariable():
            raise self._refusal(
                f"has the variable '{name}', which keeps a state from one call to the next; {WINDOW} (docs/tflite.md, "
                f"'Networks with a state')"
            )
        if entry.Sparsity() is not None:
            raise self._refusal(f"has the sparse tensor '{name}'; convert it without sparsity")
        data = self._constant(entry.Buffer(), name, type, shape)
        return FileTensor(index, name, shape, type, self._quantization(entry, name, shape), data)

    def _constant(self, number: int, name: str, type: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the numbers of the tensor that has buffer `number`; None if the graph computes it."""
        if not 0 <= number < self._file.BuffersLength():
            raise self._refusal(
                f"has the tensor '{name}' in buffer {number} of {self._file.BuffersLength()}; convert it again"
            )
        buffer = self._file.Buffers(number)
        if buffer.Offset() or buffer.Size():
            raise self._refusal(f"keeps the numbers of '{name}' outside of its tables; convert a network below 2 GB")
        # Tensors that the graph computes have an empty buffer.
        if not buffer.DataLength():
            return None
        # A view of the file's bytes, so that a large claim costs nothing before it is checked.
        given: np.ndarray = buffer.DataAsNumpy()
        if type == "INT4":
            return self._halves(given, name, shape)
        if type not in _NUMPY:
            return None
        kind = np.dtype(_NUMPY[type])
        if len(given) != math.prod(shape) * kind.itemsize:
            raise self._refusal(
                f"has {len(given)} bytes for the tensor '{name}' of type {type} and shape {list(shape)}, which needs "
                f"{math.prod(shape) * kind.itemsize}; convert it again"
            )
        return np.frombuffer(given.tobytes(), kind).reshape(shape)

    def _halves(self, given: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return integers of 4 bits as int8; `given` has two in a byte, that in the lower bits first."""
        count = math.prod(shape)
        if len(given) != (count + 1) // 2:
            raise self._refusal(
                f"has {len(given)} bytes for the {count} numbers of 4 bits of '{name}'; convert it again"
            )
        halves = np.stack([given & 15, given >> 4], axis=1).reshape(-1)[:count].astype(np.int8)
        return np.where(halves > 7, halves - 16, halves).astype(np.int8).reshape(shape)

    def _quantization(self, entry: Any, name: str, shape: tuple[int, ...]) -> Quantization | None:
        stated = entry.Quantization()
        if stated is None or not stated.ScaleLength():
            return None
        if stated.DetailsType():
            raise self._refusal(f"has the tensor '{name}' with a quantization of its own kind; use TFLite's own")
        count = self._count(stated.ScaleLength(), f"scales of '{name}'")
        scale = np.array([stated.Scale(place) for place in range(count)], np.float32)
        zero_point = np.zeros(count, np.int64)
        if stated.ZeroPointLength():
            zero_point = np.array([stated.ZeroPoint(place) for place in range(stated.ZeroPointLength())], np.int64)
        # Of weights alone the axis is read, by their layers; that of a bias is, in many files, the one of its weights.
        # Zero points are of 64 bits in the format; beyond 32 none could be added to a sum.
        if count not in (1, *shape) or len(zero_point) not in (1, count) or np.abs(zero_point).max() > 1 << 31:
            raise self._refusal(
                f"has {count} scales and {len(zero_point)} zero points for the tensor '{name}' of shape {list(shape)}; "
                f"one is needed, or one for each index of an axis"
            )
        bad = scale[~(np.isfinite(scale) & (scale > 0))]
        if bad.size:
            raise self._refusal(f"has the scale {bad[0]} for the tensor '{name}'; scales are positive and finite")
        return Quantization(scale, np.broadcast_to(zero_point, count).copy(), stated.QuantizedDimension())

    def _operators(self, graph: Any, tensors: tuple[FileTensor, ...]) -> Iterator[FileOperator]:
        for place in range(self._count(graph.OperatorsLength(), "operators")):
            entry = graph.Operators(place)
            kind = self._kind(entry.OpcodeIndex())
            inputs = [entry.Inputs(index) for index in range(self._count(entry.InputsLength(), "inputs"))]
            outputs = [entry.Outputs(index) for index in range(self._count(entry.OutputsLength(), "outputs"))]
            # -1 stands for an optional input that is left out.
            for index in (*(number for number in inputs if number != -1), *outputs):
                self._check_index(index, tensors)
            if not outputs:
                raise self._refusal(f"has an operator {kind} without a result; convert it again")
            options = self._options(entry, kind, tensors[outputs[0]])
            yield FileOperator(
                kind, tuple(None if number == -1 else number for number in inputs), tuple(outputs), options
            )

    def _kind(self, number: int) -> str:
        if not 0 <= number < self._file.OperatorCodesLength():
            raise self._refusal(
                f"has an operator of kind {number} of {self._file.OperatorCodesLength()}; convert it again"
            )
        code = self._file.OperatorCodes(number)
        builtin = self._code(code)
        if builtin == tflite.BuiltinOperator.CUSTOM:
            name = (code.CustomCode() or b"").decode("utf-8", "replace")
            return f"CUSTOM ({name})"
        return _name(tflite.BuiltinOperator, builtin)

    def _code(self, entry: Any) -> int:
        """Return the number of an operator, which stands in a field of one byte, in a newer one of four, or in both."""
        # From the field itself, as BuiltinCode() of the package gives the old field for all numbers below 127.
        place = entry._tab.Offset(_NEW_CODE)
        (new,) = struct.unpack_from("<i", self._data, place + entry._tab.Pos) if place else (0,)
        old = entry.DeprecatedBuiltinCode()
        # A field that is left out reads as 0; the old one has 127 for numbers that do not fit.
        code = max(new, old)
        if new not in (0, code) or old not in (0, min(code, 127)):
            raise self._refusal(
                f"states two codes for one operator, {old} in the old field and {new} in the new one; convert it again"
            )
        return int(code)

    def _options(self, entry: Any, kind: str, made: FileTensor) -> dict[str, Any]:
        """Return the options of an operator by name; empty where it has none that are read."""
        name, fields = _OPTIONS.get(kind, ("", ()))
        stated, table = _name(tflite.BuiltinOptions, entry.BuiltinOptionsType()), entry.BuiltinOptions()
        if kind in _OPTIONS and stated not in ("NONE", name):
            raise self._refusal(
                f"has the operator {kind} {made.place} with {stated}, the options of another operator; convert it again"
            )
        if not fields:
            return {}
        options = getattr(tflite, name)()
        # Without a table, or with one that states nothing, every option has the format's default.
        options.Init(*((_NO_FIELDS, 4) if table is None or stated == "NONE" else (table.Bytes, table.Pos)))
        found = {field: getattr(options, field)() for field in fields}
        return {field: _NAMED[field](value) if field in _NAMED else value for field, value in found.items()}

    def _check_index(self, index: int, tensors: tuple[FileTensor, ...]) -> None:
        if not 0 <= index < len(tensors):
            raise self._refusal(f"names the tensor {index}, and has {len(tensors)}; convert it again")

    def _check_order(self, model: ModelFile) -> None:
        """Check that operators read constants or earlier results (so there is no cycle), and make each tensor once."""
        # Order is checked, as everything behind reads values by it: a cycle cannot be ordered.
        known = {model.input, *(tensor.index for tensor in model.tensors if tensor.data is not None)}
        if model.tensors[model.input].data is not None:
            raise self._refusal(f"has the constant {model.tensors[model.input].place} as its input; convert it again")
        for operator in model.operators:
            for index in operator.inputs:
                if index is not None and index not in known:
                    raise self._refusal(
                        f"has the operator {operator.kind} {model.made(operator).place}, which reads "
                        f"{model.tensors[index].place} before anything makes it; convert it again"
                    )
            for index in operator.outputs:
                if index in known:
                    raise self._refusal(f"makes the tensor {model.tensors[index].place} twice; convert it again")
                known.add(index)
        if model.output not in known or model.output == model.input:
            raise self._refusal(f"never makes its output {model.tensors[model.output].place}; convert it again")

    def _count(self, number: int, what: str) -> int:
        """Return a stated number of entries, which must be possible in a file of this size; `what` names them."""
        if not 0 <= number <= min(_GREATEST_COUNT, len(self._data)):
            raise self._refusal(f"states {number} {what}, which is more than it can hold; convert it again")
        return number

    def _refusal(self, what: str) -> InputError:
        return InputError(f"{self._title} {what}")


def _name(enumeration: type, number: int) -> str:
    """Return the name of a number in an enumeration of the format; "number N" if it has none."""
    found: Mapping[int, str] = {value: key for key, value in vars(enumeration).items() if isinstance(value, int)}
    return found.get(number, f"number {number}")


_NEW_CODE = 10
"""Place of the newer field of an operator code in the index of its table."""
_NO_FIELDS = struct.pack("<HHi", 4, 4, 4)
"""A table of no fields, which begins at 4, behind its index."""
_POOL = ("Padding", "StrideW", "StrideH", "FilterWidth", "FilterHeight", "FusedActivationFunction")
_SUM = ("FusedActivationFunction", "PotScaleInt16")
_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "CONV_2D": (
        "Conv2DOptions",
        (
            "Padding", "StrideW", "StrideH", "FusedActivationFunction", "DilationWFactor", "DilationHFactor",
            "QuantizedBiasType",
        ),
    ),
    "DEPTHWISE_CONV_2D": (
        "DepthwiseConv2DOptions",
        (
            "Padding", "StrideW", "StrideH", "DepthMultiplier", "FusedActivationFunction", "DilationWFactor",
            "DilationHFactor",
        ),
    ),
    "FULLY_CONNECTED": (
        "FullyConnectedOptions",
        (
            "FusedActivationFunction", "WeightsFormat", "KeepNumDims", "AsymmetricQuantizeInputs", "QuantizedBiasType",
        ),
    ),
    "TRANSPOSE_CONV": (
        "TransposeConvOptions", ("Padding", "StrideW", "StrideH", "FusedActivationFunction", "QuantizedBiasType")
    ),
    "MAX_POOL_2D": ("Pool2DOptions", _POOL),
    "AVERAGE_POOL_2D": ("Pool2DOptions", _POOL),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "ADD": ("AddOptions", _SUM),
    "SUB": ("SubOptions", _SUM),
    "MUL": ("MulOptions", ("FusedActivationFunction",)),
    "CONCATENATION": ("ConcatenationOptions", ("Axis", "FusedActivationFunction")),
    "MEAN": ("ReducerOptions", ("KeepDims",)),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "RESIZE_NEAREST_NEIGHBOR": ("ResizeNearestNeighborOptions", ("AlignCorners", "HalfPixelCenters")),
    "SPLIT": ("SplitOptions", ("NumSplits",)),
    "STRIDED_SLICE": (
        "StridedSliceOptions", ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset")
    ),
    "RESHAPE": ("ReshapeOptions", ()),
    "SQUEEZE": ("SqueezeOptions", ()),
    "EXPAND_DIMS": ("ExpandDimsOptions", ()),
    "TRANSPOSE": ("TransposeOptions", ()),
    "PAD": ("PadOptions", ()),
    "PADV2": ("PadV2Options", ()),
    "MAXIMUM": ("MaximumMinimumOptions", ()),
    "MINIMUM": ("MaximumMinimumOptions", ()),
    "QUANTIZE": ("QuantizeOptions", ()),
    "DEQUANTIZE": ("DequantizeOptions", ()),
    "HARD_SWISH": ("HardSwishOptions", ()),
    "LOGISTIC": ("NONE", ()),
    "TANH": ("NONE", ()),
    "RELU": ("NONE", ()),
    "RELU6": ("NONE", ()),
    "RELU_N1_TO_1": ("NONE", ()),
}  # fmt: skip
"""Supported operators --> the format's table of their options, and its fields that are read."""
_NAMED: dict[str, Callable[[int], str]] = {
    "Padding": lambda number: _name(tflite.Padding, number),
    "FusedActivationFunction": lambda number: _name(tflite.ActivationFunctionType, number),
}
