"""Comparing a float model with its trace, before quantization: both must compute the same of the same images."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from .frames import place_of
from .given import copied
from .kinds import operation
from .remedies import spelled
from .writes import KEEPS_NOTHING, first_write

ROUNDOFF = 2.0**-24
"""The greatest relative error of one rounding in float32."""
_CALLED = 3
"""Images with which a model is called again: a number that no code is likely to name."""
CALLED_AGAIN = "the model gives another result when it is called again with the same images"
_ANOTHER = "nnhw.quantize traced a different computation than the model's"
_STAND_INS = (
    "a branch in forward goes a different way for the proxies that replace tensors during tracing; remove code that "
    "checks the type or the length of a value"
)


def difference(model: nn.Module, graph_module: fx.GraphModule, batches: Sequence[Tensor]) -> str:
    """Return what a trace computes differently from its model, and what to do about it; empty if both agree.

    Layers of the trace compute as their classes do, as their quantized forms will: without hooks. Mostly both results
    are the very same. Attention that was taken apart adds in another order; then both are evaluated in float64, and may
    differ by less than one rounding of the greatest result in float32, which is 2**29 roundings in float64.

    The text is also empty for what planning reports by name: data that goes through neither, and random functions.

    Parameters
    ----------
    model: in eval mode; it is copied, and not changed.
    batches: [N, ..] in the model's dtype.
    """
    for number, batch in enumerate(batches):
        own, ours = _tried(copied(model), batch), _tried(_LayersAlone(graph_module).run, batch)
        if isinstance(own, str) and isinstance(ours, str):
            return ""
        if isinstance(own, str):
            return f"calibration data of shape {list(batch.shape)} does not go through the model: {own}"
        if isinstance(ours, str):
            return f"{_ANOTHER}: the trace fails with {ours}; {_STAND_INS}"
        if not number and not _is_steady(model, batch):
            return _cause_of_change(model, graph_module, batch)
        if not _same(own, ours) and (found := _apart(model, graph_module, batch)):
            return found
    return ""


def _is_steady(model: nn.Module, batch: Tensor) -> bool:
    """Return whether a model gives the same results when it is called again."""
    for images in (batch[:_CALLED], batch):
        called = copied(model)
        first = _tried(called, images)
        # A model may take no other batch than the whole one.
        if not isinstance(first, str):
            again = _tried(called, images)
            return not isinstance(again, str) and _same(first, again)
    return True


def few_of(model: nn.Module | ExportedProgram, batch: Tensor) -> Tensor:
    """Return three images of a batch; the whole batch if a module does not take so few."""
    few = batch[:_CALLED]
    return batch if isinstance(model, nn.Module) and isinstance(_tried(copied(model), few), str) else few


def _cause_of_change(model: nn.Module, graph_module: fx.GraphModule, batch: Tensor) -> str:
    """Return why a model gives another result when it is called again; empty if a traced function does that."""
    if write := first_write(model, batch):
        return f"forward changes {write}, on which its result depends; {write.remedy}"
    if not _is_steady(graph_module, batch):
        return ""
    return f"{CALLED_AGAIN}: it draws random numbers, or forward changes an attribute; {KEEPS_NOTHING}"


def _apart(model: nn.Module, graph_module: fx.GraphModule, batch: Tensor) -> str:
    """Return where results differ by more than rounding."""
    try:
        return _Pair(model, graph_module, batch).difference()
    # It is the user's model that runs, in another precision than it is used in, which may fail in any way.
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        return f"nnhw.quantize cannot compare its trace with the model in float64: {type(error).__name__}: {line}"


def _results(model: Callable[[Tensor], Any], batch: Tensor) -> list[Any]:
    # A clone, as operations in place would change the data for the calls that follow.
    with torch.no_grad():
        return tree_leaves(model(batch.clone()))


def _tried(model: Callable[[Tensor], Any], batch: Tensor) -> list[Any] | str:
    """Return the results for a batch, or the message of the error."""
    try:
        return _results(model, batch)
    # It is the user's model that runs, which may fail in any way.
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


class _LayersAlone(fx.Interpreter):
    """Runs a copy of a graph, whose layers compute as their classes do.

    Parameters
    ----------
    keeps: note what goes into each layer, and what it gives, in `calls`.
    """

    def __init__(self, graph_module: fx.GraphModule, *, keeps: bool = False) -> None:
        super().__init__(copy.deepcopy(graph_module))
        self.calls: list[_Call] = []
        self._keeps = keeps
        self._node: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        """Compute a node."""
        self._node = n
        return super().run_node(n)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute a layer, without hooks."""
        layer = self.fetch_attr(target)
        if not self._keeps:
            return type(layer).forward(layer, *args, **kwargs)
        given = _kept((args, kwargs))
        result = type(layer).forward(layer, *args, **kwargs)
        self.calls.append(_Call(str(target), given, _kept(result), self._node))
        return result


@dataclass(frozen=True)
class _Call:
    """A call of a layer: tensors that it was given and has made; its node, where a graph has run."""

    path: str
    given: list[Any]
    made: list[Any]
    node: fx.Node | None = None


def _kept(values: Any) -> list[Any]:
    # Clones, as a later operation in place may change them.
    return [value.clone() if isinstance(value, Tensor) else value for value in tree_leaves(values)]


class _Double(TorchDispatchMode):
    """Computes in float64 what is float32, also where the model's code names that dtype."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*tree_map(_widened, args), **tree_map(_widened, dict(kwargs or {})))


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.float32:
        return value.double()
    return torch.float64 if value is torch.float32 else value


class _Pair:
    """A model and its trace in float64, with what their layers read and give for one batch."""

    def __init__(self, model: nn.Module, graph_module: fx.GraphModule, batch: Tensor) -> None:
        self._given, self._batch = model, batch
        self._model, self._graph_module = copied(model).double(), graph_module
        self._modules = dict(graph_module.named_modules())
        interpreter = _LayersAlone(copy.deepcopy(graph_module).double(), keeps=True)
        paths = {str(node.target) for node in graph_module.graph.nodes if node.op == "call_module"}
        self._calls = _Noted(self._model, paths)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _Double():  # type: ignore[no-untyped-call]  # torch's own
                self._own = _results(self._model, batch.double())
                self._traced = _results(interpreter.run, batch.double())
        finally:
            torch.set_default_dtype(before)
        self._traced_calls = interpreter.calls

    def difference(self) -> str:
        """Return the first difference, in the order of the trace; empty if there is none."""
        if _close(self._own, self._traced):
            return ""
        where = self._layer() or self._end()
        return f"{_ANOTHER}, starting at {where}"

    def _layer(self) -> str:
        """Return the first layer that reads or gives other numbers, with the remedy; empty if there is none."""
        own = _numbered(self._calls.calls)
        for key, call in _numbered(self._traced_calls).items():
            if key not in own or call.node is None:
                continue
            layer = f"layer {place_of_layer(call.node, self._modules)}"
            if not _close(own[key].given, call.given):
                front = next(iter(call.node.all_input_nodes), call.node)
                return f"{self._named(front)}, which {layer} reads: {self._cause(front)}"
            if not _close(own[key].made, call.made):
                return f"{layer}: {self._hook(call.path) or self._cause(call.node)}"
        return ""

    def _end(self) -> str:
        end = next(iter(self._graph_module.graph.output_node().all_input_nodes))
        return f"{self._named(end)}, the result: {self._hook('') or self._cause(end)}"

    def _named(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return f"layer {place_of_layer(node, self._modules)}"
        if node.op == "placeholder":
            return "the input"
        return f"{spelled(operation(node, self._modules))} {place_of(node)}"

    def _hook(self, path: str) -> str:
        """Return the remedy for a module with hooks; empty if it has none."""
        hooks = [*hooks_of(self._given.get_submodule(path)), *_global_hooks()]
        if not hooks:
            return ""
        code = getattr(hooks[0], "__code__", None)
        place = f" ({PurePath(code.co_filename).name}:{code.co_firstlineno})" if code else ""
        return f"a hook{place} changes its input or output; do that in forward, and remove the hook"

    def _cause(self, node: fx.Node) -> str:
        if write := first_write(self._given, self._batch):
            return f"forward changes {write}; {write.remedy}"
        return _STAND_INS


class _Noted:
    """The calls of some layers of a model, in order; noted by hooks, outside of all others of the layer."""

    def __init__(self, model: nn.Module, paths: set[str]) -> None:
        self.calls: list[_Call] = []
        self._paths = {module: path for path, module in model.named_modules() if path in paths}
        self._given: list[list[Any]] = []
        for module in self._paths:
            module.register_forward_pre_hook(self._begin, prepend=True, with_kwargs=True)
            module.register_forward_hook(self._end)

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._given.append(_kept((args, kwargs)))

    def _end(self, module: nn.Module, args: Any, result: Any) -> None:
        self.calls.append(_Call(self._paths[module], self._given.pop(), _kept(result)))


def hooks_of(module: nn.Module) -> list[Callable[..., Any]]:
    """Return the hooks that a module runs in front of and behind its forward."""
    return [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]


def is_hooked_globally() -> bool:
    """Return whether there are hooks that all modules run."""
    return bool(_global_hooks())


def _global_hooks() -> list[Callable[..., Any]]:
    return [*torch_module._global_forward_pre_hooks.values(), *torch_module._global_forward_hooks.values()]


def place_of_layer(node: fx.Node, modules: Mapping[str, nn.Module]) -> str:
    """Return a layer of a graph as text, such as "'features.3' (Conv2d, vgg.py:41)"."""
    kind = type(modules[str(node.target)]).__name__
    place = place_of(node).partition(" (")[2].rstrip(")")
    return f"'{node.target}' ({kind}{', ' * bool(place)}{place})"


def _numbered(calls: Sequence[_Call]) -> dict[tuple[str, int], _Call]:
    """Return calls by the layer's path and the number of its call."""
    counts: dict[str, int] = {}
    numbered = {}
    for call in calls:
        number = counts[call.path] = counts.get(call.path, -1) + 1
        numbered[call.path, number] = call
    return numbered


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    return [value for value in values if isinstance(value, Tensor)]


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether tensors are equal, NaN to NaN."""
    ones, others = _tensors(left), _tensors(right)
    return len(ones) == len(others) and all(
        one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())
        for one, other in zip(ones, others, strict=True)
    )


def _close(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether tensors in float64 differ by less than float32 rounds; all others must be equal."""
    ones, others = _tensors(left), _tensors(right)
    return len(ones) == len(others) and all(map(_alike, ones, others))


def _alike(one: Tensor, other: Tensor) -> bool:
    if _same([one], [other]):
        return True
    if one.shape != other.shape or not one.is_floating_point() or not other.is_floating_point():
        return False
    # Infinities are equal, or too far apart; their size bounds nothing.
    sizes = one.abs()[one.isfinite()]
    bound = ROUNDOFF * float(sizes.max()) if sizes.numel() else 0.0
    apart = (one.double() - other.double()).abs()
    both = (one == other) | ((one != one) & (other != other))
    return bool((both | (apart <= bound)).all())
