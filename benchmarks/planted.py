"""Mistakes planted in captures, passes, mapping and engines, one at a time, and what of a build stops each of them.

A build that ends with a planted mistake in it would give wrong answers without a word: it is counted as `passed`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from amaranth.hdl import Const
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import nnhw
from nnhw.accelerator import Accelerator
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.timing import Schedule
from nnhw.errors import NnhwError
from nnhw.flow import board_budget
from nnhw.flow.models import lowering
from nnhw.frontend import linear, quantizers
from nnhw.frontend.capture import HANDLERS
from nnhw.hdl.pool import MaxPoolEngine
from nnhw.hdl.thresholds import ThresholdUnit
from nnhw.ir import Graph, Node
from nnhw.ir.ops import Dequantize, Linear, MaxPool2d, Quantize, Threshold
from nnhw.nn import Int, QuantConv2d, QuantLinear, QuantReLU
from nnhw.passes import Parts, split
from nnhw.passes.order import PIPELINE

Row = Mapping[str, Any]
SHOWN = 110


class BranchOnBatch(nn.Module):
    """A model that computes something else of few images."""

    def __init__(self) -> None:
        super().__init__()
        self.body = example_model()

    def forward(self, x: Tensor) -> Tensor:
        """Double a small batch."""
        return self.body(x * 2 if x.shape[0] < 4 else x)


class Counting(BranchOnBatch):
    """A model that remembers how often it was called."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Add the number of calls."""
        self.calls.add_(1)
        return self.body(x) + self.calls


def example_model() -> nn.Sequential:
    """Return a network with padding, batch normalization, pooling and a bias; the same each time."""
    torch.manual_seed(0)
    conv = QuantConv2d(1, 4, 3, padding=1, weight_quant=Int(4, 0.125))
    norm = nn.BatchNorm2d(4)
    norm.register_buffer("running_mean", torch.tensor([0.3, -0.2, 0.1, 0.0]))
    layers = [Int(4, 0.25), conv, norm, QuantReLU(2), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, QuantLinear(16, 3, weight_quant=Int(4, 0.125))).eval()


def example_input() -> Tensor:
    """Return images [8, 1, 4, 4]."""
    return torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Planted:
    """A mistake.

    Parameters
    ----------
    where: 'model', 'capture', 'pass', 'mapping' or 'engine'.
    plant: makes it, as long as it is entered.
    model: that is built.
    """

    where: str
    what: str
    plant: Callable[[], Any]
    model: Callable[[], nn.Module] = example_model


@contextmanager
def nothing() -> Iterator[None]:
    """Plant nothing: the model itself is the mistake, or there is none."""
    yield


def translated(operator: str, change: Callable[..., Any]) -> Callable[[], Any]:
    """Plant in the capture of an operator: `change` gets the right handler, the translator and the call."""
    right = HANDLERS[operator]
    return lambda: mock.patch.dict(HANDLERS, {operator: lambda *given: change(right, *given)})


def behind(name: str, change: Callable[[Graph], Graph]) -> Callable[[], Any]:
    """Plant behind a pass."""
    right = PIPELINE[name]
    return lambda: mock.patch.dict(PIPELINE, {name: lambda graph: change(right(graph))})


def with_constant(graph: Graph, kind: type, position: int, change: Callable[[np.ndarray], np.ndarray]) -> Graph:
    """Return a graph in which a constant of the last op of a kind is another one."""
    name = [node for node in graph.nodes if isinstance(node.op, kind)][-1].inputs[position]
    constants = dict(graph.constants) | {name: change(graph.constants[name])}
    return Graph(graph.name, graph.nodes, graph.outputs, constants)


def without_pooling(graph: Graph) -> Graph:
    """Return a graph whose max pooling takes the first of each window."""

    def first_alone(node: Node) -> Node:
        op = node.op
        return replace(node, op=replace(op, kernel=(1, 1))) if isinstance(op, MaxPool2d) else node

    return Graph(graph.name, tuple(map(first_alone, graph.nodes)), graph.outputs, graph.constants)


def mapped(change: Callable[[Accelerator], Accelerator]) -> Callable[[], Any]:
    """Plant in what the mapping made."""
    right = board_budget.map_on_board

    def wrong(*given: Any) -> Any:
        made, facts = right(*given)
        return replace(made, accelerator=change(made.accelerator)), facts

    return lambda: mock.patch.object(board_budget, "map_on_board", wrong)


def first_engine(accelerator: Accelerator, change: Callable[[MatmulConfig], MatmulConfig]) -> Accelerator:
    """Return an accelerator whose first matrix engine is another one."""
    stages = list(accelerator.stages)
    index = next(index for index, stage in enumerate(stages) if stage.config.kind == "matmul")
    stages[index] = replace(stages[index], config=change(stages[index].config))  # type: ignore[arg-type]
    return replace(accelerator, stages=tuple(stages))


def rescheduled(accelerator: Accelerator, change: Callable[[Schedule], Schedule]) -> Accelerator:
    """Return an accelerator whose predicted cycles are other ones."""
    return replace(accelerator, schedule=change(accelerator.schedule))


def hurried(schedule: Schedule) -> Schedule:
    """Return a schedule whose frames follow a cycle earlier."""
    lead, period = (tuple(cycles - 1 for cycles in part) for part in (schedule.lead, schedule.period))
    return replace(schedule, interval_cycles=schedule.interval_cycles - 1, lead=lead, period=period)


def reached_too_late(unit: ThresholdUnit, raw: Any, word: Any) -> Any:
    """Return whether a sum is above a threshold, where it should be whether it reaches it: words are complements."""
    return _REACHED(unit, raw, (word - 1)[: len(word)])


_SPREAD = quantizers._spread
_REACHED = ThresholdUnit._reached
_LARGER = MaxPoolEngine._larger


def spoiled_parts(graph: Graph) -> Parts:
    """Return parts whose tail has another scale."""
    parts = split(graph)
    return Parts(parts.head, parts.body, with_constant(parts.tail, Dequantize, 1, lambda scale: scale * (1 + 2.0**-40)))


FAULTS = (
    Planted("model", "computes something else of small batches", nothing, BranchOnBatch),
    Planted("model", "keeps a count in a buffer", nothing, Counting),
    Planted("capture", "leaves out the bias of the last layer", lambda: mock.patch.object(
        linear, "biased", lambda translator, call, sums, bias, axis: sums)),
    Planted("capture", "eps of batch norm is 1e-3", translated("aten.batch_norm.default", lambda right, made, call:
        right(made, replace(call, arguments={**call.arguments, "eps": 1e-3})))),
    Planted("capture", "ranges of quantizers end one code early", lambda: mock.patch.object(
        quantizers, "Quantize", lambda low, high, **others: Quantize(low, high - 1, **others))),
    Planted("capture", "a scale is wrong in its 20th bit", lambda: mock.patch.object(
        quantizers, "_spread", lambda call, scale, rank: _SPREAD(call, scale, rank) * (1 + 2.0**-20))),
    Planted("capture", "max pooling of 1 x 1", translated("aten.max_pool2d.default", lambda right, translator, call:
        right(translator, replace(call, arguments={**call.arguments, "kernel_size": [1, 1]})))),
    Planted("pass", "collapse_chains: thresholds one too high", behind("collapse_chains", lambda graph:
        with_constant(graph, Threshold, 1, lambda steps: np.minimum(steps + 1, steps.max())))),
    Planted("pass", "collapse_chains: one channel falls instead of rising", behind("collapse_chains", lambda graph:
        with_constant(graph, Threshold, 2, lambda falls: falls ^ (np.arange(len(falls)) == 1)))),
    Planted("pass", "fold_permutes: rows of weights in another order", behind("fold_permutes", lambda graph:
        with_constant(graph, Linear, 1, lambda weights: np.roll(weights, 1, axis=1)))),
    Planted("pass", "sink_shapes: windows of 1 x 1", behind("sink_shapes", without_pooling)),
    Planted("pass", "split: the scale of the results is wrong in its 40th bit", lambda: mock.patch.object(
        lowering, "split", spoiled_parts)),
    Planted("mapping", "weights of two cells are exchanged", mapped(lambda accelerator: first_engine(
        accelerator, lambda config: replace(config, weights=np.roll(config.weights, 1, axis=0))))),
    Planted("mapping", "the interval is predicted a cycle too short", mapped(lambda accelerator: rescheduled(
        accelerator, hurried))),
    Planted("mapping", "the latency is predicted a cycle too long", mapped(lambda accelerator: rescheduled(
        accelerator, lambda schedule: replace(schedule, latency_cycles=schedule.latency_cycles + 1)))),
    Planted("engine", "thresholds are passed instead of reached", lambda: mock.patch.object(
        ThresholdUnit, "_reached", reached_too_late)),
    Planted("engine", "max pooling takes the last of a window", lambda: mock.patch.object(
        MaxPoolEngine, "_larger", lambda pool, new, old, first: _LARGER(pool, new, old, Const(1, 1)))),
)  # fmt: skip


def run(board: str) -> dict[str, Any]:
    """Build with nothing planted, then with each mistake.

    Returns
    -------
    planted: where, what, by (the error's class; 'nothing' if the build ends) and message of each. passed: how many
        were not stopped.
    """
    clean = stopped_by(Planted("", "nothing", nothing), board)
    if clean[0] != "nothing":
        raise NnhwError(f"the example does not build even without a mistake: {clean[1]}")
    rows = [
        {
            "where": fault.where,
            "what": fault.what,
            **dict(zip(("by", "message"), stopped_by(fault, board), strict=True)),
        }
        for fault in FAULTS
    ]
    return {"board": board, "planted": rows, "passed": sum(row["by"] == "nothing" for row in rows)}


def stopped_by(fault: Planted, board: str) -> tuple[str, str]:
    """Return the class and the message of the error that stops a build with a mistake in it."""
    with tempfile.TemporaryDirectory() as folder, fault.plant():
        try:
            nnhw.build(
                fault.model(), example_input(), name="planted", board=board, out=Path(folder) / "b", style="streaming",
                fast_for="engine", stop_at="simulate",
            )  # fmt: skip
        except NnhwError as error:
            return type(error).__name__, str(error)
    return "nothing", ""


def show(row: Row) -> None:
    """Print the table."""
    table = Table("where", "planted", "stopped by", title="Planted mistakes")
    for fault in row["planted"]:
        table.add_row(fault["where"], fault["what"], f"{fault['by']}: {fault['message'][:SHOWN]}")
    Console().print(table)
    print(f"{len(row['planted'])} planted, {row['passed']} not stopped")
