"""Looking at a model without building it: what stands in the way, and its graph behind any stage."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnhw.boards import Board, load_board
from nnhw.errors import InputError
from nnhw.flow.budget import map_on_board
from nnhw.flow.calibrate import Calibration, quantize_source
from nnhw.flow.options import Options
from nnhw.flow.progress import Progress, SilentProgress
from nnhw.ir import Graph, dumps

if TYPE_CHECKING:
    from nnhw.passes import Parts

PARTS = ("head", "lower", "tail")


@dataclass(frozen=True)
class Division:
    """What of a model runs where: operators of the integer graph and of the float parts around it.

    Parameters
    ----------
    before, device, behind: on the host in front of the device, on the device, on the host behind it; each operator with
        the layer that it is from.
    """

    before: tuple[str, ...]
    device: tuple[str, ...]
    behind: tuple[str, ...]

    @classmethod
    def of(cls, parts: Parts) -> Division:
        """Return what runs where, once lowered."""
        return cls(*(_operators(graph) for graph in (parts.head, parts.body, parts.tail)))


def check_file(
    file: str, board: str, calibration: Calibration | None = None, progress: Progress | None = None
) -> Division:
    """Capture, lower and map a model; return what of it runs where.

    Parameters
    ----------
    calibration: data to quantize a float model with.

    Raises
    ------
    NnhwError: what stands in the way; everything that one stage finds, at once.
    """
    found, progress = load_board(board), progress or SilentProgress()
    parts = _lowered(_captured(file, calibration, progress), progress)
    _mapped(parts.body, found, progress)
    return Division.of(parts)


def ir_text(
    file: str, stage: str, board: str, calibration: Calibration | None = None, progress: Progress | None = None
) -> str:
    """Return the text of a model's graph behind a stage.

    Parameters
    ----------
    stage: `capture`; the name of a pass; `head`, `lower` or `tail` for the parts behind all passes; `map` for the
        engines on a board.
    calibration: data to quantize a float model with.

    Raises
    ------
    InputError: there is no such stage; and what the stages raise.
    """
    from nnhw.passes import PIPELINE, lower, split

    stages = ("capture", *PIPELINE, *PARTS, "map")
    if stage not in stages:
        raise InputError(f"there is no graph behind a stage '{stage}'; there is one behind {', '.join(stages)}")
    found, progress = load_board(board), progress or SilentProgress()
    graph = _captured(file, calibration, progress)
    if stage == "map":
        return _mapped(_lowered(graph, progress).body, found, progress)
    if stage == "capture":
        return dumps(graph)
    with progress.stage("lower"):
        if stage in PIPELINE:
            return dumps(lower(graph, stop_after=stage))
        parts = split(lower(graph))
    return dumps({"head": parts.head, "lower": parts.body, "tail": parts.tail}[stage])


def _captured(file: str, calibration: Calibration | None, progress: Progress) -> Graph:
    """Return the captured graph of a model's file, quantized first where there is data for it."""
    with progress.stage("load"):
        from nnhw.flow.samples import example_of, make_samples
        from nnhw.frontend import load_source
        from nnhw.rewrites import apply_rewrites

        source = load_source(file)
    if calibration is not None:
        with progress.stage("quantize"):
            source = quantize_source(source, calibration, progress)
    with progress.stage("capture"):
        graph = source.capture()
        samples = make_samples(example_of(source.example_input, graph)) if source.rewrites else np.empty(0)
        return apply_rewrites(graph, source.rewrites, samples)[0]


def _lowered(graph: Graph, progress: Progress) -> Parts:
    """Return the parts of a captured graph."""
    from nnhw.passes import lower, split

    with progress.stage("lower"):
        return split(lower(graph))


def _operators(graph: Graph) -> tuple[str, ...]:
    """Return the operators of a part that compute something, each with the layer that it is from."""
    nodes = (node for node in graph.nodes if node.inputs and node.name not in graph.constants)
    return tuple(f"{node.op.name} '{node.location.module or node.name}'" for node in nodes)


def _mapped(body: Graph, board: Board, progress: Progress) -> str:
    """Return the accelerator of an integer graph as JSON, without its weights."""
    with progress.stage("map"):
        accelerator = map_on_board(body, board, Options())[0].accelerator
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save(Path(folder))
        return (Path(folder) / "accelerator.json").read_text(encoding="utf-8")
