"""The backend of `torch.compile`: from a graph of Dynamo to a function that runs parts of it on the accelerator."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._dynamo.convert_frame import compile_lock

from nnhw.errors import InputError

from .compile_options import CompileOptions
from .graph_partition import GraphPartition
from .node_values import TracedGraph
from .notes import LOGGER, note
from .operators import VALUE, operation_of, place_of
from .splitting import Split, split

_META = (VALUE, "nn_module_stack", "stack_trace")


class Backend:
    """A backend with options for `torch.compile(model, backend=..)`; it keeps the partitions that it makes.

    Parameters
    ----------
    options: see `CompileOptions`.

    Members
    -------
    options: as checked.
    partitions: one for each graph that was partitioned, in that order; empty before the first call of a model.

    Raises
    ------
    InputError: an option does not exist, or has a wrong value. BoardError: the board is not known.
    """

    def __init__(self, **options: Any) -> None:
        self.options = CompileOptions.of(options)
        self.partitions: list[GraphPartition] = []

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the function that runs a graph; Dynamo calls this. Nothing is built before that function is called."""
        return _Compiled(graph, self.options, self.partitions.append)

    def __repr__(self) -> str:
        return f"<Backend of nnhw on {self.options.board}, link '{self.options.link}': {len(self.partitions)} graphs>"


def backend(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph: what `torch.compile(model, backend="nnhw", options=..)` calls.

    Parameters
    ----------
    graph: as Dynamo traced it.
    inputs: example inputs of the graph; parameters and buffers of the model are among them.
    options: see `CompileOptions`.
    mode: must be None; torch's modes are for its own backend.

    Returns
    -------
    A function of the graph's inputs. All errors of nnhw are raised when it is called, not here.
    """
    try:
        if mode is not None:
            raise InputError(f"the backend 'nnhw' has no mode, given '{mode}'; use options={{'style': ..}}")
        return _Compiled(graph, CompileOptions.of(options), lambda partition: None)
    # Of any class: raised here, it would reach the user wrapped in an error of Dynamo (see `_Failed`).
    except Exception as error:
        return _Failed(error)


class _Failed:
    """A compiled graph that raises an error when it is called: Dynamo would wrap an error that the backend raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, *_args: Any) -> Any:
        raise self._error


class _Compiled:
    """A graph that is partitioned at its first call, and again when its weights have changed.

    Parameters
    ----------
    keep: is called with each partition.
    """

    def __init__(
        self, graph: fx.GraphModule, options: CompileOptions, keep: Callable[[GraphPartition], object]
    ) -> None:
        self._graph, self._options, self._keep = graph, options, keep
        # Dynamo removes metadata from its graph after compiling; the traced values are needed at the first call.
        self._metas = {
            node.name: {key: node.meta[key] for key in _META if key in node.meta} for node in graph.graph.nodes
        }
        self._split: Split | None = None
        self._constants: dict[int, Tensor] = {}
        # Threads may share a compiled model: one of them splits the graph, and the others wait for it.
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        """Run the graph.

        Raises
        ------
        NnhwError: a part cannot be built or opened, or its link failed; the next call tries again.
        """
        reason = _records(self._graph, args)
        if reason:
            note(reason)
            return self._graph(*args)
        return self._current(args).module(*args)

    def _current(self, args: Sequence[Any]) -> Split:
        """Return the split graph for the present weights; it is made if there is none."""
        with self._lock:
            if self._split is None or not all(_same(args[place], kept) for place, kept in self._constants.items()):
                # Tracing patches torch for all threads, so only one may trace at a time, and Dynamo may not meanwhile.
                with compile_lock, torch.inference_mode(False), torch.no_grad():
                    self._split = self._make(args)
                    self._constants = self._built_with(args)
                self._tell(self._split.partition)
            return self._split

    def _built_with(self, args: Sequence[Any]) -> dict[int, Tensor]:
        """Return copies of the parameters and buffers that are built into parts, by their places among the inputs."""
        assert self._split is not None
        inputs = [node.name for node in self._graph.graph.nodes if node.op == "placeholder"]
        read = self._split.constants
        return {place: args[place].detach().clone() for place, name in enumerate(inputs) if name in read}

    def _make(self, args: Sequence[Any]) -> Split:
        graph = fx.Graph()
        # A copy is split, for when weights change, the graph is split anew.
        copies: dict[fx.Node, fx.Node] = {}
        graph.output(graph.graph_copy(self._graph.graph, copies))
        for node, copy in copies.items():
            copy.meta = dict(self._metas[node.name])
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        constants = {inputs[place]: args[place] for place in _constant_places(args)}
        constants |= _attributes(self._graph, graph)
        traced = TracedGraph(graph, constants)
        training = traced.training()
        if training is not None:
            why = (
                f"PyTorch runs the whole graph, for {operation_of(training)} {place_of(training)} computes as in "
                f"training; call model.eval()"
            )
            return Split(self._graph, GraphPartition([], [], why))
        return split(self._graph, traced, self._options)

    def _tell(self, partition: GraphPartition) -> None:
        if partition.note:
            note(partition.note)
        for line in partition.lines():
            LOGGER.info("%s", line)
        if self._options.show:
            from rich.console import Console

            Console(file=sys.stderr).print(partition.table())
        self._keep(partition)
        if self._options.on_partition is not None:
            self._options.on_partition(partition)


def _constant_places(args: Sequence[Any]) -> list[int]:
    """Return the places of the arguments that are parameters and buffers, which Dynamo marks."""
    return [place for place, value in enumerate(args) if isinstance(value, Tensor) and _is_of_model(value)]


def _is_of_model(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) or getattr(tensor, "_dynamo_static_input_type", None) is not None


def _attributes(root: nn.Module, graph: fx.Graph) -> dict[fx.Node, Tensor]:
    """Return the tensors that a graph reads as attributes of `root`, by the nodes that read them."""
    found = {}
    for node in graph.nodes:
        if node.op == "get_attr":
            value: object = root
            for name in str(node.target).split("."):
                value = getattr(value, name)
            if isinstance(value, Tensor):
                found[node] = value
    return found


def _same(given: Tensor, kept: Tensor) -> bool:
    """Return whether a tensor has not changed; its version would not tell, as changes by `.data` do not count there."""
    return given.dtype == kept.dtype and given.device == kept.device and torch.equal(given, kept)


def _records(graph: fx.GraphModule, args: Sequence[Any]) -> str:
    """Return the note for the user if PyTorch records gradients in this call; empty if it does not."""
    if not torch.is_grad_enabled():
        return ""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    named = next((node for node, value in zip(inputs, args, strict=True) if _wants(value)), None)
    if named is None and not any(map(_wants, graph.parameters())):
        return ""
    return (
        "PyTorch runs the whole graph, for it records gradients, which the accelerator has not; call the model under "
        "torch.no_grad() or torch.inference_mode(), or freeze it by model.requires_grad_(False)"
    )


def _wants(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
