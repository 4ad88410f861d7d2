"""Operators of ONNX that cannot be built, each with the reason and a remedy."""

from __future__ import annotations

from collections.abc import Mapping

_CONTROL = "runs a graph inside of the graph; export the model with fixed branches and without loops"
_DYNAMIC = "finds its scale from each image; quantize statically, such as by onnxruntime.quantization.quantize_static"
_PRODUCT = "multiplies two values that both depend on the input; the engines multiply by constants"
_STATE = "keeps a state from step to step; export the steps as layers"
_FLOATS = "makes minifloats, whose products are no integers; quantize to integers of 8 bits"

REASONS: Mapping[str, str] = {
    **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), _CONTROL),
    **dict.fromkeys(("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"), _DYNAMIC),
    "MatMulIntegerToFloat": _DYNAMIC,
    **dict.fromkeys(("Attention", "QAttention", "MultiHeadAttention", "RotaryEmbedding"), _PRODUCT),
    **dict.fromkeys(("RNN", "LSTM", "GRU"), _STATE),
    **dict.fromkeys(("FloatQuant", "MinifloatQuant"), _FLOATS),
    "Im2Col": "is a step of FINN's own hardware flow; use the file from before LowerConvsToMatMul",
    "XnorPopcountMatMul": "counts equal bits, a step of FINN's own hardware flow; use the file from before it",
    "QuantAvgPool2d": "cuts bits off the sum of a window; use AveragePool and a Quant, or Trunc",
    "Erf": "is no part of a GELU here; export GELU as one operator, with opset 20 or later",
    "RandomNormal": "draws random numbers; leave it out of the model",
    "QLinearSoftmax": "mixes elements and makes codes of that; end the model in front of it, or use a float Softmax",
    "InstanceNormalization": "finds its statistics from each image; use BatchNormalization",
    "LayerNormalization": "finds its statistics from each image; use BatchNormalization",
    "GroupNormalization": "finds its statistics from each image; use BatchNormalization",
    "LRN": "divides by sums of squares of its input; use BatchNormalization",
    "BatchNormalization": "is in training mode; export the model in eval mode",
    "Sign": "makes three numbers, of which 0 is one; use BipolarQuant of QONNX",
}
OTHERWISE = "is not supported; docs/onnx.md lists the operators that are"


def reason_of(op: str) -> str:
    """Return why an operator is not supported, and what to do instead."""
    if op.startswith(("Random", "Multinomial", "Bernoulli")):
        return REASONS["RandomNormal"]
    return REASONS.get(op, OTHERWISE)
