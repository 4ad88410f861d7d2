"""Remedies for traced operators that are not supported, for error messages."""

from __future__ import annotations

import torch
from torch import fx

from nnhw.nn.remedies import OTHERWISE, SIZES, remedy_for

_RANDOM = "its results are random, but the same image must have the same result; leave it out of the model"
_COMPLEX = "complex numbers have no codes; compute with real numbers, in two branches"
_PT2E = "export the module that calls it, and give the program: torch.export.export(model, (example_input,))"
_OUT = "leave out=.. away, and use the result"
_AUTOCAST = "it computes in less precision, in which every step rounds; leave it out of forward"
_NO_GRAD = "leave it out of forward, or export the program inside of torch.no_grad()"


def remedy_of(operation: str, node: fx.Node) -> str:
    """Return the remedy for a traced operation that is not supported."""
    target = node.target
    if operation == "wrap_with_autocast":
        return _AUTOCAST
    if operation == "wrap_with_set_grad_enabled":
        return _NO_GRAD
    if getattr(target, "__module__", "") == "_operator":  # sizes; sums of tensors are those of ATen
        return SIZES
    if getattr(target, "namespace", "") == "quantized_decomposed":
        return _PT2E
    known = remedy_for(operation, quantized=True)
    if known != OTHERWISE or not isinstance(target, torch._ops.OpOverload):
        return known
    if torch.Tag.nondeterministic_seeded in target.tags:
        return _RANDOM
    if any(_is_complex(value) for value in (node, *node.all_input_nodes)):
        return _COMPLEX
    return _OUT if target._schema.is_mutable and not target._schema.name.endswith("_") else known


def _is_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()
