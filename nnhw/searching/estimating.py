"""The real mapping of a network, without a build folder: what it takes, and how fast it is."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from nnhw.boards import Board
from nnhw.errors import InputError
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.report import link_rate
from nnhw.frontend.source import Source
from nnhw.ir import graph_hash
from nnhw.nn import Quantizer
from nnhw.passes import lower, split


@dataclass(frozen=True)
class Estimate:
    """The mapper's result for a network.

    Parameters
    ----------
    figures: values by name, see `goals.FIGURES` for names and units; all but the accuracy.
    style: `streaming` or `shared`.
    hash: SHA-256, hex, over the graphs of head (host), body (device) and tail (host).
    """

    figures: Mapping[str, float]
    style: str
    hash: str


def estimate(source: Source, board: Board, options: Options) -> Estimate:
    """Capture, lower and map a model, which is not changed.

    Quantizers that observe their scale and have no scale yet observe the example input first, in a copy of the model.

    Raises
    ------
    NnhwError: the model cannot be captured, lowered or mapped, or does not fit the board.
    """
    ready = Source(_observed(source.model, source.example_input), source.example_input, source.name, source.lines)
    # What runs on the host takes nothing of the board: only the body is mapped.
    parts = split(lower(ready.capture()))
    mapped, facts = map_on_board(parts.body, board, options)
    schedule = mapped.accelerator.schedule
    interval, clock_hz = float(schedule.interval), options.clock_hz or board.target_clock_hz
    figures = {
        "rate": clock_hz / interval,
        "link": link_rate(mapped.accelerator, board.host_link, clock_hz),
        "cycles": interval,
        "latency": float(schedule.latency_cycles),
        **{name: float(count) for name, count in facts["resources"].items()},
    }
    # Head and tail count as well: networks with equal hardware may compute different results on the host.
    hashes = "".join(graph_hash(graph) for graph in (parts.head, parts.body, parts.tail))
    return Estimate(figures, mapped.style, hashlib.sha256(hashes.encode()).hexdigest())


def _observed(model: object, example: torch.Tensor) -> nn.Module:
    """Return a model whose quantizers all have a scale: the given one, or a copy that observed the example input."""
    assert isinstance(model, nn.Module)
    if not any(_lacks_scale(module) for module in model.modules()):
        return model
    # Quantizers observe scales in training mode only, which also changes batch norms: hence the copy.
    seen = copy.deepcopy(model).train()
    try:
        with torch.no_grad():
            seen(example)
    # The forward pass is the user's code, which may fail in any way.
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"the untrained model fails for example_input in training mode, in which its quantizers observe their "
            f"scales: {type(error).__name__}: {line}"
        ) from error
    return seen.eval()


def _lacks_scale(module: nn.Module) -> bool:
    return (
        isinstance(module, Quantizer)
        and module.scale_source == "observed"
        and module.scale is not None
        and bool(torch.isnan(module.scale).any())
    )
