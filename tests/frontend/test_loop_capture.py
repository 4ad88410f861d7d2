"""Recurrent models, captured: equal to PyTorch by == for any number of steps, and what cannot be captured."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

import nnhw
from nnhw.errors import CaptureError, ExactnessError, InputError, NnhwError
from nnhw.export.c import make_c
from nnhw.flow.models import lowering
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import Graph, dumps, loads, one_step
from nnhw.ir.graph import with_body
from nnhw.nn import Int, QuantGRU, QuantLinear, QuantLSTM, QuantRNN
from nnhw.nn.tracing import eager_loops
from nnhw.passes import split
from nnhw.passes.order import PIPELINE, lower

STEPS = (1, 9, 10, 100, 9)
EXAMPLE = torch.linspace(-2, 2, 2 * 10 * 4).reshape(2, 10, 4)


class Net(nn.Module):
    """A recurrent layer between a quantizer and a linear layer, of the last step or of each."""

    def __init__(self, kind: Callable[..., Any], last: bool = True, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codes, self.rnn, self.last = Int(8, 2**-5), kind(4, 6, **options), last
        self.fc = QuantLinear(6 * (1 + self.rnn.bidirectional), 3, weight_quant=Int(8))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 3] or [batch, steps, 3]."""
        x = self.codes(x)
        y = self.rnn(x)[0] if self.rnn.batch_first else self.rnn(x.transpose(0, 1))[0].transpose(0, 1)
        return self.fc(y[:, -1] if self.last else y)


class Loop(nn.Module):
    """A loop of the user's own: torch's scan in eager mode, too."""

    def __init__(
        self, step: Callable[[Loop, Tensor, Tensor], tuple[Tensor, Tensor]], start: float | Tensor = 0.0
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.step, self.start = step, start
        self.codes, self.state = Int(8, 2**-5), Int(4, 2**-2)
        self.fc, self.back = (QuantLinear(4, 4, weight_quant=Int(4, 2**-3)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 4]."""
        x = self.codes(x).transpose(0, 1)
        state = x.new_zeros(x.shape[1], 4)
        if isinstance(self.start, Tensor):
            state = self.start.repeat(x.shape[1], 1)
        elif self.start:
            state = x.new_full((x.shape[1], 4), self.start)
        return scan(lambda h, step: self.step(self, h, step), state, x, dim=0)[0]


def plain_step(model: Loop, state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    following = model.state(torch.tanh(model.fc(x) + model.back(state)))
    return following, following.clone()


def trained(model: nn.Module) -> nn.Module:
    model.train()(torch.randn(20, 15, 4))
    return model.eval()


LAST = {"batch_first": True}, True
EACH = {"bias": False}, False


@pytest.mark.parametrize(
    ("kind", "options", "last"),
    [(QuantRNN, *LAST), (QuantGRU, *EACH), (QuantLSTM, *LAST), (QuantLSTM, *EACH)]
    + [pytest.param(*row, marks=pytest.mark.long) for row in ((QuantRNN, *EACH), (QuantGRU, *LAST))],
)
def test_recurrent_model_equals_pytorch_for_any_number_of_steps(
    kind: Callable[..., Any], options: dict[str, Any], last: bool
) -> None:
    model = trained(Net(kind, last, **options))
    reference = nnhw.reference(model, EXAMPLE)
    model = model.double()  # in float32 rounding decides now and then, which `own_answers` has to explain
    for steps in STEPS:
        images = torch.randn(3, steps, 4, dtype=torch.float64)
        assert torch.equal(reference(images), model(images))


def test_layers_and_directions_equal_pytorch() -> None:
    model = trained(Net(QuantRNN, num_layers=2, bidirectional=True, batch_first=True))
    reference = nnhw.reference(model, EXAMPLE)
    assert len(reference.graph().loops) == 4
    model = model.double()  # in float32 rounding decides now and then, which `own_answers` has to explain
    for steps in STEPS:
        images = torch.randn(3, steps, 4, dtype=torch.float64)
        assert torch.equal(reference(images), model(images))


@pytest.mark.parametrize("kind", [QuantRNN, QuantGRU, QuantLSTM])
def test_recurrent_model_is_lowered_with_its_body(kind: Callable[..., Any]) -> None:
    graph = capture(trained(Net(kind, batch_first=True)), EXAMPLE)
    parts, facts = lower_graph(graph, {"inputs": torch.randn(6, 7, 4).numpy()})
    assert set(facts["passes"].values()) == {0}
    assert any(name.startswith("rnn/quantize") for name in facts["proofs"])
    body = parts.body.loops[0][1].body
    assert all(node.type.is_int for node in body.nodes)
    assert loads(dumps(parts.body, data=True)) == parts.body
    codes = nnhw.ir.run(parts.head, torch.randn(3, 20, 4).numpy())[0]
    assert np.array_equal(one_step(parts.body).run(codes)[:, -1], nnhw.ir.run(parts.body, codes)[0])
    assert "_step(" in make_c(parts.body, parts.head, parts.tail).files["model.h"]


class Learned(Net):
    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 3]."""
        start = self.fc.weight[:1, :6].sign().expand(x.shape[0], 6).unsqueeze(0) * 0.5
        return self.fc(self.rnn(self.codes(x), start)[0][:, -1])


def test_states_may_begin_as_parameters() -> None:
    model = Learned(QuantRNN, batch_first=True).eval()
    images = torch.randn(3, 9, 4)
    assert torch.equal(nnhw.reference(model, EXAMPLE)(images).float(), model(images))


def test_loop_of_torch_equals_pytorch_at_each_quantizer_of_each_step() -> None:
    model = Loop(plain_step, start=0.5).eval()
    captured = capture_quantizers(model, EXAMPLE)
    for steps in (1, 9, 10, 100):
        images = torch.randn(4, steps, 4).numpy()
        answers = own_answers(model, captured, images)
        assert np.array_equal(answers.own, nnhw.ir.run(captured.graph, images)[0].astype(np.float32))


class Float(nn.Module):
    """A float model, which ends in the last state or in the last result."""

    def __init__(self, kind: type[nn.RNNBase], by_state: bool, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.by_state = kind(4, 6, **options), by_state
        self.first, self.last = nn.Linear(4, 4), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 3]."""
        results, state = self.rnn(self.first(x).relu())
        if self.by_state:
            return self.last((state[0] if isinstance(self.rnn, nn.LSTM) else state)[-1])
        return self.last(results[:, -1])


@pytest.mark.parametrize(
    ("kind", "by_state"),
    [(nn.RNN, False), (nn.GRU, True), (nn.LSTM, True)]
    + [pytest.param(*row, marks=pytest.mark.long) for row in ((nn.RNN, True), (nn.GRU, False), (nn.LSTM, False))],
)
def test_float_recurrent_model_is_quantized(kind: type[nn.RNNBase], by_state: bool) -> None:
    model, images = Float(kind, by_state, batch_first=True).eval(), torch.randn(64, 12, 4)
    quantized = nnhw.quantize(model, images)
    captured = capture_quantizers(quantized, EXAMPLE)
    own_answers(quantized, captured, images[:5].numpy())
    assert len(captured.graph.loops) == 1
    assert (quantized(images) - model(images)).abs().max() < 0.05 * model(images).abs().max()


def test_quantize_rejects_single_bits_in_loops() -> None:
    with pytest.raises(InputError) as caught:
        nnhw.quantize(Float(nn.GRU, False, batch_first=True).eval(), torch.randn(64, 12, 4), weight_bits=1)
    assert str(caught.value) == ("layer 'rnn' (GRU) needs weights and activations of 2 bits or more, got 1 and 8")


def spoiled(graph: Graph) -> Graph:
    """Return a graph whose loop has other weights of its state."""
    loop, scan = graph.loops[0]
    node = next(node for node in scan.body.nodes if node.op.name == "linear" and node.inputs[0] == "state")
    constants = dict(scan.body.constants)
    constants[node.inputs[1]] = np.flip(constants[node.inputs[1]], axis=1)
    return with_body(graph, loop.name, Graph(scan.body.name, scan.body.nodes, scan.body.outputs, constants))


def test_comparison_with_pytorch_finds_a_wrong_body() -> None:
    model = trained(Net(QuantGRU, batch_first=True))
    captured = capture_quantizers(model, EXAMPLE)
    wrong = dataclasses.replace(captured, graph=spoiled(captured.graph))
    with pytest.raises(ExactnessError, match=r"^quantize 'rnn' .* is the first whose code differs"):
        own_answers(model, wrong, torch.randn(3, 9, 4).numpy())


ONE_STEP = np.zeros((2, 1, 4))


@functools.cache
def lowered_without_error() -> Graph:
    """Return the graph of a network, which each pass leaves as it is."""
    graph = capture(Net(QuantRNN, batch_first=True).eval(), EXAMPLE)
    lower_graph(graph, {"inputs": ONE_STEP})
    return graph


@pytest.mark.parametrize("name", list(PIPELINE))
def test_lowering_stops_behind_a_pass_that_changes_a_body(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, apply = lowered_without_error(), PIPELINE[name]

    def wrong(graph: Graph) -> Graph:
        made = apply(graph)
        return spoiled(made) if made.loops else made

    monkeypatch.setitem(PIPELINE, name, wrong)
    # With one step, which begins as zeros, no sample shows the weights of the state.
    with pytest.raises(ExactnessError, match=rf"^the pass '{name}' changes what the body of scan 'rnn' .* computes;"):
        lowering.lower_graph(graph, {"inputs": ONE_STEP})


def test_passes_leave_what_they_need_not_change() -> None:
    graph = capture(Net(QuantRNN, batch_first=True).eval(), EXAMPLE)
    assert split(lower(graph)).body.node("rnn").type == graph.node("rnn").type


def step_without_quantizer(model: Loop, state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    following = torch.tanh(model.fc(x) + model.back(model.state(state)))
    return following, following.clone()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Loop(step_without_quantizer), "has a state that is no codes when a step ends; put a quantizer behind what"),
        (Loop(plain_step, start=0.3), "begins as 0.3"),
        (Loop(plain_step, start=torch.tensor([[0.0, 0.25, 9.0, 0.0]])), "begins as 9.0, which is no code"),
        (Loop(plain_step, start=9.0), "begins as 9.0, which is no code of its quantizer (int -8..7 in steps of 0.25)"),
    ],
)
def test_capture_rejects_loops(model: nn.Module, message: str) -> None:
    with pytest.raises(NnhwError) as caught:
        capture(model.eval(), EXAMPLE)
    assert message in str(caught.value)


class MeanOfSteps(Net):
    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 3]."""
        return self.fc(self.rnn(self.codes(x))[0].mean(1))


class Unquantized(Net):
    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 3]."""
        return self.fc(self.rnn(x)[0][:, -1])


def test_capture_rejects_what_mixes_steps_and_floats_in_loops() -> None:
    with pytest.raises(CaptureError, match=r"^mean .* works along the steps of a sequence, of which an accelerator"):
        capture(MeanOfSteps(QuantRNN, batch_first=True).eval(), EXAMPLE)
    with pytest.raises(
        CaptureError, match=r"^scan .* reads a sequence of floats; put a quantizer in front of the loop"
    ):
        capture(Unquantized(QuantRNN, batch_first=True).eval(), EXAMPLE)


def test_example_may_be_one_step_and_not_contiguous() -> None:
    model = Net(QuantRNN, batch_first=True).eval()
    images = torch.randn(3, 9, 4)
    for example in (EXAMPLE[:, :1], EXAMPLE.transpose(0, 1).contiguous().transpose(0, 1), EXAMPLE[:1]):
        assert torch.equal(nnhw.reference(model, example)(images).float(), model(images))


def test_reference_rejects_sequences_without_steps() -> None:
    model = Net(QuantRNN, batch_first=True).eval()
    with pytest.raises(InputError, match=r"needs sequences of one step or more, got the shape \[2, 0, 4\]"):
        nnhw.reference(model, EXAMPLE)(torch.zeros(2, 0, 4))
    with pytest.raises(InputError, match=r"^example_input needs the shape \[batch, ..\] with at least one image, got "):
        nnhw.reference(model, torch.zeros(2, 0, 4))


def test_any_number_of_loops_is_captured_in_one_process() -> None:
    for seed in range(9):  # torch keeps what it has compiled of eight
        torch.manual_seed(seed)
        assert capture(trained(Net(QuantRNN, batch_first=True)), torch.randn(2, 3 + seed % 7, 4)).loops


def test_threads_that_evaluate_leave_loops_that_can_be_traced() -> None:
    """The second one waits for the first: if both were inside, the first to leave would not be the last to come."""
    came, left = threading.Event(), threading.Event()
    order: list[str] = []

    def second() -> None:
        came.wait()
        with eager_loops():
            order.append("second came")
            left.wait(10)

    thread = threading.Thread(target=second)
    thread.start()
    with eager_loops():
        came.set()
        thread.join(0.2)  # enough for it to come in, if it could
        order.append("first left")
    left.set()
    thread.join()
    assert order == ["first left", "second came"]
    capture(Net(QuantRNN, batch_first=True).eval(), EXAMPLE)
