"""Brevitas's recurrent layers: equal to Brevitas in each step for any number of steps, lowered, mapped, or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nnhw
from nnhw.accelerator import Accelerator
from nnhw.errors import CaptureError, ExactnessError
from nnhw.flow.verification.comparison import compare_stages
from nnhw.frontend import capture
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import Graph, run
from nnhw.ir.ops import Linear
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.passes import lower, split

qnn = pytest.importorskip("brevitas.nn", reason="needs Brevitas: pip install 'nnhw[brevitas]'")
quant = pytest.importorskip("brevitas.quant")
brevitas_cases = pytest.importorskip("tests.frontend.brevitas_cases")

STEPS = (1, 6, 40, 7)
CELLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "rnn": ("QuantRNN", {}),
    "rnn of relu, steps first": ("QuantRNN", {"nonlinearity": "relu", "bias": False, "batch_first": False}),
    "rnn, two layers, both directions": (
        "QuantRNN",
        {"num_layers": 2, "bidirectional": True, "return_quant_tensor": True},
    ),
    "lstm": ("QuantLSTM", {}),
    "lstm, sums not quantized": ("QuantLSTM", {"gate_acc_quant": None}),
    "lstm, coupled": ("QuantLSTM", {"coupled_input_forget_gates": True}),
    # The codes of weights and of activations have one range, so that calls are told apart by their order alone.
    "lstm, coupled, ranges alike": (
        "QuantLSTM",
        {"coupled_input_forget_gates": True, "weight_narrow_range": False, "gate_acc_quant": None},
    ),
    "lstm, quantizers shared": (
        "QuantLSTM",
        {
            "shared_intra_layer_weight_quant": True,
            "shared_intra_layer_gate_acc_quant": True,
            "batch_first": False,
            "bias": False,
        },
    ),
    "lstm, cell states apart, coupled": (
        "QuantLSTM",
        {
            "num_layers": 2,
            "shared_cell_state_quant": False,
            "cat_output_cell_states": False,
            "coupled_input_forget_gates": True,
        },
    ),
    "lstm, both directions, input weights shared, widths learned": (
        "QuantLSTM",
        {
            "bidirectional": True,
            "shared_input_hidden_weights": True,
            "weight_bit_width_impl_type": "parameter",
            "io_bit_width": 5,
        },
    ),
}
MAPPED = ("rnn", "lstm", "lstm, coupled", "lstm, sums not quantized")
"""Cells of which a small network is mapped; all others are compared with Brevitas for any number of steps."""


def trained(cell: str, **options: Any) -> tuple[nn.Module, Tensor]:
    """Return a model of one of `CELLS` and an example input of 6 steps."""
    kind, own = CELLS[cell]
    return brevitas_cases.trained(
        lambda: (
            brevitas_cases.Recurrent(getattr(qnn, kind), **{"units": 5, **own, **options}),
            brevitas_cases.images(6, 4),
        )
    )


def body_of(cell: str) -> Graph:
    """Return the integer graph of a small network that reads the last step."""
    model, example = trained(cell, units=3, last=True)
    return split(lower(capture(model, example))).body


@pytest.mark.parametrize("cell", ["rnn", "lstm", *(cell for cell in CELLS if cell not in MAPPED)])
def test_recurrent_layer_equals_brevitas_in_each_step_of_any_length(cell: str) -> None:
    model, example = trained(cell, ends=False)
    graph = capture(model, example)
    integers = lower(graph)
    for steps in STEPS:
        images = torch.randn(3, steps, 4)
        theirs = model(images)
        theirs = getattr(theirs, "value", theirs)
        assert len(theirs.unique()) > 2
        for exact in (graph, integers):
            assert np.array_equal(run(exact, images.numpy())[0].astype(np.float32), theirs.detach().numpy())


def test_codes_of_all_quantizers_are_compared_in_each_step() -> None:
    model, example = trained("lstm, coupled")
    captured = capture_quantizers(model, example)
    images = torch.randn(20, 9, 4).numpy()
    assert own_answers(model, captured, images).ties["float32"] <= len(images)
    # Three sums, three gates, three cell states, two of the output, and the one that the gates share.
    assert [len(one.quantizers) for one in captured.quantizers if hasattr(one, "quantizers")] == [12]


def test_quantizer_of_another_scale_in_a_cell_is_noticed() -> None:
    model, example = trained("lstm")
    captured = capture_quantizers(model, example)
    buffers = dict(model.rnn.layers[0][0].cell.cell_state_quant.named_buffers())
    (statistics,) = (buffer for name, buffer in buffers.items() if name.endswith("scaling_impl.buffer"))
    statistics *= 1.5
    with pytest.raises(ExactnessError, match="is the first whose code differs between PyTorch's own float32"):
        own_answers(model, captured, example.numpy())


def test_input_and_state_are_read_by_one_matrix() -> None:
    body = body_of("lstm").loops[0][1].body
    assert [node.type.shape for node in body.nodes if isinstance(node.op, Linear)] == [(12,)]


class Started(nn.Module):
    """An LSTM whose states begin as numbers of the model."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.rnn = qnn.QuantLSTM(4, 5, batch_first=True)
        self.register_buffer("start", start)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, steps, 5]."""
        start = self.start.expand(x.shape[0], 5).unsqueeze(0)
        return self.rnn(x, start, start)[0]


@pytest.mark.parametrize("start", [torch.zeros(1, 5), torch.linspace(-0.5, 0.3, 5).reshape(1, 5)])
def test_states_begin_as_the_codes_of_what_is_given(start: Tensor) -> None:
    model, example = brevitas_cases.trained(lambda: (Started(start), brevitas_cases.images(6, 4)))
    reference = nnhw.reference(model, example)
    for steps in STEPS:
        images = torch.randn(3, steps, 4)
        assert torch.equal(reference(images).to(torch.float32), model(images))


class LastStates(nn.Module):
    """A linear layer of the last states of an LSTM of two layers."""

    def __init__(self, pick: Callable[[Any, Any], Tensor], **options: Any) -> None:
        super().__init__()
        self.rnn, self.pick = qnn.QuantLSTM(4, 5, num_layers=2, **options), pick
        self.fc = qnn.QuantLinear(5, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 3]."""
        return self.fc(self.pick(*self.rnn(x.transpose(0, 1))[1]))


@pytest.mark.parametrize(
    ("pick", "options"),
    [
        (lambda h, c: h[-1], {}),
        pytest.param(lambda h, c: c[0], {}, marks=pytest.mark.long),  # the last row takes the state of the cell, too
        (lambda h, c: c.value[-1], {"return_quant_tensor": True}),
        (lambda h, c: c[1].squeeze(0), {"cat_output_cell_states": False}),
    ],
)
def test_last_states_of_layers_are_read(pick: Callable[[Any, Any], Tensor], options: dict[str, Any]) -> None:
    model, example = brevitas_cases.trained(lambda: (LastStates(pick, **options), brevitas_cases.images(6, 4)))
    captured = capture_quantizers(model, example)
    own_answers(model, captured, torch.randn(4, 5, 4).numpy())
    lower(captured.graph)


def test_recurrent_layer_without_quantizers_is_refused_by_name() -> None:
    options = {"sigmoid_quant": None, "cell_state_quant": None, "weight_quant": None, "bias_quant": None}
    with pytest.raises(CaptureError) as raised:
        capture(*trained("lstm", **options))
    assert str(raised.value).startswith("_QuantLSTMLayer 'rnn.layers.0.0'")
    assert str(raised.value).endswith(
        "keeps or multiplies numbers that are no codes, for it has no cell_state_quant, sigmoid_quant, weight_quant; "
        "give it quantizers"
    )


def test_coupled_gates_with_a_scale_for_each_unit_are_refused_by_name() -> None:
    options = {"scaling_per_output_channel": True, "per_channel_broadcastable_shape": (1, 5)}
    options["scaling_stats_permute_dims"] = (1, 0)
    with pytest.raises(CaptureError) as raised:
        capture(*trained("lstm, coupled", **{f"sigmoid_{name}": value for name, value in options.items()}))
    assert str(raised.value).startswith("_QuantLSTMLayer 'rnn.layers.0.0'")
    assert str(raised.value).endswith(
        " has coupled gates whose quantizer has a scale for each unit; let sigmoid_quant have one scale"
    )


def check_golden(accelerator: Accelerator, body: Graph) -> None:
    """Compare what each stage gives in each step with the graph."""
    rng, kind = np.random.default_rng(0), body.inputs[0].type
    codes = [rng.integers(kind.int_dtype.low, kind.int_dtype.high + 1, (steps, *kind.shape)) for steps in (3, 1, 7, 2)]
    compared = compare_stages(accelerator, body, codes)
    assert compared
    assert [one.name for one in compared if not one.equal] == []


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("cell", MAPPED)
def test_mapped_recurrent_layer_equals_its_graph_in_each_stage(cell: str) -> None:
    body = body_of(cell)
    check_golden(map_body(body, "board", Budget(lc=100_000, ebr=1000)), body)
