"""A keyword transformer: one second of speech as 98 frames of 40 log-mel bands, 12 classes, quantized to 8 bits.

Its weights are random: it shows what a transformer of 120,000 parameters takes, not what it recognizes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import nnhw

BANDS, FRAMES, PATCH_FRAMES = 40, 98, 7
FEATURES, HEADS, HIDDEN, LAYERS, CLASSES = 64, 4, 128, 3, 12
CALIBRATED = 32


class KeywordTransformer(nn.Module):
    """[N, 1, BANDS, FRAMES] --> [N, CLASSES]: a token for 7 frames, and one that gathers what the class depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, FEATURES, (BANDS, PATCH_FRAMES), (BANDS, PATCH_FRAMES))
        self.token = nn.Parameter(torch.randn(1, 1, FEATURES) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, FRAMES // PATCH_FRAMES + 1, FEATURES) * 0.02)
        layer = nn.TransformerEncoderLayer(FEATURES, HEADS, HIDDEN, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, frames: Tensor) -> Tensor:
        """Logits."""
        patches = self.embed(frames).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(frames.shape[0], -1, -1), patches], 1) + self.positions
        logits: Tensor = self.head(self.encoder(rows)[:, 0])
        return logits


def build_model() -> tuple[nn.Module, Tensor]:
    """Return the quantized model with random weights, and inputs [2, 1, BANDS, FRAMES]."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        frames = torch.randn(CALIBRATED, 1, BANDS, FRAMES)
        return nnhw.quantize(KeywordTransformer().eval(), [frames]), frames[:2]


model, example_input = build_model()
