"""The samples with which a captured graph is compared: fewer where each takes long."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import nnhw
from nnhw.flow.models import samples
from nnhw.flow.models.samples import VALUE_PRODUCTS, samples_of, work_of
from nnhw.frontend import capture
from nnhw.ir import Graph, run

EXAMPLE = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(1))
PRODUCTS = 6 * 6 * 4 * 27 + 6 * 6 * 2 * 4 + 72 * 5


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Return the graph of a network with a dense, a grouped and a linear layer."""
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)
    return capture(nnhw.quantize(nn.Sequential(*layers).eval(), EXAMPLE), EXAMPLE)


def test_work_is_that_of_products_and_of_all_values(graph: Graph) -> None:
    sizes: list[int] = []
    run(graph, EXAMPLE[:1].numpy(), lambda _, array: sizes.append(array.size))
    assert work_of(graph) == PRODUCTS + VALUE_PRODUCTS * sum(sizes)


@pytest.mark.parametrize(("most", "rows", "count"), [(76, 20, 76), (75, 20, 75), (12, 6, 12), (5, 2, 5), (0, 2, 4)])
def test_samples_are_as_many_as_their_work_allows(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, most: int, rows: int, count: int
) -> None:
    monkeypatch.setattr(samples, "MOST_WORK", most * work_of(graph))
    found = samples_of(EXAMPLE, graph)
    assert len(found) == count
    equal = (found[: len(EXAMPLE)] == EXAMPLE.numpy()[: len(found)]).all(axis=(1, 2, 3))
    assert equal.sum() == rows
    assert found.min() >= EXAMPLE.min()
    assert found.max() <= EXAMPLE.max()
    assert np.array_equal(found, samples_of(EXAMPLE, graph))
