"""Remedies for operators that are not supported, for error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CONVOLUTION = "use nnhw.nn.QuantConv2d, or QuantConv1d"
_TRANSPOSED = "use nnhw.nn.QuantConvTranspose2d"
_CONDITION = "use torch.where with a comparison such as x > 0, torch.maximum, torch.minimum, clamp or relu"
NO_BRANCHES = "branches and loops must not depend on the values of tensors: use torch.where, see docs/how-to/refused.md"
_WHOLE_TENSOR = "use dim=(2, 3), the axes of height and width"
_PARTS = "use slices such as x[:, 1:4], chunk, split or torch.cat, or a 1x1 convolution"
_REPEATS = "use torch.cat, nn.Upsample, or constants of the whole shape; values are not repeated to fit each other"
_PRODUCT = "use torch.matmul or nnhw.nn.QuantLinear with constant weights, and add the bias behind"
_NORMALIZATION = "use nn.BatchNorm1d or nn.BatchNorm2d, which are fixed after training"
SIZES = "compute sizes from x.shape[0] alone, and keep the other sizes fixed"
_FLOOR = "use torch.floor(x / y)"
_REMAINDER = "use x - y * torch.floor(x / y)"
_TRUNCATED = "use x - y * torch.trunc(x / y)"
_DIVISION = "use torch.floor(x / y) or torch.trunc(x / y), in two steps"
_SHIFT = "use torch.floor(x / 2**n), in floats"
_BITS = "no engine computes with single bits; the n lowest bits are x - 2**n * torch.floor(x / 2**n), in floats"
_WRITES = (
    "no part of a tensor can be written; join parts with torch.cat, or multiply by a constant of ones and zeros for "
    "each channel or feature"
)
_ORDER = "no engine puts values in order; let the model return them, and do it with the results"
_AFTERWARDS = "no engine computes it; let the model return the values that it needs, and do it with the results"
_LIKE = "use a number, or a constant that the model holds"
_FINITE = "leave it out: values are never NaN or infinite here"
_NUMBER = "no number may be read out of a tensor; keep it a tensor"
_FAKE = "use nnhw.nn.QuantIdentity, QuantReLU, Int or UInt"
_INPLACE_SUM = "write it as products and sums, such as x + weight * (y - x)"
_WINDOWS = "use nnhw.nn.QuantConv2d, or QuantConv1d, whose kernels are such windows"
_NEAREST = "use mode='nearest'"
_SHRINK = "use nn.ReLU, nn.LeakyReLU or nn.Hardtanh"
_STATE = "use layers without state, such as nn.Conv1d along the time steps"
_ATTENTION = (
    "use nnhw.nn.QuantSoftmax between two products, as in softmax(q @ k.transpose(-2, -1) * scale) @ v, each of "
    "them of quantized values"
)
_ZEROS = "use padding with a constant, as nn.ZeroPad2d does"
_POOLING = "use nn.MaxPool2d or nn.AvgPool2d"

# By the name of ATen's operator, or of the module in snake case; a pooling or padding without its '1d' or '2d'.
REMEDIES: dict[str, str] = {
    **dict.fromkeys(("conv3d", "convolution"), _CONVOLUTION),
    "conv_transpose3d": _TRANSPOSED,
    **dict.fromkeys(("any", "all", "isclose", "cond", "signbit", "bucketize", "masked_select"), _CONDITION),
    **dict.fromkeys(("searchsorted", "count_nonzero", "nonzero"), _CONDITION),
    **dict.fromkeys(("rrelu",), _SHRINK),
    **dict.fromkeys(("index", "index_select", "gather", "roll", "rot90", "diagonal"), _PARTS),
    **dict.fromkeys(
        ("fill", "copy", "zero", "index_put", "index_fill", "index_add", "index_copy", "masked_scatter"), _WRITES
    ),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce", "slice_scatter", "select_scatter"), _WRITES),
    **dict.fromkeys(("repeat", "repeat_interleave", "tile"), _REPEATS),
    **dict.fromkeys(("addmm", "baddbmm", "_int_mm"), _PRODUCT),
    **dict.fromkeys(("group_norm", "instance_norm", "local_response_norm", "normalize"), _NORMALIZATION),
    "layer_norm": "use nnhw.nn.QuantLayerNorm, which computes with integers",
    "rms_norm": "use nnhw.nn.QuantRMSNorm, which computes with integers",
    "sym_numel": SIZES,
    **dict.fromkeys(("floor_divide", "floordiv"), _FLOOR),
    **dict.fromkeys(("remainder", "mod"), _REMAINDER),
    "fmod": _TRUNCATED,
    "div": _DIVISION,
    **dict.fromkeys(("rshift", "bitwise_right_shift"), _SHIFT),
    **dict.fromkeys(("lshift", "bitwise_left_shift"), "use x * 2**n, in floats"),
    **dict.fromkeys(("and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor"), _BITS),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_linear1d", "upsample_bicubic2d", "upsample_nearest3d"), _NEAREST),
    "mean": _WHOLE_TENSOR,
    "sum": _WHOLE_TENSOR,
    "max": _WHOLE_TENSOR + ", with torch.amax; for the place of the greatest value use argmax at the model's end",
    "min": _WHOLE_TENSOR + ", with -torch.amax(-x)",
    "aminmax": _WHOLE_TENSOR + ", with torch.amax and -torch.amax(-x)",
    "argmin": "use (-x).argmax(1) at the model's end",
    **dict.fromkeys(
        ("sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "quantile", "mode"), _ORDER
    ),
    **dict.fromkeys(("cummax", "cummin", "unique"), _ORDER),
    **dict.fromkeys(("std", "var", "std_mean", "var_mean", "linalg_vector_norm", "linalg_norm", "norm"), _AFTERWARDS),
    **dict.fromkeys(
        ("cosine_similarity", "pairwise_distance", "cdist", "pdist", "logsumexp", "logcumsumexp", "cov"), _AFTERWARDS
    ),
    **dict.fromkeys(("fft_fft", "fft_rfft", "fft_ifft", "fft_irfft", "fft_fft2", "stft"), _AFTERWARDS),
    "cumsum": "use nnhw.nn.QuantLinear whose weights are a constant triangle of ones",
    **dict.fromkeys(
        ("prod", "cumprod"), "no engine multiplies the elements of one value with each other; multiply slices of it"
    ),
    "pow": "use x ** 2, x ** 3, x ** 0.5, x ** -1, or torch.exp",
    "float_power": "use x ** 2, x ** 3, x ** 0.5, or x ** -1",
    "rsqrt": "use 1 / torch.sqrt(x)",
    "expm1": "use torch.exp(x) - 1",
    "frac": "use x - torch.trunc(x)",
    "fmax": "use torch.maximum",
    "fmin": "use torch.minimum",
    **dict.fromkeys(("addcmul", "addcdiv", "lerp"), _INPLACE_SUM),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like", "empty_like"), _LIKE),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_tensor", "new_empty"), _LIKE),
    **dict.fromkeys(("isnan", "isinf", "isfinite", "nan_to_num"), _FINITE),
    **dict.fromkeys(("item", "_local_scalar_dense"), _NUMBER),
    **dict.fromkeys(
        ("quantize_per_tensor", "quantize_per_channel", "dequantize", "fake_quantize_per_tensor_affine"), _FAKE
    ),
    "fake_quantize_per_channel_affine": _FAKE,
    **dict.fromkeys(("unfold", "im2col"), _WINDOWS),
    **dict.fromkeys(("_add_batch_dim", "_remove_batch_dim"), "leave it out: layers take a batch of images as it is"),
    "to_sparse": "leave it out: all values are computed, those that are zero, too",
    "max_pool1d_with_indices": "use return_indices=False",
    "max_pool2d_with_indices": "use return_indices=False",
    **dict.fromkeys(("scaled_dot_product_attention", "multihead_attention"), _ATTENTION),
    **dict.fromkeys(("reflection_pad", "replication_pad", "circular_pad"), _ZEROS),
    **dict.fromkeys(("lp_pool", "fractional_max_pool", "max_pool3d", "avg_pool3d"), _POOLING),
    "embedding": "give the model the embedded values, or use nnhw.nn.QuantLinear on one-hot rows",
    **dict.fromkeys(("gru", "lstm", "rnn", "grucell", "lstmcell", "rnncell"), _STATE),
}
OTHERWISE = "see docs/operators.md for what is supported, or leave it out of the model"

ASSIGNMENT = "x[..] = y"
"""How an assignment to a part of a tensor, which ATen calls index_put, is named in messages."""
_SYMBOLS = {
    "rshift": ">>", "lshift": "<<", "and": "&", "or": "|", "xor": "^", "invert": "~", "bitwise_not": "~",
    "floor_divide": "//", "floordiv": "//", "remainder": "%", "mod": "%",
    "gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
"""Operators of Python, which users do not write by their names."""
_FUNCTIONS = {
    "im2col": "unfold",
    "_unique2": "unique",
    "grid_sampler": "grid_sample",
    "numpy_T": "T",
    "index_put": ASSIGNMENT,
    "_local_scalar_dense": "item",
    **dict.fromkeys(("_add_batch_dim", "_remove_batch_dim"), "torch.vmap"),
    "fake_quantize_per_tensor_affine_cachemask": "fake_quantize_per_tensor_affine",
    "fake_quantize_per_channel_affine_cachemask": "fake_quantize_per_channel_affine",
    "_to_sparse": "to_sparse",
    "wrap_with_autocast": "torch.autocast",
    "wrap_with_set_grad_enabled": "torch.no_grad",
}
"""What users write, where ATen has another name for it."""
_MODULES = ("fft", "linalg", "special")
"""Modules of torch whose name ATen puts in front of a function's: fft_rfft is torch.fft.rfft."""

_FLOAT: Mapping[str, str] = {
    _CONVOLUTION: "use nn.Conv2d, or nn.Conv1d",
    _TRANSPOSED: "use nn.ConvTranspose2d",
    _PRODUCT: "use torch.matmul or nn.Linear with constant weights, and add the bias behind",
    _WINDOWS: "use nn.Conv2d, or nn.Conv1d, whose kernels are such windows",
    _FAKE: "leave it out: nnhw.quantize puts quantizers where they must be",
    REMEDIES["cumsum"]: "use nn.Linear whose weights are a constant triangle of ones",
    REMEDIES["embedding"]: "give the model the embedded values, or use nn.Linear on one-hot rows",
}
"""Remedies that are worded differently for models that are not quantized yet."""


def spelled(operation: str) -> str:
    """Return an operation of ATen or Python as users write it: __rshift__ is '>>', fft_fft is torch.fft.fft."""
    bare = operation.strip("_")
    if operation.startswith("__") and bare[:1] == "i" and bare[1:] in _SYMBOLS:  # __irshift__
        return f"'{_SYMBOLS[bare[1:]]}='"
    if bare in _SYMBOLS:
        return f"'{_SYMBOLS[bare]}'"
    module, _, function = operation.partition("_")
    return f"torch.{module}.{function}" if module in _MODULES else _FUNCTIONS.get(operation, operation)


def remedy_for(operation: str, *, quantized: bool) -> str:
    """Return the remedy for an operation, for an error message.

    Parameters
    ----------
    operation: its name in ATen, or that of its module: 'group_norm', 'GroupNorm', 'LSTM', 'reflection_pad2d'.
    quantized: the model has quantizers; otherwise it is a float model.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).lower()
    bare = name.strip("_")
    if name.startswith("__i") and bare[1:] in _SYMBOLS:
        bare = bare[1:]
    known = (REMEDIES.get(key) for key in (name, bare, re.sub(r"\dd$", "", name), _FUNCTIONS.get(name, name)))
    remedy = next((text for text in known if text), OTHERWISE)
    return remedy if quantized else _FLOAT.get(remedy, remedy)
