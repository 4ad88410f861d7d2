"""Tables of the IR's operators: which function writes each in ONNX, or why none does."""

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
"""Operators without an exact form in ONNX --> why."""
OPERATORS: Mapping[str, Row] = {**INTEGERS, **ATTENTION, **FLOATS}
"""Operators of the IR --> functions that write them."""
