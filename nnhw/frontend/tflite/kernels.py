"""TFLite's reference kernels for int8 in NumPy, written from what they are specified to compute.

They share no code with the module that is traced, nor with the IR, so that each checks the other. Values are int64:
distances of codes from their zero point, [N, height, width, channels], as the file has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import curves, fixed_point
from .model_file import FileOperator, FileTensor, ModelFile

Array = np.ndarray
Factor = tuple[int, int]


@dataclass(frozen=True)
class Kernel:
    """One operator of a file, and how it is evaluated.

    Parameters
    ----------
    rounding: 'double' or 'single': how products are rounded.
    note: is called with 'rescale', 'quantize' or 'weights', the codes made, and the call's arguments but tensors.
    """

    model: ModelFile
    operator: FileOperator
    rounding: str
    note: Callable[[str, Array, tuple[Any, ...]], None]

    @property
    def made(self) -> FileTensor:
        """The tensor that it makes."""
        return self.model.made(self.operator)

    def tensor(self, place: int) -> FileTensor:
        """Return the tensor of its input at a place."""
        index = self.operator.inputs[place]
        assert index is not None
        return self.model.tensors[index]

    def constant(self, place: int) -> Array:
        """Return the numbers of its constant input at a place, as int64."""
        data = self.tensor(place).data
        assert data is not None
        return data.astype(np.int64)

    def option(self, name: str) -> Any:
        """Return an option by the format's name."""
        return self.operator.options[name]

    def weights(self, taps: Array) -> None:
        """Note weights [outputs, inputs / groups, ..], in PyTorch's order, as codes of a quantizer with scale 1."""
        self.note("weights", taps, (min(int(taps.min()), -1), max(int(taps.max()), 1)))

    def requantized(
        self, sums: Array, factors: Sequence[Factor], shift: int = 0, bounds: tuple[int, int] | None = None
    ) -> Array:
        """Return the codes of sums [.., channels] as distances: MultiplyByQuantizedMultiplier, then clamped and noted.

        Parameters
        ----------
        factors: one (multiplier, exponent), or one for each channel.
        shift: bits by which sums are shifted left first.
        bounds: least and greatest distance; None for those of the fused activation.
        """
        low, high = activation(self) if bounds is None else bounds
        multiplier, exponent = (np.array(row, np.int64) for row in zip(*factors, strict=True))
        codes = np.clip(scaled(sums << shift, multiplier, exponent, self.rounding), low, high)
        self.note("rescale", first(codes), (0, low, high, self.rounding, shift))
        return codes

    def clamped(self, codes: Array, low: int, high: int) -> Array:
        """Return distances clamped to bounds; noted unless the bounds are those of the type, which cut nothing."""
        if (low, high) == (self.made.distances.low, self.made.distances.high):
            return codes
        codes = np.clip(codes, low, high)
        self.note("rescale", first(codes), (0, low, high, "double", 0))
        return codes


def first(codes: Array) -> Array:
    """[N, height, width, channels] --> [N, channels, height, width], the order of quantizers' calls; others stay."""
    return codes.transpose(0, 3, 1, 2) if codes.ndim == 4 else codes


def factor_of(real: float) -> Factor:
    """Return a real factor as (multiplier, exponent): multiplier * 2**(exponent - 31), 31 bits, ties rounded up."""
    if real == 0:
        return 0, 0
    exponent = math.floor(math.log2(real)) + 1
    # The logarithm may be rounded over a power of two, in both directions.
    while real >= 2.0**exponent:
        exponent += 1
    while real < 2.0 ** (exponent - 1):
        exponent -= 1
    multiplier = math.floor(real / 2.0**exponent * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier, exponent = 1 << 30, exponent + 1
    if exponent < -31:
        return 0, 0
    return (multiplier, exponent) if exponent <= 30 else ((1 << 31) - 1, 30)


def scaled(x: Array, multiplier: Array, exponent: Array, rounding: str) -> Array:
    """Return x * multiplier * 2**(exponent - 31), rounded step by step as the kernels in C do."""
    if rounding == "single":
        total = 31 - exponent
        return (x * multiplier + (np.int64(1) << (total - 1))) >> total
    # SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT, as gemmlowp names the two steps.
    product = (x << np.maximum(exponent, 0)) * multiplier
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(nudged >= 0, nudged >> 31, -(-nudged >> 31))
    right = np.maximum(-exponent, 0)
    mask = (np.int64(1) << right) - 1
    result: Array = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))
    return result


def activation(kernel: Kernel) -> tuple[int, int]:
    """Return the least and the greatest distance that an operator's fused activation lets through."""
    made, kind = kernel.made, kernel.operator.options.get("FusedActivationFunction", "NONE")
    limits = {"RELU": (0.0, math.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}.get(
        kind, (-math.inf, math.inf)
    )
    ends = []
    for limit, end, pick in zip(limits, (made.distances.low, made.distances.high), (max, min), strict=True):
        if math.isinf(limit):
            ends.append(end)
        else:
            steps = float(np.float32(limit) / np.float32(made.scale))
            ends.append(pick(end, math.floor(steps + 0.5) if steps >= 0 else -math.floor(-steps + 0.5)))
    return ends[0], ends[1]


def _windows(x: Array, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int] = (1, 1)) -> Array:
    """Return the windows of x [N, height, width, channels]: [N, rows, columns, channels, kernel height, width]."""
    reach = [(span - 1) * step + 1 for span, step in zip(kernel, dilation, strict=True)]
    # A view: nothing is copied, however large windows are.
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(1, 2))
    return seen[:, :: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]


def _padded(
    kernel: Kernel, x: Array, spans: Sequence[int], stride: Sequence[int], dilation: Sequence[int], value: int = 0
) -> Array:
    if kernel.option("Padding") == "VALID":
        return x
    widths = []
    for size, span, step, gap in zip(x.shape[1:3], spans, stride, dilation, strict=True):
        count = (size + step - 1) // step
        missing = max((count - 1) * step + (span - 1) * gap + 1 - size, 0)
        widths.append((missing // 2, missing - missing // 2))
    return np.pad(x, ((0, 0), *widths, (0, 0)), constant_values=value)


def _factors(kernel: Kernel, x: FileTensor, weights: FileTensor) -> list[Factor]:
    assert weights.quantization is not None
    scales = weights.quantization.scale
    if len(scales) == 1 and kernel.operator.kind == "FULLY_CONNECTED":
        # TFLite multiplies these two scales in float32, and those of other operators in double.
        return [factor_of(float(np.float32(x.scale) * scales[0]) / kernel.made.scale)]
    return [factor_of(x.scale * float(scale) / kernel.made.scale) for scale in scales]


def _bias(kernel: Kernel, place: int = 2) -> Array | int:
    has = len(kernel.operator.inputs) > place and kernel.operator.inputs[place] is not None
    return kernel.constant(place).reshape(-1) if has else 0


def convolution(kernel: Kernel, x: Array) -> Array:
    """CONV_2D and DEPTHWISE_CONV_2D."""
    taps = kernel.constant(1)
    if kernel.operator.kind == "DEPTHWISE_CONV_2D":
        taps, groups = taps.transpose(3, 1, 2, 0), x.shape[3]
    else:
        groups = x.shape[3] // taps.shape[3]
    stride = kernel.option("StrideH"), kernel.option("StrideW")
    dilation = kernel.option("DilationHFactor"), kernel.option("DilationWFactor")
    kernel.weights(taps.transpose(0, 3, 1, 2))
    seen = _windows(_padded(kernel, x, taps.shape[1:3], stride, dilation), taps.shape[1:3], stride, dilation)
    depth, outputs = taps.shape[3], len(taps) // groups
    parts = [
        np.tensordot(
            seen[:, :, :, group * depth : (group + 1) * depth],
            taps[group * outputs : (group + 1) * outputs].transpose(3, 1, 2, 0),
            axes=3,
        )
        for group in range(groups)
    ]
    return kernel.requantized(
        np.concatenate(parts, axis=3) + _bias(kernel), _factors(kernel, kernel.tensor(0), kernel.tensor(1))
    )


def transposed(kernel: Kernel, x: Array) -> Array:
    """TRANSPOSE_CONV: each element adds its multiple of the kernel to the result."""
    taps, shape = kernel.constant(1), kernel.made.shape
    stride = kernel.option("StrideH"), kernel.option("StrideW")
    kernel.weights(taps.transpose(3, 0, 1, 2))
    spans = [
        max((size - 1) * step + span, made)
        for size, step, span, made in zip(x.shape[1:3], stride, taps.shape[1:3], shape[1:3], strict=True)
    ]
    sums = np.zeros((len(x), *spans, len(taps)), np.int64)
    for row in range(taps.shape[1]):
        for column in range(taps.shape[2]):
            rows = slice(row, row + (x.shape[1] - 1) * stride[0] + 1, stride[0])
            columns = slice(column, column + (x.shape[2] - 1) * stride[1] + 1, stride[1])
            sums[:, rows, columns] += x @ taps[:, row, column].T
    starts = [(a - b) // 2 if kernel.option("Padding") == "SAME" else 0 for a, b in zip(spans, shape[1:3], strict=True)]
    part = sums[:, starts[0] : starts[0] + shape[1], starts[1] : starts[1] + shape[2]]
    return kernel.requantized(part + _bias(kernel, 3), _factors(kernel, kernel.tensor(2), kernel.tensor(1)))


def fully_connected(kernel: Kernel, x: Array) -> Array:
    """FULLY_CONNECTED of each row of an image."""
    taps = kernel.constant(1)
    kernel.weights(taps)
    sums = x.reshape(len(x), -1, taps.shape[1]) @ taps.T + _bias(kernel)
    factors = _factors(kernel, kernel.tensor(0), kernel.tensor(1))
    if sums.shape[1] == 1:
        return kernel.requantized(sums[:, 0], factors).reshape(len(x), *kernel.made.shape[1:])
    # The module requantizes [N, outputs, rows]; so the codes are noted in this order, not in the kernel's own.
    held: list[tuple[str, Array, tuple[Any, ...]]] = []
    quiet = Kernel(kernel.model, kernel.operator, kernel.rounding, lambda *call: held.append(call))
    codes = quiet.requantized(sums, factors)
    kernel.note("rescale", codes.transpose(0, 2, 1), held[0][2])
    return codes.reshape(len(x), *kernel.made.shape[1:])


def max_pool(kernel: Kernel, x: Array) -> Array:
    """MAX_POOL_2D."""
    spans = kernel.option("FilterHeight"), kernel.option("FilterWidth")
    stride = kernel.option("StrideH"), kernel.option("StrideW")
    # The border is below any distance.
    seen = _windows(_padded(kernel, x, spans, stride, (1, 1), -(1 << 30)), spans, stride)
    return kernel.clamped(seen.max(axis=(4, 5)), *activation(kernel))


def average_pool(kernel: Kernel, x: Array) -> Array:
    """AVERAGE_POOL_2D: the mean of codes, which are no distances here, rounded half away from zero."""
    spans = kernel.option("FilterHeight"), kernel.option("FilterWidth")
    stride, zero = (kernel.option("StrideH"), kernel.option("StrideW")), kernel.made.zero_point
    # Every window is whole: others were refused when the layer was built.
    count = spans[0] * spans[1]
    total = (_windows(x, spans, stride) + zero).sum(axis=(4, 5))
    mean = np.where(total > 0, (total + count // 2) // count, -((count // 2 - total) // count))
    low, high = activation(kernel)
    codes = np.clip(mean - zero, low, high)
    kernel.note("quantize", first(codes), (low + zero, high + zero, -1, False, "half_away", False, True))
    return codes


def mean(kernel: Kernel, x: Array) -> Array:
    """MEAN: the sum, requantized by a multiplier that is divided by the count of elements."""
    axes = tuple(sorted({int(axis) % x.ndim for axis in kernel.constant(1).reshape(-1)}))
    count = math.prod(x.shape[axis] for axis in axes)
    multiplier, exponent = factor_of(kernel.tensor(0).scale / kernel.made.scale)
    # 63 less the leading zeros of the count in 64 bits, as TFLite writes it.
    shift = min(63 - (64 - count.bit_length()), 32, 31 + exponent)
    # Images keep the reduced axes for `first`, which moves channels by four axes.
    sums = x.sum(axis=axes, keepdims=x.ndim == 4)
    codes = kernel.requantized(sums, [((multiplier << shift) // count, exponent - shift)])
    return codes.reshape(len(x), *kernel.made.shape[1:])


def added(kernel: Kernel, *given: Array) -> Array:
    """ADD and SUB: operands with 20 more bits are rescaled to one unit, added, and requantized."""
    operands, waiting = [], iter(given)
    twice = 2 * max(kernel.tensor(0).scale, kernel.tensor(1).scale)
    bounds = (-(1 << 30), 1 << 30)
    for place in (0, 1):
        tensor = kernel.tensor(place)
        factors = [factor_of(tensor.scale / twice)]
        if tensor.data is None:
            operands.append(kernel.requantized(next(waiting), factors, 20, bounds))
        else:
            distance = tensor.data.astype(np.int64) - tensor.zero_point
            multiplier, exponent = map(np.array, factors[0])
            operands.append(scaled(distance << 20, multiplier, exponent, kernel.rounding))
    total = operands[0] - operands[1] if kernel.operator.kind == "SUB" else operands[0] + operands[1]
    return kernel.requantized(total, [factor_of(twice / ((1 << 20) * kernel.made.scale))])


def multiplied(kernel: Kernel, x: Array) -> Array:
    """MUL with a constant: one number, or one for each channel."""
    constant = next(kernel.tensor(place) for place in (0, 1) if kernel.tensor(place).data is not None)
    assert constant.data is not None
    factors = constant.data.astype(np.int64) - constant.zero_point
    channels = x.shape[3] if x.ndim == 4 else x.shape[1]
    kernel.weights(np.broadcast_to(factors.reshape(-1), channels).reshape(channels, 1, 1, 1))
    real = kernel.tensor(0).scale * kernel.tensor(1).scale / kernel.made.scale
    if x.ndim == 4:
        return kernel.requantized(x * factors, [factor_of(real)])
    shape = (len(x), 1, 1, channels) if x.ndim == 2 else (len(x), x.shape[2], 1, channels)
    wide = (x * factors).reshape(len(x), channels, -1, 1).transpose(0, 2, 3, 1).reshape(shape)
    return kernel.requantized(wide, [factor_of(real)]).transpose(0, 3, 1, 2).reshape(x.shape)


def rectified(kernel: Kernel, x: Array) -> Array:
    """RELU, RELU6, RELU_N1_TO_1, and QUANTIZE of codes."""
    given, made = kernel.tensor(0), kernel.made
    if kernel.operator.kind == "QUANTIZE" and (given.scale, given.distances) == (made.scale, made.distances):
        return x
    options = {"FusedActivationFunction": kernel.operator.kind}
    own = Kernel(
        kernel.model,
        FileOperator(kernel.operator.kind, kernel.operator.inputs, kernel.operator.outputs, options),
        kernel.rounding,
        kernel.note,
    )
    return kernel.requantized(x, [factor_of(kernel.tensor(0).scale / kernel.made.scale)], 0, activation(own))


def limited(kernel: Kernel, x: Array) -> Array:
    """MAXIMUM and MINIMUM."""
    constant = next(kernel.tensor(place) for place in (0, 1) if kernel.tensor(place).data is not None)
    assert constant.data is not None
    bound, ends = int(constant.data.reshape(-1)[0]) - constant.zero_point, kernel.made.distances
    low, high = (bound, ends.high) if kernel.operator.kind == "MAXIMUM" else (ends.low, bound)
    codes = np.clip(x, low, high)
    kernel.note("rescale", first(codes), (0, low, high, "double", 0))
    return codes


def logistic(kernel: Kernel, x: Array) -> Array:
    """LOGISTIC and TANH."""
    is_tanh = kernel.operator.kind == "TANH"
    factor = factor_of(kernel.tensor(0).scale * 2.0**27)
    # Beyond 4 integer bits both functions are at their ends.
    reach = math.floor(15 * 2**27 / 2 ** factor[1])
    inside = np.clip(x, 1 - reach, reach - 1)
    fine = scaled(inside, np.array(factor[0]), np.array(factor[1]), kernel.rounding)
    if is_tanh:
        return np.where(
            np.abs(x) < reach, np.clip(curves.divided(curves.tanh(fine), 24), -128, 127), ends(x, -128, 127)
        )
    return np.where(np.abs(x) < reach, np.clip(curves.divided(curves.logistic(fine), 23), 0, 255), ends(x, 0, 255))


def ends(x: Array, low: int, high: int) -> Array:
    """Return the end of a range on the side on which x is."""
    return np.where(x < 0, low, high)


def leaky(kernel: Kernel, x: Array) -> Array:
    """LEAKY_RELU."""
    real = kernel.tensor(0).scale, kernel.made.scale
    plain, below = factor_of(real[0] / real[1]), factor_of(kernel.option("Alpha") * real[0] / real[1])
    parts = [scaled(x, np.array(factor[0]), np.array(factor[1]), kernel.rounding) for factor in (plain, below)]
    return np.clip(np.where(x < 0, parts[1], parts[0]), kernel.made.distances.low, kernel.made.distances.high)


def hard_swish(kernel: Kernel, x: Array) -> Array:
    """HARD_SWISH."""
    fine = np.float32(kernel.tensor(0).scale) * np.float32(1 / 128)
    factors = [factor_of(float(fine / np.float32(unit))) for unit in (kernel.made.scale, 3 / 32768)]
    made = curves.hard_swish(x, *factors)
    return np.clip(made, kernel.made.distances.low, kernel.made.distances.high)


def softmax(kernel: Kernel, x: Array) -> Array:
    """SOFTMAX along the last axis, one Python integer at a time."""
    real = min(
        float(kernel.option("Beta")) * kernel.tensor(0).scale * (1 << 26),
        float((1 << (30 if kernel.rounding == "single" else 31)) - 1),
    )
    factor = factor_of(real)
    least = -fixed_point.radius(5, factor[1])
    rows = x.reshape(-1, x.shape[-1])
    result = np.zeros_like(rows)
    # All distances of int8 codes: 256 powers serve every row.
    powers = {
        distance: fixed_point.exp_of_negative(fixed_point.multiplied(distance, factor, kernel.rounding), 5)
        for distance in range(max(least, -255), 1)
    }
    for row, made in zip(rows, result, strict=True):
        distances = (row - row.max()).tolist()
        total = sum(fixed_point.halved(powers[distance], 12) for distance in distances if distance >= least)
        headroom = 32 - total.bit_length()
        scale = fixed_point.inverse_of_one_plus((total << headroom) - (1 << 31))
        for place, distance in enumerate(distances):
            if distance >= least:
                share = fixed_point.high_product(scale, powers[distance])
                made[place] = max(0, min(fixed_point.halved(share, 12 - headroom + 23), 255))
    return result.reshape(x.shape)


def bordered(kernel: Kernel, x: Array) -> Array:
    """PAD and PADV2."""
    value = 0
    if len(kernel.operator.inputs) > 2 and kernel.operator.inputs[2] is not None:
        value = int(kernel.constant(2).reshape(-1)[0]) - kernel.tensor(0).zero_point
    return np.pad(x, kernel.constant(1).reshape(-1, 2), constant_values=value)


def joined(kernel: Kernel, *parts: Array) -> Array:
    """CONCATENATION."""
    return kernel.clamped(np.concatenate(parts, axis=kernel.option("Axis")), *activation(kernel))


def sliced(kernel: Kernel, x: Array) -> Array:
    """STRIDED_SLICE."""
    begin, end = (kernel.constant(place).reshape(-1).tolist() for place in (1, 2))
    no_begin, no_end, one = (kernel.option(f"{name}Mask") for name in ("Begin", "End", "ShrinkAxis"))
    ranges: list[slice] = [slice(None)]
    for axis in range(1, x.ndim):
        low, high, _ = slice(
            None if no_begin >> axis & 1 else begin[axis], None if no_end >> axis & 1 else end[axis]
        ).indices(x.shape[axis])
        ranges.append(slice(low, low + 1 if one >> axis & 1 else high))
    return x[tuple(ranges)].reshape(len(x), *kernel.made.shape[1:])


def split(kernel: Kernel, x: Array) -> list[Array]:
    """SPLIT."""
    return np.split(x, len(kernel.operator.outputs), axis=int(kernel.constant(0).reshape(-1)[0]))


def _reshaped(kernel: Kernel, x: Array) -> Array:
    return x.reshape(len(x), *kernel.made.shape[1:])


def _permuted(kernel: Kernel, x: Array) -> Array:
    return x.transpose(kernel.constant(1).reshape(-1).tolist())


def _repeated(kernel: Kernel, x: Array) -> Array:
    height, width = kernel.made.shape[1:3]
    rows, columns = (np.arange(new) * old // new for new, old in ((height, x.shape[1]), (width, x.shape[2])))
    return x[:, rows][:, :, columns]


KERNELS: Mapping[str, Callable[..., Any]] = {
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": convolution,
    "TRANSPOSE_CONV": transposed,
    "FULLY_CONNECTED": fully_connected,
    "MAX_POOL_2D": max_pool,
    "AVERAGE_POOL_2D": average_pool,
    "MEAN": mean,
    "ADD": added,
    "SUB": added,
    "MUL": multiplied,
    "RELU": rectified,
    "RELU6": rectified,
    "RELU_N1_TO_1": rectified,
    "QUANTIZE": rectified,
    "MAXIMUM": limited,
    "MINIMUM": limited,
    "LOGISTIC": logistic,
    "TANH": logistic,
    "LEAKY_RELU": leaky,
    "HARD_SWISH": hard_swish,
    "SOFTMAX": softmax,
    "PAD": bordered,
    "PADV2": bordered,
    "CONCATENATION": joined,
    "STRIDED_SLICE": sliced,
    "SPLIT": split,
    "RESHAPE": _reshaped,
    "SQUEEZE": _reshaped,
    "EXPAND_DIMS": _reshaped,
    "TRANSPOSE": _permuted,
    "RESIZE_NEAREST_NEIGHBOR": _repeated,
}
"""Operators of codes --> their kernels."""
