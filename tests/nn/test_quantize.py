"""The operator nnhw::quantize against its definition, written out slowly."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import InputError
from nnhw.nn import Int, Quantizer, UInt, power_of_two_scale
from nnhw.nn.functional import ROUNDINGS, quantize
from tests.ir.test_rounding import slow_round

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SCALES = st.one_of(
    st.integers(-12, 6).map(lambda exponent: 2.0**exponent),
    st.floats(min_value=2**-10, max_value=2**10, width=32),
)


def slow_affine(x: float, scale: float, zero_point: int, qmin: int, qmax: int) -> np.float32:
    """One element; the quotient is rounded by exact fractions, whose round() is half to even."""
    with np.errstate(over="ignore"):
        quotient = np.float32(x) / np.float32(scale)
    nearest = math.copysign(10**6, quotient) if np.isinf(quotient) else round(Fraction(float(quotient)))
    code = min(max(int(nearest) + zero_point, qmin), qmax)
    return np.float32(code - zero_point) * np.float32(scale)


def run(
    values: list[float], scale: list[float], zero_point: int, codes: tuple[int, int], axis: int = -1
) -> torch.Tensor:
    zero_points = torch.full((len(scale),), float(zero_point))
    return quantize(torch.tensor(values), torch.tensor(scale), zero_points, *codes, axis, False)


@given(st.lists(FLOATS, min_size=1, max_size=20), SCALES, st.integers(2, 8), st.booleans(), st.data())
def test_quantize_equals_the_definition(
    values: list[float], scale: float, bits: int, signed: bool, data: st.DataObject
) -> None:
    qmin, qmax = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    zero_point = data.draw(st.integers(qmin, qmax))
    result = run(values, [scale], zero_point, (qmin, qmax))
    expected = [slow_affine(value, scale, zero_point, qmin, qmax) for value in values]
    assert result.tolist() == [float(value) for value in expected]


@given(st.lists(st.integers(-40, 40), min_size=1), st.integers(-8, 3))
def test_quantize_rounds_ties_to_even(halves: list[int], exponent: int) -> None:
    scale = 2.0**exponent
    result = run([half * scale / 2 for half in halves], [scale], 0, (-128, 127))
    assert result.tolist() == [round(half / 2) * scale for half in halves]  # Python rounds half to even too


def test_quantize_yields_no_negative_zero() -> None:
    result = run([-0.0, -0.25, 0.0], [1.0], 0, (-8, 7))
    assert not torch.signbit(result).any()


@given(st.lists(FLOATS, min_size=1), SCALES)
def test_quantize_bipolar_has_no_zero(values: list[float], scale: float) -> None:
    values = [*values, 0.0, -0.0]
    result = quantize(torch.tensor(values), torch.tensor([scale]), torch.zeros(1), -1, 1, -1, True)
    assert result.tolist() == [scale if value >= 0 else -scale for value in values]


@pytest.mark.parametrize("bipolar", [False, True])
def test_quantize_keeps_nan_and_clamps_infinity(bipolar: bool) -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf])
    result = quantize(x, torch.ones(1), torch.zeros(1), -1, 1, -1, bipolar)
    assert math.isnan(result[0])
    assert result[1:].tolist() == [1.0, -1.0]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_quantize_per_channel_equals_each_channel_alone(axis: int) -> None:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    scales = [2.0 ** -(index + 1) for index in range(x.shape[axis])]
    result = quantize(x, torch.tensor(scales), torch.tensor([1.0]), -4, 3, axis, False)
    for index, scale in enumerate(scales):
        alone = quantize(x.select(axis, index), torch.tensor([scale]), torch.tensor([1.0]), -4, 3, -1, False)
        assert torch.equal(result.select(axis, index), alone)


def test_quantize_computes_in_the_dtype_of_its_input() -> None:
    x = torch.tensor([0.3], dtype=torch.float64)
    result = quantize(x, torch.tensor([0.125]), torch.zeros(1), -8, 7, -1, False)
    assert result.dtype == torch.float64
    assert result.item() == 0.25


def test_quantize_passes_the_gradient_within_the_range() -> None:
    x = torch.tensor([-2.01, -2.0, 0.3, 1.5, 1.51], requires_grad=True)
    quantize(x, torch.tensor([0.5]), torch.zeros(1), -4, 3, -1, False).backward(torch.arange(1.0, 6.0))
    assert x.grad is not None
    assert x.grad.tolist() == [0, 2, 3, 4, 0]


def test_quantize_zero_point_moves_the_range_of_the_gradient() -> None:
    x = torch.tensor([-1.01, -1.0, 6.0, 6.01], requires_grad=True)
    quantize(x, torch.ones(1), torch.ones(1), 0, 7, -1, False).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1, 1, 0]


def test_quantize_bipolar_passes_the_gradient_up_to_the_scale() -> None:
    x = torch.tensor([-0.51, -0.5, 0.0, 0.5, 0.51], requires_grad=True)
    quantize(x, torch.tensor([0.5]), torch.zeros(1), -1, 1, -1, True).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("zero_point", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize("first", [False, True])
def test_quantize_rounds_half_way_points_by_its_convention(rounding: str, zero_point: float, first: bool) -> None:
    halves = [n / 2 for n in range(-30, 31)]
    offset = int(zero_point)
    result = quantize(
        torch.tensor(halves) * 0.25, torch.tensor([0.25]), torch.tensor([zero_point]), -8, 7, -1, False, rounding,
        False, first,
    )  # fmt: skip
    moved = offset if first else 0
    rounded = [slow_round(rounding, Fraction(half) + moved) - moved for half in halves]
    assert result.tolist() == [0.25 * (min(max(code + offset, -8), 7) - offset) for code in rounded]
    assert not torch.signbit(result[result == 0]).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(st.lists(st.floats(-300, 300, width=32), min_size=1), st.floats(2**-10, 2**10, width=32), st.integers(-128, 127))
def test_quantize_by_the_reciprocal_is_that_of_pt2e(
    dtype: torch.dtype, values: list[float], scale: float, zero_point: int
) -> None:
    halves = [(n + 0.5) * scale for n in range(-40, 40)]
    x = torch.tensor(values + halves)
    codes = torch.ops.quantized_decomposed.quantize_per_tensor(x, scale, zero_point, -128, 127, torch.int8)
    arguments = torch.tensor([scale]), torch.tensor([float(zero_point)]), -128, 127, -1, False
    result = quantize(x.to(dtype), *arguments, reciprocal=True)
    assert result.dtype == dtype
    assert ((result.float() / scale).round() + zero_point).tolist() == codes.tolist()


def test_quantize_keeps_nan_by_each_convention() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf])
    for rounding in ROUNDINGS:
        result = quantize(x, torch.ones(1), torch.ones(1), -1, 1, -1, False, rounding, True, True)
        assert math.isnan(result[0])
        assert result[1:].tolist() == [0.0, -2.0]


def test_quantize_rejects_a_rounding_that_there_is_not() -> None:
    with pytest.raises(InputError) as caught:
        quantize(torch.ones(1), torch.ones(1), torch.zeros(1), -1, 1, -1, False, "odd")
    assert str(caught.value) == (
        "nnhw::quantize needs the rounding half_even, half_away, half_up, floor, ceil, got 'odd'"
    )


def test_operator_takes_calls_of_before_there_were_conventions() -> None:
    x = torch.tensor([0.5, 1.5, -0.7])
    result = torch.ops.nnhw.quantize(x, torch.ones(1), torch.zeros(1), -1, 1, -1, False)
    assert result.tolist() == [0.0, 1.0, -1.0]


@pytest.mark.parametrize("module", [Int(4, 1.0, rounding="floor"), UInt(3, 1.0, rounding="floor")])
def test_quantizers_round_as_they_are_told(module: Quantizer) -> None:
    assert module(torch.tensor([1.9, 2.5])).tolist() == [1.0, 2.0]
    assert "rounding=floor" in repr(module)


def test_quantizers_reject_a_rounding_that_there_is_not() -> None:
    with pytest.raises(InputError) as caught:
        Int(4, 1.0, rounding="odd")
    assert str(caught.value) == "Int needs the rounding half_even, half_away, half_up, floor, ceil, got 'odd'"


CONVENTIONS = [(), ("half_away", False, False), ("floor", True, True)]


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("bipolar", [False, True])
def test_quantize_obeys_the_rules_of_custom_operators(bipolar: bool, convention: tuple[object, ...]) -> None:
    x = torch.tensor([[0.1, -0.7], [0.4, 2.0]], requires_grad=True)
    arguments = (x, torch.tensor([0.5, 0.25]), torch.zeros(2), -1, 1, 0, bipolar, *convention)
    # Not "test_autograd_registration ... gradcheck": a straight-through gradient is no derivative.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.nnhw.quantize.default, arguments, test_utils=checks)


def test_quantize_rejects_an_axis_that_the_tensor_has_not() -> None:
    with pytest.raises(InputError) as caught:
        run([[1.0, 2.0]], [1.0, 1.0], 0, (0, 1), axis=2)  # type: ignore[list-item]
    assert str(caught.value) == (
        "nnhw::quantize needs axis -1 (per tensor) or 0 to 1 for a tensor of shape (1, 2), got 2"
    )


def test_quantize_rejects_a_wrong_number_of_scales() -> None:
    with pytest.raises(InputError) as caught:
        run([1.0, 2.0, 3.0], [1.0, 1.0], 0, (0, 1), axis=0)
    assert str(caught.value) == (
        "nnhw::quantize needs 1 or 3 scales and zero points for axis 0 of a tensor of shape (3,), got 2; "
        "give one value per channel, or one value and axis=-1"
    )


def test_quantize_rejects_integers() -> None:
    with pytest.raises(InputError) as caught:
        quantize(torch.tensor([1]), torch.ones(1), torch.zeros(1), 0, 1, -1, False)
    assert str(caught.value) == (
        "nnhw::quantize needs a floating-point tensor, got torch.int64; convert it with .float()"
    )


@settings(max_examples=300)
@given(
    st.lists(st.floats(min_value=-(2.0**100), max_value=2.0**100, width=32), min_size=1, max_size=8),
    st.integers(1, 255),
)
def test_power_of_two_scale_is_the_least_that_holds_the_peak(values: list[float], peak_code: int) -> None:
    scale = Fraction(power_of_two_scale(torch.tensor(values), peak_code, -1).item())
    peak = max(abs(Fraction(value)) for value in values)
    if peak < Fraction(2) ** -100:
        assert scale == (1 if peak == 0 else max(scale, Fraction(2) ** -126))
        return
    assert peak <= scale * peak_code < 2 * peak


def test_power_of_two_scale_finds_one_scale_per_channel() -> None:
    x = torch.tensor([[[0.1, -3.5]], [[7.0, 0.0]], [[0.0, 0.0]]])
    assert power_of_two_scale(x, 7, 0).tolist() == [0.5, 1.0, 1.0]
    assert power_of_two_scale(x, 7, -1).tolist() == [1.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_power_of_two_scale_of_no_number_is_nan(bad: float) -> None:
    assert math.isnan(power_of_two_scale(torch.tensor([1.0, bad]), 7, -1).item())
