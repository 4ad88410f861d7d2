"""Which numbers values can be, found from operations alone: compared with what many images give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from nnhw.frontend.export import opened
from nnhw.nn.written.cancelling import cancel
from nnhw.nn.written.domains import Between, Domain, Few, Steps, domains
from nnhw.nn.written.lattices import lattice_of, lattice_of_weights
from nnhw.nn.written.watching import computed, constants_of, values_of

X = torch.linspace(-3, 3, 1201).reshape(-1, 1)
Function = Callable[[Tensor], Tensor]


class Model(nn.Module):
    """A function as a model."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def domain_of(function: Function, *, cancelled: bool = True) -> tuple[Domain, Tensor]:
    """Return the domain of a function's results, and its results for `X`."""
    model = Model(function).eval()
    with torch.no_grad():
        module = opened(torch.export.export(model, (X,), dynamic_shapes=({0: Dim.DYNAMIC},), strict=False))
        if cancelled:
            cancel(module.graph, values_of(module, X))
        found = domains(module, constants_of(module), computed(module.graph))
        (result,) = module.graph.output_node().all_input_nodes
        return found[result], model(X)


def straight_through(x: Tensor) -> Tensor:
    return (x.clamp(0, 1).mul(3).round().div(3) - x).detach() + x


FEW: dict[str, tuple[Function, list[float]]] = {
    "sign": (torch.sign, [-1, 0, 1]),
    "sign of what is not negative": (lambda x: torch.sign(torch.relu(x)), [0, 1]),
    "two values": (lambda x: torch.where(x >= 0, 0.5, -0.5), [-0.5, 0.5]),
    "three values": (lambda x: torch.where(x > 1, 1.0, torch.where(x < -1, -1.0, 0.0)), [-1, 0, 1]),
    "a comparison": (lambda x: (x > 0).float() * 2 - 1, [-1, 1]),
    "of two": (lambda x: ((x > 0) & (x < 1)).to(torch.float32), [0, 1]),
    "never zero": (lambda x: x.sign().add(0.5).sign(), [-1, 1]),
    "levels": (lambda x: torch.round(x.clamp(0, 1) * 3) / 3, [0, 1 / 3, 2 / 3, 1]),
    "levels around 0": (lambda x: 2 * (torch.round(x.clamp(0, 1) * 3) / 3) - 1, [-1, -1 / 3, 1 / 3, 1]),
    "clamp behind": (lambda x: torch.clamp(torch.round(x / 0.5), -2, 1) * 0.5, [-1, -0.5, 0, 0.5]),
    "clamp between steps": (lambda x: torch.clamp(torch.floor(x), -1.5, 0.25), [-1.5, -1, 0, 0.25]),
    "relu behind": (lambda x: torch.relu(torch.ceil(x.clamp(max=2))), [0, 1, 2]),
    "half up": (lambda x: torch.floor(x.clamp(-1, 1) + 0.5), [-1, 0, 1]),
    "sigmoid": (lambda x: torch.round(torch.sigmoid(x) * 2), [0, 1, 2]),
    "straight-through": (straight_through, [0, 1 / 3, 2 / 3, 1]),
    "moved": (lambda x: torch.sign(x).flatten(1).unsqueeze(1), [-1, 0, 1]),
    "with a border": (lambda x: nn.functional.pad(torch.where(x >= 0, 1.0, -1.0), (1, 1), value=-1.0), [-1, 1]),
    "joined": (lambda x: torch.cat([torch.sign(x), torch.round(x.clamp(2, 3))], 1), [-1, 0, 1, 2, 3]),
    "added": (lambda x: torch.where(x >= 0, 1.0, -1.0) + torch.where(x >= 1, 0.5, -0.5), [-1.5, -0.5, 0.5, 1.5]),
    "PACT": (lambda x: torch.round(0.5 * (x.abs() - (x - 1.5).abs() + 1.5) * 2) / 2, [0, 0.5, 1, 1.5]),
    "bent lines": (lambda x: torch.floor((x.clamp(-1, 1) - torch.relu(x) + x.clamp(min=1)) * 2), [0, 1, 2]),
    "whole numbers": (lambda x: (x.clamp(0, 1) * 3).int().float() / 3, [0, 1 / 3, 2 / 3, 1]),
    "heaviside": (lambda x: torch.heaviside(x, torch.tensor(0.5)), [0, 0.5, 1]),
    "ones of a value": (lambda x: torch.where(x > 0, torch.ones_like(x), -torch.ones_like(x)), [-1, 1]),
    "in place": (lambda x: torch.relu(x).clamp_(max=1).round_(), [0, 1]),
}


@pytest.mark.parametrize("name", FEW)
def test_few_numbers_are_found(name: str) -> None:
    function, expected = FEW[name]
    domain, given = domain_of(function)
    assert isinstance(domain, Few)
    torch.testing.assert_close(domain.numbers.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=0)
    # Nothing else ever comes, which is what counts; a few numbers may be possible only on paper.
    near = (given.reshape(-1, 1).double() - domain.numbers.double()).abs().amin(dim=1)
    assert float(near.max()) < 1e-6


MANY: dict[str, Function] = {
    "the input": lambda x: x,
    "a function": lambda x: torch.tanh(x) * 2,
    "a number that is added and taken off": lambda x: (x + 8388608.0) - 8388608.0,
    "a product with a sign": lambda x: torch.sign(x) * x,
    "a rest": lambda x: x - torch.round(x),
    "too many": lambda x: torch.round(x.clamp(-1, 1) * 1e6),
    "decimals": lambda x: torch.round(x.clamp(-1, 1), decimals=1),
    "a bias in the shape of signs": lambda x: (torch.rand(1, generator=torch.Generator()) * 0 + x).expand_as(x.sign()),
}


@pytest.mark.parametrize("name", MANY)
def test_many_numbers_are_not_few(name: str) -> None:
    assert isinstance(domain_of(MANY[name])[0], Between)


HELD: dict[str, Function] = {
    "other elements": lambda x: torch.round((lambda a: a[0] - torch.relu(a[1]))(torch.cat([x, -x], 1).chunk(2, 1))),
    "a square by itself": lambda x: torch.round((x * x - 3 * x.abs()).clamp(-2, 9)),
    "a square of what has bounds": lambda x: torch.round((torch.sigmoid(x) - 0.5) * (torch.sigmoid(x) - 0.5) * 16),
    "a divisor through 0": lambda x: torch.round(x.clamp(1, 2) * 2 / torch.tanh(x)),
    "threshold": lambda x: torch.round(functional.threshold(x.clamp(-1, 5), 0.1, 20.0)),
    "a falling leak": lambda x: torch.round(functional.leaky_relu(x.clamp(-2, 2), -2.0)),
    "the constant first": lambda x: torch.round(torch.maximum(torch.tensor(1.0), x).clamp(max=2.5)),
    "a quotient in float32": lambda x: torch.floor(x.clamp(0, 1.4) / torch.tensor(0.2)),
    "one number in an array": lambda x: torch.round(torch.minimum(torch.relu(x), torch.full((1,), 2.0))),
}


@pytest.mark.parametrize("name", HELD)
def test_every_number_that_comes_is_held(name: str) -> None:
    domain, given = domain_of(HELD[name])
    low, high = domain.bounds
    assert low <= float(given.min())
    assert float(given.max()) <= high
    if isinstance(domain, Few):
        assert (given.reshape(-1, 1).double() == domain.numbers.double()).any(dim=1).all()


def test_steps_without_bounds_are_known() -> None:
    domain, _ = domain_of(lambda x: torch.round(x * 4) / 4 + 1)
    assert isinstance(domain, Steps)
    assert (domain.step, domain.offset % domain.step) == (0.25, 0)


def test_a_sum_that_does_not_cancel_stays() -> None:
    domain, _ = domain_of(straight_through, cancelled=False)
    assert isinstance(domain, Between)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 15, 63, 127, 255])
@pytest.mark.parametrize("scale", [1.0, 0.1, 1 / 3, 0.0123])
def test_multiples_have_their_scale(steps: int, scale: float) -> None:
    codes = torch.arange(-steps, steps + 1, dtype=torch.float64)
    found = lattice_of(codes * scale)
    assert found is not None
    assert (found.low, found.high) == (-steps, steps)
    assert float(found.scale) == scale


def test_other_numbers_have_none() -> None:
    generator = torch.Generator().manual_seed(0)
    assert lattice_of(torch.randn(6, dtype=torch.float64, generator=generator)) is None
    assert lattice_of(torch.tensor([1.0, 1 + 1 / 300], dtype=torch.float64)) is None


def test_each_channel_may_have_a_scale() -> None:
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 2, (5, 4, 3, 3), generator=generator).double() * 2 - 1
    scales = torch.rand(5, dtype=torch.float64, generator=generator) + 0.1
    found = lattice_of_weights(signs * scales[:, None, None, None], 0)
    assert found is not None
    assert found.bipolar
    assert torch.equal(found.scale, scales)
    assert lattice_of_weights(torch.randn(5, 4, 3, 3, dtype=torch.float64, generator=generator), 0) is None
