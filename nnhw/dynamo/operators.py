"""The operators of ATen and of nnhw that a node of Dynamo's graph consists of once it is traced."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from nnhw.frontend.capture import HANDLERS
from nnhw.frontend.linear import HANDLERS as PRODUCTS
from nnhw.frontend.transposed import HANDLERS as TRANSPOSED
from nnhw.nn.frames import place_of as traced_place
from nnhw.nn.tracing import quiet_torch

VALUE = "example_value"
"""Key of a node's meta under which Dynamo keeps the (fake) value that the node had in its trace."""
QUANTIZE = "nnhw.quantize.default"
LINEAR = frozenset(PRODUCTS) | frozenset(TRANSPOSED)
"""Operators with weights."""


@dataclass(frozen=True)
class Operators:
    """The operators that a node consists of.

    Parameters
    ----------
    names: of its operators; those in place have the names of the others. Empty for a node that only picks a value.
    changed: the inputs of the node that it changes in place.
    training: whether it computes as in training, such as by the statistics of the batch.
    random: whether its result is random.
    failed: whether it could not be traced by itself, so that nothing is known of it.
    """

    names: tuple[str, ...] = ()
    changed: tuple[fx.Node, ...] = ()
    training: bool = False
    random: bool = False
    failed: bool = False

    @property
    def unknown(self) -> str:
        """The name of the first operator that the frontend does not take; empty if it takes all."""
        return next((name for name in self.names if name not in HANDLERS), "")


def operators_of(node: fx.Node) -> Operators:
    """Return the operators of a node; none for placeholders and attributes."""
    if node.op not in ("call_function", "call_method"):
        return Operators() if node.op in ("placeholder", "get_attr") else Operators(failed=True)
    inputs = node.all_input_nodes
    if any(VALUE not in one.meta for one in inputs) or not _is_data(node.meta.get(VALUE)):
        return Operators(failed=True)
    # This picks one of several results, and computes nothing.
    if node.target is operator.getitem and not isinstance(inputs[0].meta[VALUE], Tensor):
        return Operators()
    try:
        with quiet_torch(), torch.no_grad():
            # The node is traced by itself on its fake inputs, so that modules and functions of any depth become their
            # operators.
            traced = make_fx(_caller(node), pre_dispatch=True)(*(one.meta[VALUE] for one in inputs))
    except Exception:  # of any kind: an operator may do what it likes
        # Its name is all that is known: by that it may have changed its inputs.
        return Operators(changed=tuple(inputs) if _sounds_in_place(node) else (), failed=True)
    return _read(traced.graph, inputs)


def operation_of(node: fx.Node) -> str:
    """Return the name of a node's operation as the user writes it, such as 'linear'."""
    if node.op == "call_method":
        return str(node.target)
    name = getattr(node.target, "__name__", str(node.target))
    return name.removesuffix(".default")


def place_of(node: fx.Node) -> str:
    """Return the layer and the line of a node; empty if neither is known."""
    stack = node.meta.get("nn_module_stack") or {}
    place = traced_place(_Relabelled(node.meta, layer_of(node)) if stack else node)  # type: ignore[arg-type]
    return "" if place == "of the model" else place.removeprefix("of the model ")


def layer_of(node: fx.Node) -> str:
    """Return the path of the module that a node belongs to; empty for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return ".".join(_path(path))


def _path(source: str) -> Iterator[str]:
    """Yield the names of modules in a path that Dynamo writes as L['self'].net.1 or L['self']._modules['net']."""
    parts = source.replace("[", ".").replace("]", "").replace("'", "").replace('"', "").split(".")
    # The first two are L and self.
    yield from (part for part in parts[2:] if part and part != "_modules" and not part.startswith("__"))


class _Relabelled:
    """Looks like a node whose module has its path as `torch.export` writes it, for `traced_place`."""

    def __init__(self, meta: dict[str, Any], path: str) -> None:
        self.meta = {**meta, "nn_module_stack": {"": (path, None)} if path else {}}


def _is_data(value: object) -> bool:
    """Return whether a value is a tensor, a size, or several of them."""
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    return isinstance(value, Tensor | torch.SymInt | int)


def _caller(node: fx.Node) -> Any:
    """Return a function of the values of a node's inputs that computes the node."""
    places = {one: place for place, one in enumerate(node.all_input_nodes)}

    def call(*values: Any) -> Any:
        args = fx.map_arg(node.args, lambda one: values[places[one]])
        kwargs = fx.map_arg(node.kwargs, lambda one: values[places[one]])
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    return call


def _sounds_in_place(node: fx.Node) -> bool:
    name = operation_of(node)
    return (name.endswith("_") and not name.endswith("__")) or bool(node.kwargs.get("inplace")) or "out" in node.kwargs


def _read(graph: fx.Graph, inputs: list[fx.Node]) -> Operators:
    """Return the operators in the trace of one node. `inputs`: of the node, in the order of placeholders."""
    given = dict(zip([node for node in graph.nodes if node.op == "placeholder"], inputs, strict=True))
    names, changed, training, random = [], [], False, False
    for node in graph.nodes:
        target = node.target
        if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
            continue
        names.append(_name(target))
        random = random or torch.Tag.nondeterministic_seeded in target.tags
        training = training or _trains(node)
        if target._schema.is_mutable and (root := _root(node.args[0])) in given:
            changed.append(given[root])
    random = random and any(name not in HANDLERS for name in names)  # dropout that drops nothing is not random
    return Operators(tuple(names), tuple(changed), training, random)


def _name(target: torch._ops.OpOverload) -> str:
    """Return the name of an operator; the in-place form has the name of the other."""
    namespace, base = target._schema.name.split("::")
    plain = base if base.startswith("__") else base.removesuffix("_")
    return f"{namespace}.{plain}.{target._schema.overload_name or 'default'}"


def _root(node: Any) -> Any:
    """Return the placeholder that a value is a view of, following first arguments."""
    while isinstance(node, fx.Node) and node.op != "placeholder":
        node = node.args[0] if node.args else None
    return node


def _trains(node: fx.Node) -> bool:
    """Return whether a traced operator computes as in training."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = {argument.name: argument.default_value for argument in schema}
    given |= dict(zip([argument.name for argument in schema], node.args, strict=False)) | dict(node.kwargs)
    if "running_mean" in given:
        return bool(given.get("training", given.get("use_input_stats"))) and given["running_mean"] is not None
    return bool(given.get("train")) and bool(given.get("p"))
