"""Transposed convolutions: reference == IR == golden == RTL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nnhw
from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.errors import CaptureError
from nnhw.frontend import capture
from nnhw.mapping.mapper import map_body
from nnhw.nn import Int, QuantConv2d, QuantConvTranspose1d, QuantConvTranspose2d
from tests.flow.test_rows import lowered
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.sim.test_benches import pytestmark as needs_simulator


class Net(nn.Module):
    """A transposed convolution with its quantizers, and a convolution behind it."""

    def __init__(self, kind: type[nn.Module], *sizes: Any, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codes, self.act, self.end = Int(4, scale=0.25), Int(5, scale=2**-4), Int(6, scale=2**-5)
        options.setdefault("weight_quant", Int(4, "max_abs", axis=1))
        self.layer = kind(*sizes, **options)
        last = {"weight_quant": Int(3, "max_abs", axis=0)}
        self.last = QuantConv2d(sizes[1], 2, 1, **last) if kind is QuantConvTranspose2d else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Compute codes of it."""
        result: Tensor = self.end(self.last(self.act(torch.relu(self.layer(self.codes(x))) - 0.5)))
        return result


def plane(*sizes: Any, **options: Any) -> Net:
    return Net(QuantConvTranspose2d, *sizes, **options)


NETWORKS: dict[str, tuple[Callable[[], Net], tuple[int, ...]]] = {
    "pixels": (lambda: plane(3, 4, 2, stride=2), (3, 4, 5)),
    "overlapping": (lambda: plane(3, 4, 4, stride=2, padding=1), (3, 4, 5)),
    "output_padding": (lambda: plane(3, 4, 3, stride=2, padding=1, output_padding=1), (3, 4, 5)),
    "groups": (
        lambda: plane(4, 6, 3, stride=2, padding=1, output_padding=(0, 1), groups=2, bias=False),
        (4, 4, 5),
    ),
    "one": (lambda: plane(3, 4, 3), (3, 4, 5)),
    "uneven": (lambda: plane(3, 4, (3, 2), stride=(1, 3), padding=(2, 1), output_padding=(0, 2)), (3, 4, 5)),
    "less_than_the_input": (lambda: plane(3, 4, 5, stride=2, padding=4), (3, 5, 6)),
    "gaps": (lambda: plane(3, 4, 2, stride=3), (3, 2, 3)),
    "one_scale": (lambda: plane(3, 4, 3, stride=2, weight_quant=Int(3, "max_abs")), (3, 3, 3)),
    "bipolar": (lambda: plane(3, 4, 3, stride=2, weight_quant=None), (3, 3, 3)),
    "line": (lambda: Net(QuantConvTranspose1d, 3, 4, 4, stride=2, padding=1), (3, 7)),
}


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", NETWORKS)
def test_transposed_convolutions_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    make, shape = NETWORKS[name]
    body = lowered(make(), shape).body
    for interval in (6000, 1200):
        check_equal(body, map_body(body, "test", LARGE, target_interval=interval))


@needs_simulator
@pytest.mark.parametrize("name", covering(("overlapping", "groups", "uneven"), ("overlapping", "groups")))
def test_transposed_convolutions_equal_reference_in_rtl(name: str) -> None:
    make, shape = NETWORKS[name]
    body = lowered(make(), shape).body
    accelerator = map_body(body, "test", LARGE, target_interval=6000)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


@pytest.mark.usefixtures("deep_fifos")
def test_decoder_of_a_float_model_is_quantized_and_equal_to_golden_stages() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, 4, 3, 2, 1, 1), nn.BatchNorm2d(4), nn.ReLU()),
        nn.Conv2d(4, 1, 3, padding=1),
    )
    quantized = nnhw.quantize(model.eval(), torch.randn(40, 1, 8, 8), 8, 8)
    body = lowered(quantized, (1, 8, 8)).body
    check_equal(body, map_body(body, "test", LARGE, target_interval=6000))


def test_output_size_is_that_of_torch() -> None:
    layer, x = QuantConvTranspose2d(2, 3, 3, stride=2, weight_quant=Int(8, "max_abs", axis=1)), torch.randn(1, 2, 4, 4)
    plain = nn.ConvTranspose2d(2, 3, 3, stride=2)
    assert layer(x, [10, 9]).shape == plain(x, [10, 9]).shape


def test_dilation_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"has dilation=\[2, 2\]; a transposed convolution needs dilation=1"):
        capture(plane(3, 4, 3, dilation=2).eval(), torch.randn(2, 3, 4, 4))
