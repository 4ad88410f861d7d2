"""Float models on the command line: quantized with data of the user before they are built."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhw.errors import InputError
from nnhw.flow.tools.progress import Progress
from nnhw.reading import load_npy, npy_header

if TYPE_CHECKING:
    from nnhw.frontend import Source
    from nnhw.nn.bits import Widths


BITS_MAX = 8


@dataclass(frozen=True)
class Calibration:
    """Options of a command line for quantization after training.

    Parameters
    ----------
    data: .npy file of images [N, ..] as the model takes them, or a folder of pictures, which become numbers in 0..1.
    evaluate: .npy file of images on which accuracy is measured, before and after; None: those of `data`.
    labels: .npy file of their labels [N]; None: accuracy is not measured.
    weight_bits, act_bits: bits of weights and activations, 1 to 8.
    """

    data: Path
    evaluate: Path | None = None
    labels: Path | None = None
    weight_bits: int = 8
    act_bits: int = 8


def make_calibration(
    data: Path | None, evaluate: Path | None, labels: Path | None, weight_bits: int, act_bits: int
) -> Calibration | None:
    """Return the calibration of a command line, None where --calibrate is not given.

    Raises
    ------
    InputError: an option that has no meaning without another one, which is missing; a file that does not exist, or
        whose array cannot be what the option needs.
    """
    for name, bits in (("weight-bits", weight_bits), ("act-bits", act_bits)):
        if not 1 <= bits <= BITS_MAX:
            raise InputError(f"--{name} must be a whole number from 1 to {BITS_MAX}, got {bits}")
    if data is None:
        if evaluate or labels or (weight_bits, act_bits) != (Calibration.weight_bits, Calibration.act_bits):
            raise InputError(
                "--evaluate, --labels, --weight-bits and --act-bits need --calibrate DATA.npy, images for a float model"
            )
        return None
    if evaluate is not None and labels is None:
        raise InputError(f"--evaluate '{evaluate}' needs --labels LABELS.npy, the labels [N] of these images")
    # To load the model takes seconds, in which nobody should wait for this.
    for option, path in (("--calibrate", data), ("--evaluate", evaluate), ("--labels", labels)):
        if path is not None and not path.exists():
            raise InputError(f"{option}: '{path}' does not exist; check the path")
    _check_shapes(data, evaluate, labels)
    return Calibration(data, evaluate, labels, weight_bits, act_bits)


def _check_shapes(data: Path, evaluate: Path | None, labels: Path | None) -> None:
    """Check the headers of files with images and labels; the images of a folder are counted only when they are read."""
    counts: dict[Path, int] = {}
    for option, path in (("--calibrate", data), ("--evaluate", evaluate)):
        if path is None or path.is_dir():
            continue
        with _readable(path, f"{option}:"):
            shape, dtype = npy_header(path)
        if dtype.kind not in "biuf" or len(shape) < 2 or not shape[0]:
            raise InputError(
                f"{option}: '{path}' needs numbers of shape [images, ...], at least one image, given {dtype} of shape "
                f"{list(shape)}"
            )
        counts[path] = shape[0]
    if labels is None or (images := evaluate or data) not in counts:
        return
    with _readable(labels, "--labels:"):
        shape, dtype = npy_header(labels)
    _check_labels(labels, shape, dtype, counts[images])


@dataclass(frozen=True)
class GivenData:
    """Data for quantization after training, in memory.

    Parameters
    ----------
    calibrate: as `nnhw.quantize` takes it.
    evaluate: images and labels [N] on which accuracy is measured, before and after; None: it is not measured.
    weight_bits, act_bits: bits of weights and activations, see `nnhw.quantize`.
    """

    calibrate: Any
    evaluate: tuple[Any, Any] | None
    weight_bits: Widths
    act_bits: Widths

    def quantize(self, model: Any, example_input: Any, progress: Progress) -> Any:
        """Return the quantized model; its accuracy, where there are labels, is noted."""
        from nnhw.nn.post_training import quantized

        # Not `nnhw.quantize`, which captures the result to see whether it can be built: the flow does so itself.
        made, _ = quantized(
            model,
            self.calibrate,
            self.weight_bits,
            self.act_bits,
            evaluate=self.evaluate,
            example_input=example_input,
        )
        if made.added:
            progress.note(made.added)
        if made.accuracy is not None:
            progress.note(str(made.accuracy))
        return made


def given_data(calibrate: Any, evaluate: Any, labels: Any, weight_bits: Widths, act_bits: Widths) -> GivenData | None:
    """Return the data of a call of `nnhw.build`, None where `calibrate` is None.

    Raises
    ------
    InputError: an argument that has no meaning without another one, which is missing.
    """
    plain = (weight_bits, act_bits) == (Calibration.weight_bits, Calibration.act_bits)
    if calibrate is None:
        if evaluate is not None or labels is not None or not plain:
            raise InputError("evaluate, labels, weight_bits and act_bits need calibrate=DATA, images for a float model")
        return None
    if evaluate is not None and labels is None:
        raise InputError("evaluate needs labels, those [N] of its images")
    pair = None if labels is None else (calibrate if evaluate is None else evaluate, labels)
    return GivenData(calibrate, pair, weight_bits, act_bits)


def quantize_source(source: Source, calibration: Calibration, progress: Progress) -> Source:
    """Return a source whose model is quantized; accuracy, where labels are given, is noted.

    Raises
    ------
    InputError: files that cannot be read; what `nnhw.quantize` raises.
    """
    from nnhw.flow.models.samples import with_example
    from nnhw.frontend.graphs import GraphModel

    if isinstance(source.model, GraphModel):
        raise InputError(f"'{source.name}' is a graph, whose quantizers are in it; leave --calibrate out")
    images = _images(calibration.data, source)
    evaluate = None
    if calibration.labels is not None:
        own = None if calibration.evaluate is None else _load(calibration.evaluate, "evaluation data")
        evaluate = (images if own is None else own, _load(calibration.labels, "labels"))
    data = GivenData(images, evaluate, calibration.weight_bits, calibration.act_bits)
    model = data.quantize(source.model, source.example_input, progress)
    return with_example(dataclasses.replace(source, model=model), images)


def _images(data: Path, source: Source) -> np.ndarray:
    """Return the images of a file or of a folder of pictures."""
    if not data.is_dir():
        return _load(data, "calibration data")
    from nnhw.flow.models.images import load_images

    return load_images(data, [] if source.example_input is None else source.example_input.shape[1:])


def load_labels(file: Path, count: int) -> np.ndarray:
    """Return the labels of `count` images from a .npy file, integers [count].

    Raises
    ------
    InputError: the file cannot be read, or holds something else.
    """
    labels = _load(file, "labels")
    _check_labels(file, labels.shape, labels.dtype, count)
    return labels


def _check_labels(file: Path, shape: tuple[int, ...], dtype: np.dtype[Any], count: int) -> None:
    if dtype.kind not in "iu" or shape != (count,):
        raise InputError(
            f"labels '{file}' need the shape [{count}], whole numbers, one per image, got {dtype} {list(shape)}"
        )


def _load(file: Path, what: str) -> np.ndarray:
    with _readable(file, what):
        return load_npy(file)


@contextlib.contextmanager
def _readable(file: Path, what: str) -> Iterator[None]:
    """Turn what is wrong with a .npy file into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what} '{file}' cannot be read: {error.strerror or error}; check the path") from None
    except ValueError as error:
        if "Object arrays" in str(error):  # numpy's words for an array that only pickle could load
            raise InputError(
                f"{what} '{file}' holds Python objects, not numbers; save an array of numbers, such as "
                f"np.stack(images).astype(np.float32), with numpy.save"
            ) from None
        raise InputError(f"{what} '{file}' cannot be read as .npy: {error}; save it with numpy.save") from None
