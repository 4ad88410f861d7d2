"""Quantization after training, and capture of the result, so that what cannot be built is refused at once."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.nn.post_training import INPUT_BITS, quantized
from nnhw.nn.quantized import QuantizedModel

from .capture import check_structure


def quantize(
    model: nn.Module | ExportedProgram,
    calibration_batches: Any,
    weight_bits: int = 8,
    act_bits: int = 8,
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
    weight_bits, act_bits: bits of weights and activations, 1 to 8.
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
