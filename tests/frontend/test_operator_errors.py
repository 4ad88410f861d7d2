"""What operators are refused for, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from nnhw.errors import NnhwError
from nnhw.frontend import capture
from nnhw.frontend.capture import HANDLERS
from nnhw.nn import Int
from nnhw.nn.integers import integer_norm, integer_softmax
from nnhw.nn.remedies import REMEDIES
from tests.frontend.examples import Net, trimmed
from tests.frontend.models import images, settled

HERE = "of the model (HERE)"
UNQUANTIZED = (
    "needs quantized inputs, for its sums must be exact; put a quantizer in front of it, such as nnhw.nn.QuantReLU(4) "
    "or nnhw.nn.QuantIdentity(8)"
)
REFUSED = "is not supported;"
DILATED = "has dilation=[2, 2]; only dilation=1 is supported; use a larger kernel without dilation"
ZEROS = "only mode='constant' is supported; use nn.ZeroPad2d, or padding_mode='zeros' of a convolution"

ERRORS: dict[str, tuple[Callable[[Net, torch.Tensor], torch.Tensor], str]] = {
    "sum_of_conditions": (
        lambda m, x: ((x > 0) + (x > 1)) * x,
        f"add {HERE} computes with conditions; combine them with &, | and ~, or make numbers of them",
    ),
    "condition_of_a_number": (
        lambda m, x: torch.where(torch.logical_not(x), x, -x),
        (f"logical_not {HERE} needs conditions, such as x > 0, got numbers of type torch.float32; compare them with a "
        "number first"),
    ),
    "choice_of_shapes": (
        lambda m, x: torch.where(x > 0, x, x[:, :, :1]),
        (f"where {HERE} chooses between values of the shapes [batch, 3, 1, 8] and [batch, 3, 8, 8]; all must have the "
        "same shape"),
    ),
    "exponent": (
        lambda m, x: x**4,
        f"pow {HERE} has the exponent 4; only 3, 2, 1, 0.5 and -1 are supported: multiply instead",
    ),
    "negative_alpha": (
        lambda m, x: functional.elu(x, -1.0),
        f"elu {HERE}: elu needs alpha >= 0 and scales > 0, got -1.0, 1.0 and 1.0",
    ),
    "average_of_floats": (lambda m, x: functional.avg_pool2d(torch.tanh(x), 2), f"avg_pool2d {HERE} {UNQUANTIZED}"),
    "average_of_sums": (lambda m, x: functional.adaptive_avg_pool1d(
        functional.conv1d(x.flatten(2), m.quant(m.weight[:3, :3, None])), 1),
        f"adaptive_avg_pool1d {HERE} {UNQUANTIZED}",
    ),
    "concat_of_unlike_scales": (
        lambda m, x: m.patch(torch.cat([x[:, :1], Int(5, 0.3)(x[:, 1:])], 1)),
        (f"conv2d 'patch' (HERE) needs quantized inputs, but cat {HERE} joins codes of the scales 0.125 and 0.3, whose "
        "values are not all 8-bit codes of one common scale; put one quantizer behind it, or give the quantizers of "
        "its branches the same scale"),
    ),
    "unequal_average": (
        lambda m, x: functional.adaptive_avg_pool2d(x, (2, 3)),
        (f"adaptive_avg_pool2d {HERE} makes [2, 3] of [8, 8], with windows of different sizes; use sizes that divide "
        "evenly, or a pooling with kernel and stride"),
    ),
    "unequal_max": (
        lambda m, x: functional.adaptive_max_pool2d(x, 5),
        (f"adaptive_max_pool2d {HERE} makes [5, 5] of [8, 8], with windows of different sizes; use sizes that divide "
        "evenly, or a pooling with kernel and stride"),
    ),
    "indices": (
        lambda m, x: functional.adaptive_max_pool2d(x, 2, return_indices=True)[1] + x.amax((2, 3), keepdim=True) * 0,
        "getitem of the model (HERE) uses the indices of a pooling, which do not exist in hardware; use its values",
    ),
    "dilated_pool": (
        lambda m, x: functional.max_pool2d(x, 3, dilation=2),
        f"max_pool2d {HERE} {DILATED}",
    ),
    "mean_of_everything": (
        lambda m, x: x.mean((1, 2, 3)),
        (f"mean {HERE} goes over the axes [1, 2, 3]; only height and width, or rows, are supported: use dim=(2, 3), "
        "dim=2 for [batch, channels, length], or dim=1 for [batch, rows, features]"),
    ),
    "mean_of_all": (
        lambda m, x: x.mean() + x,
        f"mean {HERE}: operator aten.mean.default {REFUSED} use dim=(2, 3), the axes of height and width",
    ),
    "broadcast_values": (
        lambda m, x: x + x.amax((2, 3), keepdim=True),
        f"add {HERE} joins values of the shapes [batch, 3, 8, 8] and [batch, 3, 1, 1]; both must have the same shape",
    ),
    "broadcast_product": (
        lambda m, x: x * x.mean((2, 3), keepdim=True).sigmoid(),
        (f"mul {HERE} multiplies values of the shapes [batch, 3, 8, 8] and [batch, 3, 1, 1], which both depend on the "
        "model's input; an engine multiplies codes: put a quantizer on each of the two, directly in front of the "
        "product, such as nnhw.nn.UInt(8, scale=2**-8) behind a sigmoid"),
    ),
    "product_of_unlike_axes": (
        lambda m, x: x[:, :, :1] * x[:, :, :, :1],
        (f"mul {HERE} multiplies values of the shapes [batch, 3, 1, 8] and [batch, 3, 8, 1]; one of them must have "
        "the shape of the result, the other one as many axes with the same sizes or 1, such as [batch, channels, 1, 1] "
        "for a map"),
    ),
    "quotient_of_values": (
        lambda m, x: x / x.amax((2, 3), keepdim=True),
        (f"div {HERE} divides values of the shapes [batch, 3, 8, 8] and [batch, 3, 1, 1], which both depend on the "
        "model's input; there is no engine for that: divide by constants, or multiply by codes of the reciprocal"),
    ),
    "expanded_channels": (
        lambda m, x: x[:, :1].expand(-1, 3, -1, -1),
        (f"expand {HERE} makes [batch, 3, 8, 8] of [batch, 1, 8, 8]; only height and width of size 1 are repeated: a "
        "product repeats what it must by itself"),
    ),
    "glu_of_the_batch": (
        lambda m, x: functional.glu(torch.cat([x, x], 1), 0),
        f"glu {HERE} halves the batch, got dim=0; use dim=1 or dim=-1",
    ),
    "reflect": (
        lambda m, x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
        f"pad {HERE} has mode='reflect'; {ZEROS}",
    ),
    "pad_channels": (
        lambda m, x: functional.pad(x, (0, 0, 0, 0, 1, 1)),
        (f"pad {HERE} has pad=[0, 0, 0, 0, 1, 1]; only borders of height and width, of 0 or more, are supported: for "
        "channels use torch.cat, or a 1x1 convolution"),
    ),
    "crop": (
        lambda m, x: functional.pad(x, (-1, 0)),
        (f"pad {HERE} has pad=[-1, 0]; only borders of height and width, of 0 or more, are supported: for channels use "
        "torch.cat, or a 1x1 convolution"),
    ),
    "border_between_codes": (
        lambda m, x: m.plane(functional.pad(x, (1, 1), value=0.3)),
        (f"conv2d 'plane' (HERE) needs quantized inputs, but pad {HERE} puts a border of 0.3 around codes of the scale "
        "0.125, and no code has that value: the nearest values are 0.25 and 0.375; use value=0.25, or put a quantizer "
        "behind the padding"),
    ),
    "border_beyond_codes": (
        lambda m, x: functional.avg_pool2d(functional.pad(x, (1, 1), value=-64.0), 2),
        (f"avg_pool2d {HERE} needs quantized inputs, but pad {HERE} puts a border of -64.0 around codes of the scale "
        "0.125, and no code has that value: the nearest value is -4.0; use value=-4.0, or put a quantizer behind the "
        "padding"),
    ),
    "border_of_signs": (
        lambda m, x: m.line(functional.pad(m.sign(x).flatten(2), (0, 1), value=-0.3)),
        (f"conv1d 'line' (HERE) needs quantized inputs, but pad {HERE} puts a border of -0.3 around codes of the scale "
        "1.0, and no code has that value: the nearest values are 0.0 and -1.0; use value=0.0, or put a quantizer "
        "behind the padding"),
    ),
    "upsample_by_a_half": (
        lambda m, x: functional.interpolate(x, scale_factor=1.5),
        (f"upsample_nearest2d {HERE} makes [12, 12] of [8, 8]; only whole factors are supported, with which each "
        "element is repeated equally often"),
    ),
    "bilinear": (
        lambda m, x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        f"upsample_bilinear2d {HERE}: operator aten.upsample_bilinear2d.vec {REFUSED} use mode='nearest'",
    ),
    "cat_batch": (lambda m, x: torch.cat([x, x], 0)[:], f"cat {HERE} joins along the batch, got dim=0; use dim=1"),
    "cat_constant": (
        lambda m, x: torch.cat([x.flatten(1), m.weight[0].expand(x.shape[0], 5)], 1),
        (f"cat {HERE} joins the constant 'expand', which is not quantized, with codes; quantize it, such as by "
        "nnhw.nn.Int(8)(constant), and with the scale of the codes where it is concatenated with them"),
    ),
    "constant_of_the_batch": (
        lambda m, x: x.flatten(1) + m.weight[0, 0].expand(x.shape[0], 192).reshape(x.shape[0], 192),
        f"reshape {HERE}: a constant must not depend on the batch size",
    ),
    "transposed_batch": (
        lambda m, x: x.transpose(0, 1),
        f"transpose {HERE} moves the batch, which must stay the first axis; permute the other axes alone",
    ),
    "flipped": (
        lambda m, x: x.flip(2),
        (f"flip {HERE} reverses something else than the steps of a sequence that a loop runs over; use slices such as "
        "x[:, 1:4], chunk, split or torch.cat, or a 1x1 convolution"),
    ),
    "slice_nothing": (
        lambda m, x: torch.cat([x, x[:, 2:2]], 1),
        f"slice {HERE} takes nothing of 3 elements; give a range within them",
    ),
    "part_of_nothing": (
        lambda m, x: torch.cat([x, *x.split([1, 0, 2], 1)[1:]], 1),
        f"split_with_sizes {HERE} has a part without elements, which is read; the parts have [1, 0, 2]",
    ),
    "part_in_place": (
        lambda m, x: x.detach().chunk(3, 1)[0].mul_(2) + x[:, :1],
        f"mul {HERE} changes a tensor in place that is used elsewhere, too; use inplace=False",
    ),
    "slice_of_batch_size": (
        lambda m, x: x.flatten(1)[:, x.shape[0] :],
        f"slice {HERE} depends on the size of the batch; give fixed numbers",
    ),
    "chunk_batch": (
        lambda m, x: x[0].expand(x.shape[0], 3, 8, 8),
        f"select {HERE} takes parts of the batch; take them of other axes, with dim=1 or more",
    ),
    "constant_first": (
        lambda m, x: m.quant(m.weight).t() @ x,
        f"matmul {HERE} has its constant on the left; use x @ weight, with the constant on the right",
    ),
    "matmul_of_values": (
        lambda m, x: x @ m.other(x)[:, :1],
        (f"matmul {HERE} multiplies two computed values of the shapes [batch, 3, 8, 8] and [batch, 1, 8, 8]; it needs "
        "[batch, .., m, k] and [batch, .., k, n] with equal axes in front; bring them to that with reshape and "
        "transpose"),
    ),
    "matmul_of_floats": (
        lambda m, x: x @ m.weight,
        (f"matmul {HERE} needs quantized weights, but they are float32; use nnhw.nn.QuantLinear, or put a quantizer "
        "behind the parameter"),
    ),
    "matmul_of_a_vector": (
        lambda m, x: x @ m.quant(m.weight[:, 0]),
        (f"matmul {HERE} needs constant weights [inputs, outputs], or such matrices for the axes between the batch and "
        "the last two of ['batch', 3, 8, 8], got [8]"),
    ),
    "matmul_that_adds_an_axis": (
        lambda m, x: x.flatten(1)[:, :] @ m.quant(m.weight.repeat(24, 1)[None]),
        (f"matmul {HERE} needs constant weights [inputs, outputs], or such matrices for the axes between the batch and "
        "the last two of ['batch', 192], got [1, 192, 5]"),
    ),
    "matmul_with_scales_of_inputs": (
        lambda m, x: x @ Int(4, axis=1)(m.weight.expand(3, 8, 5)),
        f"matmul {HERE} needs weights with one scale, or one per output; use axis=2 in their quantizer",
    ),
    "einsum_of_the_batch": (
        lambda m, x: torch.einsum("bchw,wo->ochb", x, m.quant(m.weight)),
        f"einsum {HERE} has 'bchw,wo->ochb'; the batch, here 'b', must stay the first axis",
    ),
    "einsum_of_one_operand": (
        lambda m, x: torch.einsum("bchw,wo->bho", x, m.quant(m.weight)),
        f"einsum {HERE} sums along 'c' of one operand alone; sum in front of it, or behind",
    ),
    "einsum_of_any_axes": (
        lambda m, x: torch.einsum("b...w,wo->b...o", x, m.quant(m.weight)),
        (f"einsum {HERE} has 'b...w,wo->b...o'; it needs two operands, each axis with a letter of its own and no "
        "'...', as in 'bri,io->bro'"),
    ),
    "einsum_of_one_with_many": (
        lambda m, x: torch.einsum("bchw,wo->bcho", x.amax(3, keepdim=True), m.quant(m.weight)),
        f"einsum {HERE} sums along 'w', which has 1 and 8 elements; expand it",
    ),
    "einsum_of_values": (
        lambda m, x: torch.einsum("bchw,bchw->cbh", x, m.other(x)),
        (f"einsum {HERE} has 'bchw,bchw->cbh'; the batch must be the first axis of both computed values and of the "
        "result, as in 'bhqd,bhkd->bhqk'"),
    ),
    "einsum_of_sizes": (
        lambda m, x: torch.einsum("bchw,bdhw->bcd", x, m.other(x)[:, :, :1]),
        f"einsum {HERE} multiplies along an axis of 8 and 1 elements; both computed values need the same number",
    ),
    "norm_of_other_codes": (
        lambda m, x: integer_norm(x, m.step / 2, 1e-5, 3, 10, True),
        (f"integer_norm {HERE} is told the scale 0.0625, but the codes that it reads have 0.125; give it the scale of "
        "the quantizer in front"),
    ),
    "softmax_of_floats": (
        lambda m, x: m.codes(integer_softmax(x + x.mT, m.step, None, 64, 3, 8, 255)),
        (f"integer_softmax {HERE} needs quantized inputs, but reads add {HERE}, which joins values and has no "
        "quantizer behind it; put one there, such as nnhw.nn.QuantIdentity(8, scale='observed')"),
    ),
    "stack_of_the_batch": (
        lambda m, x: torch.stack([x, x])[:],
        (f"slice {HERE} reads values that are stacked in front of the batch, such as the last states of several "
        "layers; take one of them, as in states[-1], or stack them along dim=1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_capture_rejects(name: str) -> None:
    function, expected = ERRORS[name]
    with pytest.raises(NnhwError) as caught:
        capture(trimmed(settled(Net(function)), images(2, (3, 8, 8))), images(2, (3, 8, 8)))
    first = str(caught.value).splitlines()
    said = first[1].removeprefix("  1. ") if len(first) > 1 else first[0]
    # The place is in the model's `forward`, or in the function that it calls.
    message = re.sub(r"(test_operator_errors|examples)\.py:\d+", "HERE", said)
    assert message == expected


def test_capture_lists_refused_operators_together() -> None:
    def forward(m: Net, x: torch.Tensor) -> torch.Tensor:
        wide = functional.pad(x, (1, 1, 1, 1), mode="circular")
        return wide.amax((2, 3)) + functional.max_pool2d(x, 3, dilation=2).amax((2, 3))

    with pytest.raises(NnhwError) as caught:
        capture(settled(Net(forward)), images(2, (3, 8, 8)))
    assert re.sub(r"test_oper\w+\.py:\d+", "HERE", str(caught.value)) == (
        f"2 problems:\n  1. pad {HERE} has mode='circular'; {ZEROS}\n  2. max_pool2d {HERE} {DILATED}"
    )


def test_capture_rejects_padding_between_scales() -> None:
    codes = Int(6, torch.arange(1.0, 9.0).tolist(), axis=3)
    with pytest.raises(NnhwError, match=re.escape("needs codes with one scale per channel, got scales [1, 1, 8]")):
        capture(settled(Net(lambda m, x: functional.max_pool2d(x, 2), codes)), images(2, (3, 8, 8)))


def test_remedies_are_for_operators_that_are_not_supported() -> None:
    supported = {operator for operator in HANDLERS if operator.endswith(".default")}
    assert not {f"aten.{name}.default" for name in REMEDIES} & supported
