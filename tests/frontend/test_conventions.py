"""Quantizers of each convention, from PyTorch to the integer graph and to hardware: half-way points above all."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from torch import Tensor, nn

from benchmarks.random_networks import LC, golden_difference, rtl_difference
from nnhw.errors import CaptureError
from nnhw.flow.models.lowering import lower_graph, run_parts
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture, capture_quantizers
from nnhw.ir.ops.rounding import ROUNDINGS
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.nn import Int, QuantLinear, functional
from nnhw.nn.functional import quantize
from tests.ir.test_rounding import slow_round
from tests.sim.test_benches import pytestmark as needs_simulator

IMAGES = torch.arange(-128.0, 128.0).repeat(2, 1).T.contiguous()
"""[256, 2]; both numbers are added, so the sums are all even integers from -256 to 254: halves of the scale 4."""


class Halves(nn.Module):
    """Codes of (x0 + x1) / 4 by a convention: every other sum is half-way."""

    def __init__(self, *convention: object, zero_point: float = 0.0, scale: float = 4.0) -> None:
        super().__init__()
        self.codes = Int(8, 1.0)
        self.sums = QuantLinear(2, 1, bias=False, weight_quant=Int(2, 1.0))
        self.last = QuantLinear(1, 1, bias=False, weight_quant=Int(2, 1.0))
        for layer in (self.sums, self.last):
            layer.weight.data.fill_(1.0)
        self.convention, self.zero_point, self.scale = convention, zero_point, scale

    def forward(self, x: Tensor) -> Tensor:
        """[N, 2] --> [N, 1]."""
        sums = self.sums(self.codes(x))
        scale, zero_point = torch.tensor([self.scale]), torch.tensor([self.zero_point])
        return self.last(quantize(sums, scale, zero_point, -40, 50, -1, False, *self.convention))


def codes_of(rounding: str, zero_point: int, first: bool) -> list[float]:
    """Return what the network gives, by exact fractions."""
    moved = zero_point if first else 0
    rounded = [slow_round(rounding, Fraction(n, 2) + moved) - moved for n in range(-128, 128)]
    return [4.0 * (min(max(code + zero_point, -40), 50) - zero_point) for code in rounded]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("zero_point", [0, 3])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_half_way_points_are_the_same_in_every_graph(
    rounding: str, zero_point: int, first: bool, reciprocal: bool
) -> None:
    model = Halves(rounding, reciprocal, first, zero_point=float(zero_point)).eval()
    captured = capture_quantizers(model, IMAGES)
    answers = own_answers(model, captured, IMAGES.numpy())
    assert answers.own[:, 0].tolist() == codes_of(rounding, zero_point, first)
    assert answers.ties == {"float32": 0, "float64": 0}
    parts, facts = lower_graph(captured.graph, {"inputs": IMAGES.numpy()})
    assert set(facts["passes"].values()) == {0}
    assert run_parts(parts, IMAGES.numpy()).tolist() == answers.own.tolist()


def test_reciprocal_decides_in_the_integer_graph_as_in_float32() -> None:
    scale = float(np.float32(0.0306))
    model = Halves("half_even", True, False, scale=scale).eval()
    model.codes, model.sums.weight_quant = Int(8, scale / 2), Int(2, 1.0)
    x = IMAGES * (scale / 2)
    parts, _ = lower_graph(capture(model, x), {"inputs": x.numpy()})
    sums = torch.arange(-256, 255, 2) * (scale / 2)  # float32
    codes = torch.ops.quantized_decomposed.quantize_per_tensor(sums, scale, 0, -40, 50, torch.int32)
    assert run_parts(parts, x.numpy())[:, 0].tolist() == [code * scale for code in codes.tolist()]


@needs_simulator
@pytest.mark.parametrize("convention", [("half_away", False, False), ("half_even", True, True)])
def test_half_way_points_are_the_same_in_rtl(convention: tuple[object, ...]) -> None:
    model = Halves(*convention, zero_point=3.0).eval()
    parts, _ = lower_graph(capture(model, IMAGES), {"inputs": IMAGES.numpy()})
    accelerator = map_body(parts.body, "any", Budget(LC, LC), target_interval=20)
    codes = IMAGES.numpy().astype(np.int64)[64:192]
    assert golden_difference(accelerator, parts.body, codes) == ""
    assert rtl_difference(accelerator, parts.body, codes) == ""


def test_roundings_of_torch_are_those_of_the_ir() -> None:
    assert list(functional.ROUNDINGS) == list(ROUNDINGS)


def test_page_names_every_argument_and_rounding() -> None:
    page = (Path(__file__).parents[2] / "docs" / "quantizers.md").read_text(encoding="utf-8")
    names = [argument.name for argument in torch.ops.nnhw.quantize.default._schema.arguments[7:]]
    assert [name for name in (*names, *ROUNDINGS) if f"`{name}`" not in page] == []


def test_weights_are_quantized_by_their_convention() -> None:
    model = Halves().eval()
    model.sums.weight_quant = Int(4, 1.0, rounding="floor")
    model.sums.weight.data = torch.tensor([[1.9, -1.5]])
    assert capture(model, IMAGES).constants["sums.weight"].tolist() == [[1, -2]]


@pytest.mark.parametrize("scale", [1e-39, 2.0**-140])
def test_capture_rejects_scales_without_reciprocal(scale: float) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(Halves("half_even", True, scale=scale).eval(), IMAGES)
    assert "multiplies by the reciprocal of its scale, so both must be numbers of float32" in str(caught.value)


def test_capture_rejects_a_zero_point_in_front_that_is_no_integer() -> None:
    with pytest.raises(CaptureError) as caught:
        capture(Halves("half_even", False, True, zero_point=0.5).eval(), IMAGES)
    assert "needs zero points that are integers, so that a code stands for 0.0, got 0.5" in str(caught.value)
