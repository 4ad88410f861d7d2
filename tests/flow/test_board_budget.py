"""What a board leaves to the engines."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import nnhw
from nnhw.boards import load_board
from nnhw.errors import DoesNotFitError, MappingError
from nnhw.families import FAMILIES
from nnhw.flow.board_budget import available, map_on_board, refuse_on_board
from nnhw.flow.options import Options
from nnhw.flow.style import map_in_style
from nnhw.frontend import capture
from nnhw.hdl.large_device import is_large
from nnhw.hdl.top import load_platform
from nnhw.ir import IntType
from tests.mapping.bodies import LayerSpec, make_body


@pytest.mark.parametrize(("name", "spare"), [("icebreaker", 0), ("ulx3s_25f", 2)])
def test_engines_get_what_the_link_and_the_placer_leave(name: str, spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    def seen(*arguments: Any) -> Any:
        taken.append(arguments[2])
        return map_in_style(*arguments)

    monkeypatch.setattr("nnhw.flow.board_budget.map_in_style", seen)
    board = load_board(name)
    map_on_board(make_body((4,), IntType(0, 3), [LayerSpec(2, steps=0)]), board, Options(style="streaming"))
    assert taken[0].ebr == board.resources.ebr - FAMILIES[board.family].room.link.ebr - spare


@pytest.mark.parametrize(("name", "large"), [("icebreaker", False), ("ulx3s_25f", False), ("ulx3s_85f", True)])
def test_large_device_is_known_to_mapping_as_to_hardware(name: str, large: bool) -> None:
    board = load_board(name)
    assert available(board).large_device == is_large(load_platform(board)) == large


@pytest.mark.parametrize("style", ["auto", "streaming"])
def test_rate_that_nothing_reaches_is_refused_with_the_rate_of_the_fastest_mapping(style: str) -> None:
    board, body = load_board("icebreaker"), make_body((64,), IntType(0, 3), [LayerSpec(48), LayerSpec(10, steps=0)])
    fastest = map_on_board(body, board, Options(style="streaming", fast_for="engine"))[0].interval
    rate = int(board.target_clock_hz / fastest)
    with pytest.raises(MappingError) as caught:
        map_on_board(body, board, Options(style=style, target_fps=2 * board.target_clock_hz))
    assert f"the fastest mapping that fits 'icebreaker' takes {fastest}; ask for {rate:.0f} or fewer" in str(
        caught.value
    )
    assert map_on_board(body, board, Options(style=style, target_fps=rate))[0].interval == fastest


@pytest.mark.parametrize("outputs", [600, 20])
def test_captured_graph_is_refused_only_where_the_weights_that_are_left_are_too_many(outputs: int) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(1000, 600), nn.ReLU(), nn.Linear(600, 10)).eval()
    # Pruned outputs stay in the model as zeros.
    for parameter in model[0].parameters():
        parameter.data[outputs:] = 0
    images = torch.rand(4, 1000)
    graph = capture(nnhw.quantize(model, images), images)
    refused = pytest.raises(DoesNotFitError, match="its weights alone take at least 4,8")
    expected: AbstractContextManager[object] = refused if outputs == 600 else nullcontext()
    with expected:
        refuse_on_board(graph, load_board("icebreaker"))
