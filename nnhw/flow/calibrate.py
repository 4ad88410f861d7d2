"""Float models on the command line: quantized with data of the user before they are built."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from nnhw.errors import InputError
from nnhw.flow.progress import Progress

if TYPE_CHECKING:
    from nnhw.frontend import Source


@dataclass(frozen=True)
class Calibration:
    """What a user says about quantization after training.

    Parameters
    ----------
    data: .npy file of images [N, ..] as the model takes them.
    labels: .npy file of their labels [N], for the accuracy before and after.
    weight_bits, act_bits: 1 to 8.
    """

    data: Path
    labels: Path | None = None
    weight_bits: int = 8
    act_bits: int = 8


def make_calibration(data: Path | None, labels: Path | None, weight_bits: int, act_bits: int) -> Calibration | None:
    """Return the calibration of a command line. Raises: InputError for options that mean nothing without data."""
    if data is not None:
        return Calibration(data, labels, weight_bits, act_bits)
    if labels is not None or (weight_bits, act_bits) != (Calibration.weight_bits, Calibration.act_bits):
        raise InputError("--labels, --weight-bits and --act-bits need --calibrate DATA.npy, images for a float model")
    return None


def quantize_source(source: Source, calibration: Calibration, progress: Progress) -> Source:
    """Return a source whose model is quantized; accuracy, where labels are given, is noted.

    Raises
    ------
    InputError: files that cannot be read; what `nnhw.quantize` raises.
    """
    from nnhw.nn.post_training import quantize

    images = _load(calibration.data, "calibration data")
    labels = None if calibration.labels is None else _load(calibration.labels, "labels")
    evaluate = None if labels is None else (images, labels)
    model = quantize(
        source.model,
        images,
        calibration.weight_bits,
        calibration.act_bits,
        evaluate=evaluate,
        example_input=source.example_input,
    )
    if model.accuracy is not None:
        progress.note(str(model.accuracy))
    return dataclasses.replace(source, model=model)


def _load(file: Path, what: str) -> np.ndarray:
    try:
        array = np.load(file, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{what} '{file}' cannot be read: {error.strerror or error}; check the path") from None
    except (ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"{what} '{file}' cannot be read as .npy: {error}; save it with numpy.save") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{what} '{file}' is an archive of several arrays; save one array with numpy.save")
    return array
