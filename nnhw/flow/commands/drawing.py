"""Pictures of a model's graph as it is behind any stage; a mapped graph is shown with its engines and cycles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from nnhw.accelerator import Accelerator, Stage
from nnhw.engines.shared import SharedConfig
from nnhw.engines.shared.counters import program_parts
from nnhw.export.svg import graph_picture, to_svg
from nnhw.flow.array_work import ArrayWork, works_of
from nnhw.ir import Graph, Node

_PRODUCTS = ("linear", "conv2d")


def graph_svg(graph: Graph, accelerator: Accelerator | None = None) -> str:
    """Return the picture of a graph as SVG.

    Parameters
    ----------
    accelerator: what the graph was mapped to: each operator's box then names its engines, with the cycles that they
        take for a frame, and the title says the interval.
    """
    if accelerator is None:
        return to_svg(graph_picture(graph))
    interval = float(accelerator.schedule.interval)
    title = f"{accelerator.name} on {accelerator.board}: a frame in {interval:,.6g} cycles"
    return to_svg(graph_picture(graph, _notes(graph, accelerator), title))


def _notes(graph: Graph, accelerator: Accelerator) -> Mapping[str, list[str]]:
    """Return lines about the engines, by the name of the node in whose box they stand."""
    found: dict[str, list[str]] = defaultdict(list)
    waiting: list[Stage] = []  # engines whose results are no values of the graph: they stand with the next one's
    for stage in accelerator.stages:
        if (program := stage.config.program) is not None:
            for layer, note in _program_notes(program, works_of(stage)):
                found[_layer_node(graph, layer)].append(note)
            continue
        waiting.append(stage)
        if stage.node in graph:
            _place(graph, graph.node(stage.node), waiting, found)
            waiting = []
    if waiting:
        # Engines behind the last value of the graph, such as one that packs results into bytes.
        _place(graph, graph.output_nodes[0], waiting, found)
    return {name: _counted(notes) for name, notes in found.items()}


def _place(graph: Graph, node: Node, stages: Sequence[Stage], found: dict[str, list[str]]) -> None:
    """Note the engines that make a value: those up to the last array at the layer's node, the rest at the value's."""
    arrays = [number for number, stage in enumerate(stages, 1) if works_of(stage)]
    split = arrays[-1] if arrays else 0
    if split:
        found[_computing(graph, node).name] += map(_engine_note, stages[:split])
    if stages[split:]:
        found[node.name] += map(_engine_note, stages[split:])


def _counted(notes: Sequence[str]) -> list[str]:
    """Return notes, equal ones as one with their number."""
    return [note if count == 1 else f"{count} x {note}" for note, count in Counter(notes).items()]


def _engine_note(stage: Stage) -> str:
    """Return an engine in words: its kind, its array, and the cycles of a frame in which it is busy."""
    config = stage.config
    if config.fifo is not None:
        return f"{config.kind}: {config.fifo.depth:,} beats"
    works = works_of(stage)
    array = f" {works[0].pe} PE x {works[0].simd}" if works else ""
    return f"{config.kind}{array}: {config.cycles:,} cycles"


def _program_notes(config: SharedConfig, works: tuple[ArrayWork, ...]) -> list[tuple[str, str]]:
    """Return (layer or value, line about its cycles) for each part of a program."""
    arrays = {work.layer: work for work in works}
    notes = []
    for part in program_parts(config):
        work = arrays.get(part.name)
        shape = f" {work.pe} PE x {work.simd}" if work and part.kind == "layer" else ""
        what = "" if part.kind == "layer" else f" {part.kind}"
        notes.append((part.name, f"shared engine{what}{shape}: {part.cycles:,} cycles"))
    return notes


def _computing(graph: Graph, node: Node) -> Node:
    """Return the linear or convolution node that a value is computed from, else the first node with other inputs."""
    while node.op.name not in _PRODUCTS:
        before = graph.data_inputs(node)
        if len(before) != 1 or not before[0].inputs:
            return node
        node = before[0]
    return node


def _layer_node(graph: Graph, layer: str) -> str:
    """Return the node at which a layer or a value is shown: the one of this name, else one of the layer's own nodes."""
    if layer in graph:
        return layer
    nodes = [node for node in graph.nodes if layer == (node.location.module or node.name) and node.inputs]
    products = [node for node in nodes if node.op.name in _PRODUCTS]
    return (products or nodes or [graph.output_nodes[0]])[0].name
