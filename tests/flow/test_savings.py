"""What passes saved, from pruned PyTorch models to the report and the mapper."""

from __future__ import annotations

import importlib
import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.utils import prune

import nnhw
from nnhw.flow.commands.terminal import render_report
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture
from nnhw.mapping.reader import read_layers
from nnhw.nn import Int, QuantConv2d, QuantLinear, QuantReLU, UInt

EXAMPLES = Path(__file__).parents[2] / "examples"


class Inception(nn.Module):
    """Three branches that read the same value, one of them with a kernel of its own, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = UInt(4, 0.0625)
        self.left, self.right = (
            nn.Sequential(QuantConv2d(2, outputs, 1, weight_quant=Int(4, 0.125)), QuantReLU(3, 0.25))
            for outputs in (3, 5)
        )
        self.wide = nn.Sequential(QuantConv2d(2, 4, 3, padding=1, weight_quant=Int(4, 0.125)), QuantReLU(3, 0.25))
        self.fc = QuantLinear(12 * 16, 3, weight_quant=Int(4, 0.125))

    def forward(self, x: Tensor) -> Tensor:
        x = self.codes(x)
        result: Tensor = self.fc(torch.cat([self.left(x), self.right(x), self.wide(x)], 1).flatten(1))
        return result


def test_branches_of_an_inception_block_are_one_layer() -> None:
    torch.manual_seed(0)
    model, images = Inception().eval(), torch.rand(20, 2, 4, 4)
    parts, facts = lower_graph(capture(model, images), {"inputs": images.numpy()})
    assert facts["savings"]["merge_parallel"] == {
        **{"nodes": 2, "weights": 0, "products": 0, "channels": 0, "layers": ["right.0"]},
    }
    assert {layer.name for layer in read_layers(parts.body) if layer.products} == {"left.0", "wide.0", "fc"}


def test_merged_layers_equal_reference_in_rtl(tmp_path: Path) -> None:
    torch.manual_seed(0)
    build = nnhw.build(Inception().eval(), torch.rand(4, 2, 4, 4), out=tmp_path / "b", frames=3, stop_at="simulate")
    exact = build.report["exactness"]
    assert (exact["ir_rtl"], exact["rtl_samples"]) == (0, 3)
    assert set(exact["layers"].values()) == {0}
    assert build.report["savings"]["merge_parallel"]["layers"] == ["right.0"]


def test_unstructured_pruning_that_empties_channels_saves_them(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first, second = (QuantConv2d(*sizes, 3, padding=1, weight_quant=Int(4, "max_abs")) for sizes in ((1, 8), (8, 8)))
    fc = QuantLinear(128, 3, bias=False, weight_quant=Int(4, "max_abs"))
    with torch.no_grad():
        for layer in (first, second):
            layer.weight[2:6] *= 1e-3  # so that the smallest weights are those of whole channels
            layer.bias[2:6] = 0
    for layer in (first, second):
        prune.l1_unstructured(layer, "weight", 0.5)
        prune.remove(layer, "weight")
    layers = [UInt(4, 0.0625), first, QuantReLU(3, 0.25), second, QuantReLU(3, 0.25), nn.Flatten(), fc]
    images = torch.rand(8, 1, 4, 4)
    build = nnhw.build(nn.Sequential(*layers).eval(), images, out=tmp_path / "b", stop_at="map")
    saved = build.report["savings"]
    assert (saved["drop_unread"]["channels"], saved["drop_unread"]["weights"]) == (8, 4 * 9 + (64 - 16) * 9 + 4 * 48)
    assert set(build.report["exactness"]["passes"].values()) == {0}
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(render_report(build.report))
    assert "Pass drop_unread saved 8 channels, 660 weights, " in console.export_text()


def test_example_maps_to_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module("pruned")
    samples = {"inputs": example.example_input.numpy()}
    parts, facts = lower_graph(capture(example.model, example.example_input), samples)
    assert [node.type.shape[0] for node in parts.body.nodes if node.op.name in ("conv2d", "linear")] == [6, 12, 10]
    page = (EXAMPLES.parent / "docs" / "passes.md").read_text(encoding="utf-8")
    assert f"| weight bits | 55,872 | {facts['weight_bits']:,} |" in page
