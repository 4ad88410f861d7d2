"""Networks that hypothesis draws and shrinks: layers, widths, strides, scales and branches; reference == IR == RTL."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from torch import nn

from benchmarks.random_models import Join, Pointwise
from benchmarks.random_networks import BLOCK, Found, Network, check_network, drawn_network, networks
from nnhw.nn import QuantConv1d, QuantConv2d, Quantizer
from tests.sim.test_benches import pytestmark as needs_simulator


def modules(network: Network, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> list[Any]:
    """Return the modules of a kind, at any depth."""
    return [module for module in network[0].modules() if isinstance(module, kind)]


def branched(network: Network) -> bool:
    """Return whether branches are joined."""
    return bool(modules(network, Join))


def check(network: Network, **how: Any) -> Found:
    """Compare everything that computes a network; what nnhw refuses is not counted as an example."""
    found = check_network(0, make=lambda _: network, **how)
    assume(not found.refused)
    assert found.failure == ""
    return found


@pytest.mark.usefixtures("deep_fifos")
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(networks())
def test_drawn_network_equals_reference_from_ir_to_golden_stages(network: Network) -> None:
    assert check(network, mapped=True).counts["frames"] > 0


@needs_simulator
@settings(max_examples=2)
@given(networks().filter(branched))
def test_drawn_network_equals_reference_in_rtl(network: Network) -> None:
    assert check(network, simulated=True).counts["rtl_frames"] > 0


@pytest.mark.parametrize(
    "wanted",
    [
        lambda network: any(max(layer.stride) > 1 for layer in modules(network, (QuantConv1d, QuantConv2d))),
        lambda network: any(layer.groups > 1 for layer in modules(network, (QuantConv1d, QuantConv2d))),
        lambda network: any(one.scale is not None and one.scale.numel() > 1 for one in modules(network, Quantizer)),
        lambda network: any(join.kind == "concat" for join in modules(network, Join)),
        lambda network: any(join.axis > 1 for join in modules(network, Join)),
        lambda network: bool(modules(network, (nn.ChannelShuffle, nn.PixelShuffle, nn.PixelUnshuffle))),
        lambda network: any(one.name == "swapped" for one in modules(network, Pointwise)),
        lambda network: network[1].dim() == 3,
    ],
    ids=["stride", "groups", "scales", "concat", "joined_rows", "shuffle", "transpose", "series"],
)
def test_drawn_networks_have_what_they_are_for(wanted: Callable[[Network], bool]) -> None:
    find(networks(), wanted, settings=settings(phases=[Phase.generate], max_examples=1000), random=Random(1))


def test_a_drawn_network_is_repeated_by_its_number() -> None:
    (one, images), (same, again) = drawn_network(BLOCK + 3), drawn_network(BLOCK + 3)
    assert str(one) == str(same)
    assert torch.equal(images, again)
    assert len({str(drawn_network(number)[0]) for number in range(BLOCK)}) > BLOCK // 2
