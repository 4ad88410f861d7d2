"""What is traced of a float model is compared with the model: hooks, branches, patches and changes in forward."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

import nnhw
from nnhw.errors import InputError
from nnhw.nn.tracing import traced

HERE = Path(__file__).name


def images() -> Tensor:
    return torch.rand(20, 8, generator=torch.Generator().manual_seed(1))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 3)).eval()


def assert_same(model: nn.Module) -> None:
    """Check that the trace is the model, and that quantization gives what it computes, but for 8 bits."""
    with torch.no_grad():
        expected = model(images())
        assert torch.equal(traced(model, [images()])(images()), expected)
        assert float((nnhw.quantize(model, images())(images()) - expected).abs().max() / expected.std()) < 0.1


def problem_of(model: nn.Module) -> str:
    with pytest.raises(InputError) as caught:
        nnhw.quantize(model, images())
    return str(caught.value)


def doubled(module: nn.Module, given: Any, result: Tensor) -> Tensor:
    return result * 2 + 1


def doubled_before(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
    return (given[0] * 2 + 1,)


@pytest.mark.parametrize("path", ["", "0", "1", "1.0", "3"])
def test_quantize_follows_hooks_that_change_values(path: str) -> None:
    behind, before = network(), network()
    behind.get_submodule(path).register_forward_hook(doubled)
    before.get_submodule(path).register_forward_pre_hook(doubled_before)
    assert_same(behind)
    assert_same(before)
    assert not torch.equal(behind(images()), network()(images()))


def test_quantize_takes_hooks_that_change_nothing() -> None:
    model, seen = network(), []
    for module in model.modules():
        module.register_forward_hook(lambda _module, _given, result: seen.append(float(result.mean().item())))
    assert_same(model)
    count = len(seen)
    quantized = nnhw.quantize(model, images())
    assert len(seen) > count
    count = len(seen)
    quantized(images())
    # A number that a hook reads out of a tensor could not be traced.
    assert nnhw.reference(quantized)(images()).shape == (20, 3)
    assert len(seen) == count
    assert all(isinstance(value, float) for value in seen)


def test_quantize_rejects_a_hook_of_all_modules() -> None:
    handle = torch_module.register_module_forward_hook(doubled)
    try:
        problem = problem_of(network())
    finally:
        handle.remove()
    assert problem == (
        f"nnhw.quantize traced a different computation than the model's, starting at layer '0' (Linear): a hook "
        f"({HERE}:{doubled.__code__.co_firstlineno}) changes its input or output; do that in forward, and remove "
        f"the hook"
    )


class Branching(nn.Module):
    """Two layers, and one of two activations between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.last = nn.Linear(8, 6), nn.Linear(6, 3)
        self.register_buffer("scale", torch.ones(1))
        self.calls = 0

    def end(self, x: Tensor, positive: bool) -> Tensor:
        """Hidden layer, activation and last layer."""
        y = self.hidden(x)
        return self.last(torch.relu(y) if positive else torch.tanh(y) * 4)


class NotNone(Branching):
    def forward(self, x: Tensor, temperature: float | None = None) -> Tensor:
        return self.end(x, temperature is not None)


class IsNone(Branching):
    def forward(self, x: Tensor, *, skip: Tensor | None = None) -> Tensor:
        return self.end(x, skip is None)


class Loss(Branching):
    def forward(self, x: Tensor | None = None, labels: Tensor | None = None, **others: Any) -> Any:
        y = self.end(x, True)
        return y if labels is None else (functional.cross_entropy(y, labels), y)


class IsTensor(Branching):
    def forward(self, x: Tensor) -> Tensor:
        return self.end(x, isinstance(x, Tensor))


class Anything(Branching):
    def forward(self, *inputs: Tensor) -> Tensor:
        return self.end(inputs[0], len(inputs) == 1)


@pytest.mark.parametrize("kind", [NotNone, IsNone, Loss, IsTensor, Anything])
def test_quantize_takes_the_branch_that_the_model_takes(kind: type[Branching]) -> None:
    assert_same(kind())


class OfType(Branching):
    def forward(self, x: Tensor) -> Tensor:
        return self.end(x, type(x) is torch.Tensor)


class HasLength(Branching):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.end(x, len(x) > 0)
        except Exception:
            return self.end(x, False)


@pytest.mark.parametrize("kind", [OfType, HasLength])
def test_quantize_rejects_a_branch_on_the_kind_of_the_input(kind: type[Branching]) -> None:
    line = Branching.end.__code__.co_firstlineno + 3
    assert problem_of(kind()) == (
        f"nnhw.quantize traced a different computation than the model's, starting at mul of the model ({HERE}:{line}), "
        f"which layer 'last' (Linear, {HERE}:{line}) reads: a branch in forward goes a different way for the proxies "
        f"that replace tensors during tracing; remove code that checks the type or the length of a value"
    )


@pytest.mark.parametrize("path", ["", "0", "1", "2"])
def test_quantize_follows_a_forward_that_was_replaced(path: str) -> None:
    model = network()
    module = model.get_submodule(path)
    plain = type(module).forward
    module.forward = types.MethodType(lambda self, x: plain(self, x) * 2 + 1, module)  # type: ignore[method-assign]
    assert_same(model)


class Doubling(Branching):
    def forward(self, x: Tensor) -> Tensor:
        self.scale.mul_(2)
        return self.end(x * self.scale, True)


class Masked(Branching):
    def forward(self, x: Tensor) -> Tensor:
        y = self.end(x, True)
        self.last.weight.data.mul_(torch.tensor([[1.0], [0.0], [1.0]]))
        return y


class Counting(Branching):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.end(x * self.calls, True)


class Assigned(Branching):
    def forward(self, x: Tensor) -> Tensor:
        self.last.weight.data = self.last.weight.data / 2
        return self.end(x, True)


FIXED = (
    "an accelerator's weights are fixed: do this once before you pass the model to nnhw, and guard it in forward with "
    "'if self.training:'"
)
KEPT = "an accelerator keeps nothing from one image to the next, so leave that out in eval mode"


@pytest.mark.parametrize(
    ("kind", "name", "line", "remedy"),
    [(Doubling, "scale", 1, KEPT), (Masked, "last.weight", 2, FIXED), (Assigned, "last.weight", 1, FIXED)],
)
def test_quantize_rejects_what_forward_changes(kind: type[Branching], name: str, line: int, remedy: str) -> None:
    place = kind.forward.__code__.co_firstlineno + line
    assert problem_of(kind()) == f"forward changes '{name}' ({HERE}:{place}), on which its result depends; {remedy}"


def test_quantize_rejects_a_forward_that_counts_its_calls() -> None:
    assert problem_of(Counting()) == (
        "the model gives another result when it is called again with the same images: it draws random numbers, or "
        "forward changes an attribute; an accelerator keeps nothing from one image to the next, so leave that out in "
        "eval mode"
    )


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore")
def test_quantize_takes_weights_that_were_loaded_after_the_last_call(norm: Callable[..., Any]) -> None:
    model = network()
    norm(model[0])
    model(images())
    changed = ("0.weight_g", "0.weight_orig")
    model.load_state_dict({name: value * (1 + 2 * (name in changed)) for name, value in model.state_dict().items()})
    assert_same(model)


@pytest.mark.filterwarnings("ignore")
def test_quantize_takes_pruned_weights_and_biases() -> None:
    model = network()
    nn.utils.prune.l1_unstructured(model[0], "weight", amount=0.5)
    nn.utils.prune.random_unstructured(model[0], "bias", amount=0.5)
    assert_same(model)
    quantized = nnhw.quantize(model, images())
    assert int((quantized.get_submodule("0").weight == 0).sum()) >= 32  # type: ignore[operator]
