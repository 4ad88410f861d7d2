"""Calling torch.export, with error messages that say where the cause is and what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

import torch
from torch import fx, nn
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.export import Dim, ExportedProgram

from nnhw.errors import CaptureError, InputError, NnhwError
from nnhw.nn.given import copied, unusable
from nnhw.nn.remedies import NO_BRANCHES, remedy_for, spelled
from nnhw.nn.tracing import eager_loops, forget_loops, quiet_torch
from nnhw.nn.writes import first_write
from nnhw.nn.written.traceable import traceable

from .locations import Lines, error_location, location_of

_FREE_STEPS = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
_TRIALS = 3
"""Numbers of steps with which a loop is traced before its error counts."""


def export(model: nn.Module, example_input: torch.Tensor, lines: Lines) -> ExportedProgram:
    """Trace a copy of the model in eval mode, with a batch of any size.

    The model itself is not changed: neither its mode nor its device, dtype or parameters.

    Raises
    ------
    InputError for an example input that the model cannot take, CaptureError for a model that cannot be traced.
    """
    checked_example(example_input)
    own = copied(model)
    # One image alone would make torch trace a batch of exactly one.
    example = example_input.detach().cpu().repeat_interleave(2 if len(example_input) == 1 else 1, dim=0)
    try_model(own, example.clone(), lines)
    try:
        # Without gradients, so that torch.no_grad() inside of the model changes nothing.
        with quiet_torch(), torch.no_grad(), _importable(own), traceable(own):
            return _traced(own, example)
    except NnhwError:
        raise
    except UnsupportedOperatorException as error:
        raise CaptureError(_unsupported(error, lines)) from error
    except Exception as error:
        # Broad, as torch.export raises many classes. Often the cause is a batch size in the code: a second trace, with
        # a fixed one, tells.
        fixed = _fixed_batch(own, example, lines)
        raise CaptureError(fixed or _written(own, example, error) or _trace_failure(error, lines)) from error


@contextmanager
def _importable(model: nn.Module) -> Iterator[None]:
    """Put the modules of a model's classes into sys.modules; that of a model's file is not there after loading.

    torch looks up by name the globals that the body of a loop uses.
    """
    added = []
    for kind in {type(module) for module in model.modules()}:
        if kind.__module__ not in sys.modules:
            made = ModuleType(kind.__module__)
            made.__dict__.update(getattr(kind.forward, "__globals__", {}))
            sys.modules[kind.__module__] = made
            added.append(kind.__module__)
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def _traced(model: nn.Module, example: torch.Tensor) -> ExportedProgram:
    """Trace a model for batches of any size, and for sequences of any length if it has a loop.

    Where the model fixes the number of steps, as convolutions in front of the loop do, that is a size as any other.
    """
    forget_loops()
    tried = any(getattr(module, "exports_loop", False) for module in model.modules())
    if tried:
        # Most of the time goes into loops, so they are traced once, for any number of steps. Where that fails for
        # another reason than the number of steps, so does the usual trace below, with a clearer error.
        with suppress(Exception):
            program = _with_free_steps(model, example)
            if has_loop(program):
                return program
        forget_loops()
    # A clone, as operations in place would change the example, which is used again.
    program = torch.export.export(model, (example.clone(),), dynamic_shapes=({0: Dim.DYNAMIC},), strict=False)
    if has_loop(program) and not tried:
        with suppress(UserError):
            return _with_free_steps(model, example)
    return program


def _with_free_steps(model: nn.Module, example: torch.Tensor) -> ExportedProgram:
    """Trace a model with a loop for sequences of any length."""
    for more in range(1, _TRIALS + 1):
        # torch caches the trace of a loop's body by the number of steps, so each trial has another number.
        steps = torch.cat([example, *[example[:, -1:]] * more], dim=1)
        try:
            return torch.export.export(model, (steps,), dynamic_shapes=(_FREE_STEPS,), strict=False)
        except UserError:
            if more == _TRIALS:
                raise
    raise AssertionError("the last trial has an end")


def has_loop(program: ExportedProgram) -> bool:
    """Return whether a program runs a body for each step of a sequence."""
    return any(str(node.target) == "scan" for node in program.graph.nodes if node.op == "call_function")


def opened(program: ExportedProgram) -> fx.GraphModule:
    """Return a program's graph as a module of its own, in eval mode."""
    unlifted = program.module(check_guards=False)  # refuses eval(), which a new module of it does not
    return fx.GraphModule(unlifted, unlifted.graph).eval()


def fitting(program: ExportedProgram, example: torch.Tensor) -> torch.Tensor:
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


def _traced_input(program: ExportedProgram) -> torch.Tensor:
    name = program.graph_signature.user_inputs[0]
    value: torch.Tensor = next(node.meta["val"] for node in program.graph.nodes if node.name == name)
    return value


def exported_again(
    program: ExportedProgram, module: fx.GraphModule, example: torch.Tensor, lines: Lines
) -> ExportedProgram:
    """Export a rewritten program; one that takes batches of a single size stays so."""
    with quiet_torch(), torch.no_grad():
        if not isinstance(_traced_input(program).shape[0], int):
            return export(module, example, lines)
        return torch.export.export(module, (example,), strict=False)


def checked_example(example_input: object) -> torch.Tensor:
    """Return an example input, checked as far as possible without a model. Raises: InputError."""
    if not isinstance(example_input, torch.Tensor):
        raise InputError(
            f"example_input must be one tensor [batch, ..], got {type(example_input).__name__}; "
            f"models with several inputs are not supported"
        )
    kind = unusable(example_input) or ("" if example_input.layout == torch.strided else "a sparse one")
    if kind:
        raise InputError(
            f"example_input must be a plain tensor of real numbers, got {kind}; give float32, with to_dense() if sparse"
        )
    shape = list(example_input.shape)
    if len(shape) < 2 or 0 in shape:
        raise InputError(
            f"example_input needs the shape [batch, ..] with at least one image, got {shape}; the "
            f"batch is the first axis"
        )
    bad = int((~torch.isfinite(example_input.to(torch.float64))).sum())
    if bad:
        raise InputError(
            f"example_input holds NaN or infinity in {bad} of {example_input.numel()} places; give finite numbers"
        )
    return example_input


def try_model(model: nn.Module, example: torch.Tensor, lines: Lines) -> None:
    """Run the model once, as its own errors are clearer than those of tracing. Raises: InputError."""
    with _module_paths(model) as path, torch.no_grad(), eager_loops():
        try:
            model(example)
        except Exception as error:
            place = error_location(error, path[-1] if path else "", lines)
            raise InputError(
                f"example_input of shape {list(example.shape)} and dtype {_name(example.dtype)} does not go through "
                f"the model: layer {place}: {_first_line(error)}; give the shape and dtype that the model takes, "
                f"with the batch as first axis"
            ) from error


@contextmanager
def _module_paths(model: nn.Module) -> Iterator[list[str]]:
    """Yield a list that always has the paths of the modules that are running, the innermost last."""
    running: list[str] = []
    hooks = []
    for path, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda _module, _args, path=path: running.append(path)))
        # None, as any other result of a hook would replace that of the module.
        hooks.append(module.register_forward_hook(lambda _module, _args, _result: (running.pop(), None)[1]))
    try:
        yield running
    finally:
        for hook in hooks:
            hook.remove()


def _fixed_batch(model: nn.Module, example: torch.Tensor, lines: Lines) -> str:
    """Return the message for a model that can only be traced for this batch size; empty if it cannot even then."""
    try:
        with quiet_torch():
            program = torch.export.export(model, (example.clone(),), strict=False)
    except Exception:
        return ""
    count = len(example)
    # A shape that is written with the number itself: x.view(8, -1).
    shapes = [node for node in program.graph.nodes if any(_starts_with(argument, count) for argument in node.args)]
    place = f"{shapes[0].name} {location_of(shapes[0], lines)}" if shapes else "the model"
    return (
        f"{place} fixes the batch size to {count}, so that no other is possible; use x.flatten(1) or "
        f"x.reshape(x.shape[0], ..)"
    )


def _starts_with(argument: object, number: int) -> bool:
    return isinstance(argument, list | tuple) and len(argument) > 0 and argument[0] == number


def _unsupported(error: UnsupportedOperatorException, lines: Lines) -> str:
    """Return the message for an operator that torch itself cannot trace."""
    operation = str(error.func).split(".")[1]
    remedy = remedy_for(operation, quantized=True)
    return f"{spelled(operation)} {error_location(error, '', lines)}: operator {error.func} is not supported; {remedy}"


def _written(model: nn.Module, example: torch.Tensor, error: Exception) -> str:
    """Return the message for a model that writes to its weights, of which torch's own error says nothing."""
    if _is_data_dependent(error):
        return ""
    with eager_loops():
        write = first_write(model, example)
    return "" if write is None else f"forward changes {write}; {write.remedy}"


def _is_data_dependent(error: Exception) -> bool:
    return "DataDependent" in type(error).__name__


def _trace_failure(error: Exception, lines: Lines) -> str:
    place = error_location(error, "", lines)
    where = f" at {place.file}:{place.line}" if place.file else ""
    remedy = (
        NO_BRANCHES
        if _is_data_dependent(error)
        else "a model computes with tensors by torch alone, and has to go through torch.export"
    )
    return f"the model cannot be traced{where}: {_first_line(error)}; {remedy}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
