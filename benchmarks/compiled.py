"""What of five mixed models runs where, by `torch.compile`: on the accelerator, and in PyTorch with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.mixed import MODELS, MixedModel
from nnhw.dynamo import Backend, GraphPartition
from nnhw.flow.tools.progress import make_progress

BATCH = 16
Row = dict[str, Any]


def run(board: str | None) -> Row:
    """Compile each model, run it in batches, and compare all results with the reference composed with PyTorch.

    Returns
    -------
    `models`: for each its name, what it is, board and link; `operations` and `accelerated` of them; its `parts` with
    layers, shapes, style and cycles; `pytorch`: how many operations PyTorch runs of each kind and for each reason;
    `images` compared, and on how many results `differ`.
    """
    progress = make_progress(Console(stderr=True))
    rows = []
    for model in MODELS:
        with progress.stage(f"{model.name}: {model.about}"):
            rows.append(_compiled(model, board or "icebreaker"))
    return {"models": rows}


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    table = Table("model", "link", "on the accelerator", "parts", "in PyTorch, and why", "differ")
    for model in row["models"]:
        parts = [
            f"{part['layers']} layers, {part['style']}, {part['interval_cycles']:,} cycles" for part in model["parts"]
        ]
        reasons = [f"{one['count']} x {one['operation']}: {one['why']}" for one in model["pytorch"]]
        table.add_row(
            f"{model['name']}: {model['about']}",
            model["link"],
            f"{model['accelerated']} of {model['operations']} operations",
            "\n".join(parts),
            "\n".join(reasons),
            f"{model['differ']} of {model['images']}",
        )
    Console().print(table)


def _compiled(mixed: MixedModel, board: str) -> Row:
    model, images = mixed.make()
    torch._dynamo.reset()
    backend = Backend(board=board, link=mixed.link, fast_for="engine")
    compiled, exact = torch.compile(model, backend=backend), mixed.composed(model)
    with torch.inference_mode():
        pairs = [(compiled(part), exact(part)) for part in images.split(BATCH)]
    partition = backend.partitions[0]
    return {
        "name": mixed.name,
        "about": mixed.about,
        "board": board,
        "link": mixed.link,
        "operations": len(partition.rows),
        "accelerated": len(partition.accelerated()),
        "parts": [_part(part) for part in partition.parts],
        "pytorch": _reasons(partition),
        "images": len(images),
        "differ": sum(_differing(*pair) for pair in pairs),
    }


def _part(part: Any) -> Row:
    names = ("layers", "style", "interval_cycles")
    shapes = {"i_shape": list(part.i_shape), "o_shape": list(part.o_shape)}
    return {**{name: getattr(part, name) for name in names}, **shapes}


def _reasons(partition: GraphPartition) -> list[Row]:
    """Return how many operations PyTorch runs of each kind, and why, in the order of their first."""
    counts = Counter((row.operation, row.why) for row in partition.rows if row.part is None)
    return [{"operation": operation, "why": why, "count": count} for (operation, why), count in counts.items()]


def _differing(given: Tensor, expected: Tensor) -> int:
    """Return on how many images results differ in any bit."""
    return int((given != expected).reshape(len(given), -1).any(1).sum())
