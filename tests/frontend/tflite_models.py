"""Writes small TFLite files: tensors, operators and constants, one call each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite

OPTIONS = {
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "SOFTMAX": "SoftmaxOptions",
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "CONCATENATION": "ConcatenationOptions",
    "MEAN": "ReducerOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "SPLIT": "SplitOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
}
_TYPES = {"float32": "FLOAT32", "int8": "INT8", "uint8": "UINT8", "int32": "INT32", "int64": "INT64", "int16": "INT16"}


class File:
    """A network that is written operator by operator, with seeded weights.

    Parameters
    ----------
    shape: of the input, with the batch.
    """

    def __init__(self, *shape: int, scale: float = 0.05, zero: int = -3, type: str = "int8", seed: int = 5) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = flatbuffers.Builder(4096)
        self.buffers: list[bytes] = [b""]
        self.tensors: list[tuple[tuple[int, ...], int, int, str, tuple[Any, Any, int] | None, bool]] = []
        self.operators: list[tuple[str, list[int], list[int], dict[str, Any]]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.scales: list[float] = []
        coded = None if type == "float32" else (scale, zero, 0)
        self.input = self.tensor("input", shape, type, coded)
        self.outputs = [self.input]

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        type: str = "int8",
        quantization: tuple[Any, Any, int] | None = (0.05, -3, 0),
        data: np.ndarray | None = None,
        variable: bool = False,
    ) -> int:
        """Add a tensor; return its number."""
        place = 0
        if data is not None:
            self.buffers.append(np.ascontiguousarray(data, dtype=np.dtype(type).newbyteorder("<")).tobytes())
            place = len(self.buffers) - 1
        number = getattr(tflite.TensorType, _TYPES[type])
        self.tensors.append((tuple(shape), number, place, name, quantization, variable))
        self.shapes.append(tuple(shape))
        self.scales.append(float(np.ravel(quantization[0])[0]) if quantization else 1.0)
        return len(self.tensors) - 1

    def integers(self, *numbers: Any) -> int:
        """Add a constant of int32."""
        array = np.array(numbers, np.int32)
        return self.tensor(f"numbers_{len(self.tensors)}", array.shape, "int32", None, array)

    def codes(self, shape: Sequence[int], scale: float = 0.03, zero: int = 5) -> int:
        """Add a constant of int8."""
        data = self.rng.integers(-128, 128, shape)
        return self.tensor(f"codes_{len(self.tensors)}", shape, "int8", (scale, zero, 0), data)

    def apply(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        scale: float = 0.05,
        zero: int = -3,
        type: str = "int8",
        **options: Any,
    ) -> int:
        """Add an operator; return its result, which is the output of the file so far."""
        coded = None if type == "float32" else (scale, zero, 0)
        made = self.tensor(f"net/{kind.lower()}_{len(self.operators)}", shape, type, coded)
        self.operators.append((kind, list(inputs), [made], options))
        self.outputs = [made]
        return made

    def layer(
        self,
        kind: str,
        x: int,
        weights: Sequence[int],
        shape: Sequence[int],
        *,
        per_channel: bool = True,
        **options: Any,
    ) -> int:
        """Add a layer with random weights and bias, whose results use most of their codes."""
        axis = 3 if kind == "DEPTHWISE_CONV_2D" else 0
        outputs = weights[axis]
        data = self.rng.integers(-127, 128, weights)
        scales = self.rng.uniform(0.002, 0.02, outputs if per_channel else 1).astype(np.float32)
        w = self.tensor(
            f"weights_{len(self.tensors)}", weights, "int8", (scales, np.zeros(len(scales), int), axis), data
        )
        bias = self.rng.integers(-2000, 2000, outputs)
        b = self.tensor(f"bias_{len(self.tensors)}", (outputs,), "int32", None, bias)
        terms = int(np.prod(weights)) // outputs
        scale = options.pop("scale", self.scales[x] * float(scales.mean()) * 50 * terms**0.5)
        if kind == "TRANSPOSE_CONV":
            return self.apply(kind, [self.integers(*shape), w, x, b], shape, scale, **options)
        return self.apply(kind, [x, w, b], shape, scale, **options)

    def bytes(self) -> bytes:
        """Return the file."""
        return bytes(self._finished())

    def _finished(self) -> bytearray:
        builder = self.builder
        kinds = sorted({kind for kind, *_ in self.operators})
        buffers = self._vector([self._buffer(data) for data in self.buffers], tflite.ModelStartBuffersVector)
        tensors = self._vector([self._tensor(*row) for row in self.tensors], tflite.SubGraphStartTensorsVector)
        rows = [self._operator(kinds.index(row[0]), *row) for row in self.operators]
        operators = self._vector(rows, tflite.SubGraphStartOperatorsVector)
        inputs, outputs = (
            builder.CreateNumpyVector(np.array([self.input], np.int32)),
            builder.CreateNumpyVector(np.array(self.outputs, np.int32)),
        )
        tflite.SubGraphStart(builder)
        tflite.SubGraphAddTensors(builder, tensors)
        tflite.SubGraphAddInputs(builder, inputs)
        tflite.SubGraphAddOutputs(builder, outputs)
        tflite.SubGraphAddOperators(builder, operators)
        graphs = self._vector([tflite.SubGraphEnd(builder)], tflite.ModelStartSubgraphsVector)
        codes = self._vector([self._code(kind) for kind in kinds], tflite.ModelStartOperatorCodesVector)
        tflite.ModelStart(builder)
        tflite.ModelAddVersion(builder, 3)
        tflite.ModelAddOperatorCodes(builder, codes)
        tflite.ModelAddSubgraphs(builder, graphs)
        tflite.ModelAddBuffers(builder, buffers)
        builder.Finish(tflite.ModelEnd(builder), file_identifier=b"TFL3")
        return builder.Output()  # type: ignore[no-any-return]

    def _vector(self, offsets: Sequence[int], start: Any) -> int:
        start(self.builder, len(offsets))
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return self.builder.EndVector()  # type: ignore[no-any-return]

    def _buffer(self, data: bytes) -> int:
        held = self.builder.CreateByteVector(data) if data else None
        tflite.BufferStart(self.builder)
        if held is not None:
            tflite.BufferAddData(self.builder, held)
        return tflite.BufferEnd(self.builder)  # type: ignore[no-any-return]

    def _tensor(self, shape: tuple[int, ...], type: int, buffer: int, name: str, coded: Any, variable: bool) -> int:
        builder = self.builder
        quantization = None if coded is None else self._quantization(*coded)
        sizes, title = builder.CreateNumpyVector(np.array(shape, np.int32)), builder.CreateString(name)
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, sizes)
        tflite.TensorAddType(builder, type)
        tflite.TensorAddBuffer(builder, buffer)
        tflite.TensorAddName(builder, title)
        if variable:
            tflite.TensorAddIsVariable(builder, True)
        if quantization is not None:
            tflite.TensorAddQuantization(builder, quantization)
        return tflite.TensorEnd(builder)  # type: ignore[no-any-return]

    def _quantization(self, scale: Any, zero_point: Any, axis: int) -> int:
        builder = self.builder
        scales = builder.CreateNumpyVector(np.ravel(np.array(scale, np.float32)))
        zeros = builder.CreateNumpyVector(np.ravel(np.array(zero_point, np.int64)))
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scales)
        tflite.QuantizationParametersAddZeroPoint(builder, zeros)
        tflite.QuantizationParametersAddQuantizedDimension(builder, axis)
        return tflite.QuantizationParametersEnd(builder)  # type: ignore[no-any-return]

    def _operator(self, code: int, kind: str, inputs: list[int], outputs: list[int], options: dict[str, Any]) -> int:
        builder = self.builder
        name = OPTIONS.get(kind)
        table = None
        if name is not None:
            getattr(tflite, f"{name}Start")(builder)
            for field, value in options.items():
                getattr(tflite, f"{name}Add{field}")(builder, _number(field, value))
            table = getattr(tflite, f"{name}End")(builder)
        read = builder.CreateNumpyVector(np.array(inputs, np.int32))
        made = builder.CreateNumpyVector(np.array(outputs, np.int32))
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, code)
        tflite.OperatorAddInputs(builder, read)
        tflite.OperatorAddOutputs(builder, made)
        if table is not None:
            tflite.OperatorAddBuiltinOptionsType(builder, getattr(tflite.BuiltinOptions, name))
            tflite.OperatorAddBuiltinOptions(builder, table)
        return tflite.OperatorEnd(builder)  # type: ignore[no-any-return]

    def _code(self, kind: str) -> int:
        custom = self.builder.CreateString(kind) if not hasattr(tflite.BuiltinOperator, kind) else None
        number = tflite.BuiltinOperator.CUSTOM if custom else getattr(tflite.BuiltinOperator, kind)
        tflite.OperatorCodeStart(self.builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(self.builder, min(number, 127))
        tflite.OperatorCodeAddBuiltinCode(self.builder, number)
        if custom is not None:
            tflite.OperatorCodeAddCustomCode(self.builder, custom)
        return tflite.OperatorCodeEnd(self.builder)  # type: ignore[no-any-return]


def _number(field: str, value: Any) -> Any:
    if isinstance(value, int):
        return value
    if field == "Padding":
        return getattr(tflite.Padding, value)
    if field == "FusedActivationFunction":
        return getattr(tflite.ActivationFunctionType, value)
    return value
