"""A perceptron of Brevitas layers for MNIST: 2 bits per weight and activation, 4 per pixel, scales that are learned."""

from itertools import pairwise
from pathlib import Path

import brevitas.nn as qnn
import numpy as np
import torch
from brevitas.quant import Int8WeightPerChannelFloat, Uint8ActPerTensorFloat
from torch import nn

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "brevitas_mlp.npz"
WIDTHS = (784, 64, 64)
CLASSES = 10


def build_model() -> nn.Sequential:
    """Make the untrained model: [N, 1, 28, 28] float32 in [0, 1] --> [N, 10] float32."""
    layers: list[nn.Module] = [nn.Flatten(), qnn.QuantIdentity(Uint8ActPerTensorFloat, bit_width=4)]
    for width_in, width_out in pairwise(WIDTHS):
        layers += [
            qnn.QuantLinear(
                width_in, width_out, bias=False, weight_quant=Int8WeightPerChannelFloat, weight_bit_width=2
            ),
            nn.BatchNorm1d(width_out),
            qnn.QuantReLU(bit_width=2),
            nn.Dropout(0.05),
        ]
    return nn.Sequential(*layers, qnn.QuantLinear(WIDTHS[-1], CLASSES, bias=True, weight_bit_width=4))


def save(model: nn.Module, path: Path) -> None:
    """Write what a model has learned; weights as float16, which their quantizers take for the same codes or near."""
    arrays = {name: value.numpy() for name, value in model.state_dict().items()}
    np.savez_compressed(
        path, **{name: np.float16(array) if array.ndim == 2 else array for name, array in arrays.items()}
    )


def load(path: Path) -> nn.Sequential:
    """Return the model with what was learned, in eval mode."""
    with np.load(path, allow_pickle=False) as arrays:
        state = {name: torch.from_numpy(arrays[name]) for name in arrays}
    made = build_model()
    made.load_state_dict({name: value.float() if value.ndim == 2 else value for name, value in state.items()})
    return made.eval()


def _first_digits(count: int = 8) -> torch.Tensor:
    with np.load(HERE / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        pixels = samples["images"][:count, np.newaxis].astype(np.float32)
    return torch.from_numpy(pixels / np.float32(255))


model = load(CHECKPOINT) if CHECKPOINT.exists() else None  # None: train_brevitas.py makes it
example_input = _first_digits()
