"""Quantization after training, and capture of the result, so that what cannot be built is refused at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.errors import InputError, NnhwError, raise_all
from nnhw.nn.bits import Widths
from nnhw.nn.calibration import batches_of
from nnhw.nn.post_training import INPUT_BITS, quantized
from nnhw.nn.quantized import QuantizedModel
from nnhw.nn.sensitivity import Sensitivity, checked_bits, measure

from .capture import check_structure


def quantize(
    model: nn.Module | ExportedProgram,
    calibration_batches: Any,
    weight_bits: Widths = 8,
    act_bits: Widths = 8,
    *,
    input_bits: int = INPUT_BITS,
    evaluate: tuple[Any, Any] | None = None,
    example_input: Tensor | None = None,
) -> QuantizedModel:
    """Return a quantized copy of a model, in eval mode; the model itself is not changed.

        conv, norm, relu, linear  -->  quantizer, QuantConv2d, norm, relu, quantizer, QuantLinear

    A quantizer is put behind every value that a linear layer, an average pooling, an addition or a concatenation reads;
    concatenated values share one scale. A sum or product that is a function of one value alone, such as y * sigmoid(y),
    gets a quantizer only behind it. Weights get one scale per output. Batch norms stay: nnhw evaluates them together
    with the operations around them. Codes are unsigned where values cannot be negative: behind ReLU and similar
    functions, and at the input if the calibration data has no negative values.

    A model that has quantizers everywhere but at its input, such as a QONNX file whose first layer reads floats, gets
    only that one, with the fewer of `act_bits` and `input_bits`; its own stay as they are. The attribute `added` of the
    result says so.

    Parameters
    ----------
    calibration_batches: one tensor or array [N, ..]; an iterable of such batches, or of (batch, labels), whose labels
        are left out; such as a `DataLoader`, of which batches are taken until there are 1,024 images, in its order, so
        let it shuffle; or a `Dataset` of images, or of (image, label), of which 1,024 are taken, evenly spread over it.
    weight_bits, act_bits: bits of weights and activations, 1 to 8; or a dict of bits by the names of layers, which may
        be patterns, of which the first that matches counts: `{"conv1": 8, "features.*": 4, "*": 2}`. Activations go by
        the layer that makes them.
    input_bits: bits of the model's input, 1 to 8.
    evaluate: (images [N, ..], labels [N]), labels counted from 0: on them PyTorch measures the accuracy before and
        after quantization, in the model's own dtype; it becomes the attribute `accuracy` of the result, which is
        None otherwise.
    example_input: [batch, ..]: all images must have the shape of its images; an exported program has its own.

    Raises
    ------
    InputError, or ProblemList with several of them: wrong bits or data, layers that have no quantized form, or a model
        that computes something else than its trace.
    CaptureError, or ProblemList: the quantized model cannot be captured; the same errors as of `nnhw.reference`.
    """
    made, images = quantized(
        model,
        calibration_batches,
        weight_bits,
        act_bits,
        input_bits=input_bits,
        evaluate=evaluate,
        example_input=example_input,
    )
    check_structure(made, images)
    return made


def sensitivity(
    model: nn.Module | ExportedProgram,
    data: Any,
    bits: Sequence[int] | int = (4, 2),
    *,
    labels: Any = None,
    example_input: Tensor | None = None,
) -> Sensitivity:
    """Return what a float model loses if the weights of one layer have few bits, for each layer alone.

        print(nnhw.sensitivity(model, images))
        quantized = nnhw.quantize(model, images, weight_bits={"conv1": 8, "*": 2})

    All other weights, and all activations, have 8 bits. The model itself is not changed.

    Parameters
    ----------
    data: images with which the model is quantized and then evaluated, as `nnhw.quantize` takes them.
    bits: of a layer's weights, 1 to 8; each number is tried.
    labels: [N] of these images, counted from 0: accuracy is measured, too.
    example_input: see `quantize`.

    Raises
    ------
    InputError, or ProblemList with several of them: what `quantize` raises; labels that do not fit the images.
    """
    counts = checked_bits(bits)
    classes = None if labels is None else _classes(labels, data)
    problems: list[NnhwError] = []
    shape = None if example_input is None else list(example_input.shape[1:])
    # Read once, as a loader may give its images in another order each time.
    batches = batches_of(data, "calibration data", problems, shape, whole=labels is not None)
    raise_all(problems)
    images = sum(map(len, batches))
    if classes is not None and len(classes) != images:
        raise InputError(f"labels need one number for each of the {images} images, got {len(classes)}")
    made, _ = quantized(model, batches, 8, 8, example_input=example_input)
    dtype = next((value.dtype for value in made.parameters()), torch.float32)
    return measure(made, [batch.to(dtype) for batch in batches], counts, classes)


def _classes(labels: Any, data: Any) -> Tensor:
    """Return labels [N]. Raises: InputError for what are none, or do not go with the images one by one."""
    if not isinstance(data, Tensor | np.ndarray):
        raise InputError(f"labels go with images in one array, whose order is known, got {type(data).__name__} as data")
    try:
        classes = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        classes = torch.empty(0)
    if classes.ndim != 1 or classes.is_floating_point() or not len(classes):
        raise InputError("labels need whole numbers [N], one for each image")
    return classes
