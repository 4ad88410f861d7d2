"""Operators that are not supported are called what users call them, with their place and a remedy that is true."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.errors import InputError, IrError, NnhwError
from nnhw.frontend import capture
from nnhw.frontend.after_training import quantize
from nnhw.frontend.reference import reference
from nnhw.ir import run
from nnhw.nn import Int, QuantConv1d, QuantLinear, UInt
from nnhw.nn.remedies import spelled
from nnhw.passes import lower

HERE = re.compile(r"test_refusals\.py:\d+")
INTS, FLOATS = "converts to torch.int8; only float32 and float64 are supported;", "x - 2**n * torch.floor(x / 2**n)"
CONDITION = "use torch.where with a comparison such as x > 0, torch.maximum, torch.minimum, clamp or relu"
BITS = f"no engine computes with single bits; the n lowest bits are {FLOATS}, in floats"
SHIFT = "use torch.floor(x / 2**n), in floats"
WRITES = (
    "no part of a tensor can be written; join parts with torch.cat, or multiply by a constant of ones and zeros for "
    "each channel or feature"
)
ORDER = "no engine puts values in order; let the model return them, and do it with the results"
AFTERWARDS = "no engine computes it; let the model return the values that it needs, and do it with the results"
COMPLEX = "complex numbers have no codes; compute with real numbers, in two branches"
RANDOM = "its results are random, but the same image must have the same result; leave it out of the model"
PARTS = "use slices such as x[:, 1:4], chunk, split or torch.cat, or a 1x1 convolution"


class Net(nn.Module):
    """A function between the sums of a linear layer and a quantizer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.input = UInt(8, scale=1.0)
        self.fc = QuantLinear(8, 12, weight_quant=Int(4, 0.5), bias=False)
        self.output = Int(8, scale=1.0)
        self.function = function
        self.fc.weight.data = torch.arange(96.0).remainder(15).sub(7).reshape(12, 8) / 2

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.function(self.fc(self.input(x))))  # type: ignore[no-any-return]


def ints(x: Tensor) -> Tensor:
    return x.to(torch.int32)


def parts_written(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 0] = 0.0
    return x


def rows_written(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, torch.tensor([0, 3])] = 0.0
    return x


def in_less_precision(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ torch.ones(12, 3)


# Of each: the function, what the user calls it, the operator of ATen, and what to do.
REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], str, str, str]] = {
    "right_shift": (lambda x: ints(x) >> 4, "'>>'", "aten.__rshift__.Scalar", SHIFT),
    "left_shift": (lambda x: ints(x) << 4, "'<<'", "aten.__lshift__.Scalar", "use x * 2**n, in floats"),
    "shift_in_place": (lambda x: ints(x).__irshift__(4), "'>>='", "aten.__irshift__.Scalar", SHIFT),
    "shift_function": (
        lambda x: torch.bitwise_right_shift(ints(x), 4),
        "bitwise_right_shift", "aten.bitwise_right_shift.Tensor_Scalar", SHIFT,
    ),
    "and": (lambda x: ints(x) & 255, "'&'", "aten.__and__.Scalar", BITS),
    "or": (lambda x: ints(x) | 255, "'|'", "aten.__or__.Scalar", BITS),
    "xor": (lambda x: ints(x) ^ 255, "'^'", "aten.__xor__.Scalar", BITS),
    "floor_divide": (lambda x: x // 16, "'//'", "aten.floor_divide.default", "use torch.floor(x / y)"),
    "remainder": (lambda x: x % 16, "'%'", "aten.remainder.Scalar", "use x - y * torch.floor(x / y)"),
    "remainder_of_integers": (
        lambda x: ints(x) % 16, "'%'", "aten.remainder.Scalar", "use x - y * torch.floor(x / y)"
    ),
    "fmod": (lambda x: torch.fmod(x, 16), "fmod", "aten.fmod.Scalar", "use x - y * torch.trunc(x / y)"),
    "rounded_division": (
        lambda x: torch.div(x, 16, rounding_mode="floor"),
        "div", "aten.div.Tensor_mode", "use torch.floor(x / y) or torch.trunc(x / y), in two steps",
    ),
    "any": (lambda x: (x > 0).any(1, keepdim=True) * x, "any", "aten.any.dim", CONDITION),
    "written_part": (parts_written, "x[..] = y", "aten.fill.Tensor", WRITES),
    "written_rows": (rows_written, "x[..] = y", "aten.index_put.default", WRITES),
    "index": (lambda x: x[:, [0, 2]], "index", "aten.index.Tensor", PARTS),
    "sort": (lambda x: x.sort(1)[0], "sort", "aten.sort.default", ORDER),
    "topk": (lambda x: x.topk(3, 1)[0], "topk", "aten.topk.default", ORDER),
    "unique": (lambda x: torch.unique(x), "unique", "aten._unique2.default", ORDER),
    "cumsum": (
        lambda x: x.cumsum(1),
        "cumsum", "aten.cumsum.default", "use nnhw.nn.QuantLinear whose weights are a constant triangle of ones",
    ),
    "norm": (
        lambda x: x.norm(dim=1, keepdim=True),
        "torch.linalg.vector_norm", "aten.linalg_vector_norm.default", AFTERWARDS,
    ),
    "fft": (lambda x: torch.fft.rfft(x).abs(), "torch.fft.rfft", "aten.fft_rfft.default", AFTERWARDS),
    "complex": (lambda x: torch.complex(x, x).abs(), "complex", "aten.complex.default", COMPLEX),
    "noise": (lambda x: x + torch.rand_like(x), "rand_like", "aten.rand_like.default", RANDOM),
    "bernoulli": (lambda x: torch.bernoulli(x.sigmoid()), "bernoulli", "aten.bernoulli.default", RANDOM),
    "noise_in_place": (lambda x: x.normal_(), "normal", "aten.normal.default", RANDOM),
    "integer_matmul": (
        lambda x: torch._int_mm(x.to(torch.int8), torch.ones(12, 8, dtype=torch.int8)),
        "_int_mm", "aten._int_mm.default",
        "use torch.matmul or nnhw.nn.QuantLinear with constant weights, and add the bias behind",
    ),
    "result_given": (
        lambda x: torch.add(x, x, out=torch.empty_like(x)),
        "add", "aten.add.out", "leave out=.. away, and use the result",
    ),
    "like": (
        lambda x: x + torch.empty_like(x),
        "empty_like", "aten.empty_like.default", "use a number, or a constant that the model holds",
    ),
    "number": (
        lambda x: x * x.sum().item(),
        "item", "aten.item.default", "no number may be read out of a tensor; keep it a tensor",
    ),
    "size": (
        lambda x: x * x.numel(),
        "mul", "_operator.mul", "compute sizes from x.shape[0] alone, and keep the other sizes fixed",
    ),
    "windows": (
        lambda x: functional.unfold(x.view(-1, 1, 3, 4), 2),
        "unfold", "aten.im2col.default", "use nnhw.nn.QuantConv2d, or QuantConv1d, whose kernels are such windows",
    ),
    "autocast": (
        in_less_precision,
        "torch.autocast", "torch.ops.higher_order.wrap_with_autocast",
        "it computes in less precision, in which every step rounds; leave it out of forward",
    ),
    "branches": (
        lambda x: torch.cond(x.amax() > 0, lambda y: y + 1, lambda y: y - 1, (x,)),
        "cond", "torch.ops.higher_order.cond", CONDITION,
    ),
    "each_image": (
        lambda x: torch.vmap(lambda row: row * 2)(x),
        "torch.vmap", "torch._functorch.predispatch._add_batch_dim",
        "leave it out: layers take a batch of images as it is",
    ),
}  # fmt: skip


def problems_of(model: nn.Module, example: Tensor | None = None) -> list[str]:
    with pytest.raises(NnhwError) as caught:
        capture(model.eval(), torch.rand(2, 8) if example is None else example)
    lines = HERE.sub("HERE", str(caught.value)).splitlines()
    return [re.sub(r"^  \d+\. ", "", line) for line in (lines[1:] or lines)]


@pytest.mark.parametrize("name", REFUSED)
def test_capture_calls_an_operator_what_its_user_does(name: str) -> None:
    function, called, operator, remedy = REFUSED[name]
    problems = problems_of(Net(lambda x: function(x).float()))
    assert f"{called} of the model (HERE): operator {operator} is not supported; {remedy}" in problems
    assert not [problem for problem in problems if "changes a tensor in place" in problem]


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "right_shift": lambda x: torch.floor(x / 2**4),
    "left_shift": lambda x: x * 2**4,
    "low_bits": lambda x: x - 2**4 * torch.floor(x / 2**4),
    "invert": lambda x: -x - 1,
    "truncated": lambda x: x - 16 * torch.trunc(x / 16),
    "frac": lambda x: x - torch.trunc(x),
    "rsqrt": lambda x: 1 / torch.sqrt(torch.relu(x) + 1),
    "expm1": lambda x: torch.exp(x / 1024) - 1,
    "written_part": lambda x: x * torch.tensor([0.0, 1.0] * 6),
    "index": lambda x: torch.cat([x[:, 0:1], x[:, 2:3]], 1),
    "repeat": lambda x: torch.cat([x, x], 1),
    "no_gradients": lambda x: in_no_gradient(x),
    "conditions": lambda x: (x > 0) * x + (x == 12) * 3.0 - torch.where(x < -20, x, 0.0),
    "masked_in_place": lambda x: x.masked_fill_(torch.arange(12) % 3 == 0, 0.0),
}


def in_no_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2


@pytest.mark.parametrize("name", RIGHT)
def test_capture_and_lowering_take_what_a_remedy_names(name: str) -> None:
    model = Net(RIGHT[name]).eval()
    images = torch.arange(0.0, 256, 2).reshape(16, 8).repeat(2, 1)
    graph = capture(model, images)
    with torch.no_grad():
        expected = model.double()(images.double()).numpy()
    assert (run(lower(graph), images.double().numpy())[0] == expected).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: x.clamp(1.0, -1.0),
            (
                "clamp of the model (HERE) has the bounds 1.0 and -1.0; the first must not be above the second: "
                "exchange them"
            ),
        ),
        (
            lambda x: x.to(torch.int8).float(),
            (
                "to of the model (HERE) converts to torch.int8; only float32 and float64 are supported; use "
                "torch.trunc, torch.floor or torch.round, without it"
            ),
        ),
        (
            lambda x: x.bool().float(),
            (
                "to of the model (HERE) converts to torch.bool; only float32 and float64 are supported; use "
                "a comparison, such as x != 0"
            ),
        ),
        (
            lambda x: x * x.shape[0],
            (
                "the size of the batch is computed with at of the model (HERE), but an image's result must not depend "
                "on how many images come with it; use a constant"
            ),
        ),
        (
            lambda x: x + torch.empty(12),
            "empty of the model (HERE) makes a tensor of numbers that nobody has set; use torch.zeros or torch.full",
        ),
    ],
)
def test_capture_rejects(function: Callable[[Tensor], Tensor], message: str) -> None:
    assert problems_of(Net(function)) == [message]


def test_capture_rejects_a_variance_of_zero() -> None:
    norm = nn.BatchNorm1d(3, eps=0.0)
    assert norm.running_var is not None
    norm.running_var[1:] = 0.0
    model = nn.Sequential(Int(4, 0.25), QuantLinear(5, 3), norm, Int(4, 0.25))
    (message,) = problems_of(model, torch.rand(2, 5))
    assert message == (
        "batch_norm '2' needs variances that are above 0 with eps=0.0 added, got 0 in channel 1, and others in 1 more; "
        "use eps=1e-5, or train again"
    )


@pytest.mark.parametrize(
    ("make", "shape"),
    [(lambda: QuantLinear(5, 0), [0, 5]), (lambda: QuantLinear(0, 5), [5, 0]),
     (lambda: QuantConv1d(5, 0, 3), [0, 5, 3]), (lambda: nn.Linear(5, 0), [0, 5])],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_models_with_layers_without_outputs_are_refused(make: Callable[[], nn.Module], shape: list[int]) -> None:
    model = nn.Sequential(Int(4, 0.25), make())
    message = (
        f"'1.weight' of the model has the shape {shape}, without a number; a layer needs one input and one output or "
        "more: correct its sizes, or leave it out"
    )
    assert problems_of(model, torch.rand(2, 5)) == [message]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_quantize_rejects_layers_without_outputs() -> None:
    with pytest.raises(
        InputError, match=r"^'0\.weight' of the model has the shape \[0, 5\], without a number; a layer"
    ):
        quantize(nn.Sequential(nn.Linear(5, 0)), torch.rand(4, 5))


def test_reference_names_what_makes_nan_of_sums() -> None:
    model = Net(torch.sqrt).eval()
    images = torch.tensor([[0.0] * 8, [0.0] * 8, [9.0] + [0.0] * 7])
    with pytest.raises(IrError) as caught:
        reference(model)(images)
    message = (
        "sqrt of the model (HERE) gives NaN in image 2, which has no code in quantize 'output' (HERE); no number below "
        "0 has a square root: put torch.relu in front, or take the root of a square"
    )
    assert HERE.sub("HERE", str(caught.value)) == message


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, whose sparse tensors may change
def test_reference_takes_sparse_images_and_those_of_few_bits() -> None:
    computed = reference(Net(torch.relu).eval())
    images = torch.arange(40.0).reshape(5, 8)
    for given in (images.bfloat16(), images.half(), images.to_sparse(), images.to_sparse_csr()):
        assert torch.equal(computed(given), computed(given.to_dense().float()))


@pytest.mark.parametrize(
    ("change", "kind"),
    [(lambda x: x.to(torch.complex64), "complex numbers"),
     (lambda x: x.to("meta"), "one on the device 'meta', without values"),
     (lambda x: torch.nested.nested_tensor([*x]), "a nested one"),
     (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "a quantized one")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_reference_rejects_images_without_real_numbers(change: Callable[[Tensor], Tensor], kind: str) -> None:
    computed = reference(Net(torch.relu).eval(), torch.ones(2, 8))
    with pytest.raises(InputError) as caught:
        computed(change(torch.ones(2, 8)))
    assert str(caught.value) == f"images need to be a plain tensor of real numbers, got {kind}; give float32"


def test_capture_rejects_a_sparse_example() -> None:
    (message,) = problems_of(Net(torch.relu), torch.ones(2, 8).to_sparse())
    assert message == (
        "example_input must be a plain tensor of real numbers, got a sparse one; give float32, with to_dense() if "
        "sparse"
    )


def test_quantize_calls_operators_of_python_what_its_user_does() -> None:
    model = Net(lambda x: x // 16 + x % 16)
    model.input, model.output, model.fc = nn.Identity(), nn.Identity(), nn.Linear(8, 12)  # type: ignore[assignment]
    with pytest.raises(NnhwError) as caught:
        quantize(model, torch.rand(4, 8))
    assert HERE.sub("HERE", str(caught.value)) == (
        "2 problems:\n"
        "  1. '//' of the model (HERE) has no quantized form; use torch.floor(x / y)\n"
        "  2. '%' of the model (HERE) has no quantized form; use x - y * torch.floor(x / y)"
    )


def test_spelled_leaves_other_names_alone() -> None:
    names = ("relu", "conv2d", "and_then", "__str__", "floor")
    assert [spelled(name) for name in names] == list(names)


def test_spelled_knows_every_tensor_operator_with_double_underscores() -> None:
    names = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::__")
        and schema.name.endswith("__")
        and str(schema.arguments[0].type) == "Tensor"
    }
    assert len(names) == 10
    assert {spelled(name) for name in names} == {
        f"'{sign}{end}'" for sign in (">>", "<<", "&", "|", "^") for end in ("", "=")
    }
