"""ONNX files as cases: made here, by ONNX Runtime's own quantization, and by Brevitas's own export."""

from __future__ import annotations

import functools
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch import Tensor, nn

from nnhw.frontend.onnx import load
from tests.frontend.cases import Case

QONNX = "qonnx.custom_op.general"
MICROSOFT = "com.microsoft"
GENERATOR = np.random.default_rng(26)
OPSETS = {"": 17, QONNX: 1, MICROSOFT: 1}


def node(op: str, *names: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    """Return a node; the last name is that of its result."""
    return helper.make_node(op, list(names[:-1]), [names[-1]], name=f"the_{names[-1]}", domain=domain, **attributes)


def model(
    nodes: list[onnx.NodeProto],
    shape: tuple[int | str, ...],
    constants: Mapping[str, Any],
    *,
    kind: int = TensorProto.FLOAT,
    result: int = TensorProto.FLOAT,
    opsets: Mapping[str, int] | None = None,
) -> ModelProto:
    """Return a model from 'x' to 'y'."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", result, None)],
        tensors,
    )
    versions = {**OPSETS, **(opsets or {})}
    domains = {""} | {item.domain for item in nodes}
    imports = [helper.make_opsetid(domain, versions.get(domain, 1)) for domain in sorted(domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def loaded(made: ModelProto) -> tuple[nn.Module, Tensor]:
    """Return a model through a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(made.SerializeToString())
        return load(path)


def numbers(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Return float32 numbers around 0."""
    return (GENERATOR.standard_normal(shape) * scale).astype(np.float32)


def floats(value: Any) -> np.ndarray:
    """Return a constant of float32."""
    return np.array(value, np.float32)


def quant(
    scale: Any = 0.25,
    zero_point: float = 0.0,
    bits: float = 4,
    op: str = "Quant",
    domain: str = QONNX,
    weights: np.ndarray | None = None,
    **attributes: Any,
) -> ModelProto:
    """Return x --> Quant --> MatMul with quantized weights."""
    given = {"signed": 1, "narrow": 0, "rounding_mode": "ROUND", **attributes}
    one = node("BipolarQuant", "x", "s", "q", domain=domain)
    first = node(op, "x", "s", "z", "b", "q", domain=domain, **given) if op != "BipolarQuant" else one
    nodes = [
        first,
        node("Quant", "w", "ws", "wz", "wb", "wq", domain=domain, signed=1, narrow=1, rounding_mode="ROUND"),
        node("MatMul", "q", "wq", "y"),
    ]
    constants = {"s": floats(scale), "z": floats(zero_point), "b": floats(bits), "w": numbers(6, 4)}
    if weights is not None:
        constants["w"] = weights
    constants |= {"ws": floats(0.125), "wz": floats(0.0), "wb": floats(4)}
    return model(nodes, ("n", 6), constants)


def channel_scales() -> ModelProto:
    """Return a convolution whose weights have a scale for each output."""
    nodes = [
        node("Quant", "x", "s", "z", "b", "q", domain=QONNX, signed=0, narrow=0, rounding_mode="ROUND"),
        node("Quant", "w", "ws", "z", "b", "wq", domain=QONNX, signed=1, narrow=1, rounding_mode="ROUND"),
        node("Conv", "q", "wq", "bias", "y", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
    ]
    scales = floats([0.125, 0.1, 0.25]).reshape(3, 1, 1, 1)
    constants = {"s": floats(0.1), "z": floats(0), "b": floats(4), "w": numbers(3, 2, 3, 3), "ws": scales}
    return model(nodes, (1, 2, 5, 5), {**constants, "bias": numbers(3)})


def staircase(layout: str = "", rows: int = 3, **attributes: Any) -> ModelProto:
    """Return a convolution, thresholds for each channel, and a layer behind them."""
    nodes = [
        node("Quant", "x", "s", "z", "b", "q", domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND"),
        node("Quant", "w", "s", "z", "b", "wq", domain=QONNX, signed=1, narrow=1, rounding_mode="ROUND"),
        node("Conv", "q", "wq", "c", kernel_shape=[3, 3]),
    ]
    source = "c"
    if layout:
        nodes.append(node("Transpose", "c", "last", perm=[0, 2, 3, 1]))
        source = "last"
        attributes["data_layout"] = layout
    nodes += [
        node("MultiThreshold", source, "t", "m", domain=QONNX, out_dtype="UINT4", **attributes),
        node("Flatten", "m", "f"),
        node("Quant", "v", "s", "z", "b", "vq", domain=QONNX, signed=1, narrow=1, rounding_mode="ROUND"),
        node("MatMul", "f", "vq", "y"),
    ]
    thresholds = np.sort(numbers(rows, 7, scale=1.0), axis=1)
    thresholds[0, 2] = 0.125  # sums of products are multiples of 1/16
    constants = {"s": floats(0.25), "z": floats(0), "b": floats(3), "w": numbers(3, 2, 3, 3), "t": thresholds}
    return model(nodes, (1, 2, 5, 5), {**constants, "v": numbers(27, 4)})


def trunc(version: int = 1, mode: str = "FLOOR", signed: int = 0, zero_point: float = 0.0) -> ModelProto:
    """Return x --> Quant --> sum of four pixels --> Trunc --> MatMul."""
    inputs = ["scaled", "s", "z", "ib", *(["os"] if version > 1 else []), "ob", "t"]
    attributes = {"signed": signed, "narrow": 0} if version > 1 else {}
    nodes = [
        node("Quant", "x", "s", "z0", "b", "q", domain=QONNX, signed=signed, narrow=0, rounding_mode="ROUND"),
        node("AveragePool", "q", "mean", kernel_shape=[2, 2], strides=[2, 2]),
        node("Mul", "mean", "four", "scaled"),
        node("Trunc", *inputs, domain=QONNX, rounding_mode=mode, **attributes),
        node("Flatten", "t", "f"),
        node("Quant", "w", "s", "z0", "b", "wq", domain=QONNX, signed=1, narrow=1, rounding_mode="ROUND"),
        node("MatMul", "f", "wq", "y"),
    ]
    constants = {"s": 0.25, "z": zero_point, "z0": 0.0, "b": 4, "ib": 6, "os": 1.0, "ob": 4, "four": 4.0}
    arrays = {name: floats(value) for name, value in constants.items() if version > 1 or name != "os"}
    return model(nodes, (1, 2, 4, 4), {**arrays, "w": numbers(8, 3)}, opsets={QONNX: version})


def channels_last() -> ModelProto:
    """Return operators that have the channels as last axis."""
    last = "qonnx.custom_op.channels_last"
    nodes = [
        node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
        node("Quant", "t", "s", "z", "b", "q", domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND"),
        node("Quant", "w", "s", "z", "b", "wq", domain=QONNX, signed=1, narrow=1, rounding_mode="ROUND"),
        node(
            "Conv", "q", "wq", "c", domain=last, kernel_shape=[3, 3], strides=[1, 1], dilations=[1, 1],
            pads=[1, 1, 1, 1], group=1,
        ),
        node("Quant", "c", "s", "z", "b", "d", domain=QONNX, signed=1, narrow=0, rounding_mode="ROUND"),
        node("MaxPool", "d", "m", domain=last, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=0),
        node("Transpose", "m", "y", perm=[0, 3, 1, 2]),
    ]  # fmt: skip
    constants = {"s": floats(0.25), "z": floats(0), "b": floats(4), "w": numbers(3, 3, 3, 2)}
    return model(nodes, (1, 2, 6, 6), constants)


_QONNX: Mapping[str, Callable[[], ModelProto]] = {
    "signed": quant,
    "narrow": lambda: quant(narrow=1),
    "unsigned": lambda: quant(signed=0),
    "8 bits, decimal scale": lambda: quant(scale=0.037, bits=8),
    "2 bits": lambda: quant(bits=2, narrow=1),
    "zero point": lambda: quant(zero_point=3.0, signed=0),
    "one bit": lambda: quant(bits=1),
    "one bit, unsigned": lambda: quant(bits=1, signed=0),
    "IntQuant": lambda: quant(op="IntQuant"),
    "older domain": lambda: quant(domain="onnx.brevitas"),
    "oldest domain": lambda: quant(domain="finn.custom_op.general"),
    **{f"rounding {mode}": functools.partial(quant, rounding_mode=mode) for mode in ("CEIL", "FLOOR")},
    **{
        f"rounding {mode}": functools.partial(quant, rounding_mode=mode)
        for mode in ("UP", "DOWN", "HALF_UP", "HALF_DOWN")
    },
    "rounding DOWN, unsigned": lambda: quant(rounding_mode="DOWN", signed=0),
    "BipolarQuant": lambda: quant(op="BipolarQuant"),
    "zero point that is no integer": lambda: quant(zero_point=0.5),
    "scales of each feature": lambda: quant(scale=[0.25, 0.25, 0.5, 1.0, 2.0, 0.125]),
    "scales of each output": channel_scales,
    "MultiThreshold": staircase,
    "MultiThreshold, one row": lambda: staircase(rows=1),
    "MultiThreshold, scale and bias": lambda: staircase(out_scale=2.0, out_bias=-7.0),
    "MultiThreshold, channels last": lambda: staircase("NHWC"),
    "Trunc": trunc,
    "Trunc, CEIL": lambda: trunc(mode="CEIL"),
    "Trunc, ROUND": lambda: trunc(mode="ROUND"),
    "Trunc 2": lambda: trunc(2),
    "Trunc 2, signed": lambda: trunc(2, signed=1),
    "Trunc 2, zero point": lambda: trunc(2, signed=1, zero_point=4.0),
    "channels last": channels_last,
}


class Branches(nn.Module):
    """A network with most of what ONNX Runtime quantizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm, self.leaky = nn.BatchNorm2d(4), nn.LeakyReLU(0.1)
        self.grouped, self.last = nn.Conv2d(8, 6, 3, stride=2, groups=2), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 1, 12, 12] --> [N, 5]."""
        one = torch.relu(self.first(x))
        other = self.leaky(self.norm(self.second(one)))
        both = nn.functional.max_pool2d(torch.cat([one + other, other], 1), 2)
        return self.last(nn.functional.avg_pool2d(torch.sigmoid(self.grouped(both)), 2).mean((2, 3)))


def perceptron() -> nn.Module:
    """[N, 1, 6, 6] --> [N, 3]."""
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))


def exported(network: nn.Module, example: Tensor, path: Path, *, dynamo: bool = False, opset: int = 17) -> Path:
    """Write a network by one of PyTorch's exporters, for any batch."""
    options: dict[str, Any] = {"dynamic_axes": {"x": {0: "n"}}, "opset_version": opset}
    if dynamo:
        options = {"dynamic_shapes": ({0: torch.export.Dim("n")},), "verbose": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(), (example,), path, dynamo=dynamo, input_names=["x"], output_names=["y"], **options
        )
    return path


def quantized(network: nn.Module, shape: tuple[int, ...], form: str, **options: Any) -> ModelProto:
    """Return a network quantized by ONNX Runtime.

    Parameters
    ----------
    form: QDQ or QOperator.
    """
    from onnxruntime import quantization

    images = np.random.default_rng(1).random((16, 1, *shape), np.float32) - np.float32(0.25)

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter([{"x": batch} for batch in images])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        path = exported(network, torch.from_numpy(images[0]), Path(folder) / "float.onnx")
        logging.disable(logging.CRITICAL)
        try:
            quantization.quantize_static(
                path,
                path.with_name("int.onnx"),
                Reader(),
                quant_format=quantization.QuantFormat[form],
                **options,
            )
        finally:
            logging.disable(logging.NOTSET)
        return onnx.load(path.with_name("int.onnx"))


def network(kind: Callable[[], nn.Module], form: str, signed: bool = False, **options: Any) -> ModelProto:
    """Return a network with numbers that are the same each time, quantized by ONNX Runtime."""
    from onnxruntime.quantization import QuantType

    torch.manual_seed(3)
    shape = (1, 12, 12) if kind is Branches else (1, 6, 6)
    types = {"activation_type": QuantType.QInt8 if signed else QuantType.QUInt8, "weight_type": QuantType.QInt8}
    return quantized(kind(), shape, form, **types, **options)


def pair_of(scale: Any, zero_point: Any, **attributes: Any) -> ModelProto:
    """Return x --> QuantizeLinear --> DequantizeLinear --> MatMul with weights of 8 bits."""
    nodes = [
        node("QuantizeLinear", "x", "s", "z", "q", **attributes),
        node("DequantizeLinear", "q", "s", "z", "d", **attributes),
        node("DequantizeLinear", "w", "ws", "wz", "wd", axis=1),
        node("MatMul", "d", "wd", "y"),
    ]
    weights = GENERATOR.integers(-8, 8, (6, 4)).astype(np.int8)
    constants = {"s": floats(scale), "z": zero_point, "ws": floats([0.1, 0.2, 0.3, 0.25]), "wz": np.zeros(4, np.int8)}
    return model(nodes, ("n", 6), {**constants, "w": weights})


def newer(made: ModelProto) -> ModelProto:
    """Return a model of opset 21."""
    made.opset_import[0].version, made.ir_version = 21, 10
    return made


def four_bits() -> ModelProto:
    """Return weights of 4 bits."""
    made = pair_of(0.05, np.uint8(3))
    graph = made.graph
    for index, item in enumerate(graph.initializer):
        if item.name in ("w", "wz"):
            values = numpy_helper.to_array(item).reshape(-1).tolist()
            graph.initializer[index].CopyFrom(helper.make_tensor(item.name, TensorProto.INT4, item.dims, values))
    return newer(made)


def moved_integers() -> ModelProto:
    """Return integers that are moved between their two nodes."""
    nodes = [
        node("QuantizeLinear", "x", "s", "z", "q"),
        node("Transpose", "q", "t", perm=[0, 2, 3, 1]),
        node("Reshape", "t", "shape", "r"),
        node("DequantizeLinear", "r", "s", "z", "d"),
        node("DequantizeLinear", "w", "s", "wz", "wd"),
        node("MatMul", "d", "wd", "y"),
    ]
    constants = {"s": floats(0.05), "z": np.uint8(7), "shape": np.array([1, 18]), "wz": np.int8(0)}
    weights = GENERATOR.integers(-128, 128, (18, 4)).astype(np.int8)
    return model(nodes, (1, 2, 3, 3), {**constants, "w": weights})


_QDQ: Mapping[str, Callable[[], ModelProto]] = {
    "branches": lambda: network(Branches, "QDQ"),
    "branches, per channel": lambda: network(Branches, "QDQ", per_channel=True),
    "perceptron, symmetric": lambda: network(perceptron, "QDQ", True, extra_options={"ActivationSymmetric": True}),
    "perceptron, per channel": lambda: network(perceptron, "QDQ", True, per_channel=True),
    "uint8": lambda: pair_of(0.031, np.uint8(77)),
    "int8": lambda: pair_of(0.25, np.int8(-3)),
    "int16": lambda: newer(pair_of(2.0**-9, np.int16(0))),
    "uint16": lambda: pair_of(0.25, np.uint16(3)),
    "weights of 4 bits": four_bits,
    "moved integers": moved_integers,
    "scales of each feature": lambda: pair_of([0.1] * 6, np.zeros(6, np.int8)),
}


def integers(op: str, domain: str, inputs: list[str], constants: Mapping[str, Any], **options: Any) -> ModelProto:
    """Return one operator on the model's own integers."""
    shape = options.pop("shape", ("n", 6))
    result = options.pop("result", TensorProto.UINT8)
    operator_node = node(op, *inputs, "y", domain=domain, **options)
    return model([operator_node], shape, constants, kind=TensorProto.UINT8, result=result)


def scales(**more: Any) -> dict[str, Any]:
    """Return the usual constants of an integer operator."""
    usual = {"xs": floats(0.02), "xz": np.uint8(113), "ys": floats(0.051), "yz": np.uint8(7)}
    return {**usual, **{name: np.asarray(value) for name, value in more.items()}}


_X, _W, _Y = ["x", "xs", "xz"], ["w", "ws", "wz"], ["ys", "yz"]


def _weights(*shape: int) -> np.ndarray:
    return GENERATOR.integers(-128, 128, shape).astype(np.int8)


_QOPERATOR: Mapping[str, Callable[[], ModelProto]] = {
    "branches": lambda: network(Branches, "QOperator"),
    "branches, int8, per channel": lambda: network(Branches, "QOperator", True, per_channel=True),
    "perceptron": lambda: network(perceptron, "QOperator"),
    "QLinearConv": lambda: integers(
        "QLinearConv", "", [*_X, *_W, *_Y, "b"],
        scales(w=_weights(3, 2, 3, 3), ws=floats([0.01, 0.02, 0.5]), wz=np.zeros(3, np.int8), b=np.int32([5, -300, 9])),
        shape=(1, 2, 5, 5), pads=[1, 0, 1, 2],
    ),
    "QLinearMatMul": lambda: integers(
        "QLinearMatMul", "", [*_X, *_W, *_Y], scales(w=_weights(6, 4), ws=floats(0.01), wz=np.int8(3))
    ),
    "ConvInteger": lambda: integers(
        "ConvInteger", "", ["x", "w", "xz"], {"w": _weights(3, 2, 3, 3), "xz": np.uint8(5)},
        shape=(1, 2, 5, 5), result=TensorProto.INT32,
    ),
    "MatMulInteger": lambda: integers(
        "MatMulInteger", "", ["x", "w", "xz", "wz"],
        {"w": _weights(6, 4), "xz": np.uint8(5), "wz": np.int8(-2)}, result=TensorProto.INT32,
    ),
    "QGemm": lambda: integers(
        "QGemm", MICROSOFT, [*_X, *_W, "b", *_Y],
        scales(w=_weights(4, 6), ws=floats(0.01), wz=np.int8(0), b=np.int32([1, 2, -3, 400])), transB=1,
    ),
    "QGemm to floats": lambda: integers(
        "QGemm", MICROSOFT, [*_X, *_W, "b"],
        {name: value for name, value in scales(
            w=_weights(6, 4), ws=floats([0.01, 0.02, 0.03, 0.04]), wz=np.zeros(4, np.int8), b=np.int32([1, 2, -3, 400])
        ).items() if not name.startswith("y")}, result=TensorProto.FLOAT,
    ),
    "QLinearMul by a constant": lambda: integers(
        "QLinearMul", MICROSOFT, [*_X, *_W, *_Y], scales(w=np.uint8([3]), ws=floats(0.25), wz=np.uint8(1))
    ),
    "QLinearMul of two values": lambda: integers("QLinearMul", MICROSOFT, [*_X, *_X, *_Y], scales()),
    "QLinearAdd": lambda: integers("QLinearAdd", MICROSOFT, [*_X, *_X, *_Y], scales()),
    "QLinearAveragePool": lambda: integers(
        "QLinearAveragePool", MICROSOFT, [*_X, *_Y], scales(), shape=(1, 2, 4, 4), kernel_shape=[2, 2], strides=[2, 2]
    ),
    "QLinearGlobalAveragePool": lambda: integers(
        "QLinearGlobalAveragePool", MICROSOFT, [*_X, *_Y], scales(), shape=(1, 2, 3, 3)
    ),
    "QLinearSigmoid": lambda: integers("QLinearSigmoid", MICROSOFT, [*_X, *_Y], scales(ys=floats(1 / 256))),
    "QLinearLeakyRelu": lambda: integers("QLinearLeakyRelu", MICROSOFT, [*_X, *_Y], scales(), alpha=0.3),
    "QLinearConcat": lambda: integers(
        "QLinearConcat", MICROSOFT, [*_Y, *_X, "x", "ys", "yz"], scales(xz=np.uint8(7)), axis=1
    ),
    "QLinearSoftmax": lambda: integers("QLinearSoftmax", MICROSOFT, [*_X, *_Y], scales(), opset=13),
}  # fmt: skip


@functools.cache
def brevitas_exports() -> dict[str, Path]:
    """Return QONNX and QCDQ files of a network of Brevitas layers, which stay until the end of the process."""
    from brevitas.export import export_onnx_qcdq, export_qonnx
    from brevitas.export.onnx import manager

    if manager.opt is None:  # onnxoptimizer, which tidies up alone
        manager.onnx, manager.opt = onnx, SimpleNamespace(optimize=lambda made, passes: made)
    folder = tempfile.TemporaryDirectory()
    _KEPT.append(folder)
    network, example = brevitas_network()
    paths = {name: Path(folder.name) / f"{name}.onnx" for name in ("qonnx", "qcdq")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_qonnx(network, example[:1], str(paths["qonnx"]))
        export_onnx_qcdq(network, example[:1], str(paths["qcdq"]))
    return paths


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def brevitas_network() -> tuple[nn.Module, Tensor]:
    """Return a small convolutional network with its example input."""
    import brevitas.nn as qnn
    from brevitas.quant import Int8WeightPerChannelFloat

    torch.manual_seed(1)
    network = nn.Sequential(
        qnn.QuantIdentity(bit_width=8, return_quant_tensor=True),
        qnn.QuantConv2d(3, 8, 3, weight_bit_width=2, bias=False),
        nn.BatchNorm2d(8),
        qnn.QuantReLU(bit_width=4, return_quant_tensor=True),
        qnn.TruncAvgPool2d(2, 2, bit_width=4),
        qnn.QuantConv2d(8, 8, 3, weight_bit_width=4, weight_quant=Int8WeightPerChannelFloat, padding=1),
        nn.BatchNorm2d(8),
        qnn.QuantIdentity(bit_width=3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        qnn.QuantLinear(32, 10, weight_bit_width=3, bias=True),
    )
    for _ in range(4):
        network(torch.randn(8, 3, 12, 12))
    return network.eval(), torch.randn(4, 3, 12, 12)


@functools.cache
def cases() -> list[Case]:
    """Return all cases: the same ones each time, so that what becomes of them is found once."""
    tables = {"ONNX (QONNX)": _QONNX, "ONNX (QDQ)": _QDQ, "ONNX (QOperator)": _QOPERATOR}
    made = [
        Case(source, name, functools.partial(_case, build))
        for source, table in tables.items()
        for name, build in table.items()
    ]
    exports = {"ONNX (QONNX)": "qonnx", "ONNX (QDQ)": "qcdq"}
    return made + [
        Case(source, "export of Brevitas", functools.partial(_export, kind)) for source, kind in exports.items()
    ]


def _case(build: Callable[[], ModelProto]) -> tuple[nn.Module, Tensor]:
    global GENERATOR
    GENERATOR = np.random.default_rng(26)  # the same numbers, in whatever order cases are made
    return loaded(build())


def _export(kind: str) -> tuple[nn.Module, Tensor]:
    return load(brevitas_exports()[kind])
