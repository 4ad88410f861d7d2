"""A few of the benchmark's random networks, and that its comparisons can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks import random_networks
from benchmarks.random_models import random_model
from benchmarks.random_networks import check_network, show, survey
from nnhw.accelerator import execution
from nnhw.accelerator.execution import Execution, execute
from nnhw.flow.models import lowering
from nnhw.frontend import agreement
from nnhw.frontend.evaluation import Evaluation, Evaluator
from nnhw.nn import QuantLinear
from tests.sim.test_benches import pytestmark as needs_simulator

MAPPED = (*range(1000, 1011), 1012, 41)  # the last adds sums and codes
LONG = 1011
SIGN_BEHIND_GELU = 51
SIMULATED = (1005, 1008, 1010)


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("seed", [*MAPPED, pytest.param(LONG, marks=pytest.mark.slow)])
def test_random_network_equals_reference_from_ir_to_golden_stages(seed: int) -> None:
    found = check_network(seed, mapped=True, make=random_model)
    assert (found.refused, found.failure) == ("", "")
    assert found.counts["frames"] >= random_networks.FRAMES


@needs_simulator
@pytest.mark.parametrize("seed", SIMULATED)
def test_random_network_equals_reference_in_rtl(seed: int) -> None:
    found = check_network(seed, simulated=True, make=random_model)
    assert (found.refused, found.failure, found.stage) == ("", "", "simulate")
    assert found.counts["rtl_frames"] > 0


def test_random_network_whose_sign_hangs_on_last_bits_is_refused() -> None:
    found = check_network(SIGN_BEHIND_GELU, mapped=True, make=random_model)
    assert "takes its code from the last bits of gelu" in found.refused


def test_random_model_is_the_same_for_a_seed() -> None:
    (one, images), (two, same) = random_model(7), random_model(7)
    assert torch.equal(images, same)
    assert torch.equal(one(images), two(images))
    assert str(one) == str(two)
    assert str(one) != str(random_model(8)[0])


@pytest.mark.parametrize("seed", [0, 38])
def test_random_network_depends_on_its_input(seed: int) -> None:
    model, images = random_model(seed)
    with torch.no_grad():
        results = model(images)
    assert (results != results[:1]).any()


def test_random_network_that_is_refused_is_counted_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def make(seed: int) -> tuple[nn.Sequential, Tensor]:
        return nn.Sequential(QuantLinear(3 + seed, 2)), torch.zeros(2, 3 + seed)

    row = survey((check_network(seed, make=make) for seed in range(3)), 3)
    assert row["networks"] == 3
    assert list(row["refused"].values()) == [3]
    assert row["failures"] == []
    show(row)
    assert "refused    3  capture: linear .. needs quantized inputs" in capsys.readouterr().out


@pytest.mark.usefixtures("deep_fifos")
def test_random_network_that_differs_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(*arguments: Any) -> Execution:
        right = execute(*arguments)
        return replace(right, elements=tuple(elements + 1 for elements in right.elements))

    monkeypatch.setattr(execution, "execute", off_by_one)
    row = survey([check_network(1000, mapped=True, make=random_model)], 1)
    assert [failure["seed"] for failure in row["failures"]] == [1000]
    assert row["failures"][0]["failure"].startswith("golden stages differ at ")


def test_random_network_that_torch_computes_otherwise_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class OffByOne(Evaluator):
        def __call__(self, images: np.ndarray, *, numbers: bool = False) -> Evaluation:
            evaluation = super().__call__(images, numbers=numbers)
            calls = [replace(call, codes=call.codes + 1) for call in evaluation.calls]
            return replace(evaluation, calls=tuple(calls))

    monkeypatch.setattr(agreement, "Evaluator", OffByOne)
    assert "is the first whose code differs between PyTorch's own" in check_network(1000, make=random_model).failure


def test_random_network_that_a_pass_changes_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    run_parts = lowering.run_parts
    monkeypatch.setattr(lowering, "run_parts", lambda *given: run_parts(*given) + 1)
    assert check_network(1000, make=random_model).failure.startswith("the pass 'split' changes what the model computes")


def test_random_network_that_raises_is_a_failure() -> None:
    def make(seed: int) -> tuple[nn.Sequential, Tensor]:
        raise ZeroDivisionError("no network")

    assert check_network(1, make=make).failure == "ZeroDivisionError: no network"
