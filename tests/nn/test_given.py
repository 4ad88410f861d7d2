"""Models as users give them: compiled, pruned, lazy, half-made."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import nnhw
from nnhw.errors import CaptureError, InputError
from nnhw.frontend import capture
from nnhw.nn import Int, QuantLinear, UInt
from nnhw.nn.given import class_name, copied


def small() -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(
        *(UInt(8, 2**-8), QuantLinear(8, 6, weight_quant=Int(4, 0.125)), nn.ReLU(), UInt(4, 0.25)),
        QuantLinear(6, 3, weight_quant=Int(4, 0.125)),
    ).eval()


def floats() -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True), nn.Linear(6, 3)).eval()


IMAGES = torch.rand(20, 8, generator=torch.Generator().manual_seed(1))


def pruned(model: nn.Module, layer: str) -> nn.Module:
    return prune.l1_unstructured(model.get_submodule(layer), "weight", 0.5) and model


def pruned_for_good(model: nn.Module, layer: str) -> nn.Module:
    prune.remove(pruned(model, layer).get_submodule(layer), "weight")
    return model


def test_pruned_model_is_captured_with_its_remaining_weights() -> None:
    own, expected = pruned(small(), "1"), pruned_for_good(small(), "1")
    assert int((expected[1].weight == 0).sum()) == 24  # type: ignore[index]
    np.testing.assert_array_equal(nnhw.reference(own)(IMAGES.numpy()), nnhw.reference(expected)(IMAGES.numpy()))
    assert prune.is_pruned(own)


def test_pruned_float_model_is_quantized_with_its_remaining_weights() -> None:
    own, expected = (nnhw.quantize(make(floats(), "0"), IMAGES) for make in (pruned, pruned_for_good))
    assert torch.equal(own(IMAGES), expected(IMAGES))
    assert int((own.get_submodule("0").weight == 0).sum()) == 24


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_of_an_older_weight_norm_are_those_it_computes() -> None:
    plain, normed = floats(), floats()
    torch.nn.utils.weight_norm(normed[0])
    assert torch.equal(nnhw.quantize(normed, IMAGES)(IMAGES), nnhw.quantize(plain, IMAGES)(IMAGES))


def test_compiled_model_is_the_one_it_was_made_of() -> None:
    compiled = torch.compile(small())
    assert class_name(compiled) == "Sequential"
    expected = nnhw.reference(small())(IMAGES.numpy())
    np.testing.assert_array_equal(nnhw.reference(compiled)(IMAGES.numpy()), expected)
    quantized = nnhw.quantize(torch.compile(floats()), IMAGES)
    assert torch.equal(quantized(IMAGES), nnhw.quantize(floats(), IMAGES)(IMAGES))


UNREADY: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "script": (
        lambda: torch.jit.script(nn.Sequential(nn.Linear(8, 2))),
        "a TorchScript model cannot be traced; give the nn.Module that it was made of",
    ),
    "lazy": (
        lambda: nn.Sequential(nn.LazyLinear(2)),
        "'0.weight' of the model has no shape yet, for its layer is a lazy one; run the model once",
    ),
    "meta": (
        lambda: nn.Sequential(nn.Linear(8, 2, device="meta")),
        "'0.weight' of the model is on the device 'meta', without values; load its parameters",
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", UNREADY)
def test_model_that_is_not_ready_is_refused(name: str) -> None:
    make, message = UNREADY[name]
    for refuse in (lambda: nnhw.quantize(make(), IMAGES), lambda: capture(make(), IMAGES)):
        with pytest.raises(InputError) as caught:
            refuse()
        assert str(caught.value) == message


def test_model_that_cannot_be_copied_is_refused() -> None:
    class Alone(nn.Module):
        def __deepcopy__(self, memo: object) -> Alone:
            raise RuntimeError("one of a kind\nas it is")

    with pytest.raises(InputError) as caught:
        copied(Alone())
    assert str(caught.value) == (
        "the model cannot be copied: RuntimeError: one of a kind; copy.deepcopy(model) has to work"
    )


class Pair(NamedTuple):
    """Results with names."""

    first: torch.Tensor
    second: torch.Tensor


@pytest.mark.parametrize(
    ("around", "given"),
    [
        (lambda y: {0: y}, "dict of 1"),
        (lambda y: (y, (y, y)), "tuple of 3 that holds others"),
        (lambda y: [y], "list of 1"),
        (lambda y: Pair(y, y), "Pair of 2"),
    ],
    ids=["dict", "tuple", "list", "named"],
)
def test_model_with_results_in_another_form_is_refused(around: Callable[[torch.Tensor], object], given: str) -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = small()

        def forward(self, x: torch.Tensor) -> object:
            return around(self.inner(x))

    for model in (Around().eval(), torch.export.export(Around().eval(), (IMAGES,))):
        with pytest.raises(CaptureError) as caught:
            capture(model, IMAGES)
        assert str(caught.value) == (
            f"the model must return one tensor, a tuple of two or more, or a dict of tensors by strings, got a "
            f"{given}; return the tensors to be computed"
        )
