"""The door for PT2E: programs with torch's `quantized_decomposed` operators as quantizers."""

from __future__ import annotations

from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from nnhw.errors import CaptureError
from nnhw.nn.given import copied
from nnhw.nn.tracing import quiet_torch

from .archive import random_input, random_like
from .evaluation import Evaluator
from .export import checked_example, export, exported_again, fitting, opened
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
    example = fitting(program, example)
    rewriter = Rewriter(opened(program), lines)
    rewriter.run()
    return exported_again(program, rewriter.module, example, lines)


def evaluator(model: nn.Module | ExportedProgram) -> Evaluator:
    """Return torch's own evaluation of the model."""
    with quiet_torch():
        return Pt2eEvaluator(model if isinstance(model, ExportedProgram) else _unguarded(copied(model)))


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
