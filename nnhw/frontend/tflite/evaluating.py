"""Evaluation of a file by TFLite's arithmetic: the result, and the codes of each requantization."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nnhw.frontend.evaluation import Evaluation, Evaluator, QuantizerCall

from .kernels import KERNELS, Kernel
from .model_file import FileOperator, FileTensor
from .module import TfliteModel

_PLAIN = (-1, False, "half_even", False, False)
_REAL = (-1, False, "half_away", False, False)


class TfliteEvaluator(Evaluator):
    """Evaluates the file of a model by the integer arithmetic of TFLite's reference kernels (`kernels`)."""

    model: TfliteModel

    def __call__(self, images: np.ndarray, *, numbers: bool = False) -> Evaluation:
        """Return the result for images [N, *shape] of real numbers, and the codes of all quantizers."""
        file, calls = self.model.file, list[QuantizerCall]()

        def note(kind: str, codes: np.ndarray, arguments: tuple[Any, ...]) -> None:
            plain = (*arguments, *_PLAIN) if kind == "weights" else arguments
            calls.append(QuantizerCall((*plain, codes.shape[1:]), codes, torch.float64))

        given = file.tensors[file.input]
        values: dict[int, np.ndarray] = {file.input: images}
        if given.type != "FLOAT32":
            values[file.input] = _codes(images, given, calls)
        for operator in file.operators:
            inputs = [values[index] for index in operator.inputs if index in values]
            made = self._made(operator, inputs, calls, note)
            values.update(zip(operator.outputs, made if isinstance(made, list) else [made], strict=True))
        result, last = values[file.output], file.tensors[file.output]
        return Evaluation(result * last.scale if last.type != "FLOAT32" else result, tuple(calls))

    def _made(self, operator: FileOperator, inputs: list[np.ndarray], calls: list[QuantizerCall], note: Any) -> Any:
        file = self.model.file
        source = next(
            file.tensors[index] for index in operator.inputs if index is not None and file.tensors[index].data is None
        )
        if operator.kind == "QUANTIZE" and source.type == "FLOAT32":
            return _codes(inputs[0], file.made(operator), calls)
        if operator.kind == "DEQUANTIZE":
            return inputs[0] * source.scale
        # Behind DEQUANTIZE only the shape changes: other operators on floats were refused.
        if source.type == "FLOAT32":
            return inputs[0].reshape(len(inputs[0]), *file.made(operator).shape[1:])
        return KERNELS[operator.kind](Kernel(file, operator, self.model.rounding, note), *inputs)


def _codes(images: np.ndarray, tensor: FileTensor, calls: list[QuantizerCall]) -> np.ndarray:
    """Return the codes of real numbers as distances from the zero point, and append the call to `calls`.

    The quotient has the precision of the images, and is rounded half away from zero.
    """
    # In the precision of the images, as the module divides: for float32 that is TFLite's own.
    steps = (images / images.dtype.type(tensor.scale)).astype(images.dtype)
    whole = np.trunc(steps)
    rounded = whole + np.sign(steps) * (np.abs(steps - whole) >= 0.5)
    ends = tensor.codes
    codes = np.clip(rounded + tensor.zero_point, ends.low, ends.high).astype(np.int64) - tensor.zero_point
    signature = (ends.low, ends.high, *_REAL, images.shape[1:])
    dtype = torch.float64 if images.dtype == np.float64 else torch.float32
    calls.append(QuantizerCall(signature, codes, dtype, steps))
    return codes
