"""Models as files for other tools: captured, lowered, written, and compared with what another tool makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnhw.errors import ExactnessError, InputError
from nnhw.flow.commands.inspection import captured_graph, load_model
from nnhw.flow.models.calibrate import Calibration
from nnhw.flow.models.samples import differing_rows, samples_of
from nnhw.flow.tools.progress import Progress, SilentProgress
from nnhw.flow.tools.storage import check_file_place, write_whole
from nnhw.ir import Graph, run_in_chunks
from nnhw.ir.interpreter import joined


@dataclass(frozen=True)
class OnnxExport:
    """A written ONNX file.

    Parameters
    ----------
    path: of the file.
    operators: number of operators in the file.
    samples: number of images on which ONNX Runtime gave the graph's results, compared by `==`.
    """

    path: Path
    operators: int
    samples: int


def export_onnx(
    file: str,
    out: Path | None = None,
    whole: bool = False,
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> OnnxExport:
    """Write a model as ONNX, once ONNX Runtime has given the graph's results on samples with it.

    Parameters
    ----------
    file: the model, as `nnhw build` takes it.
    out: the file to write; default: `<model>.onnx` in the current folder.
    whole: write the float operations in front and behind too; else the integer part alone, from codes to integers.
    calibration: data to quantize a float model with.

    Raises
    ------
    InputError: the package onnx or onnxruntime is missing, or the path cannot be used.
    LoweringError: operators that no standard operators compute exactly.
    ExactnessError: ONNX Runtime gives another number.
    """
    progress = progress or SilentProgress()
    with _packages():
        from nnhw.export.onnx import to_bytes, to_onnx
        from nnhw.export.onnx_runtime import run_file
    if out is not None:
        if out.suffix != ".onnx":
            raise InputError(f"an ONNX file ends in .onnx, got {out}; give --out {out.with_suffix('.onnx')}")
        check_file_place(out)
    source = load_model(file, calibration, progress)
    path = out or Path(f"{source.name}.onnx")
    captured = captured_graph(source, progress)
    with progress.stage("lower"):
        samples = samples_of(source.example_input, captured).astype(np.float64)
        graph, inputs = _exported_part(captured, samples, whole)
    with progress.stage("export"):
        model = to_onnx(graph)
        content = to_bytes(model)
    with progress.stage("compare"):
        _check_equal(run_file(content, graph, inputs), joined(run_in_chunks(graph, inputs)))
    write_whole(path, content)
    return OnnxExport(path, len(model.graph.node), len(inputs))


@contextmanager
def _packages() -> Iterator[None]:
    """Turn a package that is missing into a message."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"an export to ONNX needs a package that is not installed: {error}; it comes by: pip install 'nnhw[onnx]'"
        ) from error


def _exported_part(captured: Graph, images: np.ndarray, whole: bool) -> tuple[Graph, np.ndarray]:
    """Return the graph to export, and samples of its input."""
    from nnhw.passes import lower, split

    lowered = lower(captured)
    parts = split(lowered)
    if whole:
        return lowered, images
    return parts.body, run_in_chunks(parts.head, images)[0]


def _check_equal(result: np.ndarray, expected: np.ndarray) -> None:
    """Raise ExactnessError unless ONNX Runtime computes what the graph computes."""
    if count := differing_rows(result, expected):
        raise ExactnessError(
            f"ONNX Runtime computes something else than the graph in {count} of {len(expected)} images, so nothing was "
            "written; this is a mistake of nnhw or of ONNX Runtime, please report the model"
        )
