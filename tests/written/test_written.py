"""Networks that quantize by themselves: kept with their codes, or refused by name; equal to their own forward."""

from __future__ import annotations

import pytest

from tests.written.networks import NETWORKS, REFUSED, WRONG, outcome


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.xfail(reason=network.fault, strict=True)] * bool(network.fault))
        for name, network in NETWORKS.items()
    ],
)
def test_network_becomes_what_its_author_means(name: str) -> None:
    network, found = NETWORKS[name], outcome(name)
    assert found.kind != WRONG, found.message
    assert found.kind == network.kind, found.message
    if found.kind == REFUSED:
        assert network.message in found.message
        assert "; " in found.message and "this is a mistake of nnhw" not in found.message
        return
    assert len(found.layers()) == len(network.layers), found.layers()
    for own, meant in zip(found.layers(), network.layers, strict=True):
        weights, values = own.split(" x ")
        meant_weights, meant_values = meant.split(" x ")
        low, high = map(int, weights.split(".."))
        least, greatest = map(int, meant_weights.split(".."))
        assert least <= low and high <= greatest, (found.layers(), network.layers)
        assert values == meant_values, (found.layers(), network.layers)
