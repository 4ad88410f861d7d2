"""Values of a builder, with one method for each operator, named as it is. `nnhw.ir.ops` defines what each computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .types import FloatType, IntType, TensorType

if TYPE_CHECKING:
    from .builder import Builder
    from .graph import Graph

_PAIR = (0, 0)
"""No padding: (rows, columns)."""
Ints = Sequence[int]


class Value:
    """A value of a graph that is being built.

    Every method adds an operator and returns its result as a value. Parameters such as weights are arrays, or constants
    of the builder; `name` is the name of the result.

    Parameters
    ----------
    builder: the builder that made it. name: its name in the graph.
    """

    def __init__(self, builder: Builder, name: str) -> None:
        self.builder, self.name = builder, name

    @property
    def type(self) -> TensorType:
        """Shape and element type."""
        return self.builder.type_of(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes without the batch axis."""
        return self.type.shape

    @property
    def dtype(self) -> IntType | FloatType:
        """Element type: a range of integers, or float64."""
        return self.type.dtype

    def __repr__(self) -> str:
        return f"<Value '{self.name}': {self.type}>"

    def _apply(self, operator: str, *inputs: Value | ArrayLike, name: str = "", **attributes: Any) -> Value:
        return self.builder.apply(operator, self, *inputs, name=name, **attributes)

    # codes and floats

    def quantize(
        self,
        scale: ArrayLike = 1.0,
        low: int = -1,
        high: int = 1,
        bipolar: bool = False,
        rounding: str = "half_even",
        reciprocal: bool = False,
        offset: int = 0,
        name: str = "",
    ) -> Value:
        """clamp(round(x / scale + offset) - offset, low, high), or the sign of x."""
        keywords = {"low": low, "high": high, "bipolar": bipolar, "rounding": rounding, "reciprocal": reciprocal}
        return self._apply("quantize", np.asarray(scale, np.float64), name=name, offset=offset, **keywords)

    def dequantize(self, scale: ArrayLike = 1.0, name: str = "") -> Value:
        """code * scale."""
        return self._apply("dequantize", np.asarray(scale, np.float64), name=name)

    # integers

    def linear(self, weight: Value | ArrayLike, name: str = "") -> Value:
        """Sums of products with whole numbers [outputs, inputs]."""
        return self._apply("linear", weight, name=name)

    def conv2d(
        self,
        weight: Value | ArrayLike,
        stride: Ints = (1, 1),
        padding: Ints = _PAIR,
        dilation: Ints = (1, 1),
        groups: int = 1,
        name: str = "",
    ) -> Value:
        """Cross-correlation with whole numbers [outputs, channels / groups, height, width]."""
        return self._apply(
            "conv2d", weight, name=name, stride=stride, padding=padding, dilation=dilation, groups=groups
        )

    def threshold(
        self,
        thresholds: Value | ArrayLike,
        descending: Value | ArrayLike | None = None,
        low: int = 0,
        bipolar: bool = False,
        name: str = "",
    ) -> Value:
        """low + the number of thresholds [channels, steps] of its channel that x reaches.

        Parameters
        ----------
        descending: bool [channels]; where True, it is low + the number of thresholds that x does not reach. By default
            no channel descends.
        """
        rows = thresholds.shape if isinstance(thresholds, Value) else np.shape(thresholds)
        falls = np.zeros(rows[:1], np.bool_) if descending is None else descending
        return self._apply("threshold", thresholds, falls, name=name, low=low, bipolar=bipolar)

    def step_table(
        self,
        thresholds: Value | ArrayLike,
        codes: Value | ArrayLike,
        low: int,
        high: int,
        bipolar: bool = False,
        name: str = "",
    ) -> Value:
        """codes[channel, n], where n is the number of thresholds [channels, steps] of its channel that x reaches."""
        return self._apply("step_table", thresholds, codes, name=name, low=low, high=high, bipolar=bipolar)

    def rescale(
        self,
        multiplier: Value | ArrayLike,
        exponent: Value | ArrayLike,
        bias: Value | ArrayLike,
        offset: int,
        low: int,
        high: int,
        rounding: str,
        shift: int = 0,
        name: str = "",
    ) -> Value:
        """clamp(round((x + bias) * 2**shift * multiplier / 2**31 * 2**exponent) + offset, low, high), per channel."""
        keywords = {"offset": offset, "low": low, "high": high, "rounding": rounding, "shift": shift}
        return self._apply("rescale", multiplier, exponent, bias, name=name, **keywords)

    def weighted_sum(self, *others: Value, factors: Ints, name: str = "") -> Value:
        """The sum of this value and others, each times its factor."""
        return self._apply("weighted_sum", *others, name=name, factors=factors)

    def product(self, other: Value, name: str = "") -> Value:
        """This value times another one, both integers, element by element; axes of size 1 are repeated."""
        return self._apply("product", other, name=name)

    def matrix_product(
        self, right: Value, transpose_left: bool = False, transpose_right: bool = False, name: str = ""
    ) -> Value:
        """The product of matrices [.., m, k] and [.., k, n], each of which may be given transposed."""
        keywords = {"transpose_left": transpose_left, "transpose_right": transpose_right}
        return self._apply("matrix_product", right, name=name, **keywords)

    def integer_softmax(
        self,
        table: Value | ArrayLike,
        keep: Value | ArrayLike = 1,
        axis: int = 0,
        bits: int = 8,
        high: int = 255,
        name: str = "",
    ) -> Value:
        """Softmax of codes along an axis by a table of powers, in steps of 2**-bits; of elements with keep = 1 only."""
        return self._apply("integer_softmax", table, keep, name=name, axis=axis, bits=bits, high=high)

    def integer_norm(
        self, epsilon: int, axis: int = 0, fraction_bits: int = 10, centered: bool = True, name: str = ""
    ) -> Value:
        """Layer normalization of codes along an axis, RMS normalization if not centered; without weight and bias."""
        keywords = {"axis": axis, "epsilon": epsilon, "fraction_bits": fraction_bits, "centered": centered}
        return self._apply("integer_norm", name=name, **keywords)

    def broadcast(self, values: Value | ArrayLike, name: str = "") -> Value:
        """A constant as a value, repeated for each image of this value's batch."""
        return self._apply("broadcast", values, name=name)

    def sum_pool2d(self, kernel: Ints, stride: Ints | None = None, name: str = "") -> Value:
        """The sum of each window; the default stride is the kernel."""
        return self._apply("sum_pool2d", name=name, kernel=kernel, stride=stride or kernel)

    # integers or floats

    def max_pool2d(
        self, kernel: Ints, stride: Ints | None = None, before: Ints = _PAIR, after: Ints = _PAIR, name: str = ""
    ) -> Value:
        """The greatest element of each window; the default stride is the kernel."""
        return self._apply("max_pool2d", name=name, kernel=kernel, stride=stride or kernel, before=before, after=after)

    def pad(self, before: Ints, after: Ints, value: float = 0.0, name: str = "") -> Value:
        """A border of one value around each channel."""
        return self._apply("pad", name=name, before=before, after=after, value=value)

    def upsample(self, factor: Ints, name: str = "") -> Value:
        """Nearest-neighbour upsampling: each element is repeated `factor` times vertically and horizontally."""
        return self._apply("upsample", name=name, factor=factor)

    def concat(self, *others: Value, axis: int = 0, name: str = "") -> Value:
        """This value and others, joined along an axis (0 is the first behind the batch)."""
        return self._apply("concat", *others, name=name, axis=axis)

    def flatten(self, name: str = "") -> Value:
        """All elements as one axis [elements], in C order."""
        return self._apply("flatten", name=name)

    def reshape(self, shape: Ints, name: str = "") -> Value:
        """The same elements in C order in another shape."""
        return self._apply("reshape", name=name, shape=shape)

    def permute(self, axes: Ints, name: str = "") -> Value:
        """The axes in another order."""
        return self._apply("permute", name=name, axes=axes)

    def slice(self, axis: int, start: int, stop: int, name: str = "") -> Value:
        """The elements from start to below stop along one axis."""
        return self._apply("slice", name=name, axis=axis, start=start, stop=stop)

    # sequences

    def scan(self, body: Graph, *others: Value | ArrayLike, name: str = "") -> Value:
        """A loop over the steps of this sequence: the body's result of each step.

        Parameters
        ----------
        others: further sequences, then the initial value of each state.
        """
        return self._apply("scan", *others, name=name, body=body)

    def as_steps(self, name: str = "") -> Value:
        """The first axis as the steps of a sequence."""
        return self._apply("as_steps", name=name)

    def last_step(self, name: str = "") -> Value:
        """The last step of a sequence."""
        return self._apply("last_step", name=name)

    def reverse_steps(self, name: str = "") -> Value:
        """The steps of a sequence from the last to the first."""
        return self._apply("reverse_steps", name=name)

    def argmax(self, axis: int = 0, keepdim: bool = False, name: str = "") -> Value:
        """The index of the greatest element along an axis."""
        return self._apply("argmax", name=name, axis=axis, keepdim=keepdim)

    # floats

    def add(self, other: Value | ArrayLike, name: str = "") -> Value:
        """x + y."""
        return self._apply("add", _floats(other), name=name)

    def sub(self, other: Value | ArrayLike, name: str = "") -> Value:
        """x - y."""
        return self._apply("sub", _floats(other), name=name)

    def mul(self, other: Value | ArrayLike, name: str = "") -> Value:
        """x * y."""
        return self._apply("mul", _floats(other), name=name)

    def div(self, other: Value | ArrayLike, name: str = "") -> Value:
        """x / y."""
        return self._apply("div", _floats(other), name=name)

    def minimum(self, other: Value | ArrayLike, name: str = "") -> Value:
        """The lesser of x and y."""
        return self._apply("minimum", _floats(other), name=name)

    def maximum(self, other: Value | ArrayLike, name: str = "") -> Value:
        """The greater of x and y."""
        return self._apply("maximum", _floats(other), name=name)

    def greater(self, other: Value | ArrayLike, name: str = "") -> Value:
        """1 where x > y, else 0."""
        return self._apply("greater", _floats(other), name=name)

    def greater_equal(self, other: Value | ArrayLike, name: str = "") -> Value:
        """1 where x >= y, else 0."""
        return self._apply("greater_equal", _floats(other), name=name)

    def where(self, x: Value | ArrayLike, y: Value | ArrayLike, name: str = "") -> Value:
        """x where this value is not 0, else y."""
        return self._apply("where", _floats(x), _floats(y), name=name)

    def clamp(self, low: float, high: float, name: str = "") -> Value:
        """min(max(x, low), high)."""
        return self._apply("clamp", name=name, low=low, high=high)

    def leaky_relu(self, slope: float, name: str = "") -> Value:
        """x for x >= 0, else x * slope."""
        return self._apply("leaky_relu", name=name, slope=slope)

    def prelu(self, slope: ArrayLike, name: str = "") -> Value:
        """x for x >= 0, else x * slope; the slope is one number or one per channel, [channels]."""
        return self._apply("prelu", np.asarray(slope, np.float64), name=name)

    def elu(self, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0, name: str = "") -> Value:
        """x * scale for x > 0, else (e**(x * input_scale) - 1) * (alpha * scale)."""
        return self._apply("elu", name=name, alpha=alpha, scale=scale, input_scale=input_scale)

    def gelu(self, tanh_form: bool = False, name: str = "") -> Value:
        """x * P(X <= x) for a standard normal X; `tanh_form` gives the approximation by tanh."""
        return self._apply("gelu", name=name, tanh_form=tanh_form)

    def softplus(self, beta: float = 1.0, threshold: float = 20.0, name: str = "") -> Value:
        """x where x * beta > threshold, else log(1 + e**(x * beta)) / beta."""
        return self._apply("softplus", name=name, beta=beta, threshold=threshold)

    def batch_norm(
        self, weight: ArrayLike, bias: ArrayLike, mean: ArrayLike, variance: ArrayLike, eps: float, name: str = ""
    ) -> Value:
        """Batch normalization with fixed statistics [channels]."""
        arrays = [np.asarray(array, np.float64) for array in (weight, bias, mean, variance)]
        return self._apply("batch_norm", *arrays, name=name, eps=eps)

    def softmax(self, axis: int = 0, name: str = "") -> Value:
        """exp(x - max) / sum of exp(x - max) along an axis."""
        return self._apply("softmax", name=name, axis=axis)

    def log_softmax(self, axis: int = 0, name: str = "") -> Value:
        """The logarithm of `softmax`."""
        return self._apply("log_softmax", name=name, axis=axis)

    def fixed_softmax(self, axis: int, multiplier: int, left: int, least: int, name: str = "") -> Value:
        """Softmax of codes in fixed point, as TFLite computes it."""
        return self._apply("fixed_softmax", name=name, axis=axis, multiplier=multiplier, left=left, least=least)

    def relu(self, name: str = "") -> Value:
        """max(x, 0)."""
        return self._apply("relu", name=name)

    def sign(self, name: str = "") -> Value:
        """-1, 0 or 1."""
        return self._apply("sign", name=name)

    def neg(self, name: str = "") -> Value:
        """-x."""
        return self._apply("neg", name=name)

    def hardsigmoid(self, name: str = "") -> Value:
        """min(max(x + 3, 0), 6) / 6."""
        return self._apply("hardsigmoid", name=name)

    def hardswish(self, name: str = "") -> Value:
        """x * min(max(x + 3, 0), 6) / 6."""
        return self._apply("hardswish", name=name)

    def sigmoid(self, name: str = "") -> Value:
        """1 / (1 + e**-x)."""
        return self._apply("sigmoid", name=name)

    def tanh(self, name: str = "") -> Value:
        """The hyperbolic tangent."""
        return self._apply("tanh", name=name)

    def silu(self, name: str = "") -> Value:
        """x / (1 + e**-x)."""
        return self._apply("silu", name=name)

    def mish(self, name: str = "") -> Value:
        """x * tanh(log(1 + e**x))."""
        return self._apply("mish", name=name)

    def abs(self, name: str = "") -> Value:
        """|x|."""
        return self._apply("abs", name=name)

    def square(self, name: str = "") -> Value:
        """x * x."""
        return self._apply("square", name=name)

    def exp(self, name: str = "") -> Value:
        """e**x."""
        return self._apply("exp", name=name)

    def sqrt(self, name: str = "") -> Value:
        """The square root."""
        return self._apply("sqrt", name=name)

    def floor(self, name: str = "") -> Value:
        """The greatest whole number that is not above x."""
        return self._apply("floor", name=name)

    def ceil(self, name: str = "") -> Value:
        """The least whole number that is not below x."""
        return self._apply("ceil", name=name)

    def round(self, name: str = "") -> Value:
        """The nearest whole number, halves to the even one."""
        return self._apply("round", name=name)

    def trunc(self, name: str = "") -> Value:
        """The nearest whole number towards 0."""
        return self._apply("trunc", name=name)


def _floats(other: Value | ArrayLike) -> Value | ArrayLike:
    """Return numbers as float64, as whole numbers would become an integer constant; a value as it is."""
    return other if isinstance(other, Value) else np.asarray(other, np.float64)
