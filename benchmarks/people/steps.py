"""One step of one model, in a process of its own: `python -m benchmarks.people.steps NAME FOLDER LIMIT [BOARD]`.

Without a board: quantize, capture, lower, and put the integer graph into the folder. With one: map that graph. The
result is one JSON object on the last line.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.boards import Board, load_board
from nnhw.errors import NnhwError
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.models.samples import make_samples
from nnhw.flow.options import Options
from nnhw.flow.report import link_rate
from nnhw.frontend import Source
from nnhw.frontend.agreement import Captured
from nnhw.nn import post_training
from nnhw.passes import Parts

from .corpus import MODELS
from .model import PeopleModel

Row = dict[str, Any]
SEED = 30
LARGE = 64 * 64 * 3
"""Elements of an image from which on few of them calibrate."""
MORE_SECONDS = 5
"""CPU seconds between the signal that ends a step and the one that ends its process."""


class TimeOver(Exception):
    """A step has had all its CPU seconds."""


def made(entry: PeopleModel) -> nn.Module:
    """Return a model with random weights, the same each time, in eval mode."""
    torch.manual_seed(SEED)
    return entry.make().eval()


def images(entry: PeopleModel) -> torch.Tensor:
    """Return calibration data [N, *shape], uniform in [0, 1) for images and normal for other signals."""
    generator = torch.Generator().manual_seed(SEED)
    count = 4 if int(np.prod(entry.shape)) >= LARGE else 32
    draw = torch.rand if len(entry.shape) == 3 else torch.randn
    return draw(count, *entry.shape, generator=generator)


def front(name: str, folder: Path) -> Row:
    """Quantize, capture and lower a model; save its integer graph; return the outcome of each step.

    Capturing compares PyTorch with the graph, lowering the graph before and behind each pass.
    """
    entry = MODELS[name]
    model, data = made(entry), images(entry)
    row: Row = {"weights": sum(value.numel() for value in model.parameters())}
    state: dict[str, Any] = {}

    def quantized() -> None:
        state["model"] = model if entry.quantized else post_training.quantized(model, data, 8, 8)[0]

    def captured() -> None:
        source = Source(state["model"], data[:2], name)
        graph = source.capture_quantizers()
        samples = make_samples(data[:2].numpy(), 2)
        state["captured"], state["samples"] = graph, samples
        state["own"] = source.own_answers(graph, samples)

    def lowered() -> None:
        kept: Captured = state["captured"]
        parts: Parts = lower_graph(kept.graph, {"inputs": state["samples"], "torch": state["own"].own})[0]
        ir.save(parts.body, folder / f"{name}.ir")

    for step, run in (("quantize", quantized), ("capture", captured), ("lower", lowered)):
        row[step] = outcome(run)
        if row[step]["outcome"] != "done":
            break
    return row


def mapping(name: str, folder: Path, board_name: str) -> Row:
    """Map a saved integer graph on a board; return cycles and what bounds them, or the refusal."""
    body, board = ir.load(folder / f"{name}.ir"), load_board(board_name)
    found: Row = {}

    def run() -> None:
        mapped, facts = map_on_board(body, board, Options(fast_for="engine"))
        found.update(cycles=mapped.interval, style=mapped.style, resources=facts["resources"])
        found["bound"] = bound(mapped.accelerator, board)

    return {**outcome(run), **found}


def bound(accelerator: Accelerator, board: Board) -> str:
    """Return what bounds the rate at the board's usual clock: the link, or the engine that takes the most cycles."""
    interval = accelerator.schedule.interval_cycles
    if link_rate(accelerator, board.host_link, board.target_clock_hz) < board.target_clock_hz / interval:
        return "link"
    stage = max(accelerator.stages, key=lambda one: one.config.cycles)
    return stage.name


def outcome(run: Callable[[], None]) -> Row:
    """Run a step; return how it ended, in words, and its CPU seconds."""
    start = time.process_time()
    row: Row = {"outcome": "done"}
    try:
        run()
    except NnhwError as error:
        row = {"outcome": "refused", "kind": type(error).__name__, "message": str(error)}
    except TimeOver:
        row = {"outcome": "time"}
    except Exception as error:  # what a user would see as a traceback is what this corpus looks for
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        row = {"outcome": "traceback", "message": f"{type(error).__name__} at {where}: {error}"[:500]}
    return {**row, "cpu_s": round(time.process_time() - start, 1)}


def limit_cpu(seconds: float) -> None:
    """Let the process have so many CPU seconds more: then TimeOver is raised, and soon after the process ends."""

    def over(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeOver

    end = int(time.process_time() + seconds) + 1
    signal.signal(signal.SIGXCPU, over)
    resource.setrlimit(resource.RLIMIT_CPU, (end, end + MORE_SECONDS))


def main(arguments: list[str]) -> None:
    """Run the step that the command line asks for."""
    name, folder, seconds, *board = arguments
    torch.set_num_threads(1)
    limit_cpu(float(seconds))
    row = mapping(name, Path(folder), board[0]) if board else front(name, Path(folder))
    print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1:])
