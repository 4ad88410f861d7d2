"""Values of a traced model: of all its nodes for some images, and of those that depend on no image in float64."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from nnhw.nn.kinds import CONVERTED, FILLED, operation

Known = Mapping[fx.Node, Any]
"""Values of nodes."""

_SIZES = frozenset({"sym_size", "sym_numel"})
NAMESPACES = ("aten", "nnhw")


def values_of(module: fx.GraphModule, images: Tensor) -> Known:
    """Return the value of each node for some images."""
    watcher = fx.Interpreter(module, garbage_collect_values=False)
    with torch.no_grad():
        watcher.run(images.clone())
    return watcher.env


def name_of(node: fx.Node) -> str:
    """Return the name of a traced node's operation; of a module that it calls only that it does."""
    return node.op if node.op == "call_module" else operation(node, {})


def computed(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that depend on the images, and not only on how many there are."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        name = name_of(node)
        # Of what a constant is made like, or converted to, only the shape and the dtype are read.
        read = [] if name in _SIZES | FILLED else node.all_input_nodes[: 1 if name in CONVERTED else None]
        if name == "placeholder" or (name != "output" and any(operand in found for operand in read)):
            found.add(node)
    return found


def only_computes(target: object) -> bool:
    """Return whether an operator only computes: no file is opened, and nothing drawn at random.

    A program from a file may name any operator, and those on constants are called while it is read.
    """
    return (
        isinstance(target, torch._ops.OpOverload)
        and target.namespace in NAMESPACES
        and torch.Tag.nondeterministic_seeded not in target.tags
        and all(argument.name != "filename" for argument in target._schema.arguments)
    )


def constants_of(module: fx.GraphModule) -> dict[fx.Node, Tensor]:
    """Return what depends on no image, as parameters and what is computed from them: floats in float64."""
    found: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        value = _constant(module, node, found)
        if value is not None:
            found[node] = tree_map(_widened_tensor, value)
    numbers = (int, float)
    return {
        node: torch.tensor(value) if isinstance(value, numbers) else value
        for node, value in found.items()
        if isinstance(value, Tensor | int | float)
    }


def _widened_tensor(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _constant(module: fx.GraphModule, node: fx.Node, found: Mapping[fx.Node, Any]) -> Any:
    if node.op == "get_attr":
        value: Any = module
        for name in str(node.target).split("."):
            value = getattr(value, name, None)
        return value.detach() if isinstance(value, Tensor) else None
    known = all(operand in found for operand in node.all_input_nodes)
    if node.op == "call_function" and known and node.target is operator.getitem:
        return found[node.args[0]][node.args[1]]  # type: ignore[index]
    if node.op != "call_function" or not known or not only_computes(node.target):
        return None
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda operand: tree_map(copied, found[operand]))
    try:
        with torch.no_grad():
            return node.target(*widened(args), **widened(kwargs))  # type: ignore[operator]
    # An operator that torch has for float32 alone.
    except RuntimeError:
        return None


def copied(value: Any) -> Any:
    """Return a copy of a tensor; any other value as it is."""
    # Operations in place must not reach the model's parameters.
    return value.clone() if isinstance(value, Tensor) else value


def widened(arguments: Any) -> Any:
    """Return arguments of an operator with float64 in the place of float32, as a cast rounds nothing there."""
    if arguments is torch.float32:
        return torch.float64
    if isinstance(arguments, dict):
        return {name: widened(value) for name, value in arguments.items()}
    if isinstance(arguments, list | tuple):
        return [widened(value) for value in arguments]
    return arguments
