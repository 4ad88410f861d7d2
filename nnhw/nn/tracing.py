"""Tracing a float model to a graph of its modules and functions, which can be changed."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import logging
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import PurePath
from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.scan import scan
from torch.autograd import Variable
from torch.export import Dim, ExportedProgram
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from nnhw.errors import InputError

from .attention import ShareSoftmax, open_products, with_open_attention
from .comparing import difference, hooks_of, is_hooked_globally
from .frames import innermost_user_frame
from .given import copied, plain
from .remedies import NO_BRANCHES
from .written.traceable import traceable

# Held while warnings, logging, output or torch's stance are changed: all threads share these.
_TRACING = threading.RLock()


def traced(model: nn.Module | ExportedProgram, batches: Sequence[Tensor]) -> fx.GraphModule:
    """Return a copy of a model, in eval mode, as a graph that computes the same for the batches.

    Layers and functions of the graph are all that it computes, without hooks. Arguments of forward but the first take
    their defaults. torch.fx traces the model: first without its hooks, which often change nothing, then with what they
    compute. A model for which neither is right, such as one with a loop over the parts of a tensor, or a branch on the
    type of one, is traced by torch.export; its layers are functions then.

    Parameters
    ----------
    batches: [N, ..], images with which the model runs; without any, nothing is compared, and torch.export not tried.

    Raises
    ------
    InputError: the model cannot be traced, or every trace computes something else.
    """
    if isinstance(model, ExportedProgram):
        return _with_open_products(_opened(model))
    dtype = next((value.dtype for value in model.parameters()), torch.float32)
    # The first and the last batch: often of other sizes.
    compared = [batch.to(dtype) for batch in (*batches[:1], *batches[1:][-1:])]
    own = with_open_attention(_without_parametrizations(copied(model)))
    problems: list[InputError] = []
    for attempt in _attempts(model, bool(batches)):
        try:
            made = attempt(own, compared)
        except InputError as error:
            problems.append(error)
            continue
        if not (found := difference(copied(model), made, compared)):
            return _without_hooks(made)
        problems.append(InputError(found))
    # Of the first attempt, as torch.export does not know the names of layers.
    raise problems[0]


def exported(model: nn.Module | ExportedProgram, batches: Sequence[Tensor]) -> fx.GraphModule:
    """Return a copy of a model, in eval mode, as a graph of ATen's operators. Raises: InputError."""
    if isinstance(model, ExportedProgram):
        return _opened(model)
    return _by_export(_without_parametrizations(copied(model)), batches)


_Attempt = Callable[[nn.Module, Sequence[Tensor]], fx.GraphModule]


def _attempts(model: nn.Module, has_data: bool) -> Iterator[_Attempt]:
    """Yield the ways to trace a model, the first one first."""
    yield _by_fx
    # Hooks of all modules would change the result of the quantized model, too, if they were in its graph already.
    if is_hooked_globally():
        return
    if any(hooks_of(module) for module in plain(model).modules()):
        yield functools.partial(_by_fx, hooks=True)
    if has_data:
        yield _by_export


def _by_fx(own: nn.Module, batches: Sequence[Tensor], *, hooks: bool = False) -> fx.GraphModule:
    """Trace a model by torch.fx. Raises: InputError."""
    try:
        graph = copy.deepcopy(own.graph) if isinstance(own, fx.GraphModule) else _Tracer(hooks).trace(own)
        return _with_open_products(fx.GraphModule(own, graph, class_name=type(own).__name__))
    except InputError:
        raise
    # torch.fx runs the user's own `forward` with stand-ins for tensors, which may fail in any way.
    except Exception as error:
        frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
        place = innermost_user_frame(frames)
        where = f" at {PurePath(place[0]).name}:{place[1]}" if place else ""
        line = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"the model cannot be traced for quantization{where}: {type(error).__name__}: {line}; {NO_BRANCHES}"
        ) from error


def _by_export(own: nn.Module, batches: Sequence[Tensor]) -> fx.GraphModule:
    """Trace a model by torch.export. Raises: InputError."""
    try:
        return _with_open_products(_opened(_exported(own, batches[0])))
    except Exception as error:  # torch.export raises many classes
        raise InputError(f"torch.export cannot trace the model: {error}") from error


class _Tracer(fx.Tracer):
    """A tracer that records lines of the user's code, and keeps a softmax with a mask as one operation.

    Parameters
    ----------
    hooks: trace what hooks compute, too; not by default, with which torch makes the tracer of a graph that is loaded.
    """

    record_stack_traces = True

    def __init__(self, hooks: bool = False) -> None:
        # torch.fx by itself traces no class, and none of these functions where the size of the batch comes first.
        # Variable, in old code, returns the tensor that it gets.
        super().__init__(autowrap_functions=(torch.zeros, torch.ones, torch.full, Variable))
        self._autowrap_search += [torch, torch.autograd]
        self._hooks = hooks
        self._replaced: set[nn.Module] = set()

    def trace(self, *args: Any, **kwargs: Any) -> fx.Graph:
        """Return the graph of a model."""
        graph = super().trace(*args, **kwargs)
        for node in graph.nodes:
            # The mark would let generated code patch these functions for all later traces of the process.
            node.meta.pop("is_wrapped", None)
        return graph

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return a function that calls the model, and its arguments: the first, and all others that have no default."""
        self._replaced = {module for module in self.root.modules() if "forward" in vars(module)}
        forward = self.root.forward
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        given = list(inspect.signature(forward).parameters.values())
        needed = [one for one in given if one.kind in kinds and one.default is one.empty] or given[:1]
        call = self.root._call_impl if self._hooks else forward
        arguments = [self.create_proxy("placeholder", one.name, (), {}) for one in needed]
        return lambda *values: call(*values), arguments  # type: ignore[no-untyped-call]  # torch's own

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation: one of torch's, unless its forward was replaced."""
        leaf = isinstance(m, ShareSoftmax) or super().is_leaf_module(m, module_qualified_name)
        return leaf and m not in self._replaced

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Trace a call of a module."""
        if not self._hooks:
            return super().call_module(m, m.forward, args, kwargs)
        if not self.is_leaf_module(m, self.path_of_module(m)):
            return super().call_module(m, forward, args, kwargs)
        # torch runs the hooks around `forward`, in which the layer becomes one operation.
        layer = super().call_module
        m.forward = lambda *inner, **named: layer(m, forward, inner, named)
        try:
            return forward(*args, **kwargs)
        finally:
            del m.forward


def _with_open_products(graph_module: fx.GraphModule) -> fx.GraphModule:
    open_products(graph_module)
    return graph_module


def _without_hooks(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Remove the hooks of all layers, which change nothing, or are in the graph; change the graph, and return it."""
    for module in graph_module.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return graph_module


def _without_parametrizations(model: nn.Module) -> nn.Module:
    """Replace parametrizations, such as weight_norm, by the weights that they compute; also those of torch's own hooks.

    torch's remove_parametrizations is not used: it changes the class, which copies of a module share with it.
    """
    for module in list(model.modules()):
        computed: dict[str, Tensor] = {}
        if parametrize.is_parametrized(module):
            computed = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
            del module.parametrizations
            # A parametrized module is of a class made at run time, derived from its own.
            module.__class__ = type(module).__bases__[0]
        for number, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, WeightNorm | SpectralNorm | BasePruningMethod):
                hook(module, ())
                name = hook._tensor_name if isinstance(hook, BasePruningMethod) else hook.name
                computed[name] = vars(module).pop(name)
                del module._forward_pre_hooks[number]
        for name, value in computed.items():
            setattr(module, name, nn.Parameter(value.detach().clone()))
    return model


def _exported(model: nn.Module, batch: Tensor) -> ExportedProgram:
    """Return the exported program of a copy of a model, for batches of any size."""
    own = copied(model)
    dtype = next((value.dtype for value in own.parameters()), torch.float32)
    # One image alone would make torch trace a batch of exactly one.
    example = batch[:2].to(dtype).repeat_interleave(2 if len(batch) == 1 else 1, dim=0)
    with quiet_torch(), torch.no_grad(), traceable(own):
        return torch.export.export(own, (example,), dynamic_shapes=({0: Dim.DYNAMIC},), strict=False)


def _opened(program: ExportedProgram) -> fx.GraphModule:
    """Return the graph of a program, with its own copies of the weights."""
    unlifted = program.module(check_guards=False)  # refuses eval(), which a new module of it does not
    opened = fx.GraphModule(unlifted, unlifted.graph)
    opened.load_state_dict({name: value.clone() for name, value in opened.state_dict().items()}, assign=True)
    return opened


@contextmanager
def eager_loops() -> Iterator[None]:
    """Let torch's `scan` run its body without compiling it, so that hooks and modes see the functions that it calls.

    Only one thread at a time is inside, here or in `quiet_torch`, as the setting is that of the whole process: if two
    threads left in the order in which they entered, it would stay set, and no loop could be traced any more.
    """
    with _TRACING, torch.compiler.set_stance("force_eager"):
        yield


def forget_loops() -> None:
    """Let torch forget the bodies of `scan` that it has compiled.

    torch compiles the body of each loop, and keeps eight of them. It traces the ninth without a warning in a form that
    has no loop any more.
    """
    from torch._dynamo.eval_frame import reset_code  # type: ignore[attr-defined]

    for constant in scan.__code__.co_consts:
        if isinstance(constant, CodeType):
            reset_code(constant)


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress everything that torch prints and logs; errors are reported by its exceptions.

    Only one thread at a time is inside, as this changes state of the whole process, and so does torch.export.
    """
    with _TRACING:
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.disable(disabled)
