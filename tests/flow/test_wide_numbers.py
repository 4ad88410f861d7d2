"""Weights and activations of 9 to 16 bits: engines of single layers run them, link and shared engine do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.random_networks import LC, extreme_codes, golden_difference, rtl_difference
from nnhw.errors import MappingError
from nnhw.families import FAMILIES
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import choose_array, network_of
from nnhw.nn import QuantConv2d, Quantizer, QuantLinear
from tests.frontend.models import images, settled
from tests.sim.test_benches import pytestmark as needs_simulator

DSP, INTERVAL = 60, 200


def signed(bits: int, scale: float) -> Quantizer:
    """Return a format that `Int` does not have."""
    return Quantizer(-(1 << bits - 1), (1 << bits - 1) - 1, scale)


def linear(weight_bits: int, act_bits: int, input_bits: int = 8) -> Graph:
    """Two linear layers."""
    first, last = (QuantLinear(*sizes, weight_quant=signed(weight_bits, 2.0**-6)) for sizes in ((6, 5), (5, 3)))
    return integer_graph((6,), signed(input_bits, 2.0**-7), first, signed(act_bits, 2.0 ** (4 - act_bits)), last)


def convolution(weight_bits: int, act_bits: int) -> Graph:
    """Two convolutions with a border, batch normalization and pooling."""
    first = QuantConv2d(2, 3, 3, padding=1, weight_quant=signed(weight_bits, 2.0**-6))
    last = QuantConv2d(3, 4, 2, weight_quant=signed(weight_bits, 2.0**-6))
    codes = Quantizer(0, (1 << act_bits) - 1, 2.0 ** (3 - act_bits))
    return integer_graph((2, 4, 4), signed(8, 2.0**-7), first, nn.BatchNorm2d(3), codes, nn.MaxPool2d(2), last)


def integer_graph(shape: tuple[int, ...], *layers: nn.Module) -> Graph:
    """Return the body of a network whose every pass changes nothing."""
    x = images(4, shape) * 2 - 1
    model = settled(nn.Sequential(*layers))
    with torch.no_grad():
        samples = {"inputs": x.numpy(), "torch": model(x).numpy()}
    parts, facts = lower_graph(capture(model, x), samples)
    assert set(facts["passes"].values()) == {0}
    return parts.body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("bits", [9, 12, 16])
@pytest.mark.parametrize("make", [linear, convolution])
def test_wide_numbers_equal_reference_up_to_golden_stages(make: object, bits: int) -> None:
    body = make(25 - bits, bits)  # type: ignore[operator]
    accelerator = map_body(body, "any", Budget(LC, LC, DSP), family=FAMILIES["ecp5"], target_interval=INTERVAL)
    assert golden_difference(accelerator, body, extreme_codes(body, np.random.default_rng(bits))) == ""


@needs_simulator
@pytest.mark.parametrize(("make", "weight_bits", "act_bits"), [(linear, 16, 16), (convolution, 9, 12)])
def test_wide_numbers_equal_reference_in_rtl(make: object, weight_bits: int, act_bits: int) -> None:
    body = make(weight_bits, act_bits)  # type: ignore[operator]
    accelerator = map_body(body, "any", Budget(LC, LC, DSP), target_interval=INTERVAL)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(1))) == ""


def test_input_of_more_than_8_bits_is_refused() -> None:
    problem = r"^the model's input has 9 bits; the link carries at most 8 bits an element; quantize the input to 8 bits"
    with pytest.raises(MappingError, match=problem):
        map_body(linear(8, 8, input_bits=9), "any", Budget(LC, LC), target_interval=INTERVAL)


@pytest.mark.parametrize(
    ("weight_bits", "act_bits", "problem"),
    [
        (9, 8, r"^layer '1' has weights of .*, an array takes at most 8 signed bits; quantize them to fewer, or use "),
        (8, 9, r"^value '.*' has the codes -256\.\.255, an array stores at most 8 bits; put a quantizer behind "),
    ],
    ids=["weights", "activations"],
)
def test_wide_numbers_are_refused_by_a_shared_engine(weight_bits: int, act_bits: int, problem: str) -> None:
    with pytest.raises(MappingError, match=problem):
        choose_array(network_of(linear(weight_bits, act_bits)), Budget(LC, LC), FAMILIES["ice40"])
