"""Networks that hypothesis draws and shrinks: layers, widths, strides, scales and branches; reference == IR == RTL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, find, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.draws import Draws
from benchmarks.random_models import Join, drawn_model
from benchmarks.random_networks import Found, check_network
from nnhw.nn import QuantConv1d, QuantConv2d, Quantizer
from tests.sim.test_benches import pytestmark as needs_simulator

Network = tuple[nn.Sequential, Tensor]


class Drawn(Draws):
    """Choices by hypothesis; what is no structure comes from a seed that it draws, and shrinks to the numbers of 0."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.seed = draw(st.integers(0, 2**16))
        self.numbers = np.random.default_rng(self.seed)

    def between(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def pick(self, *choices: Any) -> Any:
        return choices[self.between(0, len(choices) - 1)]

    def flip(self, probability: float) -> bool:
        return self.between(0, 99) >= 100 - 100 * probability  # shrinks to False

    late_flip = flip

    def factor(self, low: float, high: float) -> float:
        return self._draw(st.floats(low, high))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw a network and images that its scales were taken from."""
    return drawn_model(Drawn(draw))


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


@settings(max_examples=20)
@given(networks())
def test_drawn_network_equals_reference_from_ir_to_golden_stages(network: Network) -> None:
    assert check(network, mapped=True).counts["frames"] > 0


@needs_simulator
@settings(max_examples=3)
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
        lambda network: network[1].dim() == 3,
    ],
    ids=["stride", "groups", "scales", "concat", "series"],
)
def test_drawn_networks_have_what_seeded_ones_have(wanted: Callable[[Network], bool]) -> None:
    find(networks(), wanted, settings=settings(phases=[Phase.generate], max_examples=200))
