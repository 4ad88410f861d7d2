"""Loops whose number of steps the model fixes: rows of a picture, and convolutions in front of the loop."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.driver import Device
from nnhw.driver.links.model import ModelLink
from nnhw.errors import InputError, IrError, MappingError
from nnhw.export.onnx import to_onnx
from nnhw.frontend import capture
from nnhw.ir import Builder, Graph, one_step, run
from nnhw.mapping.loops import step_of
from nnhw.nn import Int, QuantConv1d, QuantGRU, QuantLinear, UInt
from nnhw.passes import lower, split
from tests.driver.test_step_stream import StatefulBoard, ends, make_recurrent


class Rows(nn.Module):
    """A float LSTM whose steps are the rows of a picture."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.last = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, rows, 6] --> [batch, 2]."""
        result: Tensor = self.last(self.lstm(x.squeeze(1))[0][:, -1])
        return result


class Front(nn.Module):
    """Convolution and pooling along the time."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codes, self.made = Int(8, scale=2.0**-5), UInt(7, scale=2.0**-6)
        self.conv = QuantConv1d(3, 6, 3, padding=1, weight_quant=Int(8))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, time] --> [batch, 6, time / 2]."""
        return functional.max_pool1d(self.made(torch.relu(self.conv(self.codes(x)))), 2)


class Loop(nn.Module):
    """A recurrent layer, which reads in both directions if it is asked for."""

    def __init__(self, bidirectional: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.codes = UInt(7, scale=2.0**-6)
        self.gru = QuantGRU(6, 5, batch_first=True, bidirectional=bidirectional)
        self.last = QuantLinear(5 * (1 + bidirectional), 2, weight_quant=Int(8))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 6] --> [batch, 2]."""
        result: Tensor = self.last(self.gru(self.codes(x))[0][:, -1])
        return result


def whole(bidirectional: bool = False) -> nn.Module:
    """Return convolution and loop in one model, whose observed formats have seen data."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front, self.loop = Front(), Loop(bidirectional)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.loop(self.front(x).permute(0, 2, 1))
            return result

    model = Whole()
    model(images())
    return model.eval()


def images() -> Tensor:
    return torch.randn(16, 3, 20, generator=torch.Generator().manual_seed(2))


def pictures() -> Tensor:
    return torch.rand(32, 1, 7, 6, generator=torch.Generator().manual_seed(2))


@functools.cache
def captured_rows() -> Graph:
    return capture(nnhw.quantize(Rows().eval(), pictures()), pictures()[:4])


@functools.cache
def captured_whole() -> Graph:
    return capture(whole(), images()[:4])


def test_rows_of_a_picture_reach_the_device_one_at_a_time() -> None:
    graph = captured_rows()
    parts = split(lower(graph))
    np.testing.assert_array_equal(parts.run([pictures().numpy()])[0], run(graph, [pictures().numpy()])[0])
    assert (parts.body.inputs[0].type.is_sequence, parts.body.inputs[0].type.shape) == (True, (6,))
    assert step_of(parts.body).graph.inputs[0].type.shape == (6,)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_convolution_in_front_of_a_loop_is_lowered_exactly(bidirectional: bool) -> None:
    graph = capture(whole(True), images()[:4]) if bidirectional else captured_whole()
    np.testing.assert_array_equal(run(lower(graph), [images().numpy()])[0], run(graph, [images().numpy()])[0])


def test_steps_that_layers_compute_are_positions_of_a_map() -> None:
    step = step_of(split(lower(captured_whole())).body)
    assert step.positions == 10
    assert [node.type.shape for node in step.graph.inputs] == [(3, 20), (5, 10, 1)]


def test_mapper_rejects_steps_that_layers_compute_in_both_directions() -> None:
    with pytest.raises(MappingError) as caught:
        step_of(split(lower(capture(whole(True), images()[:4]))).body)
    assert "reads the steps that layers compute from the last one to the first" in str(caught.value)
    assert "build these layers and the loop as two models" in str(caught.value)


def test_layers_in_front_and_loop_are_two_models() -> None:
    model = whole()
    made = nnhw.reference(model.front, images()[:4])(images())
    steps = made.transpose(1, 2).float()
    results = nnhw.reference(model.loop, steps[:4])(steps)
    assert torch.equal(results, nnhw.reference(model, images()[:4])(images()))
    for part, example in ((model.front, images()), (model.loop, steps)):
        assert step_of(split(lower(capture(part, example[:4]))).body).graph.inputs


def test_two_numbers_of_steps_are_refused() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes, self.first, self.second = Int(8, scale=2.0**-5), QuantGRU(3, 4), QuantGRU(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.codes(x)
            ends = self.first(x.permute(2, 0, 1))[1][0], self.second(x[:, :, ::2].permute(2, 0, 1))[1][0]
            return torch.cat(ends, dim=1)

    model = Two()
    model(images())
    with pytest.raises(nnhw.NnhwError, match="makes 10 steps, but other sequences of the model have 20"):
        capture(model.eval(), images()[:4])


def test_onnx_has_the_steps_of_a_whole_value() -> None:
    runtime = pytest.importorskip("onnxruntime")
    graph = captured_whole()
    session = runtime.InferenceSession(to_onnx(lower(graph)).SerializeToString())
    (found,) = session.run(None, {session.get_inputs()[0].name: images().double().numpy()})
    np.testing.assert_array_equal(found, run(graph, [images().numpy()])[0])


def test_one_step_rejects_a_value_that_becomes_steps() -> None:
    builder = Builder("net")
    last = builder.input("x", (4, 3), -8, 7).as_steps("rows").last_step()
    graph = builder.build(last)
    values = np.arange(-8, 4).reshape(1, 4, 3)
    np.testing.assert_array_equal(run(graph, [values])[0], [[1, 2, 3]])
    with pytest.raises(IrError, match=r"as_steps 'rows' .* turns a whole value into steps, so all of it is needed"):
        one_step(graph)


def test_as_steps_rejects_sequences() -> None:
    builder = Builder("net")
    steps = builder.input("x", (4, 3), -8, 7, is_sequence=True)
    with pytest.raises(IrError, match="as_steps needs a value with at least one axis, not a sequence, got"):
        steps.as_steps()


def test_stream_rejects_a_model_of_whole_images() -> None:
    accelerator = make_recurrent()
    builder = Builder("head")
    rows = builder.input("x", (5, 3), -8, 7).as_steps()
    device = Device(ModelLink(StatefulBoard(accelerator)), accelerator, builder.build(rows), ends(False)[1])
    with pytest.raises(
        InputError, match=r"takes its steps from whole images of shape \[5, 3\]; call the device with images"
    ):
        device.stream()
