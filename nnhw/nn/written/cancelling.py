"""Sums in which a term is added and taken off again, as straight-through estimators write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from .watching import Known

_ATEN = torch.ops.aten
_SAME = frozenset(
    {_ATEN.detach.default, _ATEN.alias.default, _ATEN.clone.default, _ATEN.contiguous.default,
     _ATEN.lift_fresh_copy.default}
)  # fmt: skip
_SUMS = {_ATEN.add.Tensor: 1.0, _ATEN.sub.Tensor: -1.0}

_Form = Mapping[int, float]
"""A value as a sum: {number of a term: factor}."""


def cancel(graph: fx.Graph, known: Known) -> None:
    """Let readers of a sum in which terms cancel read the value that is left, where the graph has that, too.

        (round(x) - x).detach() + x        --> round(x)
        (s - s * g).detach() + s * g       --> s

    Floating-point sums round, so that the two may differ in their last bits. A number that is added and taken off is
    left alone: that is a way to round.

    Parameters
    ----------
    known: values of all nodes, for shapes and dtypes.
    """
    changed = set(_changed(graph))
    forms: dict[fx.Node, _Form] = {}
    numbers: dict[fx.Node, int] = {}
    numbered: dict[Any, int] = {}
    first: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        key = node if node in changed else _key(node, numbers)
        numbers[node] = numbered.setdefault(key, len(numbered))
        forms[node] = {numbers[node]: 1.0} if node in changed else _form(node, forms, numbers[node])
        if not isinstance(known.get(node), Tensor) or node in changed:
            continue
        same = first.setdefault(frozenset(forms[node].items()), node)
        if same is not node and node.target in _SUMS and _are_alike(known[node], known[same]):
            node.replace_all_uses_with(same)
    graph.eliminate_dead_code()


def _form(node: fx.Node, forms: Mapping[fx.Node, _Form], number: int) -> _Form:
    """Return a node, which has the given number, as a sum of terms."""
    operands = node.args
    if node.target in _SAME:
        return forms[operands[0]]  # type: ignore[index]
    if node.target in _SUMS and all(isinstance(operand, fx.Node) for operand in operands[:2]):
        factor = _SUMS[node.target] * float(node.kwargs.get("alpha", 1.0))  # type: ignore[index,arg-type]
        left, right = (forms[operand] for operand in operands[:2])  # type: ignore[index]
        terms = {term: left.get(term, 0.0) + factor * right.get(term, 0.0) for term in (*left, *right)}
        return {term: factor for term, factor in terms.items() if factor}
    if node.target is _ATEN.neg.default:
        return {term: -factor for term, factor in forms[operands[0]].items()}  # type: ignore[index]
    return {number: 1.0}


def _key(node: fx.Node, numbers: Mapping[fx.Node, int]) -> Any:
    """Return what two nodes have in common if they compute the same.

    Parameters
    ----------
    numbers: of the nodes in front of it: two with one number compute the same.
    """
    if node.op == "get_attr":
        return node.op, node.target
    target = node.target
    pure = not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags
    if node.op != "call_function" or not pure:
        return node
    return target, _frozen(node.args, numbers), _frozen(node.kwargs, numbers)


def _frozen(argument: Any, numbers: Mapping[fx.Node, int]) -> Any:
    if isinstance(argument, fx.Node):
        return fx.Node, numbers[argument]
    if isinstance(argument, Mapping):
        return tuple((name, _frozen(value, numbers)) for name, value in sorted(argument.items()))
    if isinstance(argument, list | tuple):
        return tuple(_frozen(item, numbers) for item in argument)
    # 1 and 1.0 and True are equal, and make tensors of other dtypes.
    return type(argument), argument


def _changed(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the nodes of which an operation in place makes another value, and that operation."""
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            yield node
            yield from (operand for operand in node.args[:1] if isinstance(operand, fx.Node))


def _are_alike(left: Tensor, right: Any) -> bool:
    return isinstance(right, Tensor) and left.shape == right.shape and left.dtype == right.dtype
