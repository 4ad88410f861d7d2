"""Recurrent layers in eager mode: torch's own where quantizers are fine enough, gradients, and wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from nnhw.errors import InputError
from nnhw.nn import Int, QuantGRU, QuantLSTM, QuantRNN
from nnhw.nn.quantizers import Quantizer

PAIRS = [(QuantRNN, nn.RNN), (QuantGRU, nn.GRU), (QuantLSTM, nn.LSTM)]
FINE = 2.0**-18


def fine(least: int = -8) -> Quantizer:
    """Return a quantizer that changes a number by 2**-19 at most."""
    return Quantizer(int(least / FINE), int(-least / FINE), FINE)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False}])
@pytest.mark.parametrize(("kind", "float_kind"), PAIRS)
def test_layer_with_fine_quantizers_is_torchs(
    kind: Callable[..., Any], float_kind: Callable[..., Any], options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    layer = kind(3, 5, **options).double()
    for name, module in layer.named_children():
        assert isinstance(module, Quantizer)
        setattr(layer, name, fine().double())
    plain = float_kind(3, 5, **options).double()
    plain.load_state_dict({name: value for name, value in layer.state_dict().items() if name in plain.state_dict()})
    images = torch.randn(4, 6, 3, dtype=torch.float64)
    (own, own_last), (theirs, last) = layer(images), plain(images)
    assert (own - theirs).abs().max() < 2e-4
    pairs = zip(own_last, last, strict=True) if kind is QuantLSTM else [(own_last, last)]
    assert all(a.shape == b.shape and (a - b).abs().max() < 2e-4 for a, b in pairs)


@pytest.mark.parametrize("kind", [QuantRNN, QuantGRU, QuantLSTM])
def test_layer_learns_all_its_parameters(kind: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    layer = kind(3, 5, num_layers=2)
    layer(torch.randn(7, 4, 3))[0].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in layer.parameters())


def test_layer_goes_on_from_given_states() -> None:
    torch.manual_seed(0)
    layer, images = QuantLSTM(3, 5, batch_first=True).eval(), torch.randn(4, 9, 3)
    whole = layer(images)[0]
    first, states = layer(images[:, :4])
    assert torch.equal(torch.cat([first, layer(images[:, 4:], states)[0]], 1), whole)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: QuantLSTM(3, 5, proj_size=2),
            "QuantLSTM has no projection; leave proj_size out, and use a linear layer",
        ),
        (lambda: QuantRNN(3, 5, nonlinearity="sin"), "QuantRNN needs the nonlinearity 'tanh' or 'relu', got 'sin'"),
        (
            lambda: QuantGRU(3, 5, gate_quant=Int(8)),
            "QuantGRU needs the scale of gate_quant to be a number or 'observed', got 'max_abs'",
        ),
        (
            lambda: QuantRNN(3, 5, state_quant=nn.Tanh()),
            "QuantRNN needs state_quant to be a quantizer such as Int(8), got Tanh()",
        ),
        (
            lambda: QuantRNN(3, 5, batch_first=True)(torch.zeros(2, 4, 4)),
            (
                "QuantRNN needs an input of shape [batch, steps, 3], got [2, 4, 4]; give a batch of sequences, also "
                "for one"
            ),
        ),
        (lambda: QuantRNN(3, 5)(torch.zeros(0, 4, 3)), "QuantRNN needs sequences of one step or more, got [0, 4, 3]"),
        (
            lambda: QuantLSTM(3, 5)(torch.zeros(2, 4, 3), torch.zeros(1, 4, 5)),
            "QuantLSTM needs a pair of states of shape [1, 4, 5], got [1, 4, 5]",
        ),
        (
            lambda: QuantRNN(3, 5)(torch.zeros(2, 4, 3), torch.zeros(1, 3, 5)),
            "QuantRNN needs a state of shape [1, 4, 5], got [1, 3, 5]",
        ),
    ],
)
def test_layer_rejects_wrong_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
