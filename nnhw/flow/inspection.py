"""Looking at a model without building it: what stands in the way, and its graph behind any stage."""

from __future__ import annotations

import tempfile
from pathlib import Path

from nnhw.boards import load_board
from nnhw.errors import InputError
from nnhw.flow.budget import map_on_board
from nnhw.flow.options import Options
from nnhw.ir import Graph, dumps

PARTS = ("head", "lower", "tail")


def check_file(file: str, board: str) -> None:
    """Capture, lower and map a model.

    Raises
    ------
    NnhwError: what stands in the way; everything that one stage finds, at once.
    """
    _mapped(file, board)


def ir_text(file: str, stage: str, board: str) -> str:
    """Return the text of a model's graph behind a stage.

    Parameters
    ----------
    stage: `capture`; the name of a pass; `head`, `lower` or `tail` for the parts behind all passes; `map` for the
        engines on a board.

    Raises
    ------
    InputError: there is no such stage; and what the stages raise.
    """
    from nnhw.frontend import load_source
    from nnhw.passes import PIPELINE, lower, split

    stages = ("capture", *PIPELINE, *PARTS, "map")
    if stage not in stages:
        raise InputError(f"there is no graph behind a stage '{stage}'; there is one behind {', '.join(stages)}")
    if stage == "map":
        return _mapped(file, board)
    graph = load_source(file).capture()
    if stage in PIPELINE:
        graph = lower(graph, stop_after=stage)
    if stage in PARTS:
        parts = split(lower(graph))
        graph = {"head": parts.head, "lower": parts.body, "tail": parts.tail}[stage]
    return dumps(graph)


def _mapped(file: str, board: str) -> str:
    """Return the accelerator of a model as JSON, without its weights."""
    found = load_board(board)
    accelerator = map_on_board(_lowered(file), found, Options())[0].accelerator
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save(Path(folder))
        return (Path(folder) / "accelerator.json").read_text(encoding="utf-8")


def _lowered(file: str) -> Graph:
    from nnhw.frontend import load_source
    from nnhw.passes import lower, split

    return split(lower(load_source(file).capture())).body
