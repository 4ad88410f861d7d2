"""Kinds of operations in a traced float model, by name, and what each kind means for quantization."""

from __future__ import annotations

from collections.abc import Container, Mapping

from torch import fx, nn
from torch._ops import OpOverload

from .attention import ShareSoftmax

WEIGHTED = frozenset({"linear", "conv1d", "conv2d", "matmul", "mm", "einsum", "conv_transpose1d", "conv_transpose2d"})
"""Operations with constant weights."""
PRODUCTS = frozenset({"matmul", "mm", "bmm", "einsum"})
"""Operations that may have two computed operands instead, each of which needs codes."""
NORMS = frozenset({"layer_norm", "rms_norm"})
"""Normalizations over features, which are computed from codes."""
OUTPUT_AXES: Mapping[str, int] = {"matmul": -1, "mm": -1, "conv_transpose1d": 1, "conv_transpose2d": 1}
"""The axis of the outputs in their weights, where it is not the first one."""
CONDITIONS = frozenset(
    {
        *("gt", "ge", "lt", "le", "eq", "ne", "where", "masked_fill"),
        *("logical_and", "logical_or", "logical_xor", "and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    }
)
"""Comparisons, and choices by them: functions of one value."""
JOINS = CONDITIONS | frozenset({"add", "sub", "mul", "div", "truediv", "maximum", "minimum"})
"""Operations on two values, each of which needs codes of its own, unless both are functions of one value."""
COMPOSED = frozenset({"softsign", "tanhshrink", "pow"})
"""Functions of one value that torch computes in several steps, some of which combine the value with itself."""
CONCATS = frozenset({"cat", "concat", "concatenate", "stack"})
"""Concatenations, whose values share one scale."""
AVERAGES = frozenset(
    {"avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean", "sum"},
)
"""Sums and means of values, which are exact only on codes."""
MOVES = frozenset(
    {
        *("max_pool1d", "max_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "amax"),
        *("flatten", "view", "reshape", "view_as", "reshape_as"),
        *("squeeze", "unsqueeze", "unflatten", "permute", "transpose", "dropout", "feature_dropout", "alpha_dropout"),
        *("identity", "pad", "constant_pad_nd", "interpolate", "upsample", "upsample_nearest1d", "upsample_nearest2d"),
        *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d"),
        *("contiguous", "clone", "detach", "alias", "getitem", "movedim", "swapaxes", "to", "type_as"),
        *("_to_copy", "slice", "dropout1d", "dropout2d", "t", "mT", "swapdims", "moveaxis"),
        *("expand", "expand_as", "broadcast_to"),
        *("channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "native_channel_shuffle"),
        *("chunk", "split", "split_with_sizes", "tensor_split", "unbind", "select", "narrow"),
    }
)
"""Operations that move, repeat or pick elements: codes remain codes of the same scale."""
CASTS = frozenset({"to", "_to_copy", "type_as", "detach", "alias", "clone", "contiguous", "lift_fresh_copy"})
"""Operations that copy a value, perhaps in another dtype."""
FILLED = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
"""Operations that make a constant of the shape or the dtype of a value."""
CONVERTED = frozenset({"type_as", "to", "expand_as", "view_as", "reshape_as"})
"""Operations that may read the dtype, the device or the shape of another value, but none of its numbers."""
NONNEGATIVE = frozenset(
    {"relu", "relu6", "sigmoid", "hardsigmoid", "softplus", "abs", "absolute", "square", "exp", "sqrt", "softmax"}
)
"""Operations whose results are never below zero, so that their codes need no sign."""
ELEMENTWISE = NONNEGATIVE | frozenset(
    {
        *("batch_norm", "leaky_relu", "prelu", "elu", "selu", "celu", "hardtanh", "clamp", "clamp_min", "clamp_max"),
        *("clip", "hardswish", "tanh", "silu", "mish", "gelu", "log_sigmoid", "logsigmoid", "neg"),
        *("softsign", "tanhshrink", "sign", "sgn", "heaviside", "threshold", "hardshrink", "softshrink"),
        *("logical_not", "invert", "bitwise_not", "float", "double"),
        *("pow", "log_softmax", "argmax", "rsub", "reciprocal", "floor", "ceil", "round", "trunc"),
    }
)
"""Operations on each element alone, and those at the end of a model."""
ENDS = frozenset({"softmax", "log_softmax", "argmax"})
"""Operations among these that mix elements, at the end of a model; a softmax elsewhere is computed from codes."""
MODES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "pad": (2, ("constant",)),
    "interpolate": (3, ("nearest", "nearest-exact")),
    "upsample": (3, ("nearest", "nearest-exact")),
}
"""Operations that are supported in some modes only: position of the argument `mode`, and supported values."""
RECURRENT = frozenset({"recurrent"})
"""Layers with a loop, which read codes and return codes in formats of their own."""
CODES = RECURRENT | {"quantize"}
"""Operations whose results are codes already."""
KNOWN = CODES | WEIGHTED | PRODUCTS | NORMS | JOINS | CONCATS | AVERAGES | MOVES | ELEMENTWISE
"""All operations that a quantized model may have."""

MODULES: Mapping[type[nn.Module], str] = {
    nn.Linear: "linear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
    nn.ConvTranspose1d: "conv_transpose1d",
    nn.ConvTranspose2d: "conv_transpose2d",
    nn.AvgPool1d: "avg_pool1d",
    nn.AvgPool2d: "avg_pool2d",
    nn.AdaptiveAvgPool1d: "adaptive_avg_pool1d",
    nn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    nn.MaxPool1d: "max_pool1d",
    nn.MaxPool2d: "max_pool2d",
    nn.AdaptiveMaxPool1d: "adaptive_max_pool1d",
    nn.AdaptiveMaxPool2d: "adaptive_max_pool2d",
    nn.Flatten: "flatten",
    nn.Unflatten: "unflatten",
    nn.Identity: "identity",
    nn.Dropout: "dropout",
    nn.Dropout1d: "dropout",
    nn.Dropout2d: "dropout",
    nn.AlphaDropout: "dropout",
    nn.FeatureAlphaDropout: "dropout",
    nn.ZeroPad1d: "pad",
    nn.ZeroPad2d: "pad",
    nn.ConstantPad1d: "pad",
    nn.ConstantPad2d: "pad",
    nn.ChannelShuffle: "channel_shuffle",
    nn.PixelShuffle: "pixel_shuffle",
    nn.PixelUnshuffle: "pixel_unshuffle",
    nn.Upsample: "upsample",
    nn.UpsamplingNearest2d: "upsample",
    nn.BatchNorm1d: "batch_norm",
    nn.BatchNorm2d: "batch_norm",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.LeakyReLU: "leaky_relu",
    nn.PReLU: "prelu",
    nn.ELU: "elu",
    nn.SELU: "selu",
    nn.CELU: "celu",
    nn.Hardtanh: "hardtanh",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Hardswish: "hardswish",
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
    nn.SiLU: "silu",
    nn.Mish: "mish",
    nn.GELU: "gelu",
    nn.GLU: "glu",
    nn.Softplus: "softplus",
    nn.Softsign: "softsign",
    nn.Tanhshrink: "tanhshrink",
    nn.Threshold: "threshold",
    nn.Hardshrink: "hardshrink",
    nn.Softshrink: "softshrink",
    nn.LogSigmoid: "logsigmoid",
    nn.LayerNorm: "layer_norm",
    nn.RMSNorm: "rms_norm",
    nn.Softmax: "softmax",
    ShareSoftmax: "softmax",
    nn.LogSoftmax: "log_softmax",
    nn.RNN: "recurrent",
    nn.GRU: "recurrent",
    nn.LSTM: "recurrent",
}
"""Names of the operations that layers are: that of the function, where there is one."""

_ALIASES: Mapping[str, str] = {
    **{f"i{name}": name for name in ("add", "sub", "mul", "truediv")},
    **{"multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "negative": "neg"},
    **{"special_expit": "sigmoid", "expit": "sigmoid", "absolute": "abs"},
    **{"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne"},
    "_threshold": "threshold",
}
"""Names by which Python, NumPy's dialect in torch, or ATen call an operation that has another name above."""


def operation(node: fx.Node, modules: Mapping[str, nn.Module]) -> str:
    """Return the name of a traced node's operation: 'conv2d' for the module, the function, and aten.conv2d.default."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        return MODULES.get(type(module), type(module).__name__)
    if node.op not in ("call_function", "call_method"):
        return node.op
    target = node.target
    if isinstance(target, OpOverload):
        name = target._schema.name.split("::")[1]
    else:
        name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    # In-place operations end in '_', and compute the same.
    name = name.strip("_") if name.startswith("__") else name.rstrip("_")
    if name == "getattr":  # x.mT
        return str(node.args[1])
    other = node.args[1] if len(node.args) > 1 else node.kwargs.get("other")
    # torch.max of two tensors is torch.maximum; of one tensor and an axis it is not.
    if name in ("max", "min") and isinstance(other, fx.Node):
        return f"{name}imum"
    return _ALIASES.get(name, name)


def weights_of(node: fx.Node, values: Container[fx.Node]) -> tuple[object, int | None]:
    """Return (weights that a function reads, axis of the outputs in them); the axis is None if there is none.

    Parameters
    ----------
    values: the nodes that depend on the model's input; the weights of an einsum are the operand that does not.
    """
    name = operation(node, {})
    if name != "einsum":
        named = (node.kwargs[key] for key in ("weight", "other", "mat2") if key in node.kwargs)
        weights = node.args[1] if len(node.args) > 1 else next(named, None)
        return weights, OUTPUT_AXES.get(name, 0)
    axes, arrow, out = str(node.args[0]).replace(" ", "").partition("->")
    operands = node.args[1] if isinstance(node.args[1], list | tuple) else node.args[1:]
    constants = [pair for pair in zip(axes.split(","), operands, strict=False) if pair[1] not in values]
    if len(operands) != 2 or len(constants) != 1:
        return None, None
    ((term, weights),) = constants
    # Without an arrow, einsum keeps the letters that occur once.
    kept = [letter in out if arrow else axes.count(letter) == 1 for letter in term]
    return weights, kept.index(True) if True in kept else None
