"""A plain float network for MNIST, quantized to 8 bits after training: nothing in it knows of quantization."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import nnhw
from nnhw.nn import load_packed

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "mnist_float.npz"
CALIBRATION_DIGITS = 200


def build_model() -> nn.Sequential:
    """Make the untrained float model: [N, 1, 28, 28] in [0, 1] --> [N, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 10),
    )


def sample_images(count: int) -> torch.Tensor:
    """Return real digits, float32 [count, 1, 28, 28]."""
    with np.load(HERE / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        pixels = samples["images"][:count, np.newaxis].astype(np.float32)
    return torch.from_numpy(pixels / np.float32(255))


float_model = load_packed(build_model(), CHECKPOINT) if CHECKPOINT.exists() else None  # None: train_mnist.py makes it
example_input = sample_images(8)
model = None if float_model is None else nnhw.quantize(float_model, [sample_images(CALIBRATION_DIGITS)])
