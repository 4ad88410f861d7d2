"""Windows, borders, joins, permutations and step tables against loops over single elements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import IrError
from nnhw.ir import BIPOLAR, BIT, FLOAT, Builder, IntType, Op, Operand, TensorType, dumps, loads, verify
from nnhw.ir.ops import Concat, MaxPool2d, Pad, Permute, Slice, StepTable, SumPool2d, Upsample, WeightedSum

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
SEEDS = st.integers(0, 2**32 - 1)
CODES = IntType(-8, 7)


def value(shape: tuple[int, ...], dtype: object = FLOAT) -> Operand:
    return Operand(TensorType(shape, dtype))  # type: ignore[arg-type]


def constant(array: object, dtype: IntType = CODES) -> Operand:
    values = np.asarray(array)
    return Operand(TensorType(values.shape, dtype), values)


def _image(seed: int, floats: bool = False) -> np.ndarray:
    x = np.random.default_rng(seed).integers(-8, 8, (2, 2, 5, 6))
    return x.astype(np.float64) if floats else x


@given(kernel=PAIRS, stride=PAIRS, borders=st.tuples(*[st.integers(0, 2)] * 4), seed=SEEDS, floats=st.booleans())
@settings(max_examples=60, deadline=None)
def test_max_pool2d_ignores_what_is_beyond_the_border(
    kernel: tuple[int, int], stride: tuple[int, int], borders: tuple[int, ...], seed: int, floats: bool
) -> None:
    limits = (kernel * 2)[:4]
    top, left, bottom, right = (min(b, span - 1) for b, span in zip(borders, limits, strict=True))
    op = MaxPool2d(kernel, stride, (top, left), (bottom, right))
    x = _image(seed, floats)
    result = op.evaluate(x)
    assert op.infer([value(x.shape[1:], FLOAT if floats else CODES)]).shape == result.shape[1:]
    assert result.dtype == x.dtype
    for n, c, i, j in np.ndindex(result.shape):
        rows = [i * stride[0] + k - top for k in range(kernel[0])]
        columns = [j * stride[1] + k - left for k in range(kernel[1])]
        inside = [x[n, c, r, q] for r, q in itertools.product(rows, columns) if 0 <= r < 5 and 0 <= q < 6]
        assert result[n, c, i, j] == max(inside)


@given(kernel=PAIRS, stride=PAIRS, seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_sum_pool2d_adds_each_window(kernel: tuple[int, int], stride: tuple[int, int], seed: int) -> None:
    op, x = SumPool2d(kernel, stride), _image(seed)
    result = op.evaluate(x)
    type = op.infer([value(x.shape[1:], CODES)])
    assert type.shape == result.shape[1:]
    assert type.dtype == IntType(-8 * kernel[0] * kernel[1], 7 * kernel[0] * kernel[1])
    for n, c, i, j in np.ndindex(result.shape):
        taps = itertools.product(range(kernel[0]), range(kernel[1]))
        assert result[n, c, i, j] == sum(x[n, c, i * stride[0] + k, j * stride[1] + m] for k, m in taps)


@given(before=PAIRS, after=PAIRS, border=st.integers(-9, 9), seed=SEEDS, floats=st.booleans())
@settings(max_examples=40, deadline=None)
def test_pad_puts_one_value_around(
    before: tuple[int, int], after: tuple[int, int], border: int, seed: int, floats: bool
) -> None:
    op, x = Pad(before, after, float(border)), _image(seed, floats)
    result = op.evaluate(x)
    assert op.infer([value(x.shape[1:], FLOAT if floats else CODES)]).shape == result.shape[1:]
    assert result.dtype == x.dtype
    for n, c, i, j in np.ndindex(result.shape):
        row, column = i - before[0], j - before[1]
        inside = 0 <= row < 5 and 0 <= column < 6
        assert result[n, c, i, j] == (x[n, c, row, column] if inside else border)


@pytest.mark.parametrize(
    ("dtype", "border", "padded"),
    [
        (BIPOLAR, 0.0, IntType(-1, 1)), (BIPOLAR, 1.0, BIPOLAR), (BIPOLAR, -2.0, IntType(-2, 1)), (BIT, 0.0, BIT),
        (BIT, 3.0, IntType(0, 3)), (FLOAT, 0.5, FLOAT),
    ],
)  # fmt: skip
def test_pad_widens_a_type_only_if_it_must(dtype: object, border: float, padded: object) -> None:
    assert Pad((1, 0), (0, 0), border).infer([value((1, 2, 2), dtype)]) == TensorType((1, 3, 2), padded)  # type: ignore[arg-type]


@given(factor=PAIRS, seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_upsample_repeats_each_element(factor: tuple[int, int], seed: int) -> None:
    op, x = Upsample(factor), _image(seed)
    result = op.evaluate(x)
    assert op.infer([value(x.shape[1:], BIPOLAR)]) == TensorType(result.shape[1:], BIPOLAR)
    for n, c, i, j in np.ndindex(result.shape):
        assert result[n, c, i, j] == x[n, c, i // factor[0], j // factor[1]]


@pytest.mark.parametrize("factors", [(1, 1), (3, -2), (-1, -1, 5)])
def test_weighted_sum_equals_its_definition_and_has_the_least_range(factors: tuple[int, ...]) -> None:
    types = [IntType(-2, 1), BIPOLAR, IntType(0, 3)][: len(factors)]
    pairs = list(itertools.product(*([-1, 1] if t.bipolar else range(t.low, t.high + 1) for t in types)))
    columns = [np.array(column)[:, None] for column in zip(*pairs, strict=True)]
    result = WeightedSum(factors).evaluate(*columns)
    assert result[:, 0].tolist() == [sum(f * x for f, x in zip(factors, pair, strict=True)) for pair in pairs]
    inferred = WeightedSum(factors).infer([value((1,), t) for t in types])
    assert inferred == TensorType((1,), IntType(int(result.min()), int(result.max())))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat_puts_tensors_behind_each_other(axis: int) -> None:
    shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4]]
    for k, shape in enumerate(shapes):
        shape[axis] = k + 1
    parts = [np.random.default_rng(k).integers(0, 9, (2, *shape)) for k, shape in enumerate(shapes)]
    result = Concat(axis).evaluate(*parts)
    assert Concat(axis).infer([value(tuple(s), BIT) for s in shapes]) == TensorType(result.shape[1:], BIT)
    start = 0
    for part in parts:
        size = part.shape[axis + 1]
        np.testing.assert_array_equal(result.take(range(start, start + size), axis=axis + 1), part)
        start += size
    assert start == result.shape[axis + 1]


@pytest.mark.parametrize(
    ("dtypes", "joined"),
    [([BIPOLAR, BIPOLAR], BIPOLAR), ([BIPOLAR, BIT], IntType(-1, 1)), ([IntType(0, 3), IntType(-2, 1)], IntType(-2, 3)),
     ([FLOAT, FLOAT], FLOAT)],
)  # fmt: skip
def test_concat_has_the_least_common_type(dtypes: list[object], joined: object) -> None:
    assert Concat(0).infer([value((1,), dtype) for dtype in dtypes]).dtype == joined


def test_slice_takes_a_range_of_an_axis() -> None:
    x = np.arange(2 * 4 * 3).reshape(2, 4, 3)
    result = Slice(0, 1, 3).evaluate(x)
    assert Slice(0, 1, 3).infer([value((4, 3), BIT)]) == TensorType((2, 3), BIT)
    np.testing.assert_array_equal(result, x[:, 1:3])
    np.testing.assert_array_equal(Slice(1, 2, 3).evaluate(x), x[:, :, 2:])


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_permute_takes_axis_k_from_axes_k(axes: tuple[int, ...]) -> None:
    x = np.arange(2 * 2 * 3 * 4).reshape(2, 2, 3, 4)
    result = Permute(axes).evaluate(x)
    assert Permute(axes).infer([value((2, 3, 4), BIT)]) == TensorType(result.shape[1:], BIT)
    for n, *place in np.ndindex(result.shape):
        source = [0, 0, 0]
        for k, axis in enumerate(axes):
            source[axis] = place[k]
        assert result[(n, *place)] == x[(n, *source)]


@given(SEEDS, st.integers(1, 4), st.integers(1, 6), st.booleans())
@settings(max_examples=50, deadline=None)
def test_step_table_equals_its_definition(seed: int, channels: int, steps: int, bipolar: bool) -> None:
    rng = np.random.default_rng(seed)
    thresholds = np.sort(rng.integers(-5, 6, (channels, steps)), axis=1)
    codes = rng.choice([-1, 1], (channels, steps + 1)) if bipolar else rng.integers(-3, 4, (channels, steps + 1))
    op = StepTable(-1, 1, True) if bipolar else StepTable(-3, 3)
    x = rng.integers(-6, 7, (4, channels, 2))
    result = op.evaluate(x, thresholds, codes)
    type = op.infer([value((channels, 2), CODES), constant(thresholds), constant(codes)])
    assert type == TensorType((channels, 2), BIPOLAR if bipolar else IntType(-3, 3))
    for n, c, i in np.ndindex(x.shape):
        assert result[n, c, i] == codes[c][sum(int(x[n, c, i]) >= int(t) for t in thresholds[c])]


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (MaxPool2d((2, 2), (1, 1), (2, 0)), [value((1, 4, 4))],
         "max_pool2d needs a padding below its kernel (2, 2), got (2, 0), (0, 0)"),
        (SumPool2d((2, 2), (1, 1)), [value((1, 4, 4))], "x must be an integer tensor, got float64 [1, 4, 4]"),
        (SumPool2d((2, 2), (1, 1)), [value((4, 4), BIT)],
         "sum_pool2d needs x [channels, height, width], got int 0..1 [4, 4]"),
        (SumPool2d((5, 2), (1, 1)), [value((1, 4, 4), BIT)],
         "sum_pool2d with kernel (5, 2) needs x [channels, height, width], got int 0..1 [1, 4, 4]"),
        (Pad((1, 0), (0, 0), 0.5), [value((1, 4, 4), BIT)],
         "pad needs a whole number for the border of integers, got 0.5"),
        (Pad((-1, 0), (0, 0)), [value((1, 4, 4))],
         ("pad needs x [channels, height, width] and no negative widths, got float64 [1, 4, 4] and Pad(before=(-1, 0), "
         "after=(0, 0), value=0.0)")),
        (Upsample((0, 1)), [value((1, 4, 4))],
         "upsample needs x [channels, height, width] and factors of at least 1, got float64 [1, 4, 4]"),
        (WeightedSum((1, 0)), [value((2,), BIT), value((2,), BIT)],
         ("weighted_sum needs integers of one shape and a factor other than 0 for each, got int 0..1 [2], int 0..1 [2] "
         "and the factors (1, 0)")),
        (WeightedSum((1, 1)), [value((2,), BIT), value((2,))], "each input must be an integer tensor, got float64 [2]"),
        (Concat(1), [value((2, 3)), value((3, 3))],
         ("concat along axis 1 needs tensors of one kind that differ in this axis alone, got float64 [2, 3], float64 "
         "[3, 3]")),
        (Concat(0), [value((2,)), value((2,), BIT)],
         "concat along axis 0 needs tensors of one kind that differ in this axis alone, got float64 [2], int 0..1 [2]"),
        (Slice(1, 0, 4), [value((2, 3))],
         "slice needs a part of an axis of float64 [2, 3], got Slice(axis=1, start=0, stop=4)"),
        (Slice(0, 1, 1), [value((2, 3))],
         "slice needs a part of an axis of float64 [2, 3], got Slice(axis=0, start=1, stop=1)"),
        (Permute((0, 0)), [value((2, 3))], "permute needs every axis of float64 [2, 3] once, got (0, 0)"),
        (StepTable(0, 3), [value((2,), BIT), constant([[1]]), constant([[0, 1]])],
         "step_table needs x [channels, ..] and thresholds [channels, steps], got int 0..1 [2]"),
        (StepTable(0, 3), [value((1,), BIT), constant([[1]]), constant([[0, 1, 2]])],
         "step_table needs codes [channels, steps + 1], got int -8..7 [1, 3] for int -8..7 [1, 1]"),
        (StepTable(0, 3), [value((1,), BIT), constant([[2, 1]]), constant([[0, 1, 2]])],
         "the thresholds of a channel must be sorted"),
        (StepTable(0, 3), [value((1,), BIT), constant([[1]]), constant([[0, 4]])],
         "the codes of a step_table must be in int 0..3, got 0..4"),
    ],
)  # fmt: skip
def test_type_rule_rejects_operands_that_do_not_fit(op: Op, operands: list[Operand], message: str) -> None:
    with pytest.raises(IrError) as caught:
        op.infer(operands)
    assert str(caught.value) == message


def test_ops_of_many_inputs_need_two() -> None:
    with pytest.raises(IrError, match="concat takes two or more inputs, got 1"):
        Concat(0).check_operands([value((2,))])
    with pytest.raises(IrError, match="input 1 of weighted_sum must not be a constant"):
        WeightedSum((1, 1)).check_operands([value((2,), BIT), constant([1, 0])])


def test_text_form_keeps_every_attribute() -> None:
    x = Builder("g").input("x", (2, 4, 4), bipolar=True)
    pooled = x.pad((1, 0), (0, 2), -1).max_pool2d((2, 2), (1, 2), before=(1, 0), after=(0, 1))
    wide = pooled.sum_pool2d((2, 1), (1, 1)).upsample((1, 2))
    both = wide.permute((0, 2, 1)).permute((0, 2, 1)).weighted_sum(wide, factors=(3, -1))
    joined = both.concat(both, axis=0)
    channels = joined.shape[0]
    table = joined.step_table([[-1, 2]] * channels, [[0, 3, 1]] * channels, low=0, high=3)
    graph = x.builder.build(table)
    again = loads(dumps(graph), graph.constants)
    assert again == graph
    assert verify(again) is again
