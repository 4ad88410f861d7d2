"""The closed set of operators: one row each in `OPS`."""

from .base import Op, Operand
from .boundary import Constant, Dequantize, Input, Quantize
from .elementwise import Add, BatchNorm, Clamp, Divide, Multiply, Negate, Relu, Subtract
from .linear import Conv2d, Linear
from .shape import Flatten, MaxPool2d, Reshape
from .tail import ArgMax, LogSoftmax, Softmax
from .threshold import Threshold

_ROWS: tuple[type[Op], ...] = (
    # values
    Input,
    Constant,
    # float <-> codes
    Quantize,
    Dequantize,
    # integers
    Linear,
    Conv2d,
    Threshold,
    # integers or floats
    MaxPool2d,
    Flatten,
    Reshape,
    ArgMax,
    # floats
    Add,
    Subtract,
    Multiply,
    Divide,
    Negate,
    Relu,
    Clamp,
    BatchNorm,
    Softmax,
    LogSoftmax,
)

OPS: dict[str, type[Op]] = {row.name: row for row in _ROWS}

__all__ = [
    "OPS",
    "Add",
    "ArgMax",
    "BatchNorm",
    "Clamp",
    "Constant",
    "Conv2d",
    "Dequantize",
    "Divide",
    "Flatten",
    "Input",
    "Linear",
    "LogSoftmax",
    "MaxPool2d",
    "Multiply",
    "Negate",
    "Op",
    "Operand",
    "Quantize",
    "Relu",
    "Reshape",
    "Softmax",
    "Subtract",
    "Threshold",
]
