"""Quantize the float network of `mnist_float.py` to int8 by integer arithmetic, and write mnist_int8.tflite.

It stands for what TensorFlow's converter does. The file is written by the helper of nnhw's own tests, so this runs in
the repository, with `pip install tflite`: `python examples/quantize_tflite.py`.
"""

import copy
import sys
from pathlib import Path

import numpy as np
import torch
from mnist_float import CALIBRATION_DIGITS, float_model, sample_images
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.frontend.tflite_models import File

FILE = Path(__file__).resolve().parent / "mnist_int8.tflite"


def folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[np.ndarray, np.ndarray]:
    """Return weights [outputs, height, width, inputs] and bias of a convolution and its batch norm."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    weight = (conv.weight * factor.reshape(-1, 1, 1, 1)).permute(0, 2, 3, 1)
    return weight.detach().double().numpy(), (norm.bias - norm.running_mean * factor).detach().double().numpy()


def code_of(numbers: Tensor) -> tuple[float, int]:
    """Return scale and zero point that hold the numbers seen, and 0."""
    low, high = min(float(numbers.min()), 0.0), max(float(numbers.max()), 0.0)
    scale = float(np.float32((high - low) / 255))
    return scale, round(-128 - low / scale)


def add_layer(
    file: File,
    kind: str,
    x: int,
    weight: np.ndarray,
    bias: np.ndarray,
    shape: tuple[int, ...],
    made: Tensor,
    **options: object,
) -> int:
    """Add a layer with a scale for each output; `made` are results of it that were seen."""
    peak = np.abs(weight.reshape(len(weight), -1)).max(axis=1)
    scales = (peak / 127).astype(np.float32)
    codes = np.rint(weight / scales.reshape(-1, *[1] * (weight.ndim - 1)).astype(np.float64))
    steps = file.scales[x] * scales.astype(np.float64)
    w = file.tensor(
        f"weights_{len(file.tensors)}", weight.shape, "int8", (scales, np.zeros(len(scales), int), 0), codes
    )
    b = file.tensor(f"bias_{len(file.tensors)}", bias.shape, "int32", None, np.rint(bias / steps))
    return file.apply(kind, [x, w, b], shape, *code_of(made), **options)


def quantized(model: nn.Sequential, images: Tensor) -> bytes:
    """Return the file of the network, calibrated with images."""
    # In double precision: sums of float32 differ from processor to processor, and scales are made of what is seen.
    model, seen = copy.deepcopy(model).double().eval(), [images.double()]
    with torch.no_grad():
        for layer in model:
            seen.append(layer(seen[-1]))
    file = File(1, 28, 28, 1, scale=float(np.float32(1 / 255)), zero=-128)
    strides = {"Padding": "VALID", "StrideW": 2, "StrideH": 2, "FusedActivationFunction": "RELU"}
    x = add_layer(file, "CONV_2D", file.input, *folded(model[0], model[1]), (1, 13, 13, 8), seen[3], **strides)
    x = add_layer(file, "CONV_2D", x, *folded(model[3], model[4]), (1, 6, 6, 16), seen[6], **strides)
    flat = file.apply("RESHAPE", [x, file.integers(-1, 576)], (1, 576), *code_of(seen[6]))
    # The file has channels last, so that its 576 inputs come in another order than PyTorch's.
    weight = model[7].weight.detach().double().reshape(10, 16, 6, 6).permute(0, 2, 3, 1).reshape(10, 576).numpy()
    logits = add_layer(file, "FULLY_CONNECTED", flat, weight, model[7].bias.detach().double().numpy(), (1, 10), seen[8])
    file.apply("SOFTMAX", [logits], (1, 10), 1 / 256, -128, Beta=1.0)
    return file.bytes()


if __name__ == "__main__":
    assert float_model is not None, "train_mnist.py makes the checkpoint"
    FILE.write_bytes(quantized(float_model, sample_images(CALIBRATION_DIGITS)))
