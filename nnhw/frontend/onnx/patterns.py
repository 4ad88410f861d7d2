"""Functions that exporters write as several nodes: they are replaced by the one operator that they compute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from onnx import AttributeProto, NodeProto, helper

from .parsing import OnnxGraph, array_of, needed_nodes

_NEAR = 1e-6  # relative distance of constants from those of a pattern: they were rounded to float32


def with_functions(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph in which these functions are one node each:

    x * 0.5 * (1 + Erf(x / 2 ** 0.5))    -->  Gelu(x)
    Where(x > t, x, Softplus(x))         -->  Softplus(x), with the threshold t
    """
    finder = _Finder(graph)
    made = dict(finder.found())
    if not made:
        return graph
    nodes = [made.get(node.output[0], node) if node.output else node for node in graph.nodes]
    return replace(graph, nodes=needed_nodes(nodes, graph.output))


class _Finder:
    """Finds the functions of a graph."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._made = {name: node for node in graph.nodes for name in node.output}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in graph.nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._scalars: Mapping[str, np.ndarray] = {**graph.constants, **dict(self._constants())}

    def _constants(self) -> Iterator[tuple[str, np.ndarray]]:
        for node in self._graph.nodes:
            if node.op_type == "Constant" and not node.domain:
                for attribute in node.attribute:
                    if attribute.type == AttributeProto.TENSOR:
                        yield node.output[0], array_of(attribute.t, "Constant")
                    elif attribute.type == AttributeProto.FLOAT:
                        yield node.output[0], np.array(attribute.f, np.float32)

    def found(self) -> Iterator[tuple[str, NodeProto]]:
        """Yield the name of each function's result, with the one node that makes it."""
        for node in self._graph.nodes:
            made = self._gelu(node) if node.op_type == "Erf" else None
            made = self._softplus(node) if node.op_type == "Where" else made
            if made is not None:
                yield made.output[0], made

    def _scalar(self, name: str) -> float | None:
        array = self._scalars.get(name)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def _pair(self, node: NodeProto) -> tuple[str, float] | None:
        """Return the operand and the constant of a node that reads one of each, in any order; None for any other."""
        for operand, other in (tuple(node.input), tuple(reversed(node.input))):
            number = self._scalar(other)
            if number is not None:
                return operand, number
        return None

    def _scaled(self, name: str) -> tuple[str, float]:
        """Return the name of what a value is a multiple of, and the factor: itself and 1 if no constant scales it."""
        node = self._made.get(name)
        pair = (
            self._pair(node) if node is not None and node.op_type in ("Mul", "Div") and len(node.input) == 2 else None
        )
        if node is None or pair is None or (node.op_type == "Div" and pair[0] != node.input[0]) or not pair[1]:
            return name, 1.0
        return pair[0], pair[1] if node.op_type == "Mul" else 1 / pair[1]

    def _next(self, name: str, op: str) -> NodeProto | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and readers[0].op_type == op else None

    def _gelu(self, erf: NodeProto) -> NodeProto | None:
        x, factor = self._scaled(erf.input[0])
        node = self._next(erf.output[0], "Add")
        # x / 2 ** 0.5 may be written as a product or as a quotient, with the constant rounded to float32.
        if node is None or abs(factor * math.sqrt(2) - 1) > _NEAR or self._pair(node) != (erf.output[0], 1.0):
            return None
        # Exporters multiply by 0.5 and x in any order: products are followed until both have been.
        total, count = 1.0, 0
        while count < 1 or abs(total - 0.5) > _NEAR:
            product = self._next(node.output[0], "Mul")
            if product is None:
                return None
            other = product.input[1] if product.input[0] == node.output[0] else product.input[0]
            number = self._scalar(other)
            base, factor = (other, 1.0) if other == x else self._scaled(other)
            if number is None and base != x:
                return None
            total, count = total * (factor if number is None else number), count + (number is None)
            node = product
        # Multiplied by x twice it would be another function.
        return None if count > 1 else helper.make_node("Gelu", [x], [node.output[0]], erf.name)

    def _softplus(self, where: NodeProto) -> NodeProto | None:
        condition, x, other = (self._made.get(where.input[0]), where.input[1], self._made.get(where.input[2]))
        if condition is None or other is None or condition.op_type != "Greater" or other.op_type != "Softplus":
            return None
        threshold = self._scalar(condition.input[1])
        if condition.input[0] != x or other.input[0] != x or threshold is None:
            return None
        return helper.make_node("Softplus", [x], [where.output[0]], other.name, threshold=threshold)
