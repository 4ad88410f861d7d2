"""Wide layers in two halves: what mapping gains by them. The layer with the most weights is split by its outputs.

threshold(linear(x, w))  -->  concat(threshold(linear(x, w[:h])), threshold(linear(x, w[h:])))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.networks import NETWORKS
from nnhw import ir
from nnhw.boards import load_board
from nnhw.errors import MappingError, first_of
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.frontend.source import Source
from nnhw.ir import Graph, Node, TensorType
from nnhw.ir.ops import Concat, Conv2d, Linear, Rescale, StepTable, Threshold
from nnhw.nn import Int, QuantLinear, UInt
from nnhw.passes import lower, split
from nnhw.passes.edit import Edit, sole_names

FRAMES = 20
ROWS = ("mlp784_w8a8", "mlp784_w4a4", "autoencoder_w2a8", "tfc_w1a1", "cnn_small")


def prime() -> tuple[nn.Module, torch.Tensor]:
    """Return a perceptron with 61 hidden units, which an engine folds in 61 parts or not at all."""
    torch.manual_seed(0)
    layers = [Int(8, 2.0**-7), QuantLinear(64, 61, weight_quant=Int(4)), nn.ReLU(), UInt(4, 2.0**-3)]
    return nn.Sequential(*layers, QuantLinear(61, 10, weight_quant=Int(4))).eval(), torch.rand(4, 64)


def run(board: str) -> dict[str, Any]:
    """Map each network as it is, and with its largest layer in halves, with an engine for each layer."""
    networks = {**{name: NETWORKS[name].load() for name in ROWS}, "61 units": prime()}
    return {"board": {"name": board}, "rows": {name: _row(*pair, board) for name, pair in networks.items()}}


def show(row: Mapping[str, Any]) -> None:
    """Print cycles, logic cells and block RAMs of both."""
    print(f"{'':18}{'whole: cycles':>16}{'LC':>8}{'EBR':>6}{'halves: cycles':>18}{'LC':>8}{'EBR':>6}")
    for name, pair in row["rows"].items():
        texts = [pair["layer"], *(_text(pair[kind]) for kind in ("whole", "halves"))]
        print(f"{name:18}{texts[1]:>30}{texts[2]:>32}  {texts[0]}")


def _text(found: Mapping[str, Any]) -> str:
    if "refused" in found:
        return "does not fit"
    return f"{found['cycles']:>10,}{found['lc']:>10,}{found['ebr']:>6}"


def _row(model: nn.Module, example: torch.Tensor, board: str) -> dict[str, Any]:
    body = split(lower(Source(model, example, "m").capture())).body
    layer = largest(body)
    halves = halved(body, layer)
    source = body.inputs[0].type
    rng = np.random.default_rng(1)
    codes = rng.integers(source.int_dtype.low, source.int_dtype.high + 1, (FRAMES, *source.shape))
    if source.int_dtype.bipolar:
        codes = np.where(codes < 1, -1, 1)
    if not np.array_equal(ir.run(body, codes)[0], ir.run(halves, codes)[0]):
        raise AssertionError(f"layer '{layer.name}' in halves computes something else")
    return {"layer": str(layer), "whole": _mapped(body, board), "halves": _mapped(halves, board)}


def _mapped(body: Graph, board: str) -> dict[str, Any]:
    try:
        mapped, facts = map_on_board(body, load_board(board), Options(style="streaming", fast_for="engine"))
    except MappingError as error:
        return {"refused": first_of(error)}
    return {"cycles": mapped.interval, **facts["resources"]}


def largest(body: Graph) -> Node:
    """Return the function behind the layer with the most weights, of those with two outputs or more."""
    users = body.users()
    found = [
        (body.node(node.inputs[1]).type.size, function)
        for node in body.nodes
        if isinstance(node.op, Linear | Conv2d) and len(users[node.name]) == 1
        for function in users[node.name]
        if isinstance(function.op, Threshold | StepTable | Rescale)
    ]
    return max(found, key=lambda pair: pair[0])[1]


def halved(body: Graph, function: Node) -> Graph:
    """Return a graph in which the layer in front of a function, and the function, are two, side by side."""
    layer = body.node(function.inputs[0])
    outputs = body.node(layer.inputs[1]).type.shape[0]
    edit = Edit(body, sole_names(body, [layer, *(body.node(name) for name in layer.inputs[1:])], function))
    parts = []
    for number, part in enumerate((slice(outputs // 2), slice(outputs // 2, None))):
        inputs = [layer.inputs[0], _part(body, edit, layer.inputs[1], part, outputs)]
        sums = edit.add(layer, layer.op, inputs, f"{layer.name}.{number}")
        operands = [_part(body, edit, name, part, outputs) for name in function.inputs[1:]]
        parts.append(edit.add(function, function.op, [sums, *operands], f"{function.name}.{number}"))
    edit.add(function, Concat(0), parts)
    return edit.apply(function.name)


def _part(body: Graph, edit: Edit, name: str, part: slice, outputs: int) -> str:
    """Return a constant with the rows of some outputs, or as it is where it is not by outputs."""
    node, values = body.node(name), body.constants[name]
    if not values.ndim or len(values) != outputs:
        return name
    rows = values[part]
    return edit.constant(f"{name}.{part.start or 0}", rows, TensorType(rows.shape, node.type.dtype))
