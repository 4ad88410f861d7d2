"""The door for PT2E: programs with torch's `quantized_decomposed` operators as quantizers."""

from __future__ import annotations

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from nnhw.errors import CaptureError, InputError
from nnhw.nn.given import copied
from nnhw.nn.tracing import quiet_torch

from .archive import random_input, random_like
from .evaluation import Evaluator
from .export import checked_example, export
from .locations import Lines
from .pt2e_evaluating import Pt2eEvaluator
from .pt2e_rewriter import Rewriter, operator_of
from .trial_calls import check_guards

_GUARDS = "_guards_fn"
"""Name of the module with torch.export's guards."""


def is_mine(model: nn.Module | ExportedProgram) -> bool:
    """Return whether a program, or a graph module in a model, has PT2E's operators."""
    if isinstance(model, ExportedProgram):
        graphs = [model.graph]
    else:
        graphs = [module.graph for module in model.modules() if isinstance(module, fx.GraphModule)]
    return any(operator_of(node) for graph in graphs for node in graph.nodes)


def traceable(
    model: nn.Module | ExportedProgram, example_input: Tensor | None, lines: Lines
) -> nn.Module | ExportedProgram:
    """Return a model's program with nnhw's quantizers.

    Raises
    ------
    CaptureError, or ProblemList, for operators that have no counterpart, with their places.
    """
    example = _example(model, example_input)
    with quiet_torch():  # copies of its graph modules warn
        program = model if isinstance(model, ExportedProgram) else export(_unguarded(copied(model)), example, lines)
    if isinstance(model, nn.Module):
        check_guards(program)
    example = _fitting(program, example)
    rewriter = Rewriter(_module(program), lines)
    rewriter.run()
    return _exported(program, rewriter.module, example, lines)


def evaluator(model: nn.Module | ExportedProgram) -> Evaluator:
    """Return torch's own evaluation of the model."""
    with quiet_torch():
        return Pt2eEvaluator(model if isinstance(model, ExportedProgram) else _unguarded(copied(model)))


def _module(program: ExportedProgram) -> fx.GraphModule:
    """Return a program's graph as a module of its own, in eval mode."""
    unlifted = program.module(check_guards=False)  # refuses eval(), which a new module of it does not
    return fx.GraphModule(unlifted, unlifted.graph).eval()


def _unguarded(model: nn.Module) -> nn.Module:
    """Return a model whose graph modules take any batch size, without torch.export's guards."""
    for module in model.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.find_nodes(op="call_module", target=_GUARDS):
                module.graph.erase_node(node)
            module.recompile()
    return model


def _example(model: nn.Module | ExportedProgram, example_input: Tensor | None) -> Tensor:
    """Return the example input; without one, random numbers of the shape that the model was traced with."""
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
    """Return an example that a program takes; if it takes only one batch size, with that number of images.

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
