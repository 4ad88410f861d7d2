"""Modules in the place of others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nnhw
from nnhw.errors import ExactnessError, InputError

EXAMPLE = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Sequential(nn.Linear(8, 8), nn.GELU()), nn.ReLU6())


def test_swap_by_class_and_name_leaves_the_model_as_it_is() -> None:
    model = network()
    changed = nnhw.swap(model, {nn.GELU: lambda gelu: nn.ReLU(), "3": nn.Hardtanh()}, approximates=True)
    assert [type(module) for module in (changed[1], changed[2][1], changed[3])] == [nn.ReLU, nn.ReLU, nn.Hardtanh]
    assert isinstance(model[1], nn.GELU)
    assert not changed.training
    assert torch.equal(changed[0].weight, model[0].weight)


def test_swap_gives_each_place_a_copy() -> None:
    changed = nnhw.swap(network(), {nn.GELU: nn.PReLU()}, approximates=True)
    assert changed[1] is not changed[2][1]


def test_swap_takes_names_with_wildcards_before_classes() -> None:
    changed = nnhw.swap(network(), {nn.GELU: nn.ReLU(), "2.*1": nn.Tanh()}, approximates=True)
    assert isinstance(changed[2][1], nn.Tanh)
    assert isinstance(changed[1], nn.ReLU)


class Wrapped(nn.Module):
    """A module in another one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_swap_replaces_modules_within_others_first() -> None:
    changed = nnhw.swap(network(), {"2": Wrapped, nn.GELU: nn.ReLU()}, approximates=True)
    assert [type(part) for part in changed[2].inner] == [nn.Linear, nn.ReLU]
    # Nothing in a new module is replaced, though it has the name or the class of an old one.
    new = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    changed = nnhw.swap(network(), {"2": new, "2.1": nn.Tanh(), nn.GELU: nn.ReLU()}, approximates=True)
    assert isinstance(changed[2][1], nn.GELU)
    assert isinstance(changed[1], nn.ReLU)


def test_swap_compares_unless_it_approximates() -> None:
    with pytest.raises(ExactnessError, match=r"in 4 of 4 rows of example_input, first in row 0"):
        nnhw.swap(network(), {nn.GELU: nn.ReLU()}, example_input=EXAMPLE)
    same = nnhw.swap(network(), {nn.ReLU6: lambda module: nn.Hardtanh(0.0, 6.0)}, example_input=EXAMPLE)
    assert torch.equal(same(EXAMPLE), network().eval()(EXAMPLE))


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({}, "an empty one"),
        ({nn.SiLU: nn.ReLU()}, "no SiLU to replace; it has GELU, Linear"),
        ({"2.2": nn.ReLU()}, "no module '2.2' to replace, or another entry took it; did you mean '2"),
        ({nn.GELU: lambda module: 3}, "must be an nn.Module, given int"),
        ({nn.GELU: lambda module: 1 / 0}, "what replaces module '2.1' fails: ZeroDivisionError"),
        ({3: nn.ReLU()}, "classes of modules and names, given 3"),
    ],
)
def test_swap_refuses(modules: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nnhw.swap(network(), modules, approximates=True)


def test_swap_needs_an_example_to_compare_on() -> None:
    with pytest.raises(InputError, match="needs an example_input"):
        nnhw.swap(network(), {nn.GELU: nn.ReLU()})
