"""What to do about operators that are not supported."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CONVOLUTION = "use nnhw.nn.QuantConv2d, or QuantConv1d"
_TRANSPOSED = "use nnhw.nn.QuantConvTranspose2d"
_CONDITION = "use torch.maximum, torch.minimum, clamp, relu or nnhw.nn.Sign, which need no condition"
_WHOLE_TENSOR = "use dim=(2, 3), the axes of height and width"
_PARTS = "use slices such as x[:, 1:4], chunk, split or torch.cat, or a 1x1 convolution"
_REPEATS = "use nn.Upsample, or constants of the whole shape; values are not repeated to fit each other"
_PRODUCT = "use torch.matmul or nnhw.nn.QuantLinear with constant weights, and add the bias behind"
_NORMALIZATION = "use nn.BatchNorm1d or nn.BatchNorm2d, which are fixed after training"
_SIZES = "compute sizes from x.shape[0] alone, and keep the other sizes fixed"
_ROUNDING = "use x / constant and torch.floor, or torch.round, in two steps"
_NEAREST = "use mode='nearest'"
_SHRINK = "use nn.ReLU, nn.LeakyReLU or nn.Hardtanh"
_STATE = "use layers without state, such as nn.Conv1d along the time steps"
_ATTENTION = "use layers whose weights are constants, such as nn.Linear across the rows of x.transpose(1, 2)"
_ZEROS = "use padding with a constant, as nn.ZeroPad2d does"
_POOLING = "use nn.MaxPool2d or nn.AvgPool2d"

REMEDIES: dict[str, str] = {
    **dict.fromkeys(("conv3d", "convolution"), _CONVOLUTION),
    "conv_transpose3d": _TRANSPOSED,
    **dict.fromkeys(
        ("where", "gt", "ge", "lt", "le", "eq", "ne", "masked_fill", "heaviside", "logical_and", "logical_not"),
        _CONDITION,
    ),
    **dict.fromkeys(("hardshrink", "softshrink", "threshold", "rrelu"), _SHRINK),
    **dict.fromkeys(("index", "index_select", "gather", "flip", "roll"), _PARTS),
    **dict.fromkeys(("expand", "expand_as", "repeat", "repeat_interleave", "tile", "broadcast_to"), _REPEATS),
    **dict.fromkeys(("addmm", "bmm", "baddbmm"), _PRODUCT),
    **dict.fromkeys(
        ("layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm", "normalize"), _NORMALIZATION
    ),
    **dict.fromkeys(("floordiv", "mul", "add", "sub", "sym_numel"), _SIZES),
    **dict.fromkeys(("floor_divide", "remainder", "fmod", "div"), _ROUNDING),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_linear1d", "upsample_bicubic2d", "upsample_nearest3d"), _NEAREST),
    "mean": _WHOLE_TENSOR,
    "sum": _WHOLE_TENSOR,
    "max": _WHOLE_TENSOR + ", with torch.amax; for the place of the greatest value use argmax at the model's end",
    "min": _WHOLE_TENSOR + ", with -torch.amax(-x)",
    "sign": "use nnhw.nn.Sign, which has no third value at 0",
    "pow": "use x ** 2, x ** 3, x ** 0.5, x ** -1, or torch.exp",
    "max_pool1d_with_indices": "use return_indices=False",
    "max_pool2d_with_indices": "use return_indices=False",
    **dict.fromkeys(("scaled_dot_product_attention", "multihead_attention"), _ATTENTION),
    **dict.fromkeys(("reflection_pad", "replication_pad", "circular_pad"), _ZEROS),
    **dict.fromkeys(("lp_pool", "fractional_max_pool"), _POOLING),
    "glu": "use nn.ReLU or nn.Hardtanh; products of two computed values have no engine",
    "embedding": "give the model the embedded values, or use nnhw.nn.QuantLinear on one-hot rows",
    **dict.fromkeys(("gru", "lstm", "rnn"), _STATE),
}
_OTHERWISE = "see docs/operators.md for what is supported, or leave it out of the model"


_FLOAT: Mapping[str, str] = {
    _CONVOLUTION: "use nn.Conv2d, or nn.Conv1d",
    _TRANSPOSED: "use nn.ConvTranspose2d",
    _CONDITION: "use torch.maximum, torch.minimum, clamp or relu, which need no condition",
    _PRODUCT: "use torch.matmul or nn.Linear with constant weights, and add the bias behind",
    REMEDIES["sign"]: "use nn.Hardtanh and act_bits=1",
    REMEDIES["embedding"]: "give the model the embedded values, or use nn.Linear on one-hot rows",
}
"""What to do in models that are not quantized yet."""


def remedy_for(operation: str, *, quantized: bool) -> str:
    """Return what to do about an operation, in a model with quantizers or in a float one.

    Parameters
    ----------
    operation: its name in ATen, or that of its module: 'group_norm', 'GroupNorm', 'LSTM', 'reflection_pad2d'.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).lower()
    remedy = REMEDIES.get(name) or REMEDIES.get(re.sub(r"\dd$", "", name), _OTHERWISE)
    return remedy if quantized else _FLOAT.get(remedy, remedy)
