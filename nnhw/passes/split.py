"""Cutting a lowered graph in three: head (host, in front of the device), body (device), tail (host, behind it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import Graph, GraphBuilder, Node, extract, run, verify
from nnhw.ir.interpreter import Inputs
from nnhw.ir.ops import AsSteps, Concat, Quantize, Reshape, Slice, StepTable, Threshold

from .edit import ORDER_OPS

_FUNCTIONS = (Threshold, StepTable)
"""Ops with steps: no input moves their result if none of the steps lies in the range of what they read."""


@dataclass(frozen=True)
class Parts:
    """Three graphs that, one after the other, compute the whole model.

    Parameters
    ----------
    head: from the model's float input to codes.
    body: from codes to integers, by integer ops only; one input and one output.
    tail: from these integers to the model's outputs.
    """

    head: Graph
    body: Graph
    tail: Graph

    def run(self, inputs: Inputs) -> tuple[np.ndarray, ...]:
        """Compute head, body and tail, one after the other."""
        return run(self.tail, run(self.body, run(self.head, inputs)))


def split(graph: Graph) -> Parts:
    """Cut a lowered graph at its input's quantizer and behind its last integer ops.

    Where the host needs several values, the body joins them, and the tail takes them apart: maps of one size along
    their channels, others as lists of their elements.

    Raises
    ------
    LoweringError if there is not exactly one way into the integer part, or no way out of it.
    """
    entry = _first_steps(graph, _entry(graph))
    body = _integers_behind(graph, entry)
    results = _results(graph, entry, body)
    _check_tail(graph, body, entry, results)
    head = extract(graph, f"{graph.name}_head", (), (entry.name,))
    middle = _joined(extract(graph, f"{graph.name}_body", (entry.name,), [node.name for node in results]))
    _check_constant(graph.name, middle)
    return Parts(head, middle, _tail(graph, middle, results))


def _joined(body: Graph) -> Graph:
    """Return a body with one result: all of its results one behind the other."""
    results = body.output_nodes
    if len(results) == 1:
        return body
    builder = GraphBuilder(body.name)
    builder.copy(body.nodes, body)
    parts = [node.name for node in results]
    if not _are_stacked(results):
        parts = [builder.add(f"{name}.flat", Reshape((body.node(name).type.size,)), [name]) for name in parts]
    return verify(builder.build([builder.add("results", Concat(0), parts)]))


def _are_stacked(results: Sequence[Node]) -> bool:
    """Return whether results are joined by channels, as maps of one size are: then nothing changes its order."""
    return all(node.type.shape for node in results) and len({node.type.shape[1:] for node in results}) == 1


def _tail(graph: Graph, body: Graph, results: Sequence[Node]) -> Graph:
    """Return what follows the body; its several results are parts of the body's one."""
    names = [node.name for node in results]
    if len(results) == 1:
        return replace(extract(graph, f"{graph.name}_tail", names, graph.outputs), keys=graph.keys)
    rest = extract(graph, "rest", names, graph.outputs)
    builder = GraphBuilder(f"{graph.name}_tail")
    given = builder.input(body.outputs[0], body.output_nodes[0].type)
    stacked, start = _are_stacked(results), 0
    for node in results:
        size = node.type.shape[0] if stacked else node.type.size
        part = builder.add(node.name if stacked else f"{node.name}.flat", Slice(0, start, start + size), [given])
        if not stacked:
            builder.add(node.name, Reshape(node.type.shape), [part], node.location)
        start += size
    for node in rest.nodes:
        if node.name in rest.constants:
            builder.copy([node], rest)
        elif node.inputs:
            builder.add(node.name, node.op, node.inputs, node.location)
    return verify(builder.build(graph.outputs, graph.keys))


def _entry(graph: Graph) -> Node:
    found = [node for node in graph.nodes if isinstance(node.op, Quantize)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise LoweringError(
            f"model '{graph.name}' has no quantizer of its input; put one in front, such as "
            f"nnhw.nn.UInt(8, scale=2**-8)"
        )
    raise LoweringError(
        f"model '{graph.name}' needs one quantizer of its input, got {len(found)}: {', '.join(map(str, found))}; "
        f"quantize the input once, and use its codes everywhere"
    )


def _first_steps(graph: Graph, entry: Node) -> Node:
    """Return the sequence that is made of the input's codes alone; the codes themselves if there is none.

    The host makes it, so that the device gets one step after the other.
    """
    users, node = graph.users(), entry
    while len(users[node.name]) == 1 and node.name not in graph.outputs:
        (node,) = users[node.name]
        if isinstance(node.op, AsSteps):
            return node
        if not isinstance(node.op, ORDER_OPS):
            break
    return entry


def _integers_behind(graph: Graph, entry: Node) -> dict[str, Node]:
    """Return the integer values that follow from the input's codes through integer ops alone."""
    body = {entry.name: entry}
    for node in graph.nodes:
        data = graph.data_inputs(node)
        if data and node.type.is_int and all(operand.name in body for operand in data):
            body[node.name] = node
    return body


def _results(graph: Graph, entry: Node, body: dict[str, Node]) -> list[Node]:
    """Return the integers that the host needs, in their order. Raises: LoweringError."""
    outside = {name for node in graph.nodes if node.name not in body for name in node.inputs} | set(graph.outputs)
    results = [node for node in body.values() if node.name in outside]
    if entry in results[:1] and len(results) == 1:
        raise LoweringError(f"model '{graph.name}' has no layer behind its quantizer {entry}; add a quantized layer")
    # The device sends a result for each frame, or one for each sequence.
    steps = {node.type.is_sequence for node in results}
    if len(steps) > 1:
        raise LoweringError(
            f"model '{graph.name}' needs integers of each step and of the last one for the host: "
            f"{', '.join(map(str, results))}; put a quantizer behind what joins them, or return one of them"
        )
    return results


def _check_tail(graph: Graph, body: dict[str, Node], entry: Node, results: Sequence[Node]) -> None:
    """Check that nothing behind the results reads anything in front of them. Raises: LoweringError."""
    behind = {node.name for node in results} - {entry.name}
    layers = ", ".join(str(node) for node in results if node is not entry)
    if entry.name in graph.outputs:
        raise LoweringError(
            f"model '{graph.name}' returns the codes of its input, {entry}, beside the result of {layers}; return what "
            f"its layers compute"
        )
    for node in graph.nodes:
        names = {operand.name for operand in graph.data_inputs(node)}
        if node.name not in body and names & behind:
            behind.add(node.name)
            if not names <= behind:
                early = ", ".join(sorted(names - behind))
                raise LoweringError(
                    f"{node} joins the result of {layers} with '{early}' of the input side, which is not supported "
                    f"yet; compute the model's end from its last layer alone"
                )
    missing = [name for name in graph.outputs if name not in behind]
    if missing:
        raise LoweringError(
            f"model '{graph.name}' returns {graph.node(missing[0])}, which no layer computes; return what its layers "
            f"compute"
        )


def _check_constant(model: str, body: Graph) -> None:
    """Check that the body's result depends on its input."""
    values = frozen_values(body)
    if body.outputs[0] not in values:
        return
    frozen = [node for node in body.nodes if node.name in values and not any(name in values for name in node.inputs)]
    raise LoweringError(
        f"model '{model}' gives the same result for every input, because the codes of {', '.join(map(str, frozen))} "
        f"never change; check the scales of these quantizers, and the parameters in front of them"
    )


def frozen_values(graph: Graph) -> dict[str, np.ndarray]:
    """Return the values that no input changes, [1, *shape] by node name, as no step of a function lies in its range.

    The sums of a layer whose weights are all 0 do not count: the user has written zeros, and gets them.
    """
    found: dict[str, np.ndarray] = {}
    for node in graph.nodes:
        data = graph.data_inputs(node)
        if node.op.along_steps:
            continue
        if data and all(operand.name in found for operand in data):
            operands = (found.get(name, graph.constants.get(name)) for name in node.inputs)
            found[node.name] = node.op.evaluate(*operands)  # type: ignore[arg-type]
        elif isinstance(node.op, _FUNCTIONS):
            low, high = (_codes_at(graph, node, end) for end in ("low", "high"))
            if (low == high).all() and not _moves_between(graph, node):
                found[node.name] = low
    return found


def _codes_at(graph: Graph, function: Node, end: str) -> np.ndarray:
    """Return the codes of a function whose input is everywhere at one end of its range, "low" or "high"."""
    source = graph.node(function.inputs[0]).type
    image = np.full((1, *source.shape), getattr(source.int_dtype, end))
    return function.op.evaluate(image, *(graph.constants[name] for name in function.inputs[1:]))


def _moves_between(graph: Graph, function: Node) -> bool:
    """Return whether the codes of a table change within the range of its input and come back."""
    if isinstance(function.op, Threshold):
        return False
    kind = graph.node(function.inputs[0]).type.int_dtype
    thresholds, codes = (graph.constants[name] for name in function.inputs[1:])
    # Code k + 1 is reached if its threshold is, and is not passed at once.
    inside = (thresholds > kind.low) & (thresholds <= kind.high)
    return bool((inside & (np.diff(codes, axis=1) != 0)).any())
