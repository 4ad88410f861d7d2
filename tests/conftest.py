"""What all tests share: how they run, a network that is small enough to build, and a folder for what they build."""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nnhw.engines.network import stepped_by
from nnhw.flow.virtual.stepping import compiled_network

pytest_plugins = ["tests.marking", "tests.ordering"]

# Before torch is imported: its threads would fight for the cores with the other processes, of the tests or not.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Few cycles are simulated of many designs: to optimize them takes longer than to run them.
os.environ.setdefault("CXXFLAGS", "-O0")

# Captured models are many objects, few of them in cycles: to look for those as often as usual costs a tenth.
gc.set_threshold(100_000, 50, 100)

# The same examples in every run, however busy the machine is.
settings.register_profile("tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

SMALL_NET = """
import torch
from torch import nn
from nnhw.nn import QuantLinear, Scale, Sign

torch.manual_seed({seed})
model = nn.Sequential(
    nn.Flatten(), Sign(),
    QuantLinear(16, 8, bias=False), nn.BatchNorm1d(8), Sign(),
    QuantLinear(8, 4, bias=False), Scale(2**-1),
)
example_input = torch.rand(4, 1, 4, 4) - 0.5
"""


WriteNet = Callable[[int], str]


SHALLOW = 200
"""Frames of Python that `shallow_stack` leaves."""


@pytest.fixture
def shallow_stack() -> Iterator[None]:
    """Let Python's stack have few more frames, so that what follows a network by recursion fails on a short one."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + SHALLOW)
    yield
    sys.setrecursionlimit(usual)


@pytest.fixture
def write_net(tmp_path: Path) -> WriteNet:
    """Write the network's file with weights of a seed; return its path."""

    def write(seed: int) -> str:
        path = tmp_path / "small.py"
        path.write_text(SMALL_NET.format(seed=seed), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def small_net(write_net: WriteNet) -> str:
    """The path of the network's file."""
    return write_net(1)


@pytest.fixture
def deep_fifos(monkeypatch: pytest.MonkeyPatch) -> None:
    """FIFOs of joins stay as deep as they are at first: to find shallower ones takes most of the time of mapping.

    For tests of values, which are the same at any depth.
    """
    monkeypatch.setattr("nnhw.mapping.schedule.MOST_TRIAL_CYCLES", 0)


@pytest.fixture(scope="session")
def kept(pytestconfig: pytest.Config) -> Path:
    """A folder for what tools made, of all tests of all processes and runs: keys hold everything that it depends on."""
    folder = pytestconfig.rootpath / ".pytest_cache" / "nnhw"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def compiled_cache(kept: Path) -> Path:
    """The part of it for compiled hardware."""
    return kept / "virtual"


@pytest.fixture(scope="session", autouse=True)
def stepped(kept_apart: None) -> Iterator[None]:
    """Step cycle models by compiled C, as builds do; `flow/test_stepping.py` compares that with Python."""
    with stepped_by(compiled_network):
        yield


@pytest.fixture(scope="session", autouse=True)
def kept_apart(kept: Path) -> Iterator[None]:
    """Keep what the tests build out of the user's cache, and what is there out of the tests; the key, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNHW_CACHE", str(kept))
        patch.setenv("NNHW_KEY", str(kept / "key"))
        yield
