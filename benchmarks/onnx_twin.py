"""An int8 network of a TFLite file as ONNX, for ONNX Runtime: quantized with the file's own scales, or in float32.

The quantized one is in the form that ONNX Runtime fuses into its int8 kernels, QuantizeLinear and DequantizeLinear
around each operator. It reads the file's codes, and gives those in front of the softmax, as exported C does. Maps have
the channels in front, as ONNX has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from nnhw.errors import InputError
from nnhw.frontend.tflite.model_file import FileOperator, FileTensor, ModelFile, Quantization

OPSET, IR_VERSION = 17, 8
LIMITS = {"RELU6": 6.0}
"""Upper ends of fused activations."""


def onnx_model(model: ModelFile, is_int8: bool) -> onnx.ModelProto:
    """Return a network as ONNX, without its softmax.

    Parameters
    ----------
    is_int8: codes go in and come out, and each value has the file's scale; otherwise all is float32.

    Raises
    ------
    InputError: it has an operator that is not written here.
    """
    return _Writer(model, is_int8).written()


class _Writer:
    """Writes the operators of a file one after the other; a value of the file is named by its number."""

    def __init__(self, model: ModelFile, is_int8: bool) -> None:
        self.model, self.is_int8 = model, is_int8
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values: dict[int, str] = {}
        self.named: dict[bytes, str] = {}

    def written(self) -> onnx.ModelProto:
        """Return the model."""
        model, given = self.model, self.model.tensors[self.model.input]
        kind = TensorProto.INT8 if self.is_int8 else TensorProto.FLOAT
        entry = helper.make_tensor_value_info("input", kind, onnx_shape(given.shape))
        self.values[given.index] = self._dequantized("input", given) if self.is_int8 else "input"
        last = given
        for operator in model.operators:
            if operator.kind == "SOFTMAX":
                break
            last = model.made(operator)
            self._operator(operator, last)
        # The last node made numbers of the last codes.
        name = self.nodes.pop().input[0] if self.is_int8 else self.values[last.index]
        made = helper.make_tensor_value_info(name, kind, onnx_shape(last.shape))
        graph = helper.make_graph(self.nodes, "twin", [entry], [made], self.constants)
        built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        onnx.checker.check_model(built)
        return built

    def _operator(self, operator: FileOperator, made: FileTensor) -> None:
        writers: Mapping[str, Callable[[FileOperator, FileTensor], str]] = {
            "CONV_2D": self._convolution,
            "DEPTHWISE_CONV_2D": self._convolution,
            "FULLY_CONNECTED": self._linear,
            "ADD": self._sum,
            "AVERAGE_POOL_2D": self._average,
            "RESHAPE": self._reshaped,
        }
        if operator.kind not in writers:
            raise InputError(f"{self.model.label(operator)} is not written as ONNX here; add it to {__name__}")
        name = self._activated(writers[operator.kind](operator, made), operator)
        self.values[made.index] = self._coded(name, made) if self.is_int8 else name

    def _convolution(self, operator: FileOperator, made: FileTensor) -> str:
        x = self._tensor(operator, 0)
        depthwise = operator.kind == "DEPTHWISE_CONV_2D"
        axes, channel = ((3, 0, 1, 2), 3) if depthwise else ((0, 3, 1, 2), 0)
        stride = [operator.options[name] for name in ("StrideH", "StrideW")]
        dilation = [operator.options[name] for name in ("DilationHFactor", "DilationWFactor")]
        taps = self._tensor(operator, 1)
        spans = taps.shape[1:3]
        inputs = [self.values[x.index], self._weights(taps, channel, axes), *self._bias(operator, x, taps)]
        pads = _pads(operator, x.shape[1:3], made.shape[1:3], spans, stride, dilation)
        return self._node(
            "Conv", inputs, strides=stride, dilations=dilation, pads=pads, group=x.shape[3] if depthwise else 1
        )

    def _linear(self, operator: FileOperator, made: FileTensor) -> str:
        x, weights = self._tensor(operator, 0), self._tensor(operator, 1)
        assert weights.data is not None
        row = self._moved(self.values[x.index], x, (1, weights.shape[1]))
        return self._node("Gemm", [row, self._weights(weights, 0), *self._bias(operator, x, weights)], transB=1)

    def _sum(self, operator: FileOperator, made: FileTensor) -> str:
        return self._node("Add", [self.values[self._tensor(operator, place).index] for place in (0, 1)])

    def _average(self, operator: FileOperator, made: FileTensor) -> str:
        x = self._tensor(operator, 0)
        spans = [operator.options[name] for name in ("FilterHeight", "FilterWidth")]
        stride = [operator.options[name] for name in ("StrideH", "StrideW")]
        pads = _pads(operator, x.shape[1:3], made.shape[1:3], spans, stride, [1, 1])
        return self._node("AveragePool", [self.values[x.index]], kernel_shape=spans, strides=stride, pads=pads)

    def _reshaped(self, operator: FileOperator, made: FileTensor) -> str:
        x = self._tensor(operator, 0)
        return self._moved(self.values[x.index], x, made.shape)

    def _moved(self, name: str, x: FileTensor, shape: tuple[int, ...]) -> str:
        """Reshape a value in the file's order of elements, in which channels are the last axis."""
        if x.shape == shape:
            return name
        if len(x.shape) == 4 and x.shape[1] * x.shape[2] > 1:
            name = self._node("Transpose", [name], perm=[0, 2, 3, 1])
        name = self._node("Reshape", [name, self._constant(np.array(shape, np.int64))])
        return self._node("Transpose", [name], perm=[0, 3, 1, 2]) if len(shape) == 4 else name

    def _activated(self, name: str, operator: FileOperator) -> str:
        activation = operator.options.get("FusedActivationFunction", "NONE")
        if activation == "NONE":
            return name
        if activation == "RELU":
            return self._node("Relu", [name])
        if activation in LIMITS:
            ends = [self._constant(np.array(end, np.float32)) for end in (0, LIMITS[activation])]
            return self._node("Clip", [name, *ends])
        raise InputError(f"{self.model.label(operator)} has the activation {activation}; add it to {__name__}")

    def _tensor(self, operator: FileOperator, place: int) -> FileTensor:
        found = self.model.given(operator)[place]
        assert found is not None
        return found

    def _weights(self, weights: FileTensor, axis: int, axes: tuple[int, ...] | None = None) -> str:
        """Return weights with the outputs as their first axis; `axis` has them in the file."""
        assert weights.data is not None
        assert weights.quantization is not None
        found = weights.quantization
        codes = weights.data if axes is None else weights.data.transpose(axes)
        if self.is_int8:
            return self._node("DequantizeLinear", [self._constant(codes), *self._scales(found)], axis=0)
        each = found.scale.reshape(-1, *[1] * (codes.ndim - 1)), found.zero_point.reshape(-1, *[1] * (codes.ndim - 1))
        return self._constant(((codes - each[1]) * each[0]).astype(np.float32))

    def _bias(self, operator: FileOperator, x: FileTensor, weights: FileTensor) -> list[str]:
        given = self.model.given(operator)
        bias = given[2] if len(given) > 2 else None
        if bias is None:
            return []
        assert bias.data is not None
        assert weights.quantization is not None
        scale = (weights.quantization.scale * np.float32(x.scale)).astype(np.float32)
        if not self.is_int8:
            return [self._constant((bias.data.reshape(-1) * scale).astype(np.float32))]
        codes = self._constant(bias.data.reshape(-1).astype(np.int32))
        scales = scale if len(scale) > 1 else scale.reshape(())
        return [self._node("DequantizeLinear", [codes, self._constant(scales)], axis=0)]

    def _coded(self, name: str, made: FileTensor) -> str:
        assert made.quantization is not None
        codes = self._node("QuantizeLinear", [name, *self._scales(made.quantization)])
        return self._dequantized(codes, made)

    def _dequantized(self, codes: str, made: FileTensor) -> str:
        assert made.quantization is not None
        return self._node("DequantizeLinear", [codes, *self._scales(made.quantization)])

    def _scales(self, found: Quantization) -> list[str]:
        scale, zero = found.scale.astype(np.float32), found.zero_point.astype(np.int8)
        each = (scale, zero) if len(scale) > 1 else (scale.reshape(()), zero.reshape(()))
        return [self._constant(array) for array in each]

    def _constant(self, array: np.ndarray) -> str:
        # A scale is read where codes are made and where they are read.
        key = repr((array.dtype, array.shape)).encode() + array.tobytes()
        if key in self.named:
            return self.named[key]
        self.named[key] = name = f"constant_{len(self.constants)}"
        # Not `ascontiguousarray`, which makes a vector of a number.
        self.constants.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def _node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"value_{len(self.nodes)}_{len(self.constants)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name


def onnx_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with the channels in front where a file has them behind."""
    return (shape[0], shape[3], *shape[1:3]) if len(shape) == 4 else shape


def channels_in_front(images: np.ndarray) -> np.ndarray:
    """Return images [N, ..] of a file with their channels in front, where they have rows and columns."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)) if images.ndim == 4 else images


def _pads(
    operator: FileOperator, sizes: Any, made: Any, spans: Any, stride: list[int], dilation: list[int]
) -> list[int]:
    """Return the pixels in front of rows and columns, then those behind them."""
    if operator.options["Padding"] == "VALID":
        return [0, 0, 0, 0]
    rows = zip(sizes, made, spans, stride, dilation, strict=True)
    whole = [max(0, (out - 1) * step + (span - 1) * gap + 1 - size) for size, out, span, step, gap in rows]
    return [pads // 2 for pads in whole] + [pads - pads // 2 for pads in whole]


class OnnxNetwork:
    """A network in ONNX Runtime: one thread, all optimizations, arrays bound once.

    Parameters
    ----------
    model: with one input and one output.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._binding = self._session.io_binding()

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """Return the result of an image [1, ..]."""
        (result,) = self._session.run(None, {"input": image})
        return np.asarray(result)

    def seconds(self, image: np.ndarray, least_s: float) -> float:
        """Return the shortest time of one image [1, ..], in seconds, of all runs that fit into `least_s` seconds."""
        self._binding.bind_cpu_input("input", image)
        self._binding.bind_output(self._session.get_outputs()[0].name, "cpu")
        least, end = float("inf"), time.perf_counter() + least_s
        while (start := time.perf_counter()) < end:
            self._session.run_with_iobinding(self._binding)
            least = min(least, time.perf_counter() - start)
        return least
