from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from nnhw.errors import InputError
from nnhw.frontend.reference import Differences, Reference, count_differences, reference
from nnhw.nn import Int, QuantLinear, QuantReLU
from nnhw.passes import lower, split
from tests.frontend.models import binary_mlp, images, mixed_cnn, settled


def test_reference_answers_in_kind() -> None:
    exact = reference(binary_mlp())
    x = images(3)
    result = exact(x)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.float64
    array = exact(x.numpy())
    assert isinstance(array, np.ndarray)
    assert array.tolist() == result.tolist()
    assert exact(x[:0]).shape == (0, 5)
    with pytest.raises(InputError, match="images must be a torch tensor or a NumPy array, got list"):
        exact([1.0])  # type: ignore[call-overload]


@pytest.mark.parametrize("shared", [True, False], ids=["one reference", "one each"])
def test_reference_may_be_used_first_in_several_threads(shared: bool) -> None:
    count, x = 4, images(3)
    references = [reference(binary_mlp())] * count if shared else [reference(binary_mlp()) for _ in range(count)]
    together = threading.Barrier(count)

    def first(exact: Reference) -> list[list[float]]:
        together.wait()
        return exact(x).tolist()  # type: ignore[no-any-return]

    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(first, references))
    assert results == [reference(binary_mlp())(x).tolist()] * count


def test_reference_of_an_argmax_is_integers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = binary_mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x).argmax(1)  # type: ignore[no-any-return]

    result = reference(Net())(images(3))
    assert (result.dtype, list(result.shape)) == (torch.int64, [3])


@pytest.mark.parametrize("make", [binary_mlp, mixed_cnn])
def test_reference_equals_the_lowered_parts(make: object) -> None:
    model = make()  # type: ignore[operator]
    exact = Reference(model, images())
    x = images(600, seed=2)
    parts = split(lower(exact.graph()))
    assert parts.run(x.numpy())[0].tolist() == exact(x).tolist()


def test_reference_equals_plain_evaluation_of_models_with_powers_of_two() -> None:
    model, x = binary_mlp(), images(500, seed=1)
    with torch.no_grad():
        assert torch.equal(reference(model)(x), model(x).double())
    assert count_differences(model, x) == Differences(500, 0, 0)


def test_reference_computes_constants_in_float64_too() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.quant = binary_mlp(), Int(6, 0.1)
            self.mean, self.variance, self.shift = (nn.Parameter(torch.ones(5)) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            deviation = torch.sqrt(self.variance * self.variance + 0.1)
            return (self.layers(x) - self.mean) / deviation + self.quant(self.shift).view(5)

    assert count_differences(settled(Norm()), images(200, seed=1)).float64 == 0


def test_reference_is_of_the_model_as_it_was() -> None:
    model = binary_mlp()
    before = copy.deepcopy(model.state_dict())
    exact = reference(model.train())
    first = exact(images())
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for parameter in model.parameters():
        parameter.data.neg_()
    assert torch.equal(exact(images()), first)


def test_reference_takes_exported_programs() -> None:
    model = binary_mlp()
    program = torch.export.export(model, (images(2),), strict=False)
    assert torch.equal(reference(program)(images(5)), reference(model)(images(5)))


def test_reference_without_images_has_no_graph() -> None:
    with pytest.raises(InputError, match="a reference without example_input has no graph before its first images"):
        reference(binary_mlp()).graph()


def test_count_differences_finds_the_rows_in_which_rounding_decides() -> None:
    # 0.3 times 0.7 times n, in steps of 0.42: every odd sum is a tie, which the rounding of float32 breaks.
    layers = [nn.Flatten(), Int(4, 0.3), QuantLinear(64, 8, weight_quant=Int(4, 0.7), bias=False), QuantReLU(8, 0.42)]
    model = settled(nn.Sequential(*layers))
    found = count_differences(model, images(200) * 3)
    assert found.samples == 200
    assert found.float32 > 20
    assert found.float64 <= found.float32
