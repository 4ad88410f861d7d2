"""Pooling in front of batch normalization, and of unlike numbers of pixels: PyTorch == IR == golden == RTL."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.ir import Graph
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import compile_body
from nnhw.nn import Int, QuantConv2d, QuantIdentity, QuantLinear, QuantReLU, Sign
from tests.flow.test_rows import lowered
from tests.mapping.shared.programs import array_of, check_program
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.sim.test_benches import pytestmark as needs_simulator


def binary() -> nn.Module:
    return nn.Sequential(
        *(Sign(), QuantConv2d(2, 6, 3, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(6), nn.Hardtanh(), Sign()),
        *(QuantConv2d(6, 6, 3, padding=1, bias=False), nn.MaxPool2d(3, 2), nn.BatchNorm2d(6), Sign()),
        *(nn.Flatten(), QuantLinear(24, 9, bias=False)),
    )


def four_bits(curve: bool = False) -> nn.Module:
    """A border of zeros, weights that have no negative, and perhaps a function that rises and falls."""
    weights = {"weight_quant": Int(3, 2**-2), "bias": False}
    return nn.Sequential(
        *(QuantIdentity(4, 2**-2), QuantConv2d(2, 4, 3, **weights), nn.MaxPool2d(2), nn.BatchNorm2d(4)),
        *(QuantReLU(3, 2**-2), QuantConv2d(4, 4, 3, padding=1, **weights), nn.MaxPool2d(2), nn.BatchNorm2d(4)),
        *(nn.SiLU() if curve else nn.Identity(), QuantIdentity(3, 2**-2), QuantConv2d(4, 3, 2, **weights)),
    )


def averages() -> nn.Module:
    """Averages of unlike numbers of pixels: windows that reach beyond the border, in front of it and behind."""
    weights = {"weight_quant": Int(3, 2**-2), "bias": False}
    border = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
    return nn.Sequential(
        *(QuantIdentity(4, 2**-2), QuantConv2d(2, 3, 3, **weights), QuantReLU(3, 2**-1)),
        *(border, QuantIdentity(5, 2**-3), nn.AvgPool2d(2, ceil_mode=True), nn.BatchNorm2d(3), QuantIdentity(4, 2**-2)),
        *(QuantConv2d(3, 3, 2, **weights),),
    )


MODELS = {"binary": binary, "four_bits": four_bits, "curve": lambda: four_bits(curve=True), "averages": averages}


@functools.cache
def body_of(name: str) -> Graph:
    """Return the integers of a model whose batch normalizations have gammas of either sign."""
    torch.manual_seed(0)
    model = MODELS[name]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.running_mean, -1, 4)
            with torch.no_grad():
                module.weight[::2] *= -1
        elif isinstance(module, QuantConv2d):
            nn.init.uniform_(module.weight, -0.8, 0.8)
    return lowered(model, (2, 12, 12)).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", MODELS)
def test_pooled_sums_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    for interval in (6000, 800):
        check_equal(body, map_body(body, "test", LARGE, target_interval=interval))


@pytest.mark.parametrize("name", ["binary", "four_bits"])
def test_pooled_sums_run_on_a_shared_engine(name: str) -> None:
    body = body_of(name)
    check_program(body, compile_body(body, array_of(8, 2, 8)))


def test_binary_weights_take_the_signs_of_negative_gammas() -> None:
    body = body_of("binary")
    assert [node.op.name for node in body.nodes if node.op.name == "threshold"] == ["threshold"] * 2
    weights = [node.type.int_dtype for node in body.nodes if node.name in body.constants and node.type.shape[1:]]
    assert any(kind.bipolar for kind in weights)


@needs_simulator
@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", covering(MODELS, ("binary", "curve", "averages")))
def test_pooled_sums_equal_reference_in_rtl(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=6000)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""
