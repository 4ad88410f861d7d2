"""Files of TensorFlow Lite with int8 networks. Importing this imports `tflite`: see `nnhw.frontend.doors`."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.frontend.evaluation import Evaluator
from nnhw.frontend.locations import Lines
from nnhw.nn.rescale_operator import DOUBLE, checked_rounding

from .evaluating import TfliteEvaluator
from .module import TfliteModel, example_of
from .parsing import parse_model, read_model

__all__ = ["TfliteModel", "evaluator", "load", "parse_model", "read_model", "traceable"]


def load(path: Path, rounding: str = DOUBLE) -> tuple[nn.Module, Tensor]:
    """Return the network of a file in eval mode, and an example input: random numbers of its range, float32.

    Parameters
    ----------
    path: of the file.
    rounding: 'double' as TFLite's reference kernels requantize, 'single' as its builds with single rounding do.

    Raises
    ------
    InputError: it is no whole TFLite file, or its graph has another form; CaptureError, or ProblemList with all of
    them at once, for operators that are not supported.
    """
    file = read_model(path)
    return TfliteModel(file, checked_rounding(rounding)).eval(), example_of(file)


def traceable(
    model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines
) -> nn.Module | ExportedProgram:
    """Return the model itself, which computes with nnhw's operators."""
    return model


def evaluator(model: nn.Module | ExportedProgram) -> Evaluator:
    """Return the evaluation of the file by the arithmetic of TFLite's reference kernels, in NumPy."""
    assert isinstance(model, TfliteModel)
    return TfliteEvaluator(model)
