"""Networks that quantize by themselves, as people write them: what becomes of each, and of how many bits it is."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.errors import ExactnessError, NnhwError
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import Graph, run
from nnhw.passes import lower
from tests.written import binary, low_bit, spellings, torchs
KEPT, ADDED, REFUSED, WRONG = "kept as trained", "quantized in addition", "refused by name", "wrong"
KINDS = (KEPT, ADDED, REFUSED, WRONG)


@dataclass(frozen=True)
class Network:
    """A network, and what its author means.

    Parameters
    ----------
    make: returns it untrained, or trained if `is_trained`.
    manner: the paper, repository or habit in whose manner it is written.
    shape: of an image.
    levels: of each layer in order, the most levels of its weights and of the values that it reads.
    kind: what becomes of it; one of `KINDS`.
    """

    make: Callable[[], nn.Module]
    manner: str
    shape: tuple[int, ...]
    levels: tuple[tuple[int, int], ...]
    kind: str
    is_trained: bool = False


def images(shape: tuple[int, ...], count: int = 24, seed: int = 5) -> Tensor:
    return torch.rand((count, *shape), generator=torch.Generator().manual_seed(seed))


def train(model: nn.Module, shape: tuple[int, ...], steps: int = 4) -> nn.Module:
    """Train a model for some steps on random images; return it in eval mode."""
    model.train()
    parameters = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.02)
    for step in range(steps):
        optimizer.zero_grad()
        result = model(images(shape, 32, seed=10 + step))
        if result.ndim == 2:
            loss = functional.cross_entropy(result, torch.arange(32) % result.shape[1])
        else:
            loss = result.square().mean()
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
    return model.eval()


def made(network: Network) -> nn.Module:
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = network.make()
        model = model if network.is_trained else train(model, network.shape)
        if hasattr(model, "binarize"):
            model.binarize()
    return model.eval()
