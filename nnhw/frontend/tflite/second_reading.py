"""A second reading of a TFLite file, with which the first one (`parsing`) is compared.

Both evaluations of a file start from what was parsed, so neither would notice an operator or an option that was read
wrongly. This reading shares no code with the first: it has no use for the package `tflite`, and finds each field by its
place in the format's tables, which are written down here.

Source: tensorflow/compiler/mlir/lite/schema/schema.fbs; flatbuffers' format of tables, vectors and unions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from nnhw.errors import ExactnessError, InputError

from .model_file import FileOperator, FileTensor, ModelFile, Quantization

_TYPES = (
    "FLOAT32", "FLOAT16", "INT32", "UINT8", "INT64", "STRING", "BOOL", "INT16", "COMPLEX64", "INT8", "FLOAT64",
    "COMPLEX128", "UINT64", "RESOURCE", "VARIANT", "UINT32", "UINT16", "INT4", "BFLOAT16",
)  # fmt: skip
_FORMATS = {"FLOAT32": "<f4", "INT32": "<i4", "INT64": "<i8", "INT8": "i1", "UINT8": "u1", "INT16": "<i2", "BOOL": "?"}
_NAMES = {
    "Padding": ("SAME", "VALID"),
    "FusedActivationFunction": ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"),
}
"""Options that are numbers of names --> the names."""
_PADDED = "Padding:b StrideW:i StrideH:i"
_CONV = f"{_PADDED} FusedActivationFunction:b DilationWFactor:i=1 DilationHFactor:i=1 QuantizedBiasType:b"
_DEPTHWISE = f"{_PADDED} DepthMultiplier:i FusedActivationFunction:b DilationWFactor:i=1 DilationHFactor:i=1"
_DENSE = "FusedActivationFunction:b WeightsFormat:b KeepNumDims:? AsymmetricQuantizeInputs:? QuantizedBiasType:b"
_SUM = "FusedActivationFunction:b PotScaleInt16:?=1"
_POOL = f"{_PADDED} FilterWidth:i FilterHeight:i FusedActivationFunction:b"
_SLICE = "BeginMask:i EndMask:i EllipsisMask:i NewAxisMask:i ShrinkAxisMask:i Offset:?"
_KINDS: dict[int, tuple[str, int, str]] = {
    0: ("ADD", 11, _SUM),
    1: ("AVERAGE_POOL_2D", 5, _POOL),
    2: ("CONCATENATION", 10, "Axis:i FusedActivationFunction:b"),
    3: ("CONV_2D", 1, _CONV),
    4: ("DEPTHWISE_CONV_2D", 2, _DEPTHWISE),
    6: ("DEQUANTIZE", 38, ""),
    9: ("FULLY_CONNECTED", 8, _DENSE),
    14: ("LOGISTIC", 0, ""),
    17: ("MAX_POOL_2D", 5, _POOL),
    18: ("MUL", 21, "FusedActivationFunction:b"),
    19: ("RELU", 0, ""),
    20: ("RELU_N1_TO_1", 0, ""),
    21: ("RELU6", 0, ""),
    22: ("RESHAPE", 17, ""),
    25: ("SOFTMAX", 9, "Beta:f"),
    28: ("TANH", 0, ""),
    34: ("PAD", 22, ""),
    39: ("TRANSPOSE", 26, ""),
    40: ("MEAN", 27, "KeepDims:?"),
    41: ("SUB", 28, _SUM),
    43: ("SQUEEZE", 30, ""),
    45: ("STRIDED_SLICE", 32, _SLICE),
    49: ("SPLIT", 35, "NumSplits:i"),
    55: ("MAXIMUM", 39, ""),
    57: ("MINIMUM", 39, ""),
    60: ("PADV2", 43, ""),
    67: ("TRANSPOSE_CONV", 49, f"{_PADDED} FusedActivationFunction:b QuantizedBiasType:b"),
    70: ("EXPAND_DIMS", 52, ""),
    97: ("RESIZE_NEAREST_NEIGHBOR", 74, "AlignCorners:? HalfPixelCenters:?"),
    98: ("LEAKY_RELU", 75, "Alpha:f"),
    114: ("QUANTIZE", 89, ""),
    117: ("HARD_SWISH", 91, ""),
}
"""The format's numbers of the operators that are supported --> name, number of the table of options, its fields in the
order of their places, each name:format or name:format=default; 0 where there is no table."""
_CUSTOM = 32


class _Table:
    """A table of a flatbuffer.

    Parameters
    ----------
    data: the whole file.
    place: of the table in it, in bytes.
    """

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        # In front of the fields is the distance back to their index: its size, the table's size, a place for each.
        self._index = place - self._unpack("<i", place)
        self.fields = self._unpack("<H", self._index) // 2 - 2

    def _unpack(self, kind: str, place: int) -> Any:
        if place < 0:
            raise IndexError(f"place {place}")
        return struct.unpack_from(kind, self._data, place)[0]

    def find(self, slot: int) -> int:
        """Return the place of a field in the file; 0 if it is left out."""
        within = self._unpack("<H", self._index + 4 + 2 * slot) if slot < self.fields else 0
        return self._place + within if within else 0

    def number(self, slot: int, kind: str, default: Any = 0) -> Any:
        """Return a number of a format of `struct`."""
        place = self.find(slot)
        return self._unpack("<" + kind, place) if place else default

    def follow(self, place: int) -> int:
        """Return where the offset at a place leads."""
        return place + int(self._unpack("<I", place))

    def table(self, slot: int) -> _Table | None:
        """Return the table in a field."""
        place = self.find(slot)
        return _Table(self._data, self.follow(place)) if place else None

    def vector(self, slot: int, kind: str) -> np.ndarray:
        """Return the numbers of a vector, of a format of NumPy; none if it is left out."""
        place = self.find(slot)
        if not place:
            return np.zeros(0, kind)
        start = self.follow(place)
        return np.frombuffer(self._data, kind, self._unpack("<I", start), start + 4)

    def tables(self, slot: int) -> list[_Table]:
        """Return the tables of a vector."""
        start = self.follow(self.find(slot)) + 4 if self.find(slot) else 0
        steps = enumerate(self.vector(slot, "<u4").tolist())
        return [_Table(self._data, start + 4 * number + step) for number, step in steps]

    def text(self, slot: int) -> str:
        """Return a text; empty if it is left out."""
        return self.vector(slot, "u1").tobytes().decode("utf-8", "replace")


def check_reading(data: bytes, read: ModelFile) -> None:
    """Check that a file's bytes say what was read.

    Raises
    ------
    ExactnessError: they say something else.
    InputError: an operator has an option that nnhw does not know.
    struct.error, ValueError, IndexError: they are damaged.
    """
    root = _Table(data, struct.unpack_from("<I", data)[0])
    (graph,) = root.tables(2)
    buffers = root.tables(4)
    tensors = tuple(_tensor(entry, index, buffers) for index, entry in enumerate(graph.tables(0)))
    codes = root.tables(1)
    operators = tuple(_operator(entry, codes, read.title) for entry in graph.tables(3))
    (given,), (made,) = graph.vector(1, "<i4").tolist(), graph.vector(2, "<i4").tolist()
    again = ModelFile(read.title, tensors, operators, given, made)
    # Names that are not known here are those of operators and types that are not supported.
    known = {*_TYPES, *(name for name, _, _ in _KINDS.values())}
    for what, first, second in _differences("the file", read, again):
        if second == "" and first not in known:
            continue
        raise ExactnessError(
            f"{read.title}: {what} is {first} as read by the package tflite, but {second} as read from the positions "
            f"of the fields; this is a bug in nnhw or in that package, please report the file"
        )


def _tensor(entry: _Table, index: int, buffers: list[_Table]) -> FileTensor:
    shape = tuple(entry.vector(0, "<i4").tolist())
    number = entry.number(1, "b")
    kind = _TYPES[number] if 0 <= number < len(_TYPES) else ""
    given = buffers[entry.number(2, "I")].vector(0, "u1")
    data = None
    if given.size and kind == "INT4":
        # Sign extension by a shift to the top of a byte and back.
        lower, upper = (given << 4).view(np.int8) >> 4, given.view(np.int8) >> 4
        data = np.dstack([lower, upper]).ravel()[: math.prod(shape)].reshape(shape)
    elif given.size and kind in _FORMATS:
        data = given.view(_FORMATS[kind]).reshape(shape)
    return FileTensor(index, entry.text(3) or f"tensor {index}", shape, kind, _quantization(entry.table(4)), data)


def _quantization(entry: _Table | None) -> Quantization | None:
    if entry is None or not (scale := entry.vector(2, "<f4")).size:
        return None
    zeros = entry.vector(3, "<i8")
    each = np.resize(zeros if zeros.size else np.zeros(1, np.int64), scale.size)
    return Quantization(scale, each, entry.number(6, "i"))


def _operator(entry: _Table, codes: list[_Table], title: str) -> FileOperator:
    code = codes[entry.number(0, "I")]
    # TFLite itself takes the greater one of the old field and the new.
    number = max(code.number(0, "b"), code.number(3, "i"))
    inputs = tuple(None if index == -1 else index for index in entry.vector(1, "<i4").tolist())
    outputs = tuple(entry.vector(2, "<i4").tolist())
    if number == _CUSTOM:
        return FileOperator(f"CUSTOM ({code.text(1)})", inputs, outputs)
    kind, union, row = _KINDS.get(number, ("", 0, ""))
    table = entry.table(4) if entry.number(3, "B") == union != 0 else None
    options = dict(_option(field, place, table) for place, field in enumerate(row.split()))
    # A field that is not in the table may change the operator's meaning; it has a place only where it is stated.
    unknown = [place for place in range(len(options), table.fields) if table.find(place)] if table and row else []
    if unknown:
        raise InputError(
            f"{title} has an operator {kind} with option number {unknown[0]}, which nnhw does not know; convert the "
            f"model with an older version of TensorFlow, or use a newer nnhw"
        )
    return FileOperator(kind, inputs, outputs, options)


def _option(field: str, place: int, table: _Table | None) -> tuple[str, Any]:
    """Return an option's name and value; `table`: None where the operator has none, so that all are left out."""
    name, _, rest = field.partition(":")
    kind, _, default = rest.partition("=")
    value = type(struct.unpack("<" + kind, bytes(struct.calcsize(kind)))[0])(int(default or 0))
    if table is not None:
        value = table.number(place, kind, value)
    if name in _NAMES:
        value = _NAMES[name][value] if 0 <= value < len(_NAMES[name]) else f"number {value}"
    return name, value


def _differences(what: str, first: Any, second: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each place in which two readings differ, and what stands there."""
    if is_dataclass(first) and type(first) is type(second):
        for entry in fields(first):
            yield from _differences(f"{what}.{entry.name}", getattr(first, entry.name), getattr(second, entry.name))
    elif isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for number, pair in enumerate(zip(first, second, strict=True)):
            yield from _differences(f"{what}[{number}]", *pair)
    elif isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        for key in first:
            yield from _differences(f"{what}.{key}", first[key], second[key])
    elif isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        if first.dtype != second.dtype or first.shape != second.shape or first.tobytes() != second.tobytes():
            yield what, first.reshape(-1)[:8].tolist(), second.reshape(-1)[:8].tolist()
    elif first != second:
        yield what, first, second
