"""The set of operators, by their names in `OPS`."""

from .activation import Elu, Gelu, HardSigmoid, HardSwish, LeakyRelu, Mish, PRelu, Sigmoid, Silu, Softplus, Tanh
from .arithmetic import Absolute, Ceil, Exp, Floor, Maximum, Minimum, Round, Sqrt, Square, Truncate
from .base import Op, Operand
from .boundary import Constant, Dequantize, Input, Quantize
from .conditions import Greater, GreaterEqual, Sign, Where
from .elementwise import Add, BatchNorm, Clamp, Divide, Multiply, Negate, Relu, Subtract
from .fixed_softmax import FixedSoftmax
from .join import Concat, WeightedSum
from .linear import Conv2d, Linear
from .matrix_product import Broadcast, MatrixProduct
from .normalization import IntegerNorm, IntegerSoftmax
from .product import Product
from .rescale import Rescale
from .sequence import AsSteps, LastStep, ReverseSteps, Scan
from .shape import Flatten, Permute, Reshape, Slice
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
    Rescale,
    SumPool2d,
    WeightedSum,
    Product,
    MatrixProduct,
    IntegerSoftmax,
    IntegerNorm,
    # integers or floats
    Broadcast,
    MaxPool2d,
    Pad,
    Upsample,
    Concat,
    Flatten,
    Reshape,
    Permute,
    Slice,
    ArgMax,
    Minimum,
    Maximum,
    # sequences
    Scan,
    AsSteps,
    LastStep,
    ReverseSteps,
    # floats
    Add,
    Subtract,
    Multiply,
    Divide,
    Negate,
    Relu,
    Clamp,
    LeakyRelu,
    PRelu,
    Elu,
    HardSigmoid,
    HardSwish,
    Sigmoid,
    Tanh,
    Silu,
    Mish,
    Gelu,
    Softplus,
    Absolute,
    Square,
    Exp,
    Sqrt,
    Floor,
    Ceil,
    Round,
    Truncate,
    Sign,
    Greater,
    GreaterEqual,
    Where,
    BatchNorm,
    Softmax,
    LogSoftmax,
    FixedSoftmax,
)

OPS: dict[str, type[Op]] = {row.name: row for row in _ROWS}
"""All operators by name; a user's own operator is registered in it, too."""

__all__ = [
    "OPS",
    "Absolute",
    "Add",
    "ArgMax",
    "AsSteps",
    "BatchNorm",
    "Broadcast",
    "Ceil",
    "Clamp",
    "Concat",
    "Constant",
    "Conv2d",
    "Dequantize",
    "Divide",
    "Elu",
    "Exp",
    "FixedSoftmax",
    "Flatten",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterEqual",
    "HardSigmoid",
    "HardSwish",
    "Input",
    "IntegerNorm",
    "IntegerSoftmax",
    "LastStep",
    "LeakyRelu",
    "Linear",
    "LogSoftmax",
    "MatrixProduct",
    "MaxPool2d",
    "Maximum",
    "Minimum",
    "Mish",
    "Multiply",
    "Negate",
    "Op",
    "Operand",
    "PRelu",
    "Pad",
    "Permute",
    "Product",
    "Quantize",
    "Relu",
    "Rescale",
    "Reshape",
    "ReverseSteps",
    "Round",
    "Scan",
    "Sigmoid",
    "Sign",
    "Silu",
    "Slice",
    "Softmax",
    "Softplus",
    "Sqrt",
    "Square",
    "StepTable",
    "Subtract",
    "SumPool2d",
    "Tanh",
    "Threshold",
    "Truncate",
    "Upsample",
    "WeightedSum",
    "Where",
]
