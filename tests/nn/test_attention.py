"""Attention: PyTorch's modules opened and quantized, integer softmax and normalization in training, and refusals."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.errors import InputError, NnhwError
from nnhw.frontend import capture
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax, MatrixProduct, Permute
from nnhw.mapping.layers import MatrixProductLayer, TransposeLayer
from nnhw.mapping.reader import read_layers
from nnhw.nn import Int, QuantIdentity, QuantLayerNorm, QuantLinear, QuantRMSNorm, QuantSoftmax, UInt
from nnhw.nn.attention import with_open_attention
from nnhw.nn.integers import integer_epsilon, integer_norm, integer_softmax, power_table
from nnhw.passes import lower, split

Forward = Callable[["Function", Tensor], Tensor]
ROWS, FEATURES = 6, 8


class Function(nn.Module):
    """A function with the parts of an attention."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = forward
        self.attention = nn.MultiheadAttention(FEATURES, 2, batch_first=True)
        self.across = nn.MultiheadAttention(FEATURES, 2, batch_first=True, kdim=3, vdim=5, bias=False)
        self.linear, self.norm, self.rms = (
            nn.Linear(FEATURES, 3 * FEATURES),
            nn.LayerNorm(FEATURES),
            nn.RMSNorm(FEATURES),
        )
        self.token, self.positions = (
            nn.Parameter(torch.randn(1, 1, FEATURES)),
            nn.Parameter(torch.randn(ROWS, FEATURES)),
        )
        self.register_buffer("mask", torch.ones(ROWS, ROWS).triu(1).bool())
        for norm in (self.norm, self.rms):
            nn.init.normal_(norm.weight, 1, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def attended(m: Function, x: Tensor) -> Tensor:
    """Attention written out, with scaled_dot_product_attention."""
    q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in m.linear(x).chunk(3, -1))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


FORMS: dict[str, Forward] = {
    "attention": lambda m, x: m.attention(x, x, x, need_weights=False)[0],
    "masked": lambda m, x: m.attention(x, x, x, attn_mask=m.mask)[0],
    "float_mask": lambda m, x: m.attention(x, x, x, attn_mask=m.mask.float().masked_fill(m.mask, -torch.inf))[0],
    "across": lambda m, x: m.across(x, x[:, :4, :3], x[:, :4, 1:6])[0],
    "scaled_dot_product": attended,
    "written_out": lambda m, x: torch.softmax(x @ x.transpose(-1, -2) * 0.3, -1) @ x,
    "einsum": lambda m, x: torch.einsum("bqk,bkd->bqd", torch.einsum("bqd,bkd->bqk", x, x).softmax(2), x),
    "bmm": lambda m, x: torch.bmm(functional.softmax(torch.bmm(x, x.mT) / 3, dim=-1), x),
    "norms": lambda m, x: m.linear(m.norm(x) + m.rms(x)),
    "functional_norms": lambda m, x: m.linear(
        functional.layer_norm(x, (FEATURES,), m.norm.weight, m.norm.bias)
        + functional.rms_norm(x, (FEATURES,), m.rms.weight)
    ),
    "tokens": lambda m, x: m.linear(torch.cat([m.token.expand(x.shape[0], -1, -1), x + m.positions], 1)),
}
LAYERS = {
    f"{'first' if first else 'last'}_{activation}_{dropout}": nn.TransformerEncoderLayer(
        FEATURES, 2, 16, dropout, activation, batch_first=True, norm_first=first
    )
    for first, activation, dropout in (
        (True, "relu", 0.0),
        (True, "gelu", 0.1),
        (False, "relu", 0.1),
        (False, "gelu", 0.0),
    )
}


def batch(count: int = 32) -> Tensor:
    """Return rows [N, 6, 8]."""
    return torch.randn(count, ROWS, FEATURES, generator=torch.Generator().manual_seed(1))


def check_quantized(model: nn.Module, x: Tensor, error: float) -> None:
    """Quantize a model; compare its result with the float one, and PyTorch with the graph by ==."""
    quantized = nnhw.quantize(model.eval(), [x])
    with torch.no_grad():
        exact, near = model(x), quantized(x)
    assert float((near - exact).norm() / exact.norm()) < error
    captured = capture_quantizers(quantized, x[:4])
    assert own_answers(quantized, captured, x.numpy()).ties["float64"] == 0
    parts = split(lower(captured.graph))
    np.testing.assert_array_equal(parts.run(x.numpy())[0], run(captured.graph, x.numpy())[0])


@pytest.mark.parametrize("name", FORMS)
def test_quantized_attention_is_near_float_and_exact_in_integers(name: str) -> None:
    check_quantized(Function(FORMS[name]), batch(), 0.03)


@pytest.mark.parametrize("name", LAYERS)
def test_quantized_encoder_layer_is_near_float_and_exact_in_integers(name: str) -> None:
    check_quantized(LAYERS[name], batch(), 0.05)


BEFORE_NORMS: dict[str, Callable[[], dict[str, nn.Module]]] = {
    # The first has the name that the quantizer of the second would have.
    "quantizers_name": lambda: {"linear_quant": nn.Linear(FEATURES, FEATURES), "linear": nn.Linear(FEATURES, FEATURES)},
    "layer_of_such_a_name": lambda: {"linear": nn.Linear(FEATURES, FEATURES), "act_quant": nn.ReLU()},
    "moves": lambda: {
        "linear": nn.Linear(FEATURES, FEATURES),
        "flat": nn.Flatten(),
        "back": nn.Unflatten(1, (ROWS, -1)),
    },
    "norm": lambda: {"linear": nn.Linear(FEATURES, FEATURES), "first": nn.LayerNorm(FEATURES)},
    "softmax": lambda: {"linear": nn.Linear(FEATURES, FEATURES), "first": nn.Softmax(-1)},
}


@pytest.mark.parametrize("name", BEFORE_NORMS)
def test_quantized_norm_is_exact_behind_any_layer(name: str) -> None:
    torch.manual_seed(2)
    layers = OrderedDict(BEFORE_NORMS[name]())
    layers |= {"norm": nn.LayerNorm(FEATURES), "last": nn.Linear(FEATURES, 4)}
    check_quantized(nn.Sequential(layers), batch(), 0.1)


def test_opened_modules_compute_what_pytorch_does() -> None:
    x, mask = batch(), torch.ones(ROWS, ROWS).triu(1).bool()
    for name, layer in LAYERS.items():
        model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(FEATURES), enable_nested_tensor=False).eval()
        with torch.no_grad():
            expected = model(x, mask=mask)
            result = with_open_attention(nn.Sequential(model))[0](x, mask=mask)  # type: ignore[index]
        assert torch.allclose(result, expected, atol=1e-5), name


def test_encoder_layer_is_mapped_without_permutations() -> None:
    quantized = nnhw.quantize(LAYERS["first_relu_0.0"].eval(), [batch()])
    body = split(lower(capture(quantized, batch(4)))).body
    kinds = [type(node.op) for node in body.nodes]
    assert (kinds.count(MatrixProduct), kinds.count(IntegerSoftmax), kinds.count(IntegerNorm)) == (2, 1, 2)
    assert kinds.count(Permute) == 2  # around the softmax, whose neighbours read and give any order
    layers = [type(layer) for layer in read_layers(body)]
    assert layers.count(MatrixProductLayer) == 2
    assert TransposeLayer not in layers


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "order": (nn.MultiheadAttention(8, 2), "has batch_first=False, and the batch is the first axis; make it with"),
    "bias": (
        nn.MultiheadAttention(8, 2, add_bias_kv=True, batch_first=True),
        "has add_bias_kv or add_zero_attn, which",
    ),
    "padding": (
        Function(lambda m, x: m.attention(x, x, x, key_padding_mask=x[:, :, 0] > 0)[0]),
        "layer 'attention' is given key_padding_mask, which differs from image to image; quantize a model for",
    ),
    "hint": (
        Function(lambda m, x: m.attention(x, x, x, is_causal=True)[0]),
        "layer 'attention' is given is_causal=True without a mask; give the causal mask, such as that of nn.Trans",
    ),
    "numbers": (
        Function(lambda m, x: m.attention(x, x, x, attn_mask=m.mask.float())[0]),
        "a mask of attention needs 0 and minus infinity, or booleans, got other numbers",
    ),
    "groups": (nn.Sequential(nn.LayerNorm([6, 8]), nn.Linear(8, 2)), "needs one axis, the last one, got normalized_"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_quantize_rejects_attention(name: str) -> None:
    model, message = REFUSED[name]
    with pytest.raises(NnhwError, match=re.escape(message)):
        nnhw.quantize(model.eval(), [batch()])


def test_integer_softmax_rejects_other_numbers_than_codes() -> None:
    with pytest.raises(
        InputError, match=r"^integer_softmax needs codes times the scale 0.5, got other numbers, or NaN"
    ):
        integer_softmax(torch.tensor([[0.3]]), torch.tensor([0.5]), None, 256, 1, 8, 255)
    with pytest.raises(InputError, match=r"^integer_norm needs codes with one scale, got 2 scales"):
        integer_norm(torch.zeros(1, 2), torch.ones(2), 1e-5, 1, 10, True)
    with pytest.raises(InputError, match=r"^QuantSoftmax works along the batch, got dim=0; use dim=1 or dim=-1$"):
        QuantSoftmax(0)(torch.zeros(2, 3))
    with pytest.raises(InputError, match=r"^QuantSoftmax needs input_quant to be a quantizer with one scale"):
        QuantSoftmax(input_quant=Int(8))


def test_capture_rejects_what_float_attention_does() -> None:
    codes, linear = QuantIdentity(8, 2**-4), QuantLinear(8, 2)

    def message(function: Callable[[Tensor], Tensor]) -> str:
        with pytest.raises(NnhwError) as caught:
            capture(Function(lambda m, x: linear(function(codes(x)))).eval(), batch(2))
        return str(caught.value)

    assert "use nnhw.nn.QuantLayerNorm, which computes with integers" in message(
        lambda x: functional.layer_norm(x, (8,))
    )
    said = message(lambda x: functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0])
    assert "use nnhw.nn.QuantSoftmax between two products" in said
    assert "needs quantized inputs, but there is no quantizer in front" in message(lambda x: (x * x + 1) @ x.mT @ x)
    assert "with equal axes in front; bring them to that" in message(lambda x: x.mT[:, None] @ torch.stack([x, x], 1))


@pytest.mark.parametrize("scale", [2**-3, 0.037])
def test_integer_softmax_in_pytorch_equals_the_ir(scale: float) -> None:
    generator, step = torch.Generator().manual_seed(0), torch.tensor([scale])
    codes = torch.randint(-128, 128, (4, 3, 5, 40), generator=generator)
    keep = torch.ones(5, 40).tril(30)
    table = power_table(step, 256).numpy()
    for dtype in (torch.float32, torch.float64):
        x = codes.to(dtype) * step.to(dtype)
        for kept in (None, keep):
            shares = integer_softmax(x, step.to(dtype), kept, 256, 3, 8, 255)
            own = np.array(1) if kept is None else kept.numpy().astype(np.int64)
            expected = IntegerSoftmax(2, 8).evaluate(codes.numpy(), table, own)
            np.testing.assert_array_equal((shares * 256).numpy(), expected)


@pytest.mark.parametrize("centered", [True, False])
def test_integer_norm_in_pytorch_equals_the_ir(centered: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    for most, count, scale in ((1, 3, 0.5), (127, 64, 0.037), (32767, 1000, 2**-10), (2**20, 2000, 2**-16)):
        codes = torch.randint(-most, most + 1, (6, 2, count), generator=generator)
        codes[0] = most
        step = torch.tensor([scale], dtype=torch.float64)
        result = integer_norm(codes * step, step, 1e-5, 2, 10, centered)
        op = IntegerNorm(1, integer_epsilon(step, 1e-5, count), 10, centered)
        np.testing.assert_array_equal((result * 1024).numpy(), op.evaluate(codes.numpy()))


@pytest.mark.parametrize(
    "layer", [QuantLayerNorm(16), QuantRMSNorm(16), QuantSoftmax()], ids=lambda m: type(m).__name__
)
def test_gradients_are_next_to_those_of_floats(layer: nn.Module) -> None:
    torch.manual_seed(0)
    x = (torch.randn(4, 5, 16) * 2).requires_grad_()
    weights = torch.randn(4, 5, 16)
    exact: Tensor
    if isinstance(layer, QuantSoftmax):
        exact = x.softmax(-1)
    else:
        exact = functional.layer_norm(x, (16,)) if isinstance(layer, nn.LayerNorm) else functional.rms_norm(x, (16,))
    (wanted,) = torch.autograd.grad((exact * weights).sum(), x)
    (given,) = torch.autograd.grad((layer.train()(x) * weights).sum(), x)
    assert float((given - wanted).norm() / wanted.norm()) < 0.05


def test_quant_modules_train() -> None:
    torch.manual_seed(0)
    parts = [
        QuantIdentity(8, "observed"),
        QuantLinear(8, 8, weight_quant=Int(8)),
        QuantLayerNorm(8),
        QuantLinear(8, 4, weight_quant=Int(8)),
    ]
    model = nn.Sequential(*parts[:3], UInt(8, 2**-5), parts[3], QuantSoftmax(keep=torch.tensor([1, 1, 0, 1])))
    x, wanted = torch.randn(64, 3, 8), torch.randint(0, 2, (64, 3))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    for _ in range(60):
        shares = model.train()(x)
        loss = -(shares.gather(-1, wanted[..., None]) + 1e-3).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.9
    assert model(x)[..., 2].max().item() == 0.0
