"""The networks of brevitas_examples.bnn_pynq, through their door to RTL: TFC, SFC, LFC and CNV, all widths."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import nnhw
from nnhw.flow.tools.progress import make_progress

Row = dict[str, Any]
WIDTHS = ("1w1a", "1w2a", "2w2a")
NAMES = tuple(f"{net}_{widths}" for net in ("tfc", "sfc", "lfc", "cnv") for widths in WIDTHS)
WITHOUT_CONFIGURATION = ("lfc_2w2a",)
"""Names that brevitas_examples has no configuration for."""
NETWORKS = tuple(name for name in NAMES if name not in WITHOUT_CONFIGURATION)
FRAMES = 2
SHAPES = {"cnv": (3, 32, 32), "resnet18": (3, 32, 32)}


def bnn_pynq(name: str) -> tuple[nn.Module, Tensor]:
    """Return a model of brevitas_examples, untrained, with statistics of random images, and an example input."""
    from brevitas_examples.bnn_pynq.models import model_with_cfg

    torch.manual_seed(1)
    model = model_with_cfg(name, pretrained=False)[0]
    example = torch.rand(4, *SHAPES.get(name.partition("_")[0], (1, 28, 28)))
    with torch.no_grad():
        for _ in range(2):
            model(torch.rand(16, *example.shape[1:]))
    return model.eval(), example


def run(board: str | None) -> Row:
    """Build all of them up to the simulation of their RTL, on an ECP5-85F unless another board is asked for.

    Returns
    -------
    `networks`: for each its name, board, style, estimated logic cells and block RAMs, the cycles of a frame, predicted
    and simulated, how many frames were compared at how many boundaries, and how many of them differ.
    """
    progress = make_progress(Console(stderr=True))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in NETWORKS:
            with progress.stage(name):
                rows.append(simulated(name, board or "ulx3s_85f", Path(scratch) / name))
    return {"networks": rows}


def simulated(name: str, board: str, out: Path) -> Row:
    """Build one network up to its simulation; return its row."""
    model, example = bnn_pynq(name)
    report = nnhw.build(
        model,
        example,
        board=board,
        name=name,
        style="streaming",
        fast_for="engine",
        out=out,
        frames=FRAMES,
        stop_at="simulate",
    ).report
    return {
        "network": name,
        "board": board,
        "style": report["style"]["name"],
        "weight_bits": report["model"]["weight_bits"],
        "resources": {kind: report["resources"][kind]["estimated"] for kind in ("lc", "ebr")},
        "interval": report["cycles"]["interval"],
        "frames": report["exactness"]["rtl_samples"],
        "boundaries": len(report["exactness"]["layers"]),
        "mismatches": report["exactness"]["ir_rtl"],
    }


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    table = Table("network", "board", "LC", "block RAM", "cycles", "simulated", "boundaries", "RTL differs")
    for network in row["networks"]:
        interval = network["interval"]
        table.add_row(
            network["network"],
            network["board"],
            *(f"{network['resources'][kind]:,.0f}" for kind in ("lc", "ebr")),
            f"{interval['predicted']:,}",
            "one frame" if interval["simulated"] is None else f"{interval['simulated']:,}",
            str(network["boundaries"]),
            f"{network['mismatches']} of {network['frames']} frames",
        )
    Console().print(table)
