"""`nnhw.quantize` refuses what capture of its result refuses, with the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.errors import NnhwError
from nnhw.nn.post_training import quantized

HERE = Path(__file__).name


class Net(nn.Module):
    """Two layers, for each case with another forward."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.last = nn.Linear(8, 8), nn.Linear(8, 2)


class Dropped(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.dropout(functional.relu(self.hidden(x)), 0.5))


class FixedBatch(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.hidden(x).view(4, 8))


class Nested(Net):
    def forward(self, x: Tensor) -> Any:
        y = self.hidden(x)
        return {"classes": self.last(y), "inner": {"features": y}}


CASES: dict[type[Net], str] = {
    Dropped: (
        "dropout of the model (LINE) drops values at random, because its argument training is True; use nn.Dropout, "
        "or F.dropout(x, p, training=self.training), and call model.eval() before torch.export"
    ),
    FixedBatch: (
        "view of the model (LINE) fixes the batch size to 4, so that no other is possible; use x.flatten(1) or "
        "x.reshape(x.shape[0], ..)"
    ),
    Nested: (
        "the model must return one tensor, a tuple of two or more, or a dict of tensors by strings, got a dict of 2 "
        "that holds others; return the tensors to be computed"
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_quantize_rejects_what_capture_rejects(kind: type[Net]) -> None:
    data, model = torch.rand(4, 8, generator=torch.Generator().manual_seed(1)), kind().eval()
    with pytest.raises(NnhwError) as early:
        nnhw.quantize(model, data)
    line = f"{HERE}:{kind.forward.__code__.co_firstlineno + 1}"
    assert str(early.value) == CASES[kind].replace("LINE", line)
    made, images = quantized(model, data, 8, 8)
    with pytest.raises(NnhwError) as late:
        nnhw.reference(made, images)
    assert (type(late.value), str(late.value)) == (type(early.value), str(early.value))
