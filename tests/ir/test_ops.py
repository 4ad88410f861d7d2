"""Every op against a second, slower definition, and its type rule against what really occurs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import IrError
from nnhw.ir import BIPOLAR, BIT, FLOAT, OPS, IntType, Op, Operand, TensorType
from nnhw.ir.ops import (
    Add,
    ArgMax,
    BatchNorm,
    Clamp,
    Conv2d,
    Dequantize,
    Divide,
    Flatten,
    Linear,
    LogSoftmax,
    MaxPool2d,
    Multiply,
    Negate,
    Quantize,
    Relu,
    Reshape,
    Softmax,
    Subtract,
    Threshold,
)


def value(shape: tuple[int, ...], dtype: object = FLOAT) -> Operand:
    return Operand(TensorType(shape, dtype))  # type: ignore[arg-type]


def constant(array: object, dtype: object = FLOAT) -> Operand:
    values = np.asarray(array)
    return Operand(TensorType(values.shape, dtype), values)  # type: ignore[arg-type]


def test_ops_table_has_one_row_per_name_in_this_order() -> None:
    assert list(OPS) == [
        "input", "constant", "quantize", "dequantize", "linear", "conv2d", "threshold", "step_table", "rescale",
        "sum_pool2d", "weighted_sum", "product", "matrix_product", "integer_softmax", "integer_norm", "broadcast",
        "max_pool2d", "pad", "upsample", "concat", "flatten", "reshape", "permute", "slice", "argmax", "minimum",
        "maximum", "scan", "as_steps", "last_step", "reverse_steps",
        "add", "sub", "mul", "div", "neg", "relu", "clamp", "leaky_relu", "prelu", "elu",
        "hardsigmoid", "hardswish", "sigmoid", "tanh", "silu", "mish", "gelu", "softplus", "abs", "square", "exp",
        "sqrt", "floor", "ceil", "round", "trunc", "sign", "greater", "greater_equal", "where", "batch_norm",
        "softmax", "log_softmax",
        "fixed_softmax",
    ]  # fmt: skip
    assert all(issubclass(row, Op) and row.name == name for name, row in OPS.items())


@pytest.mark.parametrize(
    ("x", "code"),
    [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (7.4, 7), (99.0, 7), (-99.0, -8), (np.inf, 7), (0.51, 1)],
)
def test_quantize_rounds_half_to_even_and_clamps(x: float, code: int) -> None:
    result = Quantize(-8, 7).evaluate(np.array([[x * 0.25]]), np.array(0.25))
    assert result.tolist() == [[code]]
    assert result.dtype == np.int64


def test_quantize_bipolar_takes_both_zeros_as_plus_one() -> None:
    x = np.array([[0.0, -0.0, 1e-300, -1e-300, np.inf, -np.inf]])
    assert Quantize(-1, 1, True).evaluate(x, np.array(1.0)).tolist() == [[1, 1, 1, -1, 1, -1]]


def test_quantize_rejects_nan() -> None:
    with pytest.raises(IrError, match="quantize got NaN in image 0, which has no code; give finite numbers"):
        Quantize(0, 15).evaluate(np.array([[math.nan]]), np.array(1.0))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(("op", "dtype"), [(Quantize(0, 3), FLOAT), (Dequantize(), IntType(0, 3))])
def test_scales_must_be_positive_and_finite(op: Op, dtype: object, bad: float) -> None:
    with pytest.raises(IrError, match="scales must be float64, positive and finite"):
        op.infer([value((2,), dtype), constant(bad)])


def test_dequantize_multiplies_per_channel() -> None:
    x = np.array([[[1, 2], [3, 4]]])
    result = Dequantize().evaluate(x, np.array([[0.5], [0.25]]))
    assert result.tolist() == [[[0.5, 1.0], [0.75, 1.0]]]
    assert result.dtype == np.float64


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_linear_equals_python_integers(outputs: int, inputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weight = rng.integers(-128, 128, (3, inputs)), rng.integers(-128, 128, (outputs, inputs))
    expected = [[sum(int(a) * int(w) for a, w in zip(row, taps, strict=True)) for taps in weight] for row in x]
    result = Linear().evaluate(x, weight)
    assert result.tolist() == expected
    assert result.dtype == np.int64


@pytest.mark.parametrize("bits", [24, 53])
def test_linear_is_exact_where_float32_and_float64_are_not(bits: int) -> None:
    x = np.array([[2**bits, 1]])
    assert Linear().evaluate(x, np.array([[1, 1]])).tolist() == [[2**bits + 1]]
    assert Conv2d().evaluate(x.reshape(1, 2, 1, 1), np.ones((1, 2, 1, 1), int)).tolist() == [[[[2**bits + 1]]]]


CODES = [IntType(0, 3), IntType(-2, 1), BIPOLAR, IntType(1, 2)]


def _all_codes(dtype: IntType, count: int) -> np.ndarray:
    codes = (-1, 1) if dtype.bipolar else range(dtype.low, dtype.high + 1)
    return np.array(list(itertools.product(codes, repeat=count)), dtype=np.int64)


@pytest.mark.parametrize("dtype", CODES, ids=str)
def test_linear_range_is_the_least_one(dtype: IntType) -> None:
    weight = np.array([[1, -2, 0], [3, 1, 1]])
    sums = Linear().evaluate(_all_codes(dtype, 3), weight)
    inferred = Linear().infer([value((3,), dtype), constant(weight, IntType(-2, 3))])
    assert inferred == TensorType((2,), IntType(int(sums.min()), int(sums.max())))


@pytest.mark.parametrize("dtype", CODES, ids=str)
@pytest.mark.parametrize("padding", [(0, 0), (1, 0), (1, 1), (2, 2)], ids=str)
def test_conv2d_range_is_the_least_one_with_borders(dtype: IntType, padding: tuple[int, int]) -> None:
    weight = np.random.default_rng(1).integers(-2, 3, (2, 1, 2, 3))
    images = _all_codes(dtype, 6).reshape(-1, 1, 2, 3)
    op = Conv2d(padding=padding)
    sums = op.evaluate(images, weight)
    inferred = op.infer([value((1, 2, 3), dtype), constant(weight, IntType(-2, 2))])
    assert inferred.shape == sums.shape[1:]
    assert inferred.dtype == IntType(int(sums.min()), int(sums.max()))


def _naive_conv2d(x: np.ndarray, weight: np.ndarray, op: Conv2d) -> np.ndarray:
    per_group = weight.shape[1]
    shape = op.infer([value(x.shape[1:], IntType(-128, 127)), constant(weight, IntType(-128, 127))]).shape
    result = np.zeros((len(x), *shape), dtype=np.int64)
    for n, o, i, j in np.ndindex(result.shape):
        first = o // (weight.shape[0] // op.groups) * per_group
        for c, k, m in np.ndindex(weight.shape[1:]):
            row = i * op.stride[0] + k * op.dilation[0] - op.padding[0]
            column = j * op.stride[1] + m * op.dilation[1] - op.padding[1]
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                result[n, o, i, j] += weight[o, c, k, m] * x[n, first + c, row, column]
    return result


@given(
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.integers(1, 2),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_conv2d_equals_its_definition(
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    kernel: tuple[int, int],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    op = Conv2d(stride, padding, dilation, groups)
    x = rng.integers(-128, 128, (2, 2 * groups, 6, 5))
    weight = rng.integers(-128, 128, (2 * groups, 2, *kernel))
    np.testing.assert_array_equal(op.evaluate(x, weight), _naive_conv2d(x, weight, op))


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Linear(), [value((3,), BIPOLAR), constant(np.ones((2, 4), int), BIPOLAR)],
         "linear needs x [inputs] and weight [outputs, inputs], got bipolar [3] and bipolar [2, 4]"),
        (Linear(), [value((3,)), constant(np.ones((2, 3), int), BIPOLAR)],
         "x must be an integer tensor, got float64 [3]"),
        (Linear(), [value((3,), BIPOLAR), constant(np.ones((2, 3)))],
         "weight must be an integer tensor, got float64 [2, 3]"),
        (Conv2d(), [value((3,), BIPOLAR), constant(np.ones((2, 3, 1, 1), int), BIPOLAR)],
         ("conv2d needs x [channels, height, width] and weight [outputs, channels / groups, h, w], got bipolar [3] and "
         "weight [2, 3, 1, 1]")),
        (Conv2d(), [value((2, 4, 4), BIPOLAR), constant(np.ones((2, 3, 1, 1), int), BIPOLAR)],
         "conv2d with 1 groups and weight [2, 3, 1, 1] does not fit 2 channels"),
        (Conv2d(), [value((2, 2, 4), BIPOLAR), constant(np.ones((2, 2, 3, 3), int), BIPOLAR)],
         "a kernel of [3, 3] does not fit into bipolar [2, 2, 4]"),
        (MaxPool2d((3, 3), (1, 1)), [value((2, 2, 4))],
         "max_pool2d with kernel (3, 3) needs x [channels, height, width], got float64 [2, 2, 4]"),
        (Reshape((5,)), [value((2, 2))], "reshape to [5] needs 5 elements, got float64 [2, 2]"),
        (Add(), [value((2, 3)), constant(np.ones(2))], "shapes do not broadcast: float64 [2, 3] and float64 [2]"),
        (Add(), [value((1, 3)), constant(np.ones((2, 1)))],
         "shapes do not fit without repeating a value: float64 [1, 3] and float64 [2, 1]"),
        (Add(), [value((1, 3)), value((2, 3))],
         "shapes do not fit without repeating a value: float64 [1, 3] and float64 [2, 3]"),
        (Relu(), [value((2,), BIT)], "x must be float64, got int 0..1 [2]"),
        (Softmax(1), [value((4,))], "softmax needs an axis below 1, got 1"),
        (BatchNorm(0.1), [value((3, 2)), *[constant(np.ones(2))] * 4],
         "weight needs one number per channel of float64 [3, 2], got float64 [2]"),
        (Quantize(0, 1), [value((3, 2)), constant(np.ones((3, 3)))],
         "a scale of shape [3, 3] does not broadcast to [3, 2]"),
        (Threshold(0), [value((3,), BIT), constant(np.zeros((2, 1), int), BIT), constant(np.zeros(2, bool), BIT)],
         ("threshold needs x [channels, ..], thresholds [channels, steps] and descending [channels], got int 0..1 [3], "
         "int 0..1 [2, 1] and int 0..1 [2]")),
        (Threshold(0), [value((1,), BIT), constant([[1, 0]], BIT), constant([False], BIT)],
         "the thresholds of a channel must be sorted"),
        (Threshold(0), [value((1,), BIT), constant([[1, 1]], BIT), constant([0], BIT)],
         "descending must be boolean, got int64"),
        (Threshold(-1, True), [value((1,), BIT), constant([[1, 1]], BIT), constant([True], BIT)],
         "a bipolar threshold has one step and low -1, got 2 steps and low -1"),
    ],
)  # fmt: skip
def test_type_rule_rejects_operands_that_do_not_fit(op: Op, operands: list[Operand], message: str) -> None:
    with pytest.raises(IrError) as caught:
        op.infer(operands)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (Linear(), [value((3,), BIT)], "linear takes 2 inputs, got 1"),
        (Linear(), [value((3,), BIT), value((3,), BIT)], "input 1 of linear must be a constant"),
        (Relu(), [constant(np.ones(2))], "input 0 of relu must not be a constant"),
        (Add(), [constant(np.ones(2)), constant(np.ones(2))], "add takes two inputs, at most one of them a constant"),
    ],
)
def test_operands_are_constants_where_they_must_be(op: Op, operands: list[Operand], message: str) -> None:
    with pytest.raises(IrError) as caught:
        op.check_operands(operands)
    assert str(caught.value) == message


def test_clamp_rejects_crossed_bounds() -> None:
    with pytest.raises(IrError, match=r"clamp needs low <= high, got 1\.0 and 0\.0"):
        Clamp(1.0, 0.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 7), st.booleans())
@settings(max_examples=50, deadline=None)
def test_threshold_equals_its_definition(seed: int, channels: int, steps: int, bipolar: bool) -> None:
    rng = np.random.default_rng(seed)
    steps = 1 if bipolar else steps
    thresholds = np.sort(rng.integers(-5, 6, (channels, steps)), axis=1)
    descending = rng.random(channels) < 0.5
    x = rng.integers(-6, 7, (4, channels, 2))
    result = Threshold(-1 if bipolar else 3, bipolar).evaluate(x, thresholds, descending)
    for n, c, i in np.ndindex(x.shape):
        count = sum(int(x[n, c, i]) >= int(t) for t in thresholds[c])
        index = steps - count if descending[c] else count
        assert result[n, c, i] == (2 * index - 1 if bipolar else 3 + index)


def test_max_pool2d_leaves_out_rests_and_works_on_both_kinds() -> None:
    x = np.arange(2 * 5 * 4).reshape(1, 2, 5, 4)
    op = MaxPool2d((2, 2), (2, 1))
    expected = [[[[5, 6, 7], [13, 14, 15]], [[25, 26, 27], [33, 34, 35]]]]
    assert op.evaluate(x).tolist() == expected
    assert op.evaluate(x.astype(np.float64)).tolist() == expected
    assert op.infer([value((2, 5, 4), BIT)]) == TensorType((2, 2, 3), BIT)


def test_flatten_and_reshape_keep_c_order_and_dtype() -> None:
    x = np.arange(12).reshape(2, 2, 3)
    assert Flatten().evaluate(x).tolist() == [list(range(6)), list(range(6, 12))]
    assert Reshape((3, 2)).evaluate(x)[1].tolist() == [[6, 7], [8, 9], [10, 11]]
    assert Flatten().infer([value((2, 3), BIPOLAR)]) == TensorType((6,), BIPOLAR)


@pytest.mark.parametrize("op", [Flatten(), Reshape((3, 2, 1)), Conv2d(), Linear(), MaxPool2d((1, 1), (1, 1))])
def test_ops_take_an_empty_batch(op: Op) -> None:
    shape = (6,) if isinstance(op, Linear) else (2, 3, 1)
    weights = {"conv2d": np.ones((4, 2, 1, 1), int), "linear": np.ones((4, 6), int)}
    inputs = [np.zeros((0, *shape), int), *([weights[op.name]] if op.name in weights else [])]
    assert op.evaluate(*inputs).shape[0] == 0


def test_batch_norm_keeps_the_documented_order() -> None:
    rng = np.random.default_rng(5)
    x, (weight, bias, mean) = rng.normal(size=(7, 3, 2)), rng.normal(size=(3, 3))
    variance = rng.uniform(0.1, 3, 3)
    result = BatchNorm(1e-5).evaluate(x, weight, bias, mean, variance)
    for n, c, i in np.ndindex(x.shape):
        alpha = (1.0 / math.sqrt(variance[c] + 1e-5)) * weight[c]
        shift = bias[c] - mean[c] * alpha
        assert result[n, c, i] == x[n, c, i] * alpha + shift


def test_elementwise_ops_broadcast_constants_from_the_right() -> None:
    x = np.arange(12.0).reshape(1, 2, 3, 2)
    per_channel = np.array([1.0, -2.0]).reshape(2, 1, 1)
    assert Add().evaluate(x, per_channel)[0, :, 0, 0].tolist() == [1.0, 4.0]
    assert Subtract().evaluate(per_channel, x)[0, :, 0, 0].tolist() == [1.0, -8.0]
    assert Multiply().evaluate(x, np.array([2.0, 3.0]))[0, 0, 0].tolist() == [0.0, 3.0]
    assert Divide().evaluate(x, np.array(4.0))[0, 1, 2, 1] == 11 / 4
    assert Negate().evaluate(x)[0, 0, 0, 1] == -1.0
    assert Clamp(2.0, 5.0).evaluate(x).ravel().tolist() == [2, 2, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize("op", [Relu(), Clamp(-1.0, 1.0), Negate()])
def test_elementwise_ops_do_not_hide_nan(op: Op) -> None:
    assert np.isnan(op.evaluate(np.array([[math.nan]]))).all()


@pytest.mark.parametrize(
    ("op", "position", "operands", "trend"),
    [
        (Add(), 1, [value((2,)), value((2,))], 1),
        (Subtract(), 0, [value((2,)), constant([1.0, 2.0])], 1),
        (Subtract(), 1, [constant([1.0, 2.0]), value((2,))], -1),
        (Multiply(), 0, [value((3,)), constant([2.0, -2.0, 0.0])], [1, -1, 0]),
        (Multiply(), 1, [constant([2.0, -2.0, 0.0]), value((3,))], [1, -1, 0]),
        (Divide(), 0, [value((2,)), constant([2.0, -2.0])], [1, -1]),
        (Divide(), 1, [constant([2.0, -2.0]), value((2,))], None),
        (Negate(), 0, [value((2,))], -1),
        (Relu(), 0, [value((2,))], 1),
        (Clamp(0.0, 6.0), 0, [value((2,))], 1),
        (Quantize(0, 3), 0, [value((2,)), constant(1.0)], 1),
        (Dequantize(), 0, [value((2,), BIT), constant(1.0)], 1),
        (BatchNorm(0.0), 0, [value((3,)), *map(constant, ([1.0, -1.0, 0.0], [0.0] * 3, [0.0] * 3, [1.0] * 3))],
         [1, -1, 0]),
        (Softmax(0), 0, [value((2,))], None),
        (MaxPool2d((1, 1), (1, 1)), 0, [value((2, 1, 1))], None),
    ],
)  # fmt: skip
def test_trend_follows_from_signs(op: Op, position: int, operands: list[Operand], trend: object) -> None:
    found = op.trend(position, operands)
    assert (None if found is None else found.tolist()) == trend


def test_tail_ops_agree_with_their_formulas() -> None:
    x = np.array([[1.0, 3.0, 3.0], [-1000.0, 0.0, 1000.0]])
    softmax = Softmax(0).evaluate(x)
    assert softmax.sum(axis=1).tolist() == pytest.approx([1.0, 1.0])
    assert softmax[1].tolist() == [0.0, 0.0, 1.0]
    assert LogSoftmax(0).evaluate(x)[1].tolist() == [-2000.0, -1000.0, 0.0]
    assert ArgMax(0).evaluate(x).tolist() == [1, 2]
    assert ArgMax(0, True).evaluate(x).tolist() == [[1], [2]]
    assert ArgMax(0).infer([value((3,))]) == TensorType((), IntType(0, 2))
    assert ArgMax(1, True).infer([value((3, 4))]) == TensorType((3, 1), IntType(0, 3))
