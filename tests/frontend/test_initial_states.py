"""States that a model gives its recurrent layers to begin with, in the forms in which models make them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Variable

import nnhw
from nnhw.errors import NnhwError
from nnhw.frontend import capture
from nnhw.ir.ops import Scan
from nnhw.nn import Int, QuantGRU, QuantLinear, QuantLSTM

LAYERS, FEATURES, UNITS = 2, 3, 4
Start = Callable[["Network", Tensor], Tensor]

ZEROS: dict[str, Start] = {
    "zeros": lambda net, x: torch.zeros(LAYERS, x.size(0), UNITS),
    "zeros with a dtype": lambda net, x: torch.zeros((LAYERS, x.shape[0], UNITS), dtype=x.dtype, device=x.device),
    "zeros on a device": lambda net, x: torch.zeros(LAYERS, x.size(0), UNITS).to(x.device),
    "zeros with gradients": lambda net, x: torch.zeros(LAYERS, x.size(0), UNITS).requires_grad_(),
    "zeros in a Variable": lambda net, x: Variable(torch.zeros(LAYERS, x.size(0), UNITS)),
    "new_zeros": lambda net, x: x.new_zeros(LAYERS, x.size(0), UNITS),
    "zeros as another type": lambda net, x: torch.zeros(LAYERS, x.size(0), UNITS).type_as(x),
    "zeros_like": lambda net, x: torch.zeros_like(net.start.expand(LAYERS, x.size(0), UNITS)),
    "zeros that are stacked": lambda net, x: torch.stack([torch.zeros(x.size(0), UNITS)] * LAYERS),
    "zeros that are repeated": lambda net, x: x.new_zeros(x.size(0), UNITS).unsqueeze(0).repeat(LAYERS, 1, 1),
}
NUMBERS: dict[str, Start] = {
    "parameter that is expanded": lambda net, x: net.start.expand(-1, x.size(0), -1).contiguous(),
    "parameter that is repeated": lambda net, x: net.start.repeat(1, x.size(0), 1),
    "function of a parameter": lambda net, x: torch.tanh(net.start).expand(LAYERS, x.shape[0], UNITS),
    "one number": lambda net, x: torch.ones(LAYERS, x.size(0), UNITS) * 0.25,
}


class Network(nn.Module):
    """A recurrent layer that begins with states of the model's own, in front of a linear layer."""

    def __init__(self, kind: type[nn.Module], start: Start | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = kind(FEATURES, UNITS, num_layers=LAYERS, batch_first=True)
        self.last = nn.Linear(UNITS, 2)
        self.start = nn.Parameter(torch.randn(LAYERS, 1, UNITS) / 4)
        self.given = start

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, features] --> [batch, 2]."""
        if self.given is None:
            states = None
        elif isinstance(self.rnn, nn.LSTM):
            states = self.given(self, x), self.given(self, x)
        else:
            states = self.given(self, x)
        result: Tensor = self.last(self.rnn(x, states)[0][:, -1])
        return result


def data() -> Tensor:
    return torch.randn(32, 5, FEATURES, generator=torch.Generator().manual_seed(1))


def starts_of(model: nn.Module) -> list[list[int]]:
    """Return the codes that the states of all loops begin with."""
    graph = capture(model, data()[:4])
    loops = [node for node in graph.nodes if isinstance(node.op, Scan)]
    return [graph.constants[name].reshape(-1).tolist() for loop in loops for name in loop.inputs[1:]]


@pytest.mark.parametrize("form", ZEROS)
def test_zeros_are_what_a_layer_begins_with_anyway(form: str) -> None:
    given, plain = (nnhw.quantize(Network(nn.RNN, start).eval(), data()) for start in (ZEROS[form], None))
    assert starts_of(given) == [[0] * UNITS] * LAYERS
    assert torch.equal(given(data()), plain(data()))


def test_zeros_start_both_states_of_an_lstm() -> None:
    assert starts_of(nnhw.quantize(Network(nn.LSTM, ZEROS["zeros"]).eval(), data())) == [[0] * UNITS] * 2 * LAYERS


@pytest.mark.parametrize("form", NUMBERS)
def test_learned_states_become_codes_of_the_state(form: str) -> None:
    model = Network(nn.GRU, NUMBERS[form]).eval()
    codes = (NUMBERS[form](model, data()[:1]) * 128).round().int().reshape(LAYERS, UNITS).tolist()
    quantized = nnhw.quantize(model, data())
    assert starts_of(quantized) == codes
    assert any(code for row in codes for code in row)


class Own(nn.Module):
    """nnhw's own layer, which begins with new_zeros, or with a state of the data."""

    def __init__(self, start: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codes, self.given = Int(8, scale=2.0**-5), start
        self.gru = QuantGRU(FEATURES, UNITS, batch_first=True)
        self.last = QuantLinear(UNITS, 2, weight_quant=Int(8))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, features] --> [batch, 2]."""
        x = self.codes(x)
        result: Tensor = self.last(self.gru(x, self.given(x))[0][:, -1])
        return result


def observed(model: nn.Module) -> nn.Module:
    model(data())
    return model.eval()


def test_own_layers_begin_with_zeros_of_the_model() -> None:
    model = observed(Own(lambda x: x.new_zeros(1, x.shape[0], UNITS)))
    assert starts_of(model) == [[0] * UNITS]


def test_own_layers_learn_what_they_begin_with() -> None:
    layer = QuantLSTM(FEATURES, UNITS)
    states = [nn.Parameter(torch.randn(1, 1, UNITS) / 4) for _ in range(2)]
    layer(data().transpose(0, 1), [state.expand(1, 32, UNITS) for state in states])[0].square().sum().backward()
    assert all(state.grad is not None and state.grad.any() for state in states)


def test_state_that_differs_from_image_to_image_is_refused() -> None:
    model = observed(Own(lambda x: torch.arange(x.shape[0], dtype=x.dtype).reshape(1, -1, 1).expand(1, -1, UNITS)))
    with pytest.raises(NnhwError, match=r"arange of the model .*: a constant must not depend on the batch size"):
        capture(model, data()[:4])


def test_random_state_is_refused() -> None:
    model = observed(Own(lambda x: torch.randn(1, x.shape[0], UNITS)))
    with pytest.raises(NnhwError, match=r"aten.randn.default gives random numbers; a model must not depend on them"):
        capture(model, data()[:4])
