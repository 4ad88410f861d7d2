"""The closed set of operators: one row each in `OPS`."""

from .base import Op, Operand
from .boundary import Constant, Dequantize, Input, Quantize
from .elementwise import Add, BatchNorm, Clamp, Divide, Multiply, Negate, Relu, Subtract
from .join import Concat, WeightedSum
from .linear import Conv2d, Linear
from .shape import Flatten, Permute, Reshape
from .tail import ArgMax, LogSoftmax, Softmax
from .threshold import StepTable, Threshold
from .window import MaxPool2d, Pad, SumPool2d, Upsample

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
    StepTable,
    SumPool2d,
    WeightedSum,
    # integers or floats
    MaxPool2d,
    Pad,
    Upsample,
    Concat,
    Flatten,
    Reshape,
    Permute,
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
    "Concat",
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
    "Pad",
    "Permute",
    "Quantize",
    "Relu",
    "Reshape",
    "Softmax",
    "StepTable",
    "Subtract",
    "SumPool2d",
    "Threshold",
    "Upsample",
    "WeightedSum",
]
