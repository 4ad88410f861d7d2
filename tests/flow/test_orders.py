"""Elements that change places, joins along any axis, and products of many axes: reference == IR == golden == RTL."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.errors import MappingError
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import compile_body
from nnhw.nn import Bipolar, Int, QuantConv1d, QuantConv2d, QuantLinear, Sign, UInt
from tests.flow.test_rows import lowered
from tests.mapping.shared.programs import array_of
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.sim.test_benches import pytestmark as needs_simulator

Forward = Callable[[Any, Tensor], Tensor]


def codes() -> Int:
    return Int(8, "max_abs", axis=0)


class Net(nn.Module):
    """One forward function of codes, and the layers that it takes."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.function = function
        self.codes, self.act, self.sums = Int(4, scale=2**-2), UInt(4, scale=0.25), Int(5, scale=0.5)
        self.first = QuantConv2d(6, 8, 1, weight_quant=codes())
        self.eight, self.two = QuantConv2d(8, 4, 3, weight_quant=codes(), padding=1), QuantConv2d(2, 4, 3, bias=False)
        self.many = QuantConv2d(32, 4, 1, weight_quant=codes())
        self.rows, self.last = QuantLinear(8, 8, weight_quant=codes()), QuantLinear(4, 3, weight_quant=codes())
        self.flat = QuantLinear(336, 3, weight_quant=codes())
        self.mixed = QuantLinear(5, 5, weight_quant=codes())
        self.plain = QuantLinear(5, 5, weight_quant=Int(4, 2**-3), bias=False)
        self.sign, self.ones, self.wider = Sign(), UInt(2, scale=1.0), QuantConv2d(24, 4, 1, weight_quant=codes())
        self.wide_signs = QuantLinear(30, 40, weight_quant=Bipolar(0.5), bias=False)
        self.line = QuantConv1d(6, 8, 3, padding=1, weight_quant=Bipolar(0.5), bias=False)
        self.heads, self.head_codes = nn.Parameter(torch.randn(3, 8, 4)), Int(4, "max_abs", axis=2)
        self.wide = QuantLinear(6, 8, weight_quant=codes())

    def forward(self, x: Tensor) -> Tensor:
        """Compute what the function says."""
        return self.function(self, self.codes(x))

    @property
    def weights(self) -> Tensor:
        """Codes of 3 matrices [8, 4]."""
        result: Tensor = self.head_codes(self.heads)
        return result


def hidden(m: Any, x: Tensor) -> Tensor:
    """Return the codes of 8 channels."""
    result: Tensor = m.act(torch.relu(m.first(x)))
    return result


def mixer(m: Any, x: Tensor) -> Tensor:
    """Return a block along 5 rows between two along 8 features, each beside its input."""
    x = m.act(torch.relu(m.wide(x)))
    x = m.act(x + m.sums(m.mixed(x.transpose(1, 2))).transpose(1, 2))
    x = m.act(x + m.rows(x))
    result: Tensor = m.sums(m.rows(x)).mean(1)
    return result


def twice(x: Tensor, other: Tensor) -> Tensor:
    return torch.cat([x, x, other], 1)


def of_rows(m: Any, x: Tensor) -> Tensor:
    """Return codes [N, 3, 5, 8]."""
    result: Tensor = m.act(torch.relu(m.wide(x)))
    return result


IMAGE, ROWS, MANY = (6, 4, 6), (5, 6), (3, 5, 6)
ORDERS: dict[str, tuple[Forward, tuple[int, ...]]] = {
    "transposed": (lambda m, x: m.eight(hidden(m, x).mT), IMAGE),
    "shuffle": (lambda m, x: m.eight(functional.channel_shuffle(hidden(m, x), 2)), IMAGE),
    "pixel_shuffle": (lambda m, x: m.two(functional.pixel_shuffle(hidden(m, x), 2)), IMAGE),
    "pixel_unshuffle": (lambda m, x: m.many(functional.pixel_unshuffle(hidden(m, x), 2)), IMAGE),
    "channels_as_rows": (lambda m, x: m.eight(hidden(m, x).permute(0, 3, 1, 2).reshape(-1, 8, 4, 6)), IMAGE),
    "both": (lambda m, x: m.sums(hidden(m, x) + functional.channel_shuffle(hidden(m, x), 4)), IMAGE),
    "mean_of_features": (lambda m, x: of_rows(m, x).mean(2), ROWS),
    "along_rows": (lambda m, x: m.mixed(of_rows(m, x).transpose(1, 2)), ROWS),
    "mixer": (mixer, ROWS),
    "bipolar_sums": (
        lambda m, x: m.sums(m.wide_signs(m.sign(x).flatten(1)).view(-1, 5, 8).mT + m.line(m.sign(x))),
        (6, 5),
    ),
    "bipolar_sums_flat": (
        lambda m, x: m.sums(m.line(m.sign(x)).mT.flatten(1) + m.wide_signs(m.sign(x).flatten(1))),
        (6, 5),
    ),
    "sums": (lambda m, x: m.act(of_rows(m, x) + m.plain(of_rows(m, x).mT).mT), ROWS),
    # The layer's bias differs from row to row of the sum.
    "sums_with_a_bias": (lambda m, x: m.act(of_rows(m, x) + m.mixed(of_rows(m, x).mT).mT), ROWS),
}
JOINS: dict[str, tuple[Forward, tuple[int, ...]]] = {
    "height": (lambda m, x: m.eight(torch.cat([hidden(m, x), m.act(-m.first(x))], 2)), IMAGE),
    "width": (lambda m, x: m.eight(torch.cat([hidden(m, x), m.act(-m.first(x)), hidden(m, x)], 3)), IMAGE),
    "scales": (lambda m, x: m.eight(m.act(torch.cat([hidden(m, x), m.sums(m.first(x))], 2))), IMAGE),
    "rows": (lambda m, x: m.rows(torch.cat([of_rows(m, x), m.act(m.rows(of_rows(m, x)))], 1)), ROWS),
    "stack": (lambda m, x: torch.stack([hidden(m, x), m.act(-m.first(x))], 2), IMAGE),
    "bipolar": (
        lambda m, x: m.wider(torch.cat([m.sign(m.first(x)), m.sign(m.first(x)), m.ones(m.first(x))], 1)),
        IMAGE,
    ),
    "bipolar_twice": (lambda m, x: m.wider(twice(m.sign(m.first(x)), m.ones(m.first(x)))), IMAGE),
    "flat": (lambda m, x: m.flat(torch.cat([hidden(m, x).flatten(1), x.flatten(1)], 1)), IMAGE),
}
PRODUCTS: dict[str, tuple[Forward, tuple[int, ...]]] = {
    "heads": (lambda m, x: m.last(m.act(torch.relu(of_rows(m, x) @ m.weights))), MANY),
    "one_row": (lambda m, x: m.last(m.act((of_rows(m, x).unsqueeze(2) @ m.weights).squeeze(2))), (3, 6)),
    "one_for_all": (lambda m, x: m.last(m.act(of_rows(m, x).unsqueeze(1) @ m.weights)), ROWS),
    "many_for_each": (lambda m, x: m.last(m.act(of_rows(m, x) @ m.weights)), (2, *MANY)),
    "einsum": (lambda m, x: m.last(m.act(torch.einsum("bhri,hio->bhro", of_rows(m, x), m.weights))), MANY),
    "sums_of_heads": (
        lambda m, x: m.last(m.act(torch.einsum("hio, brhi -> bro", m.weights, of_rows(m, x)))),
        (5, 3, 6),
    ),
    "turned": (lambda m, x: m.sums(torch.einsum("brhi,iho->bro", of_rows(m, x), m.weights.transpose(0, 1))), (5, 3, 6)),
    "one_weight": (lambda m, x: m.sums(torch.einsum("bhri,hio->bhro", of_rows(m, x), m.weights[:1])), MANY),
    "one_value": (lambda m, x: m.sums(torch.einsum("bhri,hio->bhro", of_rows(m, x).amax(1, True), m.weights)), MANY),
    "without_arrow": (lambda m, x: m.sums(torch.einsum("bri,hio", of_rows(m, x), m.weights)), ROWS),
}
NETWORKS = ORDERS | JOINS | PRODUCTS
IN_RTL = ("shuffle", "pixel_shuffle", "mixer", "height", "width", "heads")


@functools.cache
def body_of(name: str) -> Graph:
    """Return the integers of a network's body."""
    function, shape = NETWORKS[name]
    return lowered(Net(function), shape).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", NETWORKS)
def test_orders_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    for interval in (6000, 800):
        check_equal(body, map_body(body, "test", LARGE, target_interval=interval))


def transposing(name: str, interval: int = 6000) -> list[str]:
    """Return the engines of a network that change the order of a stream."""
    stages = map_body(body_of(name), "test", LARGE, target_interval=interval).stages
    return [stage.name for stage in stages if stage.name.endswith("transpose.window")]


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", ["flat", "stack", "one_row", "mean_of_features"])
def test_what_streams_in_order_takes_no_buffer(name: str) -> None:
    assert len(transposing(name)) == (name == "mean_of_features")


@pytest.mark.usefixtures("deep_fifos")
def test_mixer_transposes_once_for_each_direction() -> None:
    assert len(transposing("mixer")) == 2


class Mixer(nn.Module):
    """Layers along the features and along the rows of patches in turn, each beside its input."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(2, 8, 2, stride=2), nn.BatchNorm2d(8)
        self.tokens = nn.ModuleList([nn.Linear(9, 12), nn.Linear(12, 9)])
        self.channels, self.last = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 8)]), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.patches(x)).flatten(2)
        x = x + self.tokens[1](functional.gelu(self.tokens[0](x)))
        x = x.transpose(1, 2)
        x = x + self.channels[1](functional.gelu(self.channels[0](x)))
        result: Tensor = self.last(x.mean(1))
        return result


@pytest.mark.usefixtures("deep_fifos")
def test_mixer_of_a_float_model_is_quantized_and_equal_to_golden_stages() -> None:
    torch.manual_seed(0)
    model = nnhw.quantize(Mixer().eval(), torch.randn(40, 2, 6, 6), 8, 8)
    body = lowered(model, (2, 6, 6)).body
    check_equal(body, map_body(body, "test", LARGE, target_interval=4000))


@needs_simulator
@pytest.mark.parametrize("name", covering(IN_RTL, ("pixel_shuffle", "width", "heads")))
def test_orders_equal_reference_in_rtl(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=6000)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


JOINS_ALL = "joins rows, columns or flattened maps; a shared engine joins channels alone; use --style streaming"
REFUSED = {
    "transposed": r"layer .* \(transpose\) does not run on a shared engine; use --style streaming",
    "height": f"layer .*cat.* {JOINS_ALL}",
    "flat": f"layer .*cat.* {JOINS_ALL}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_shared_engines_reject_other_orders(name: str) -> None:
    with pytest.raises(MappingError, match=REFUSED[name]):
        compile_body(body_of(name), array_of(8, 2, 8))


def test_lanes_of_a_transposing_engine_divide_what_stays_together() -> None:
    body = body_of("transposed")
    with pytest.raises(MappingError, match=r"cannot be folded as .*: channel_lanes must divide its 8 channels"):
        map_body(body, "test", LARGE, overrides={"m_t.transpose": {"channel_lanes": 3}})
    accelerator = map_body(body, "test", LARGE, overrides={"m_t.transpose": {"channel_lanes": 4}})
    (window,) = (stage for stage in accelerator.stages if stage.name == "m_t.transpose.window")
    assert window.output.lanes == 4
    check_equal(body, accelerator)


def test_branch_that_waits_for_too_long_is_named() -> None:
    parts = lowered(Net(JOINS["height"][0]), (6, 12, 12))
    for interval, missing, bits in ((60_000, 9, 18_432), (None, 3, 4_612)):
        with pytest.raises(MappingError) as caught:
            map_body(parts.body, "test", Budget(lc=100_000, ebr=4), target_interval=interval)
        assert str(caught.value) == (
            f"the network does not fit: with the FIFOs between its engines there are {missing} block RAMs too many; "
            f"in front of 'cat' a branch waits for another in a FIFO of {bits} bits: branches of similar "
            "length, smaller maps, and joins along the channels need less; use fewer channels or fewer bits, or a "
            "board with more resources ('nnhw boards')"
        )
