"""Every operator of the IR: how it is written in ONNX, or why it is not."""

from __future__ import annotations

from collections.abc import Mapping

from .onnx_attention import ATTENTION
from .onnx_emitter import Row
from .onnx_floats import FLOATS
from .onnx_integers import INTEGERS

_LAST_BITS = "the last bits of its exponential function belong to each runtime's library"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("elu", "sigmoid", "tanh", "silu", "mish", "gelu", "softplus", "exp", "softmax", "log_softmax"), _LAST_BITS
    ),
    "fixed_softmax": "its fixed-point arithmetic needs shifts of signed integers, which ONNX has not",
}
"""Operator that has no exact form --> why."""
OPERATORS: Mapping[str, Row] = {**INTEGERS, **ATTENTION, **FLOATS}
"""Operator of the IR --> what writes it."""
