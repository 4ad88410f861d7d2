"""A small vision transformer for MNIST of PyTorch's own modules, quantized to 8 bits after training.

Attention, softmax and normalization are computed with integers on the device, an ECP5-45F or larger:
`nnhw build examples/mnist_vit.py --board ulx3s_85f`.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import nnhw
from nnhw.nn import load_packed

HERE = Path(__file__).resolve().parent
CHECKPOINT = HERE / "checkpoints" / "mnist_vit.npz"
CALIBRATION_DIGITS = 200
PATCH, FEATURES, HEADS, HIDDEN, LAYERS = 7, 32, 4, 64, 2


class VisionTransformer(nn.Module):
    """[N, 1, 28, 28] in [0, 1] --> [N, 10]: 16 patches and a class token, whose features are classified at the end."""

    def __init__(self) -> None:
        super().__init__()
        tokens = (28 // PATCH) ** 2 + 1
        self.patches = nn.Conv2d(1, FEATURES, PATCH, PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, FEATURES) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, tokens, FEATURES) * 0.02)
        layer = nn.TransformerEncoderLayer(
            FEATURES, HEADS, HIDDEN, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(FEATURES), enable_nested_tensor=False)
        self.head = nn.Linear(FEATURES, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(images.shape[0], -1, -1), patches], 1) + self.positions
        logits: Tensor = self.head(self.encoder(rows)[:, 0])
        return logits


def sample_images(count: int) -> torch.Tensor:
    """Return real digits, float32 [count, 1, 28, 28]."""
    with np.load(HERE / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        pixels = samples["images"][:count, np.newaxis].astype(np.float32)
    return torch.from_numpy(pixels / np.float32(255))


float_model = load_packed(VisionTransformer(), CHECKPOINT) if CHECKPOINT.exists() else None  # train_vit.py makes it
example_input = sample_images(8)
model = None if float_model is None else nnhw.quantize(float_model, [sample_images(CALIBRATION_DIGITS)])
