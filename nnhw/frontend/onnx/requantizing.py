"""Quantizers that are put into a file, as nodes of QONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, helper, numpy_helper

from nnhw.nn.quantizers import Quantizer

from .module import OnnxModel
from .opening import module_of
from .parsing import QONNX, checked


def with_quantizers(content: bytes, quantizers: Mapping[str, Quantizer]) -> OnnxModel:
    """Return the module of a file whose nodes read some tensors quantized.

        x --> MatMul      becomes      x --> Quant --> MatMul

    Parameters
    ----------
    content: the file, serialized, with its weights.
    quantizers: with one scale and without a zero point, by the names of the tensors.
    """
    model = ModelProto()
    model.ParseFromString(content)
    for tensor, quantizer in quantizers.items():
        _insert(model.graph, tensor, quantizer)
    return module_of(checked(model, Path("the file with its quantizers")))


def _insert(graph: GraphProto, tensor: str, quantizer: Quantizer) -> None:
    """Add a Quant node, which all readers of a tensor read in its place."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    taken |= {item.name for item in (*graph.initializer, *graph.input)}
    base = f"{tensor}_quantized"
    while any(name.startswith(base) for name in taken):
        base += "_"
    place = next(number for number, node in enumerate(graph.node) if tensor in node.input)
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == tensor:
                node.input[index] = base
    signed, narrow = quantizer.qmin < 0, quantizer.qmin == -quantizer.qmax
    # One signed bit is the codes -1 and +1 in QONNX, too.
    bits = 1 if quantizer.bipolar else quantizer.qmax.bit_length() + int(signed)
    assert quantizer.scale is not None
    numbers = {"scale": quantizer.scale.item(), "zero_point": 0.0, "bits": float(bits)}
    for what, number in numbers.items():
        array = np.array(number, np.float32)
        graph.initializer.append(numpy_helper.from_array(array, f"{base}_{what}"))
    facts: dict[str, Any] = {"signed": int(signed), "narrow": int(narrow and bits > 1), "rounding_mode": "ROUND"}
    inputs = [tensor, *(f"{base}_{what}" for what in numbers)]
    graph.node.insert(place, helper.make_node("Quant", inputs, [base], name=base, domain=QONNX[0], **facts))
