"""Hashes of designs: what changes them, and what does not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import designs
from benchmarks.cases import CASES, Case
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.families import FAMILIES
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.frontend.capture import capture_quantizers
from nnhw.nn import Int, QuantLinear
from nnhw.passes import lower, split

BOARD = "icebreaker"


def load(seed: int = 0) -> tuple[nn.Module, torch.Tensor]:
    """Return a small model and its images."""
    torch.manual_seed(seed)
    return nn.Sequential(Int(4, 0.25), QuantLinear(8, 4, weight_quant=Int(4, 0.25))).eval(), torch.randn(2, 8)


@cache
def accelerator(style: str, seed: int = 0) -> Accelerator:
    """Return the mapped network of a seed: all have one shape."""
    parts = split(lower(capture_quantizers(*load(seed)).graph))
    return map_on_board(parts.body, load_board(BOARD), Options(style=style, fast_for="engine"))[0].accelerator


def hashed(made: Accelerator, clock_hz: int | None = None, **asked: int | str) -> designs.Hashes:
    return designs.design_hashes(made, load_board(BOARD), clock_hz, asked)


def changed(one: designs.Hashes, other: designs.Hashes) -> list[str]:
    assert list(one) == list(other) == ["netlist", "program", "schedule", "settings"]
    return [name for name in one if one[name] != other[name]]


def test_design_hashes_name_what_changes() -> None:
    made = accelerator("streaming")
    plain = hashed(made, seeds=5)
    assert hashed(made, seeds=5) == plain
    assert changed(plain, hashed(made, seeds=7)) == ["settings"]
    assert changed(plain, hashed(accelerator("streaming", 1), seeds=5)) == ["netlist"]
    slower = replace(made, schedule=replace(made.schedule, latency_cycles=made.schedule.latency_cycles + 1))
    assert changed(plain, hashed(slower, seeds=5)) == ["schedule"]


def test_design_hashes_of_a_shared_engine_have_its_program_apart() -> None:
    assert changed(hashed(accelerator("shared")), hashed(accelerator("shared", 1))) == ["program"]


def test_design_hashes_of_a_placed_network_have_its_clock_and_tools() -> None:
    made, board = accelerator("streaming"), load_board(BOARD)
    slow, fast = (hashed(made, clock_hz) for clock_hz in (24_000_000, 48_000_000))
    assert "netlist" in changed(slow, fast)
    found = {name: designs.find_tool(name).title for name in FAMILIES[board.family].tools.names}
    assert designs.design_hashes(made, board, 48_000_000, {}, found) == fast
    newer = designs.design_hashes(made, board, 48_000_000, {}, found | {"yosys": "yosys 99"})
    assert changed(fast, newer) == ["settings"]


def test_design_of_maps_the_network_as_its_case_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(designs, "CASES", {"small": Case(BOARD, seeds=3)})
    monkeypatch.setattr(designs, "NETWORKS", {"small": SimpleNamespace(load=load)})
    found = designs.design_of({"benchmark": "small", "board": {"name": BOARD}, "clock_hz": None})
    assert found == hashed(accelerator("streaming"), board=BOARD, seeds=3)


def test_stated_leaves_out_defaults() -> None:
    @dataclass(frozen=True)
    class Newer:
        board: str
        seeds: int = 5
        names: tuple[str, ...] = field(default=())

    assert designs.stated(Newer("icebreaker")) == {"board": "icebreaker"}
    assert designs.stated(Newer("icebreaker", 7, ("a",))) == {"board": "icebreaker", "seeds": 7, "names": ("a",)}


def test_every_network_on_one_board_has_a_design() -> None:
    assert all(designs.has_design(name) for name in (*CASES, *designs.MNIST))
    assert not designs.has_design("peak")
    assert (Path(designs.EXAMPLES) / "mnist_mlp.py").is_file()
