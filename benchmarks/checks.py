"""`nnhw check` on each network that people bring, and on some with large images: CPU seconds and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.people.corpus import MODELS
from benchmarks.people.mobile import mobilenet_v2
from benchmarks.people.model import PeopleModel
from benchmarks.people.steps import images
from nnhw.nn import Int, QuantConv2d, QuantReLU

ROOT = Path(__file__).parents[1]
BOARD = "ulx3s_85f"


class SuperResolution(nn.Module):
    """Convolutions around a residual connection, and twice the pixels at the end."""

    def __init__(self, channels: int = 32, layers: int = 6) -> None:
        super().__init__()
        body: list[nn.Module] = []
        for _ in range(layers):
            body += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
        self.head = nn.Sequential(nn.Conv2d(3, channels, 5, padding=2), nn.ReLU())
        self.body = nn.Sequential(*body)
        self.tail = nn.Sequential(nn.Conv2d(channels, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 3, height, width] --> [N, 3, 2 * height, 2 * width]."""
        x = self.head(x)
        y: torch.Tensor = self.tail(self.body(x) + x)
        return y


def separable() -> nn.Module:
    """Return a separable convolution of 4 bits that keeps the size of its images."""
    bits = Int(4)

    def act() -> nn.Module:
        return QuantReLU(4, 2**-3)

    return nn.Sequential(
        *(Int(4, 2**-3), QuantConv2d(3, 16, 1, weight_quant=bits), act()),
        *(QuantConv2d(16, 16, 3, padding=1, groups=16, weight_quant=bits), act()),
        *(QuantConv2d(16, 16, 1, weight_quant=bits), act()),
    )


_PROGRESS = re.compile(r"\w+( \.\.\.|: [\d.]+ s)|an engine for each layer|a shared engine")
"""Beginnings of lines about work that goes on."""
LARGE: dict[str, PeopleModel] = {
    "super_resolution": PeopleModel(SuperResolution, (3, 128, 128)),
    "mobilenet_v2_160": PeopleModel(lambda: mobilenet_v2(0.35, 10), (3, 160, 160)),
    "separable_512": PeopleModel(separable, (3, 512, 512), quantized=True),
}
ALL = MODELS | LARGE


def run(board: str) -> dict[str, Any]:
    """Check each network for a board, in a process of its own, as a user does."""
    with tempfile.TemporaryDirectory() as folder:
        return {"board": board, "rows": [checked(name, board, Path(folder)) for name in ALL]}


def show(row: Mapping[str, Any]) -> None:
    """Print a line for each network."""
    print(f"{'on ' + row['board']:24}{'input':>16}{'CPU s':>8}{'MiB':>7}  answer")
    for one in row["rows"]:
        shape = " x ".join(map(str, one["shape"]))
        print(f"{one['network']:24}{shape:>16}{one['cpu_s']:>8}{one['peak_mib']:>7}  {one['answer'][:70]}")


def checked(name: str, board: str, folder: Path) -> dict[str, Any]:
    """Run `nnhw check` on a network; return its CPU seconds, its greatest resident memory in MiB and its first line.

    Parameters
    ----------
    folder: for the files that the command reads.
    """
    entry, file, data = ALL[name], folder / f"{name}.py", folder / f"{name}.npy"
    file.write_text(
        "from benchmarks.checks import ALL\n"
        "from benchmarks.people.steps import images, made\n"
        f"model, example_input = made(ALL[{name!r}]), images(ALL[{name!r}])[:2]\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "nnhw", "check", "--board", board, str(file)]
    if not entry.quantized:
        np.save(data, images(entry).numpy())
        command += ["--calibrate", str(data)]
    print(name, file=sys.stderr, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        answer = said.read().replace(str(folder), "")
    said_lines = [line for line in answer.splitlines() if line.strip() and not _PROGRESS.match(line)]
    lines = [line for line in said_lines if "no problems" in line] or said_lines or [""]
    return {
        "network": name,
        "shape": list(entry.shape),
        "code": process.returncode,
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mib": used.ru_maxrss >> 10,
        "answer": lines[0].strip("/"),
    }
