"""What to do about operators that are not supported."""

from __future__ import annotations

from .calls import Call

_CONVOLUTION = "use nnhw.nn.QuantConv2d, with a kernel of height 1 for one dimension"
_ACTIVATION = "use nn.ReLU, nn.Hardtanh or a quantizer of nnhw.nn, whose clamping is an activation"
_AVERAGE = "use nn.MaxPool2d, or a convolution with a stride"
_BRANCHES = "use a model without branches that are joined"
_SIZES = "compute sizes from x.shape[0] alone, and keep the other sizes fixed"

_REMEDIES: dict[str, str] = {
    **dict.fromkeys(("conv1d", "conv3d", "conv_transpose2d"), _CONVOLUTION),
    **dict.fromkeys(
        ("sigmoid", "tanh", "gelu", "silu", "elu", "leaky_relu", "prelu", "softplus", "hardswish", "hardsigmoid"),
        _ACTIVATION,
    ),
    **dict.fromkeys(("avg_pool2d", "adaptive_avg_pool2d", "mean", "avg_pool1d"), _AVERAGE),
    **dict.fromkeys(("cat", "stack"), _BRANCHES),
    **dict.fromkeys(("mul", "floordiv", "getitem", "sym_numel"), _SIZES),
    "pad": "use the padding of the convolution, which is by zeros",
    "max_pool1d": "use nn.MaxPool2d with a kernel of height 1",
    "adaptive_max_pool2d": "use nn.MaxPool2d with the same windows",
    "matmul": "use nnhw.nn.QuantLinear",
    "layer_norm": "use nn.BatchNorm1d or nn.BatchNorm2d, which are fixed after training",
    "group_norm": "use nn.BatchNorm2d, which is fixed after training",
}
_OTHERWISE = (
    "use linear, conv2d, max_pool2d, batch_norm, relu, hardtanh, clamp, arithmetic with constants, flatten, reshape, "
    "dropout, softmax, log_softmax, argmax, or leave it out of the model"
)


def unsupported(call: Call) -> str:
    """Return the message for a call of an operator that has no handler."""
    remedy = _REMEDIES.get(call.operator.split(".")[1], _OTHERWISE)
    return f"{call}: operator {call.operator} is not supported; {remedy}"
