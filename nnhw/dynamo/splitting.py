"""From a traced graph to the same graph with calls of the accelerator in it, and the partition as an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from nnhw.errors import (
    CaptureError,
    InputError,
    LoweringError,
    MappingError,
    NnhwError,
    ProblemList,
    first_of,
)

from .compile_options import CompileOptions
from .extraction import extract
from .graph_partition import AcceleratedPart, GraphPartition, Placed
from .graph_parts import Runner, runner_of, try_part
from .node_values import UNQUANTIZED, Dependence, TracedGraph
from .operators import QUANTIZE, VALUE, operation_of, place_of
from .subgraphs import Subgraph, families

_REFUSALS = (CaptureError, LoweringError, InputError, ProblemList)
_AGAIN = "nnhw_again"
"""Key of a node's meta: marks a quantizer that was added behind a part so that another part can begin there."""

_ALONE = "no layer with quantized weights is behind it in the same part"


class Accelerated(nn.Module):
    """A part of a model that the accelerator computes.

    Parameters
    ----------
    dtype: of the result, as PyTorch would have it.
    shape: of the result without the batch.
    """

    def __init__(self, runner: Runner, dtype: torch.dtype, shape: Sequence[int]) -> None:
        super().__init__()
        self._runner, self._dtype, self._shape = runner, dtype, tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """[N, *input shape] --> [N, *shape], on the torch device of the input."""
        # A device takes whole images, and of no image it would never answer.
        if not len(x):
            return torch.zeros((0, *self._shape), dtype=self._dtype, device=x.device)
        return self._runner(x).to(dtype=self._dtype, device=x.device)


@dataclass(frozen=True)
class _Found:
    """A region that is built, and what computes it."""

    region: Subgraph
    runner: Runner
    origin: str
    constants: frozenset[fx.Node]


@dataclass
class _Work:
    """The state of splitting a graph.

    Parameters
    ----------
    refused: nodes that PyTorch has to compute, with the reasons.
    rows: of nodes that parts have replaced, by their names.
    parts: those made so far.
    left: number of parts that may still be made; None for any.
    constants: names of the parameters and buffers that the parts were built with.
    """

    refused: dict[fx.Node, str] = field(default_factory=dict)
    rows: dict[str, Placed] = field(default_factory=dict)
    parts: list[AcceleratedPart] = field(default_factory=list)
    left: int | None = None
    constants: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Split:
    """A graph that is ready to run.

    Parameters
    ----------
    module: runs the graph, with calls of the accelerator.
    partition: which operation runs where.
    constants: names of the parameters and buffers that the parts were built with.
    """

    module: fx.GraphModule
    partition: GraphPartition
    constants: frozenset[str] = frozenset()


def split(root: nn.Module, traced: TracedGraph, options: CompileOptions) -> Split:
    """Replace the regions of a graph that the accelerator can compute by calls of it, the largest first.

    Parameters
    ----------
    root: has the attributes that the graph reads.
    traced: is changed.

    Raises
    ------
    MappingError: a part does not fit the board, and `fallback` is not set. NnhwError: any other error of building.
    """
    order = [node.name for node in traced.graph.nodes]
    holder = nn.Module()
    work = _Work(left=options.parts)
    # After each replacement values are found anew: what a part has computed is a value of the host for all behind it.
    while (found := _next(traced, work, options)) is not None:
        _replace(traced, work, holder, found)
    rows = {row.node: row for row in _rows(traced, work)} | work.rows
    _clean(traced)
    ordered = [rows[name] for name in order if name in rows]
    partition = GraphPartition(ordered, work.parts, "" if work.parts else nothing_found(ordered))
    return Split(_module(root, holder, traced.graph), partition, frozenset(work.constants))


def nothing_found(rows: Sequence[Placed]) -> str:
    """Return the note for a graph that PyTorch runs alone: it names the first obstacle behind a quantizer."""
    first = next((place for place, row in enumerate(rows) if row.operation == "quantize"), len(rows))
    reasons = [row for row in rows[first:] if row.why not in (UNQUANTIZED, _ALONE)]
    if first == len(rows):
        why = (
            "it has no quantizer of nnhw; use nnhw.nn, or nnhw.quantize, and for a model of another framework, "
            "nnhw.build"
        )
    elif reasons:
        row = reasons[0]
        why = f"{row.operation} {row.place}: {row.why}"
    else:
        why = "no layer with quantized weights reads its quantized values"
    return f"PyTorch runs the whole graph, for no part of it can run on the accelerator: {why}"


def _next(traced: TracedGraph, work: _Work, options: CompileOptions) -> _Found | None:
    """Return the largest region that can still become a part, built; None if there is none, or no part is left."""
    while work.left is None or work.left > 0:
        values = traced.values(work.refused)
        groups = sorted(families(traced, values), key=lambda group: group[0].layers, reverse=True)
        if not groups:
            return None
        found = _largest(traced, groups[0], work, options)
        if found is not None:
            return found
    return None


def _largest(traced: TracedGraph, group: Sequence[Subgraph], work: _Work, options: CompileOptions) -> _Found | None:
    """Return the largest region of a group, built. If it cannot be, refuse nodes in `work` with the reason; None."""
    values = traced.values(work.refused)
    refusals: dict[int, NnhwError] = {}

    def attempt(place: int) -> bool:
        try:
            try_part(extract(traced, values, group[place]), options)
        except _REFUSALS as error:
            refusals[place] = error
            return False
        return True

    try:
        part = extract(traced, values, group[0])
        runner, origin = runner_of(part, options)
        return _Found(group[0], runner, origin, part.constants)
    # In front of the other refusals: what does not fit is no fault of a single node, so the whole region is refused.
    except MappingError as error:
        _refuse(work, group[0].nodes, _unfit(group[0], error, options))
        return None
    except _REFUSALS as error:
        refusals[0] = error
    # A region mostly contains those behind it in the group: the last node of the smallest refused one is the cause.
    low, high = 0, len(group)  # group[low] is refused; those from high on are not, or there are none
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if attempt(middle) else (middle, high)
    _refuse(work, [group[low].output], f"the accelerator refuses it: {first_of(refusals[low])}")
    return None


def _refuse(work: _Work, nodes: Sequence[fx.Node], why: str) -> None:
    work.refused.update(dict.fromkeys(nodes, why))


def _unfit(region: Subgraph, error: MappingError, options: CompileOptions) -> str:
    """Return why a part does not fit the board. Raises: MappingError, unless `fallback` lets PyTorch run it."""
    text = f"the part of {region.layers} layers up to '{region.output.name}' does not fit: {first_of(error)}"
    if not options.fallback:
        raise MappingError(f"{text}; or let PyTorch run it by options={{'fallback': True}}") from error
    return text


def _replace(traced: TracedGraph, work: _Work, holder: nn.Module, found: _Found) -> None:
    """Replace a region by a call of the accelerator, a module of `holder`."""
    region, number = found.region, len(work.parts)
    output = region.output
    value: Tensor = output.meta[VALUE]
    name = f"nnhw_{number}"
    holder.add_module(name, Accelerated(found.runner, value.dtype, [*map(int, value.shape[1:])]))
    with traced.graph.inserting_after(output):
        call = traced.graph.call_module(name, (region.source,))
    call.meta = {VALUE: value}
    output.replace_all_uses_with(call)
    _begin_again(traced, output, call)
    for node in region.nodes:
        work.rows[node.name] = Placed(node.name, operation_of(node), place_of(node), number)
    # Quantizers of the source may have readers outside of the region: these stay.
    for node in reversed(region.nodes):
        if not node.users:
            traced.graph.erase_node(node)
    work.parts.append(_part(found, number))
    work.constants.update(node.name for node in found.constants)
    work.left = None if work.left is None else work.left - 1


def _part(found: _Found, number: int) -> AcceleratedPart:
    runner, region, accelerator = found.runner, found.region, found.runner.accelerator()
    i_shape, o_shape = (tuple(map(int, node.meta[VALUE].shape[1:])) for node in (region.source, region.output))
    return AcceleratedPart(
        number=number,
        layers=region.layers,
        i_shape=i_shape,
        o_shape=o_shape,
        key=runner.key,
        folder=runner.folder,
        origin=found.origin,
        board=accelerator.board,
        style="shared" if accelerator.programs else "streaming",
        interval_cycles=accelerator.schedule.interval_cycles,
    )


def _begin_again(traced: TracedGraph, output: fx.Node, call: fx.Node) -> None:
    """Add a quantizer that repeats the last one of a part, which changes nothing: another part can begin with it."""
    if QUANTIZE not in traced.operators(output).names or output.op != "call_function":
        return
    readers = [user for user in call.users if user.op != "output"]
    with traced.graph.inserting_after(call):
        again = traced.graph.call_function(output.target, (call, *output.args[1:]), dict(output.kwargs))  # type: ignore[arg-type]
    again.meta = {**output.meta, _AGAIN: True}
    for reader in readers:
        reader.replace_input_with(call, again)


def _clean(traced: TracedGraph) -> None:
    """Remove added quantizers that no part begins with, and constants that nothing reads any more."""
    for node in list(traced.graph.nodes):
        if node.meta.get(_AGAIN):
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            traced.graph.erase_node(node)
    values = traced.values({})
    for node in reversed(list(traced.graph.nodes)):
        if not node.users and node.op != "placeholder" and node in values and values[node].kind is Dependence.CONSTANT:
            traced.graph.erase_node(node)


def _rows(traced: TracedGraph, work: _Work) -> list[Placed]:
    """Return the rows of the nodes that PyTorch runs and that depend on the model's input, with the reasons."""
    values, rows = traced.values(work.refused), []
    for node in traced.graph.nodes:
        value = values.get(node)
        if node.op not in ("call_function", "call_method") or value is None:
            continue
        if value.kind in (Dependence.HOST, Dependence.PART):
            rows.append(
                Placed(node.name, operation_of(node), place_of(node), None, value.why or _why(value.kind, work))
            )
    return rows


def _why(kind: Dependence, work: _Work) -> str:
    """Return why PyTorch runs a node that nothing has refused."""
    if kind is Dependence.HOST:
        return "is no operation of tensors"
    if work.left == 0:
        return f"the accelerator has its {len(work.parts)} parts already"
    return _ALONE


def _module(root: nn.Module, holder: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """Return a module that runs a graph, with the attributes and modules that the graph names."""
    named = {str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")}
    found: dict[str, Any] = {name: _attribute(holder if name in holder._modules else root, name) for name in named}
    return fx.GraphModule(found, graph)


def _attribute(module: nn.Module, path: str) -> object:
    found: object = module
    for name in path.split("."):
        found = getattr(found, name)
    return found
