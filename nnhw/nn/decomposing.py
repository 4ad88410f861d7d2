"""Functions that contain a product of two values, written out so that quantizers can be put in front of it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn

from .kinds import operation


def written_out(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Replace each gated linear unit of a graph by halves, a sigmoid and a product.

    glu(x) --> (lambda a, b: a * sigmoid(b))(*chunk(x, 2))
    """
    modules = dict(graph_module.named_modules())
    for node in list(graph_module.graph.nodes):
        if operation(node, modules) == "glu":
            _write(graph_module.graph, node, modules)
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module


def _write(graph: fx.Graph, node: fx.Node, modules: dict[str, nn.Module]) -> None:
    """Replace one gated linear unit."""
    module = modules.get(str(node.target)) if node.op == "call_module" else None
    axis = module.dim if isinstance(module, nn.GLU) else _axis(node)
    with graph.inserting_before(node):
        halves = graph.call_function(torch.chunk, (node.args[0] if node.args else node.kwargs["input"], 2, axis))
        value, gate = (graph.call_function(operator.getitem, (halves, place)) for place in (0, 1))
        result = graph.call_function(operator.mul, (value, graph.call_function(torch.sigmoid, (gate,))))
    # Messages about the new nodes then name the user's line of the call.
    for made in (halves, value, gate, result.all_input_nodes[1], result):
        made.meta = dict(node.meta)
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _axis(node: fx.Node) -> Any:
    """Return the axis along which a function splits its input: the last one if it has no argument for it."""
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", -1)
