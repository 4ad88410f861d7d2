"""Looking at a model without building it: what nnhw refuses in it, and its graph as it is behind any stage."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhw.accelerator import Accelerator
from nnhw.boards import Board, load_board
from nnhw.errors import DoesNotFitError, InputError
from nnhw.flow.board_budget import map_on_board, refuse_on_board
from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.models.calibrate import Calibration, quantize_source
from nnhw.flow.options import Options
from nnhw.flow.report import rates
from nnhw.flow.tools.progress import Progress, SilentProgress, noted
from nnhw.flow.tools.storage import check_file_place, write_whole
from nnhw.ir import Graph, dumps, load
from nnhw.ir.files import pack_arrays
from nnhw.model_files import check_model_file

if TYPE_CHECKING:
    from nnhw.frontend import Source
    from nnhw.passes import Parts

PARTS = ("head", "lower", "tail")


@dataclass(frozen=True)
class Division:
    """Which operators of a model run on the host, and which on the device.

    Parameters
    ----------
    before: operators on the host in front of the device, each with its layer, such as `conv2d 'features.0'`.
    device: operators on the device.
    behind: operators on the host behind the device.
    """

    before: tuple[str, ...]
    device: tuple[str, ...]
    behind: tuple[str, ...]

    @classmethod
    def of(cls, parts: Parts) -> Division:
        """Return the division of a lowered model."""
        return cls(*(_operators(graph) for graph in (parts.head, parts.body, parts.tail)))


@dataclass(frozen=True)
class Checked:
    """A model that can be built.

    Parameters
    ----------
    division: which of its operators run where.
    clock_hz: clock that the board usually reaches, in Hz.
    rates: at that clock, see `nnhw.flow.report.rates`.
    """

    division: Division
    clock_hz: float
    rates: Mapping[str, Any]


def check_file(
    file: str, board: str, calibration: Calibration | None = None, progress: Progress | None = None
) -> Checked:
    """Capture, lower and map a model; return which operators run where, and the rate through each link.

    Parameters
    ----------
    calibration: data to quantize a float model with.

    Raises
    ------
    NnhwError: the model cannot be built; the message has everything that the stage which refused it has found.
    """
    found, progress = load_board(board), progress or SilentProgress()
    graph, clock_hz = captured(file, calibration, progress), found.target_clock_hz
    try:
        # Lowering takes minutes where a network is far too large.
        refuse_on_board(graph, found)
        parts = lowered(graph, progress)
        accelerator = _mapped(parts.body, found, progress)
    except DoesNotFitError as error:
        error.graph = graph
        raise
    return Checked(Division.of(parts), clock_hz, rates(accelerator, clock_hz, found))


@dataclass(frozen=True)
class Staged:
    """A model's graph behind a stage.

    Parameters
    ----------
    graph: behind `map`: the integer graph.
    accelerator: behind `map`: the engines; None behind all other stages.
    """

    graph: Graph
    accelerator: Accelerator | None = None

    def text(self, data: bool = False) -> str:
        """Return the graph as text; the engines, behind `map`, as JSON without their weights.

        Parameters
        ----------
        data: with the numbers of all constants.
        """
        if self.accelerator is None:
            return dumps(self.graph, data=data)
        with tempfile.TemporaryDirectory() as folder:
            self.accelerator.save(Path(folder))
            return (Path(folder) / "accelerator.json").read_text(encoding="utf-8")

    def svg(self) -> str:
        """Return the graph as a picture."""
        from nnhw.flow.commands.drawing import graph_svg

        return graph_svg(self.graph, self.accelerator)


def ir_behind(
    file: str, stage: str, board: str, calibration: Calibration | None = None, progress: Progress | None = None
) -> Staged:
    """Return a model's graph behind a stage.

    Parameters
    ----------
    file: the model, or the folder of a build, which has the stages `capture`, `head`, `lower`, `tail` and `map`.
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
    if Path(file).is_dir():
        return _of_build(Path(file), stage, calibration)
    found, progress = load_board(board), progress or SilentProgress()
    graph = captured(file, calibration, progress)
    if stage == "map":
        body = lowered(graph, progress).body
        return Staged(body, _mapped(body, found, progress))
    if stage == "capture":
        return Staged(graph)
    with progress.stage("lower"):
        if stage in PIPELINE:
            return Staged(lower(graph, stop_after=stage))
        parts = split(lower(graph))
    return Staged({"head": parts.head, "lower": parts.body, "tail": parts.tail}[stage])


def ir_text(
    file: str, stage: str, board: str, calibration: Calibration | None = None, progress: Progress | None = None
) -> str:
    """Return the text of a model's graph behind a stage; see `ir_behind`."""
    return ir_behind(file, stage, board, calibration, progress).text()


def write_ir(staged: Staged, out: Path | None, svg: Path | None, data: bool = False) -> list[Path]:
    """Write a graph as .ir with its constants, and as a picture; return the files.

    Parameters
    ----------
    out, svg: where; None: not at all.
    data: put the constants into the text instead of a file beside it.

    Raises
    ------
    InputError: a name without the suffix .ir or .svg; --out for engines, which are no graph.
    """
    check_written("map" if staged.accelerator is not None else "", out, svg)
    written: list[Path] = []
    if out is not None:
        arrays = out.with_suffix(".npz")
        if not data:
            write_whole(arrays, pack_arrays(staged.graph.constants))
            written.append(arrays)
        elif arrays.exists():
            raise InputError(f"'{arrays}' would be read with '{out}', which has all numbers; delete it or rename --out")
        write_whole(out, staged.text(data).encode())
        written.append(out)
    if svg is not None:
        write_whole(svg, staged.svg().encode())
        written.append(svg)
    return written


def check_written(stage: str, out: Path | None, svg: Path | None) -> None:
    """Check the files that `write_ir` is to write for the graph behind a stage, before there is one.

    Raises
    ------
    InputError: a name without the suffix .ir or .svg, or in a folder that cannot be written; --out for engines.
    """
    for path, suffix in ((out, ".ir"), (svg, ".svg")):
        if path is not None:
            if path.suffix != suffix:
                raise InputError(f"'{path}' must end in {suffix}, as what is written is recognized by it")
            check_file_place(path)
    if out is not None and stage == "map":
        raise InputError("--out writes graphs, and behind map there are engines; leave --stage map or --out out")


def _of_build(path: Path, stage: str, calibration: Calibration | None) -> Staged:
    """Return the graph behind a stage of a build, from the files in its folder."""
    kept = ("capture", *PARTS, "map")
    if stage not in kept:
        raise InputError(f"a build keeps the graphs behind {', '.join(kept)}, not behind '{stage}'; give the model")
    if calibration is not None:
        raise InputError(f"'{path}' is a build, which is quantized; leave --calibrate out")
    folder = BuildFolder.open(path)
    # All three parts are files of one stage.
    owner = "lower" if stage in PARTS else stage
    folder.require(owner)
    if stage != "map":
        return Staged(load(folder.path / f"{stage}.ir"))
    return Staged(load(folder.path / "lower.ir"), Accelerator.load(folder.path))


def load_model(file: str, calibration: Calibration | None, progress: Progress) -> Source:
    """Return the model of a file, quantized where there is data for it."""
    check_model_file(file)  # before torch is imported
    with progress.stage("load"):
        from nnhw.frontend import load_source

        source = load_source(file)
    if calibration is None:
        return source
    with progress.stage("quantize"):
        return quantize_source(source, calibration, progress)


def captured_graph(source: Source, progress: Progress) -> Graph:
    """Return the captured graph of a model, its rewrites applied."""
    with progress.stage("capture"):
        from nnhw.flow.models.samples import samples_of
        from nnhw.rewrites import apply_rewrites

        graph = source.capture()
        samples = samples_of(source.example_input, graph) if source.rewrites else np.empty(0)
        return apply_rewrites(graph, source.rewrites, samples)[0]


def captured(file: str, calibration: Calibration | None, progress: Progress) -> Graph:
    """Return the captured graph of a model's file, quantized first where there is data for it."""
    return captured_graph(load_model(file, calibration, progress), progress)


def lowered(graph: Graph, progress: Progress) -> Parts:
    """Return the parts of a captured graph."""
    from nnhw.passes import lower, split

    with progress.stage("lower"):
        return split(lower(graph))


def _operators(graph: Graph) -> tuple[str, ...]:
    """Return the operators of a part that compute something, each with the layer that it is from."""
    nodes = (node for node in graph.nodes if node.inputs and node.name not in graph.constants)
    return tuple(f"{node.op.name} '{node.location.module or node.name}'" for node in nodes)


def _mapped(body: Graph, board: Board, progress: Progress) -> Accelerator:
    """Return the accelerator of an integer graph."""
    with progress.stage("map"), noted("nnhw.mapping", progress):
        return map_on_board(body, board, Options())[0].accelerator
