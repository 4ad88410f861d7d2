"""Ctrl-C while mappings are sought: the best one so far is taken where a build waits for it, and nowhere else."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import NoReturn

import pytest

from nnhw.boards import load_board
from nnhw.families import ICE40
from nnhw.flow import style
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.tools.stopping import Stopped
from nnhw.ir import Graph, IntType
from nnhw.mapping import mapper
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.mapping.settling import settling
from nnhw.mapping.shared import shared_accelerator as shared
from nnhw.mapping.shared.shared_accelerator import map_shared
from tests.mapping.bodies import LayerSpec, make_body
from tests.mapping.shared.networks import NETWORKS

BUDGET = Budget(lc=4000, ebr=28)


def perceptron() -> Graph:
    return make_body((64,), IntType(0, 15), [LayerSpec(16), LayerSpec(10, steps=0)])


def interrupts(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, stop: type[BaseException]) -> None:
    """Let a function be interrupted when it is called."""

    def interrupted(*_: object, **__: object) -> NoReturn:
        raise stop

    monkeypatch.setattr(owner, name, interrupted)


def test_a_build_takes_the_mapping_that_was_found_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    interrupts(monkeypatch, mapper, "without_waits", KeyboardInterrupt)
    with settling(), caplog.at_level(logging.WARNING):
        found = map_body(perceptron(), "icebreaker", BUDGET)
    assert f"of {found.schedule.interval_cycles:,} cycles a frame; Ctrl-C again ends the build" in caplog.text
    monkeypatch.undo()
    assert found.schedule.interval_cycles >= map_body(perceptron(), "icebreaker", BUDGET).schedule.interval_cycles


def test_a_second_interrupt_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts(monkeypatch, mapper, "without_waits", KeyboardInterrupt)
    with settling():
        map_body(perceptron(), "icebreaker", BUDGET)
        with pytest.raises(KeyboardInterrupt):
            map_body(perceptron(), "icebreaker", BUDGET)


@pytest.mark.parametrize(
    ("name", "stop", "target", "waits"),
    [
        ("without_waits", KeyboardInterrupt, None, False),  # of nnhw fit and nnhw search, which go on to other boards
        ("without_waits", Stopped, None, True),  # SIGTERM
        ("without_waits", KeyboardInterrupt, 1, True),  # what was found is not fast enough
        ("smallest_within", KeyboardInterrupt, None, True),  # nothing was found
    ],
)
def test_other_interrupts_end_the_search(
    monkeypatch: pytest.MonkeyPatch, name: str, stop: type[BaseException], target: int | None, waits: bool
) -> None:
    interrupts(monkeypatch, mapper, name, stop)
    with settling() if waits else nullcontext(), pytest.raises(stop):
        map_body(perceptron(), "icebreaker", BUDGET, target_interval=target)


def test_shared_engines_that_were_found_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    board = load_board("icebreaker")
    budget = style.left_to_shared(board, Budget(lc=4500, ebr=28, dsp=8, spram=4), ICE40)
    interrupts(monkeypatch, shared, "choose_chain", KeyboardInterrupt)
    with settling():
        found = map_shared(NETWORKS["depthwise"](0), board.name, budget, ICE40)
    assert found[0].programs


def test_engines_of_layers_are_taken_where_the_search_for_a_shared_one_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board, body = load_board("ulx3s_25f"), NETWORKS["depthwise"](0)
    interrupts(monkeypatch, style, "_shared", KeyboardInterrupt)
    monkeypatch.setattr(style, "link_rate", lambda *_: 1e9)
    monkeypatch.setattr(style, "least_cycles", lambda *_: 0)
    with settling():
        mapped = map_on_board(body, board, Options())[0]
    assert mapped.style == "streaming"
    assert mapped.why.endswith("the search for a shared one was interrupted")
