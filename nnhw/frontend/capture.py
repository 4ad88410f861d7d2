"""From a PyTorch model to the IR."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from nnhw.errors import CaptureError, InputError, raise_all
from nnhw.ir import Graph, verify
from nnhw.ir.graph import inner_name
from nnhw.nn.frozen import is_fake
from nnhw.nn.given import half_floats, unready
from nnhw.nn.writes import KEEPS_NOTHING
from nnhw.nn.written.int8 import has_int8

from . import (
    activations,
    attention,
    conditions,
    elementwise,
    layout,
    linear,
    loop_capture,
    pooling,
    quantizers,
    rescale,
    slices,
    transposed,
    two_values,
)
from .agreement import Captured, agree, compare_conventions
from .archive import random_input
from .calls import is_view
from .doors import door_of, is_foreign
from .evaluation import signature_of
from .export import checked_example, export
from .graphs import GraphModel
from .locations import Lines, location_of
from .matching import Traced, TracedLoop, TracedQuantizer
from .probes import probes
from .sequences import plain
from .translator import QUANTIZE, RESCALE, Handler, Translator, Unquantized
from .trial_calls import check_calls, check_guards
from .values import Block, Codes, StepsFirst, TracedConstant
from .written import Found, Written, find_quantizers

HANDLERS: dict[str, Handler] = {
    **quantizers.HANDLERS,
    **rescale.HANDLERS,
    **linear.HANDLERS,
    **attention.HANDLERS,
    **transposed.HANDLERS,
    **pooling.HANDLERS,
    **layout.HANDLERS,
    **slices.HANDLERS,
    **two_values.HANDLERS,
    **elementwise.HANDLERS,
    **conditions.HANDLERS,
    **activations.HANDLERS,
    **loop_capture.HANDLERS,
}
NO_QUANTIZERS = "this model has no quantizers: use --calibrate DATA.npy, or nnhw.quantize"
_NO_LINES: Lines = MappingProxyType({})


def capture(
    model: nn.Module | ExportedProgram,
    example_input: torch.Tensor | None = None,
    name: str = "model",
    lines: Lines = _NO_LINES,
) -> Graph:
    """Return the float-level graph of a model; see `capture_quantizers`."""
    return capture_quantizers(model, example_input, name, lines).graph


def capture_quantizers(
    model: nn.Module | ExportedProgram,
    example_input: torch.Tensor | None = None,
    name: str = "model",
    lines: Lines = _NO_LINES,
) -> Captured:
    """Return the float-level graph of a model: codes between quantizers and linear operators, float64 elsewhere.

    The model is not changed; one of another framework goes through its door first (`doors`), and its graph is compared
    with what that framework computes. A module is called several times, to see that one trace can stand for all calls.

    Parameters
    ----------
    model: a module, a program that torch.export made of one in eval mode, or a graph of the IR, which is returned as it
        is.
    example_input: [batch, ..], one image or more; needed for a module.
    name: of the graph.
    lines: (file, line) at which modules were made, by module path, for modules that no line of the user calls.

    Raises
    ------
    InputError: an example input that does not fit, or a float model.
    CaptureError, or ProblemList with several of them: the model has parts that cannot be captured.
    ExactnessError: the codes of the model's own framework differ from the graph's.
    """
    if isinstance(model, GraphModel):
        return Captured(dataclasses.replace(model.graph, name=name), (), model)
    own, program, translator, graph, written = _translated(model, example_input, name, lines)
    if isinstance(own, nn.Module) and example_input is not None:
        check_calls(own, example_input)
    traced = own if written is None else program
    captured = Captured(graph, tuple(_quantizers(program.graph.nodes, translator)), traced, written)
    imitates = isinstance(model, nn.Module) and (has_int8(model) or any(map(is_fake, model.modules())))
    if is_foreign(model) or written is not None or imitates:
        example = random_input(program) if example_input is None else example_input.detach().cpu()
        evaluator, images = captured.own_evaluator(model), probes(graph, example.numpy())
        # First the rules of single quantizers, whose message names the cause; then codes and results of the whole
        # model.
        compare_conventions(captured, evaluator, images)
        agree(captured, evaluator, images)
    return captured


def check_structure(model: nn.Module, example_input: torch.Tensor) -> None:
    """Raise what `capture_quantizers` raises for the operations of a model, without the calls that compare results."""
    _translated(model, example_input, "model", _NO_LINES)


def _translated(
    model: nn.Module | ExportedProgram, example_input: torch.Tensor | None, name: str, lines: Lines
) -> tuple[nn.Module | ExportedProgram, ExportedProgram, Translator, Graph, Written | None]:
    """Return (the model behind its door, its trace, the translator of that, the graph, its own quantizers)."""
    _check_model(model)
    # From here on every model is one of PyTorch with nnhw's quantizers.
    own = door_of(model).traceable(model, example_input, lines)
    program = own if isinstance(own, ExportedProgram) else _exported(own, example_input, lines)
    if isinstance(model, ExportedProgram) and example_input is not None:
        checked_example(example_input)
    traced = program
    found = Found() if is_foreign(model) else find_quantizers(program, example_input, lines)
    written = found.written
    if written is not None:
        program = written.marked
    keys = _keys(program)
    translator = Translator(name, HANDLERS, lines)
    _add_arguments(translator, program)
    nodes = list(program.graph.nodes)
    needed = _needed(program, lines)
    for node in nodes:
        if node.op == "call_function" and node in needed:
            translator.translate(node)
        elif isinstance(block := getattr(program.graph_module, str(node.target), None), fx.GraphModule):
            translator.add_block(node, Block(block))
        elif node.op not in ("call_function", "placeholder", "output"):
            raise CaptureError(f"the traced model holds a {node.op} '{node.target}', which is not supported")
    if translator.problems:
        translator.problems[:0] = found.uneven
    # Each layer of a float model has a problem of its own; that it is not quantized says all of them.
    if _is_float(nodes) and any(isinstance(problem, Unquantized) for problem in translator.problems):
        raise InputError(NO_QUANTIZERS)
    raise_all(translator.problems)
    graph = verify(translator.finish(nodes[-1], keys))
    # After translation, whose messages about the model are the clearer ones.
    if isinstance(own, nn.Module) and example_input is not None:
        check_guards(traced)
    return own, program, translator, graph, written


def _check_model(model: nn.Module | ExportedProgram) -> None:
    """Raise CaptureError, InputError or ProblemList for a model that cannot be traced at all."""
    if not isinstance(model, nn.Module | ExportedProgram):
        raise CaptureError(f"a model is an nn.Module or an ExportedProgram, got {type(model).__name__}")
    raise_all(list(unready(model)))
    raise_all(list(half_floats(model)))


def _quantizers(nodes: Iterable[fx.Node], translator: Translator) -> Iterator[Traced]:
    """Yield the calls of quantizers, and the loops, in their order."""
    for node in nodes:
        if str(node.target) in (QUANTIZE, RESCALE):
            yield _traced(node, translator.value_of(node))
        elif node in translator.bodies:
            loop = translator.bodies[node]
            inner = _quantizers(loop.nodes, loop.translator)
            found = tuple(_inside(loop.name, one) for one in inner if isinstance(one, TracedQuantizer))
            yield TracedLoop(found, loop.steps)


def _inside(loop: str, one: TracedQuantizer) -> TracedQuantizer:
    return one if one.name is None else dataclasses.replace(one, name=inner_name(loop, one.name))


def _traced(node: fx.Node, value: object) -> TracedQuantizer:
    steps_first = isinstance(value, StepsFirst)
    value = plain(value)
    name = value.name if isinstance(value, Codes) else None
    weights = (value.codes, value.label) if isinstance(value, TracedConstant) else (None, "")
    return TracedQuantizer(signature_of(node), name, *weights, steps_first)


def _exported(model: nn.Module, example_input: torch.Tensor | None, lines: Lines) -> ExportedProgram:
    if example_input is None:
        raise CaptureError("a module needs an example_input [batch, ..] to be captured")
    return export(model, example_input, lines)


def _keys(program: ExportedProgram) -> tuple[str, ...]:
    """Return the keys of a model's results: none, if they are one tensor or a tuple of some.

    Raises: CaptureError for results in any other form.
    """
    spec = program.call_spec.out_spec
    if spec is None or spec.is_leaf():
        return ()
    bases = (dict, list, tuple) if isinstance(spec.type, type) else ()
    name = next((base.__name__ for base in bases if issubclass(spec.type, base)), "")
    flat = all(child.is_leaf() for child in spec.children())
    if name == "dict" and flat and isinstance(spec.context, list) and all(type(key) is str for key in spec.context):
        return tuple(spec.context)
    if name in ("list", "tuple") and flat and spec.num_leaves > 1:
        return ()
    given = name or getattr(spec.context, "__name__", "result")  # of a named tuple
    raise CaptureError(
        f"the model must return one tensor, a tuple of two or more, or a dict of tensors by strings, got a {given} of "
        f"{spec.num_leaves}{'' if flat else ' that holds others'}; return the tensors to be computed"
    )


def _is_float(nodes: list[fx.Node]) -> bool:
    """Return whether a model has no quantizer at all."""
    return not any(str(node.target) == QUANTIZE for node in nodes)


def _writes(node: fx.Node) -> bool:
    """Return whether a traced operation changes one of its arguments."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _state_changes(program: ExportedProgram) -> dict[fx.Node, fx.Node]:
    """Return the in-place operations that change a parameter or buffer: {operation: changed node}."""
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = zip(placeholders, program.graph_signature.input_specs, strict=True)
    kept = {node for node, spec in specs if spec.kind != InputKind.USER_INPUT}
    changes = {}
    for node in program.graph.nodes:
        changed = node
        while _writes(changed) or (changed is not node and is_view(changed)):
            changed = changed.args[0]
        if changed is not node and changed in kept:
            changes[node] = changed
    return changes


def _needed(program: ExportedProgram, lines: Lines) -> set[fx.Node]:
    """Return the nodes on which the output and in-place operations depend; all others have no effect.

    Raises
    ------
    CaptureError: the output depends on a parameter or buffer that forward changes.
    """
    changes = _state_changes(program)
    # Operations in place change what others read, so they are needed though nothing reads their results.
    waiting = [node for node in program.graph.nodes if node.op == "output" or (_writes(node) and node not in changes)]
    needed: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    for change, kept in changes.items():
        if kept in needed:
            raise CaptureError(
                f"forward changes '{names[kept.name]}' {location_of(change, lines)}, on which its result depends; "
                f"{KEEPS_NOTHING}"
            )
    return needed


def _add_arguments(translator: Translator, program: ExportedProgram) -> None:
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    tensors: dict[str, Any] = {**program.constants, **program.state_dict}
    inputs = 0
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            inputs += 1
            if inputs == 1 and isinstance(node.meta.get("val"), torch.Tensor):
                translator.add_input(node)
        elif spec.target is not None and isinstance(tensors.get(spec.target), torch.Tensor):
            translator.add_constant(node, tensors[spec.target], spec.target)
        else:
            raise CaptureError(f"the traced model takes '{spec.target}', which is no tensor; this is not supported")
    if inputs != 1:
        raise CaptureError(f"the model must take one tensor, got {inputs} inputs")
