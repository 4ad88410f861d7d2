"""Loops behind layers of whole images: all steps in a frame, mapped, and equal to the graph stage by stage and in hardware."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.random_recurrent import random_recurrent
from nnhw.accelerator import Accelerator
from nnhw.engines.state import StateConfig
from nnhw.errors import NnhwError
from nnhw.flow.verification.comparison import compare_stages
from nnhw.flow.verification.equality import PATTERNS, check_equality
from nnhw.ir import Graph, run
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.passes import lower, split
from tests.sim.test_benches import pytestmark as needs_simulator

LARGE = Budget(lc=100_000, ebr=1000)


def drawn(seed: int) -> Graph:
    """Return the integer graph of a random loop behind a convolution."""
    return split(lower(random_recurrent(seed, behind=True))).body


def images(body: Graph, count: int) -> np.ndarray:
    kind = body.inputs[0].type
    return np.random.default_rng(count).integers(kind.int_dtype.low, kind.int_dtype.high + 1, (count, *kind.shape))


def golden(accelerator: Accelerator, body: Graph) -> list[str]:
    """Return the boundaries at which the golden functions of the engines and the graph differ."""
    compared = compare_stages(accelerator, body, images(body, 5))
    assert compared
    return [one.name for one in compared if not one.equal]
