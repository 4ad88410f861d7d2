import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.errors import IrError
from nnhw.ir import BIPOLAR, BIT, FLOAT, IntType, TensorType


@pytest.mark.parametrize(
    ("low", "high", "bits", "signed"),
    [(0, 0, 1, False), (0, 1, 1, False), (0, 255, 8, False), (0, 256, 9, False), (-1, 0, 1, True), (-1, 1, 2, True),
     (-8, 7, 4, True), (-9, 7, 5, True), (-8, 8, 5, True), (-784, 784, 11, True), (3, 5, 3, False), (-7, -5, 4, True)],
)  # fmt: skip
def test_int_type_width_is_minimal(low: int, high: int, bits: int, signed: bool) -> None:
    dtype = IntType(low, high)
    assert (dtype.bits, dtype.signed) == (bits, signed)


@given(st.integers(-(2**40), 2**40), st.integers(0, 2**40))
def test_int_type_width_holds_the_range_and_one_bit_less_does_not(low: int, span: int) -> None:
    dtype = IntType(low, low + span)

    def fits(bits: int) -> bool:
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.signed else (0, (1 << bits) - 1)
        return least <= dtype.low and dtype.high <= most

    assert fits(dtype.bits)
    assert dtype.bits == 1 or not fits(dtype.bits - 1)


def test_bipolar_is_one_bit_without_zero() -> None:
    assert (BIPOLAR.bits, BIPOLAR.signed) == (1, True)
    assert BIPOLAR.holds(np.array([-1, 1]))
    assert not BIPOLAR.holds(np.array([-1, 0]))
    assert BIPOLAR != IntType(-1, 1)


def test_int_type_holds_its_ends_and_nothing_beyond() -> None:
    dtype = IntType(-3, 5)
    assert dtype.holds(np.array([-3, 5]))
    assert dtype.holds(np.array([], dtype=np.int64))
    assert not dtype.holds(np.array([-4]))
    assert not dtype.holds(np.array([6]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 0), "an integer type needs low <= high, both within 64 bits, got 1..0"),
        ((0, 2**63), f"an integer type needs low <= high, both within 64 bits, got 0..{2**63}"),
        ((0, 1, True), "a bipolar type has the range -1..1, got 0..1"),
    ],
)
def test_int_type_rejects_bad_ranges(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(IrError) as caught:
        IntType(*arguments)
    assert str(caught.value) == message


def test_tensor_type_says_size_and_reads_well() -> None:
    assert TensorType((2, 3, 4), BIT).size == 24
    assert TensorType((), FLOAT).size == 1
    assert str(TensorType((2, 3), IntType(-9, 9))) == "int -9..9 [2, 3]"
    assert str(TensorType((), FLOAT)) == "float64 []"


def test_tensor_type_rejects_empty_axes_and_floats_where_integers_are_needed() -> None:
    with pytest.raises(IrError, match="a tensor needs sizes of at least 1"):
        TensorType((2, 0), BIT)
    with pytest.raises(IrError, match=r"an integer tensor is needed here, got float64 \[3\]"):
        _ = TensorType((3,), FLOAT).int_dtype
