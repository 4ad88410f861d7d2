"""Large networks and boards that are too small for them: CPU seconds until there is an answer, and which it is.

`python -m benchmarks.mapping NETWORK BOARD` maps one, in a process of its own; one JSON object on the last line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.people.steps import limit_cpu, outcome
from nnhw.boards import load_board
from nnhw.errors import BuildError, InputError
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.frontend import capture
from nnhw.nn import Int, QuantConv2d, QuantLinear, UInt
from nnhw.passes import lower, split

ROOT = Path(__file__).parents[1]
BOARDS = ("icebreaker", "ulx3s_85f")
SEED = 30
LIMIT_S = 120.0


def perceptron(layers: int, width: int) -> tuple[nn.Module, torch.Tensor]:
    """Return layers of one width with weights and activations of 8 bits, and inputs [2, width]."""
    made: list[nn.Module] = [Int(8, 2**-5)]
    for _ in range(layers):
        made += [QuantLinear(width, width, weight_quant=Int(8)), nn.ReLU(), UInt(8, 2**-4)]
    return nn.Sequential(*made, QuantLinear(width, 10, weight_quant=Int(8))), torch.randn(2, width)


def convolutions(size: int, widths: tuple[int, ...]) -> tuple[nn.Module, torch.Tensor]:
    """Return convolutions of stride 2 with weights and activations of 8 bits, and images [2, 3, size, size]."""
    made: list[nn.Module] = [Int(8, 2**-5)]
    channels = 3
    for width in widths:
        conv = QuantConv2d(channels, width, 3, padding=1, stride=2, weight_quant=Int(8))
        made, channels = [*made, conv, nn.ReLU(), UInt(8, 2**-4)], width
    pixels = (size >> len(widths)) ** 2
    last = QuantLinear(channels * pixels, 10, weight_quant=Int(8))
    return nn.Sequential(*made, nn.Flatten(), last), torch.randn(2, 3, size, size)


def keyword_transformer() -> tuple[nn.Module, torch.Tensor]:
    """Return three encoder layers of 64 features with weights and activations of 8 bits, and 2 spectrograms."""
    # Imported late, as it is quantized when it is imported.
    from benchmarks.networks.keyword_transformer import example_input, model

    return model, example_input


NETWORKS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "50 layers of 16 x 16": lambda: perceptron(50, 16),
    "200 layers of 16 x 16": lambda: perceptron(200, 16),
    "20 layers of 1000 x 1000": lambda: perceptron(20, 1000),
    "images of 224 x 224": lambda: convolutions(224, (16, 32, 64, 64, 64)),
    "keyword transformer": keyword_transformer,
}


def run(board: str | None) -> dict[str, Any]:
    """Map each network on a board, or on both; a process for each."""
    boards = (board,) if board else BOARDS
    return {"limit_s": LIMIT_S, "rows": [_apart(name, board) for name in NETWORKS for board in boards]}


def show(row: Mapping[str, Any]) -> None:
    """Print a line for each network and board: CPU seconds of each step, and the answer of the mapping."""
    print(f"{'':26}{'':14}{'weights':>12}{'capture s':>11}{'lower s':>9}{'map s':>8}  outcome")
    for one in row["rows"]:
        seconds = f"{one['capture_s']:>11}{one['lower_s']:>9}{one['cpu_s']:>8}"
        answer = f"{one['style']}, {one['cycles']:,} cycles" if one["outcome"] == "done" else one["outcome"]
        print(f"{one['network']:26}{one['board']:14}{one['weights']:>12,}{seconds}  {answer}")


def mapped(name: str, board_name: str) -> dict[str, Any]:
    """Capture, lower and map a network; return the CPU seconds of each and the outcome. Raises: InputError."""
    if name not in NETWORKS:
        raise InputError(f"there is no network '{name}'; there are {', '.join(NETWORKS)}")
    torch.manual_seed(SEED)
    model, inputs = NETWORKS[name]()
    start = time.process_time()
    graph = capture(model.eval(), inputs)
    captured = time.process_time()
    body, board = split(lower(graph)).body, load_board(board_name)
    lowered = time.process_time()
    found: dict[str, Any] = {}

    def one() -> None:
        made, facts = map_on_board(body, board, Options(fast_for="engine"))
        found.update(cycles=made.interval, style=made.style, resources=facts["resources"])

    limit_cpu(LIMIT_S)
    return {
        "network": name,
        "board": board_name,
        "weights": sum(value.numel() for value in model.parameters() if value.dim() > 1),
        "capture_s": round(captured - start, 1),
        "lower_s": round(lowered - captured, 1),
        **outcome(one),
        **found,
    }


def _apart(name: str, board: str) -> dict[str, Any]:
    print(name, board, file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.mapping", name, board]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, check=False)
    # A process whose time is over may be ended by the limit while it ends itself, its answer given.
    if done.returncode and done.returncode != -signal.SIGXCPU:
        raise BuildError(f"mapping '{name}' on {board} ended with exit status {done.returncode}; messages are above")
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(mapped(*sys.argv[1:])), flush=True)
