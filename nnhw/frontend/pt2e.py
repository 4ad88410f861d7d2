"""The door for PT2E: programs in which torch's `quantized_decomposed` operators make codes and numbers of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from nnhw.errors import CaptureError, InputError
from nnhw.nn.given import copied
from nnhw.nn.tracing import quiet_torch

from .answers import Answer, Opened
from .archive import random_input, random_like
from .export import checked_example, export
from .locations import Lines
from .pt2e_rewriter import Rewriter, operator_of, place_of
from .trials import check_guards

_GUARDS = "_guards_fn"
"""What torch.export calls its guards in a module."""


def is_mine(model: nn.Module | ExportedProgram) -> bool:
    """Return whether a program, or a graph module in a model, has one of the operators."""
    if isinstance(model, ExportedProgram):
        graphs = [model.graph]
    else:
        graphs = [module.graph for module in model.modules() if isinstance(module, fx.GraphModule)]
    return any(operator_of(node) for graph in graphs for node in graph.nodes)


def opened(model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines) -> Opened:
    """Rewrite a model, and return both evaluations of it.

    Raises
    ------
    CaptureError, or ProblemList, for operators that have no counterpart, with their places.
    """
    example = _example(model, example_input)
    with quiet_torch():  # copies of its graph modules warn
        own = _module(model) if isinstance(model, ExportedProgram) else _unguarded(copied(model))
        program = model if isinstance(model, ExportedProgram) else export(own, example, lines)
    if isinstance(model, nn.Module):
        check_guards(program)
    example = _fitting(program, example)
    source = _module(program)
    rewriter = Rewriter(_module(program), lines)
    rewriter.run()
    made = _exported(program, rewriter.module, example, lines)

    def theirs(images: Tensor) -> list[Answer]:
        return _answers(source, [pair.theirs for pair in rewriter.pairs], own, images, lines)

    def ours(images: Tensor) -> list[Answer]:
        return _answers(rewriter.module, [pair.ours for pair in rewriter.pairs], _module(made), images, lines)

    entries = [pair.entry for pair in rewriter.pairs if pair.entry is not None]
    return Opened("PT2E", made, example, entries, theirs, ours)


def _module(program: ExportedProgram) -> fx.GraphModule:
    """Return a program's graph as a module of its own, in eval mode."""
    unlifted = program.module(check_guards=False)  # refuses eval(), which a new module of it does not
    return fx.GraphModule(unlifted, unlifted.graph).eval()


def _unguarded(model: nn.Module) -> nn.Module:
    """Return a model whose graph modules take any batch: torch.export has put a guard of its size into them."""
    for module in model.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.find_nodes(op="call_module", target=_GUARDS):
                module.graph.erase_node(node)
            module.recompile()
    return model


def _example(model: nn.Module | ExportedProgram, example_input: Tensor | None) -> Tensor:
    """Return the example, or numbers of the shape that the model was traced with."""
    if example_input is not None:
        return checked_example(example_input).detach().cpu()
    if isinstance(model, ExportedProgram):
        return random_input(model)
    graph = model.graph if isinstance(model, fx.GraphModule) else fx.Graph()
    value = next((node.meta.get("val") for node in graph.nodes if node.op == "placeholder"), None)
    if not isinstance(value, Tensor):
        raise CaptureError("a module needs an example_input [batch, ..] to be captured")
    return random_like(value)


def _fitting(program: ExportedProgram, example: Tensor) -> Tensor:
    """Return an example that a program takes: with as many images as it was traced with, if it takes no other batch.

    Raises
    ------
    CaptureError for more inputs than one, InputError for an example that does not fit.
    """
    if len(program.graph_signature.user_inputs) != 1:
        raise CaptureError(f"the model must take one tensor, got {len(program.graph_signature.user_inputs)} inputs")
    traced = _traced_input(program)
    if example.dtype != traced.dtype or example.shape[1:] != traced.shape[1:]:
        wanted, given = ([*tensor.shape[1:]] for tensor in (traced, example))
        raise InputError(
            f"the program takes [batch, ..] with images of shape {wanted} and {traced.dtype}, got {given} and "
            f"{example.dtype}; give an example_input as it was exported with"
        )
    size = traced.shape[0]
    return example[torch.arange(size) % len(example)] if isinstance(size, int) else example


def _traced_input(program: ExportedProgram) -> Tensor:
    name = program.graph_signature.user_inputs[0]
    value: Tensor = next(node.meta["val"] for node in program.graph.nodes if node.name == name)
    return value


def _exported(program: ExportedProgram, module: fx.GraphModule, example: Tensor, lines: Lines) -> ExportedProgram:
    """Export a rewritten program; one that takes batches of a single size stays so."""
    with quiet_torch(), torch.no_grad():
        if not isinstance(_traced_input(program).shape[0], int):
            return export(module, example, lines)
        return torch.export.export(module, (example,), strict=False)


class _Recording(fx.Interpreter):
    """Evaluates a graph, and keeps the results of some nodes."""

    def __init__(self, module: fx.GraphModule, names: Iterable[str]) -> None:
        super().__init__(module)
        self.values: dict[str, Tensor] = dict.fromkeys(names, torch.empty(0))

    def run_node(self, n: fx.Node) -> Any:
        """Evaluate one node."""
        result = super().run_node(n)
        if n.name in self.values:
            self.values[n.name] = result.detach().clone()
        return result


def _answers(
    graph: fx.GraphModule, names: Sequence[str], model: nn.Module, images: Tensor, lines: Lines
) -> list[Answer]:
    """Return the numbers behind quantizers, by the graph, and the result, by the model itself."""
    recording = _Recording(graph, names)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # random numbers are refused behind the door, with a message of their own
        recording.run(images)
        torch.manual_seed(0)
        result = model(images)
    nodes = {node.name: node for node in graph.graph.nodes}
    places = [f"the quantizer {place_of(nodes[name], lines)}" for name in names]
    quantized = [Answer(place, recording.values[name]) for place, name in zip(places, names, strict=True)]
    return [*quantized, *(Answer("the result", leaf) for leaf in tree_leaves(result))]
