"""What an entry of the corpus is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class PeopleModel:
    """A model as a tutorial or a model zoo has it, with random weights.

    Parameters
    ----------
    make: builds it; torch's generator is seeded before.
    shape: of one image, without the batch.
    quantized: it has quantizers of its own (`nnhw.nn`); others are float and go through `nnhw.quantize`.
    steps: it is a network with attention or recurrence, which the aims of the corpus leave out.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    quantized: bool = False
    steps: bool = False
