"""Whole transformers, quantized after training: PyTorch, the captured graph, the integers and exported C are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nnhw
from nnhw.export.c import make_c
from nnhw.export.onnx import to_bytes, to_onnx
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.passes import lower, split
from tests.export.test_c import CC, compiled

pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')")
FRAMES, BANDS, FEATURES = 24, 40, 64


class KeywordTransformer(nn.Module):
    """Spectra of a second of sound [N, 24, 40] --> 12 words, as in KWT, arXiv:2104.00769."""

    def __init__(self, norm_first: bool, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(BANDS, FEATURES)
        self.token = nn.Parameter(torch.randn(1, 1, FEATURES))
        self.positions = nn.Parameter(torch.randn(1, FRAMES + 1, FEATURES) * 0.3)
        layer = nn.TransformerEncoderLayer(
            FEATURES, 2, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(FEATURES, 12)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embedding(x)], dim=1) + self.positions
        words: Tensor = self.head(self.encoder(rows)[:, 0])
        return words


class PatchTransformer(nn.Module):
    """Pictures [N, 1, 28, 28] --> 10 classes: patches by a convolution, written-out attention, a mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = nn.Conv2d(1, 24, 7, 7), nn.Parameter(torch.randn(16, 24) * 0.3)
        self.norms = nn.ModuleList([nn.LayerNorm(24), nn.RMSNorm(24)])
        self.qkv, self.out, self.head = nn.Linear(24, 72), nn.Linear(24, 24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        count, tokens, features = x.shape
        parts = self.qkv(self.norms[0](x)).reshape(count, tokens, 3, 4, features // 4).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        shares = ((q @ k.transpose(-2, -1)) * (features // 4) ** -0.5).softmax(dim=-1)
        x = x + self.out((shares @ v).transpose(1, 2).reshape(count, tokens, features))
        classes: Tensor = self.head(self.norms[1](x).mean(1))
        return classes


def check_equal(quantized: nn.Module, x: Tensor, tmp_path: Path) -> None:
    """Compare PyTorch, the graph, its integer form, ONNX and C on all frames."""
    captured = capture_quantizers(quantized, x[:4])
    answers = own_answers(quantized, captured, x.numpy())
    assert answers.ties["float64"] == 0
    parts = split(lower(captured.graph))
    codes = run(parts.head, x.numpy())[0]
    results = run(parts.body, codes)[0]
    outputs = run(parts.tail, results)[0]
    np.testing.assert_array_equal(run(captured.graph, x.numpy())[0], outputs)
    assert answers.double is not None
    assert np.abs(answers.double - outputs).max() < 1e-12 * np.abs(outputs).max()  # all codes are equal: no tie
    program = make_c(parts.body, parts.head, parts.tail, "net")
    given = compiled([program], tmp_path).run(program, parts, x.numpy())
    for own, wanted in zip(given, (codes, results, outputs), strict=True):
        np.testing.assert_array_equal(own, wanted)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(to_bytes(to_onnx(parts.body)))
    np.testing.assert_array_equal(session.run(None, {parts.body.inputs[0].name: codes})[0], results)
    assert len(np.unique(results, axis=0)) > len(x) // 2


@pytest.mark.parametrize(
    ("norm_first", "layers"),
    [(True, 1), (False, 1), *(pytest.param(first, 3, marks=pytest.mark.long) for first in (True, False))],
)
def test_keyword_transformer_is_equal_everywhere(norm_first: bool, layers: int, tmp_path: Path) -> None:
    """With three layers they are networks of 100,000 weights."""
    torch.manual_seed(0)
    model, x = KeywordTransformer(norm_first, layers).eval(), torch.randn(12, FRAMES, BANDS)
    check_equal(nnhw.quantize(model, [x]), x, tmp_path)


def test_patch_transformer_is_equal_everywhere(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = PatchTransformer().eval(), torch.rand(12, 1, 28, 28)
    check_equal(nnhw.quantize(model, [x]), x, tmp_path)


def test_vision_transformer_of_the_examples_is_equal_everywhere(tmp_path: Path) -> None:
    from examples.mnist_vit import float_model, sample_images  # the model is made when it is imported

    assert float_model is not None
    check_equal(nnhw.quantize(float_model, [sample_images(40)]), sample_images(12), tmp_path)
