"""Bits by layers, and which layers need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nnhw
from nnhw.errors import NnhwError


def network() -> nn.Module:
    """Return a float network of three layers."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    ).eval()


def images(count: int = 32) -> Tensor:
    """Return images of [1, 10, 10]."""
    return torch.rand(count, 1, 10, 10, generator=torch.Generator().manual_seed(1))


def ranges(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return the codes of each quantizer."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, nnhw.nn.Quantizer)}
    return {name: (module.qmin, module.qmax) for name, module in found.items()}


def test_each_layer_gets_its_bits() -> None:
    made = nnhw.quantize(network(), images(), weight_bits={"*": 2, "0": 8, "[5-9]": 4}, act_bits={"1": 3, "*": 8})
    found = ranges(made)
    assert found["0.weight_quant"] == (-127, 127)
    assert found["2.weight_quant"] == (-1, 1)
    assert found["5.weight_quant"] == (-7, 7)
    assert found["_1_quant"] == (0, 7)
    assert found["_3_quant"] == (0, 255)


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        ({"0": 8}, "weight_bits needs an entry '*' for the remaining layers"),
        ({"0": 9, "*": 2}, "weight_bits of '0' must be a whole number from 1 to 8, got 9"),
        (
            {"conv": 3, "*": 8},
            "weight_bits names 'conv', but no layer without a quantizer matches; there are '0', '2', '5'",
        ),
        ({0: 3, "*": 8}, "weight_bits needs names of layers as its keys, got 0"),
    ],
)
def test_wrong_rules_are_named(bits: Mapping[Any, int], message: str) -> None:
    with pytest.raises(NnhwError) as caught:
        nnhw.quantize(network(), images(), weight_bits=bits)
    assert message in str(caught.value)


def test_the_layer_that_loses_most_comes_first() -> None:
    model = network()
    found = nnhw.sensitivity(model, images(), (4, 2))
    worst = [
        min(row.sqnr_db for row in found if row.layer == layer) for layer in dict.fromkeys(row.layer for row in found)
    ]
    assert worst == sorted(worst)
    assert {(row.layer, row.bits) for row in found} == {(layer, bits) for layer in "025" for bits in (4, 2)}
    assert all(row.accuracy is None for row in found)
    made = nnhw.quantize(model, images())
    fewer = nnhw.quantize(model, images(), weight_bits={"2": 2, "*": 8})
    with torch.no_grad():
        whole, changed = made(images()).double(), fewer(images()).double()
    ratio = 10 * torch.log10(whole.square().sum() / (changed - whole).square().sum())
    (row,) = [row for row in found if (row.layer, row.bits) == ("2", 2)]
    assert row.sqnr_db == pytest.approx(float(ratio), abs=1e-6)


def test_labels_give_accuracy() -> None:
    with torch.no_grad():
        labels = network()(images()).argmax(dim=1)
    found = nnhw.sensitivity(network(), images(), 1, labels=labels)
    assert found.accuracy is not None
    assert found.accuracy > 0.9
    assert "with 8 bits everywhere" in str(found)
    assert all(row.accuracy is not None and row.accuracy <= 1 for row in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 4.5}, "bits needs a whole number, or several as in (4, 2), got 4.5"),
        ({"bits": ()}, "bits needs one number or more"),
        ({"bits": 0}, "bits must be a whole number from 1 to 8, got 0"),
        ({"labels": ["a"] * 32}, "labels need whole numbers [N], one for each image"),
        ({"labels": [1, 2]}, "labels need one number for each of the 32 images, got 2"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(NnhwError) as caught:
        nnhw.sensitivity(network(), images(), **options)
    assert message in str(caught.value)
