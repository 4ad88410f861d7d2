"""Cutting a lowered graph in three: head (host, in front of the device), body (device), tail (host, behind it)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import Graph, Node, extract, run
from nnhw.ir.interpreter import Inputs
from nnhw.ir.ops import Quantize, StepTable, Threshold

_FUNCTIONS = (Threshold, StepTable)


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
    """Cut a lowered graph at its input's quantizer and behind its last integer op.

    Raises
    ------
    LoweringError if there is not exactly one way into the integer part and one way out of it.
    """
    entry = _entry(graph)
    body = _integers_behind(graph, entry)
    result = _result(graph, entry, body)
    _check_tail(graph, body, entry, result)
    head = extract(graph, f"{graph.name}_head", (), (entry.name,))
    middle = extract(graph, f"{graph.name}_body", (entry.name,), (result.name,))
    _check_constant(graph.name, middle)
    tail = extract(graph, f"{graph.name}_tail", (result.name,), graph.outputs)
    return Parts(head, middle, tail)


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


def _integers_behind(graph: Graph, entry: Node) -> dict[str, Node]:
    """Return the integer values that follow from the input's codes through integer ops alone."""
    body = {entry.name: entry}
    for node in graph.nodes:
        data = graph.data_inputs(node)
        if data and node.type.is_int and all(operand.name in body for operand in data):
            body[node.name] = node
    return body


def _result(graph: Graph, entry: Node, body: dict[str, Node]) -> Node:
    outside = {name for node in graph.nodes if node.name not in body for name in node.inputs} | set(graph.outputs)
    results = [node for node in body.values() if node.name in outside]
    if len(results) != 1:
        raise LoweringError(
            f"model '{graph.name}' needs one integer result for the host, got {len(results)}: "
            f"{', '.join(map(str, results))}; put a quantizer behind what joins them, or return one of them"
        )
    if results[0] is entry:
        raise LoweringError(f"model '{graph.name}' has no layer behind its quantizer {entry}; add a quantized layer")
    return results[0]


def _check_tail(graph: Graph, body: dict[str, Node], entry: Node, result: Node) -> None:
    """Check that nothing behind the result reads anything in front of it."""
    behind = {result.name}
    for node in graph.nodes:
        names = {operand.name for operand in graph.data_inputs(node)}
        if node.name not in body and names & behind:
            behind.add(node.name)
            if not names <= behind:
                early = ", ".join(sorted(names - behind))
                raise LoweringError(
                    f"{node} joins the result of {result} with '{early}' of the input side, which is not supported "
                    f"yet; compute the model's end from its last layer alone"
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
