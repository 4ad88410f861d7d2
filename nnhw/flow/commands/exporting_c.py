"""A model as portable C: from a file or a module to C files, and what they take on a microcontroller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnhw.export.c import CProgram, make_c
from nnhw.flow.models.calibrate import Calibration
from nnhw.flow.tools.progress import Progress, SilentProgress
from nnhw.flow.tools.storage import check_folder_place, reported
from nnhw.flow.virtual.native import Footprint, measure_cortex_m4, write_files

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

    from nnhw.passes import Parts


DEFAULT_FOLDER = "c"


@dataclass(frozen=True)
class CExport:
    """Exported C: its text, its files and its size.

    Parameters
    ----------
    paths: the files: header, source, and the program where one was asked for.
    footprint: bytes that it takes on a Cortex-M4; None where `arm-none-eabi-gcc` is not installed.
    """

    program: CProgram
    paths: tuple[Path, ...]
    footprint: Footprint | None


def export_c(
    model: nn.Module | ExportedProgram,
    example_input: torch.Tensor,
    *,
    out: Path | str | None = None,
    name: str | None = None,
    program: bool = False,
    small: bool = False,
    codes: bool = False,
    progress: Progress | None = None,
) -> CExport:
    """Write a model as one C99 file and a header, which compute the integers of `nnhw.reference`.

    Parameters
    ----------
    model: in any mode; a copy in eval mode is exported.
    example_input: [batch, ..]: shape, dtype and range of what the model will see.
    out: folder of the files, made where it is missing; `c` otherwise.
    name: stem of the files and prefix of the functions; default: the model's class in lower case.
    program: also write NAME_main.c, which reads a tensor and prints the results.
    small: for microcontrollers: weights packed and without padding; slower on processors with wide vectors.
    codes: write NAME_run alone, from codes to codes, without the float operations in front and behind.

    Raises
    ------
    ExportError: an operator that has no C. BuildError: the folder cannot be written. NnhwError: see `nnhw.build`.
    """
    from nnhw.frontend.source import Source
    from nnhw.model_files import identifier
    from nnhw.nn.given import class_name

    source = Source(model, example_input, identifier(name or class_name(model).lower()))
    progress = progress or SilentProgress()
    with progress.stage("capture"):
        graph = source.capture()
    from nnhw.flow.commands.inspection import lowered

    return write_c(lowered(graph, progress), source.name, out, program, small, codes, progress)


def export_c_file(
    file: str,
    *,
    out: Path | None = None,
    name: str | None = None,
    program: bool = False,
    small: bool = False,
    codes: bool = False,
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> CExport:
    """Do as `export_c` with the model of a file; see `nnhw.frontend.load_source`.

    Parameters
    ----------
    calibration: data to quantize a float model with.
    """
    from nnhw.flow.commands.inspection import captured, lowered

    check_folder_place(Path(out or DEFAULT_FOLDER))
    progress = progress or SilentProgress()
    parts = lowered(captured(file, calibration, progress), progress)
    return write_c(parts, name, out, program, small, codes, progress)


def write_c(
    parts: Parts, name: str | None, out: Path | str | None, program: bool, small: bool, codes: bool, progress: Progress
) -> CExport:
    """Write the C of a lowered model; see `export_c`."""
    head, tail = (None, None) if codes else (parts.head, parts.tail)
    with progress.stage("write C"):
        made = make_c(parts.body, head, tail, name=name or "", program=program, small=small)
        folder = Path(out or DEFAULT_FOLDER)
        with reported(f"the folder '{folder}' cannot be written", "give another one with --out"):
            paths = write_files(made, folder)
    with progress.stage("measure for a Cortex-M4"):
        footprint = measure_cortex_m4(made)
    return CExport(made, tuple(paths), footprint)
