"""A device answers in the dtype that it was asked in, whose numbers are the exact results, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnhw import ir
from nnhw.driver import BatchError, Device
from nnhw.driver.conversion import as_array
from nnhw.driver.links.model import ModelLink
from nnhw.errors import InputError
from tests.driver.fakes import LostFrames, TappedLink, golden, make_accelerator, make_board, make_codes

ACCELERATOR = make_accelerator()
STEP = 0.1
"""A float64 of 53 bits: no product with it is a float32."""
CODES = make_codes(40)
EXACT = golden(CODES, 5) * STEP


def make_device(step: float = STEP, link: Any = None, integers: bool = False) -> Device:
    """Return a device that takes codes as floats or integers, and gives sums times `step`."""
    head, tail = ir.GraphBuilder("head"), ir.GraphBuilder("tail")
    image = head.input("image", ir.TensorType((12,), ir.IntType(0, 255) if integers else ir.FLOAT))
    one = head.constant("one", np.array(1.0), ir.TensorType((), ir.FLOAT))
    codes = head.add("codes", ir.ops.Reshape((12,)), (image,))
    if not integers:
        codes = head.add("quantized", ir.ops.Quantize(0, 255), (codes, one))
    sums = tail.input("sums", ir.TensorType((5,), ir.IntType(-(2**31), 2**31 - 1)))
    scale = tail.constant("scale", np.array(step), ir.TensorType((), ir.FLOAT))
    out = tail.add("out", ir.ops.Dequantize(), (sums, scale))
    board = make_board(ACCELERATOR)
    return Device(link or ModelLink(board), ACCELERATOR, head.build([codes]), tail.build([out]), max_retries=0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_device_answers_in_the_dtype_of_an_array(dtype: Any) -> None:
    results = make_device()(CODES.astype(dtype))
    assert results.dtype == dtype
    assert np.array_equal(results, EXACT.astype(dtype))
    assert np.array_equal(results, EXACT) == (dtype not in (np.float16, np.float32))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_device_answers_in_the_dtype_of_a_tensor(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    # Codes that bfloat16 has.
    codes = CODES // 2 * 2
    results = make_device()(torch.from_numpy(codes).to(dtype))
    assert results.dtype == dtype
    exact = torch.from_numpy(golden(codes, 5) * STEP)
    # No tie of two roundings is among these, so that PyTorch's conversion by float32 is right, too.
    assert torch.equal(results, exact.to(dtype))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
def test_device_answers_integers_by_float64(dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    given = CODES.astype(dtype)
    for results in (make_device(integers=True)(given), make_device(integers=True)(torch.from_numpy(given)).numpy()):
        assert results.dtype == np.float64
        assert np.array_equal(results, EXACT)


def test_device_answers_lists_by_float64() -> None:
    results = make_device()(CODES.astype(float).tolist())
    assert (results.dtype, np.array_equal(results, EXACT)) == (np.float64, True)


def test_results_that_are_integers_stay_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    values = np.array([2**53 - 1, -5])
    for images in (np.zeros(1, np.float16), torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1)):
        made = as_array(images)[1](values)
        assert str(made.dtype).endswith("int64")
        assert made.tolist() == values.tolist()


@pytest.mark.parametrize(("name", "bits"), [("float16", 11), ("bfloat16", 8), ("float32", 24)])
def test_results_are_rounded_once(name: str, bits: int) -> None:
    """Numbers a little above the middle of two: rounded to float32 first, they would be the middle, and go down."""
    torch = pytest.importorskip("torch")
    above = 1 + 2.0**-bits + 2.0**-45
    values = np.array([above, -above, 0.0, 1 + 2.0**-bits, 1 + 3 * 2.0**-bits])
    step = 2.0 ** (1 - bits)
    wanted = [1 + step, -1 - step, 0.0, 1.0, 1 + 2 * step]
    made = as_array(torch.zeros(1, dtype=getattr(torch, name)))[1](values)
    assert str(made.dtype) == f"torch.{name}"
    assert made.double().tolist() == wanted


def test_results_of_bfloat16_reach_from_the_smallest_to_the_largest() -> None:
    torch = pytest.importorskip("torch")
    values = np.array([2.0**-133, 1.5 * 2.0**-133, 2.0**-134, 255 * 2.0**120, -(2.0**127)])
    made = as_array(torch.zeros(1, dtype=torch.bfloat16))[1](values)
    assert made.double().tolist() == [2.0**-133, 2.0**-132, 0.0, 255 * 2.0**120, -(2.0**127)]


def test_device_rejects_a_dtype_that_its_results_are_beyond() -> None:
    torch = pytest.importorskip("torch")
    for images in (CODES.astype(np.float16), torch.from_numpy(CODES).half()):
        with pytest.raises(InputError) as caught:
            make_device(step=1000.0)(images)
        beyond = (golden(CODES, 5) * 1000.0).ravel()
        first = beyond[abs(beyond) >= 65520][0]
        assert str(caught.value) == (
            f"images: they are float16, so the results are float16, but {first:g} is out of its range; use "
            "float32 or float64 images"
        )
    with pytest.raises(InputError, match="they are bfloat16, so the results are bfloat16, but 1e"):
        as_array(torch.zeros(1, dtype=torch.bfloat16))[1](np.array([1e39]))


def test_results_beside_an_error_have_the_dtype_of_the_images() -> None:
    link = TappedLink(make_board(ACCELERATOR), inbound=LostFrames(0x83, 10, 1 << 20))  # type: ignore[arg-type]
    with pytest.raises(BatchError) as caught:
        make_device(link=link)(CODES.astype(np.float32))
    assert caught.value.results.dtype == np.float32
    assert np.array_equal(caught.value.results, EXACT[:10].astype(np.float32))
