"""Tracing a float model to a graph of its modules and functions, which can be changed."""

from __future__ import annotations

import copy
import io
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from types import CodeType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._higher_order_ops.scan import scan
from torch.autograd import Variable
from torch.export import Dim, ExportedProgram
from torch.nn.utils import parametrize

from nnhw.errors import InputError

from .attention import ShareSoftmax, open_products, with_open_attention
from .given import class_name, copied

# Held while warnings, logging, output or torch's stance are changed: all threads share these.
_TRACING = threading.RLock()


def traced(model: nn.Module | ExportedProgram, batch: Tensor | None) -> fx.GraphModule:
    """Return a copy of a model as a graph, in eval mode.

    A model that torch.fx cannot trace, such as one with a loop over the parts of a tensor, is traced by torch.export,
    which needs a batch; its layers are functions then.

    Parameters
    ----------
    batch: [N, ..], images with which the model runs; None if there are none.

    Raises
    ------
    InputError: neither can trace the model.
    """
    if isinstance(model, ExportedProgram):
        return _with_open_products(_opened(model))
    own = with_open_attention(copied(model))
    try:
        own = _without_parametrizations(own)
        graph = copy.deepcopy(own.graph) if isinstance(own, fx.GraphModule) else _Tracer().trace(own)
        return _with_open_products(fx.GraphModule(own, graph, class_name=class_name(model)))
    except InputError:
        raise
    # torch.fx runs the user's own `forward` with stand-ins for tensors, which may fail in any way.
    except Exception as error:
        if batch is not None:
            # torch.export may trace what fx cannot; if it cannot either, the error of fx is raised.
            with suppress(Exception):
                return _with_open_products(_opened(_exported(own, batch)))
        line = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"the model cannot be traced for quantization: {type(error).__name__}: {line}; branches and loops must "
            f"not depend on tensors"
        ) from error


class _Tracer(fx.Tracer):
    """A tracer that records lines of the user's code, and keeps a softmax with a mask as one operation."""

    record_stack_traces = True

    def __init__(self) -> None:
        # torch.fx by itself traces no class, and none of these functions where the size of the batch comes first.
        # Variable, in old code, returns the tensor that it gets.
        super().__init__(autowrap_functions=(torch.zeros, torch.ones, torch.full, Variable))
        self._autowrap_search += [torch, torch.autograd]

    def trace(self, *args: Any, **kwargs: Any) -> fx.Graph:
        """Return the graph of a model."""
        graph = super().trace(*args, **kwargs)
        for node in graph.nodes:
            # The mark would let generated code patch these functions for all later traces of the process.
            node.meta.pop("is_wrapped", None)
        return graph

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation."""
        return isinstance(m, ShareSoftmax) or super().is_leaf_module(m, module_qualified_name)


def _with_open_products(graph_module: fx.GraphModule) -> fx.GraphModule:
    open_products(graph_module)
    return graph_module


def _without_parametrizations(model: nn.Module) -> nn.Module:
    """Replace parametrizations, such as weight_norm, by the weights that they compute.

    torch's remove_parametrizations is not used: it changes the class, which copies of a module share with it.
    """
    for module in list(model.modules()):
        if not parametrize.is_parametrized(module):
            continue
        computed = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
        del module.parametrizations
        # A parametrized module is of a class made at run time, derived from its own.
        module.__class__ = type(module).__bases__[0]
        for name, value in computed.items():
            module.register_parameter(name, nn.Parameter(value.detach().clone()))
    return model


def _exported(model: nn.Module, batch: Tensor) -> ExportedProgram:
    """Return the exported program of a copy of a model, for batches of any size."""
    own = copied(model)
    dtype = next((value.dtype for value in own.parameters()), torch.float32)
    # One image alone would make torch trace a batch of exactly one.
    example = batch[:2].to(dtype).repeat_interleave(2 if len(batch) == 1 else 1, dim=0)
    with quiet_torch(), torch.no_grad():
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
