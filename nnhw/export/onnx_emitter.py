"""The interface through which operators write their ONNX nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from nnhw.ir import Graph, Node, TensorType


class Emitter(ABC):
    """Collects ONNX nodes. The result of a node of the graph has the node's name.

    Members
    -------
    made_types: types of values that are no node of the graph, such as sequences without their axis of steps.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made_types: dict[str, TensorType] = {}

    @abstractmethod
    def emit(self, operator: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Add one ONNX node; return the name of its result."""

    @abstractmethod
    def constant(self, values: object, dtype: type[np.generic] = np.int64) -> str:
        """Add a constant tensor; return its name."""

    @abstractmethod
    def cast(self, value: str, dtype: type[np.generic]) -> str:
        """Add a conversion; return the name of its result."""

    @abstractmethod
    def finish(self, node: Node, value: str) -> None:
        """Name the result of a node of the graph like the node."""

    def type(self, name: str) -> TensorType:
        """Return the type of a value."""
        return self.made_types.get(name) or self.graph.node(name).type

    def array(self, node: Node, position: int) -> np.ndarray:
        """Return the constant that a node reads as its input number `position`."""
        return self.graph.constants[node.inputs[position]]


Row = Callable[[Emitter, Node], None]
"""A function that writes one node of a graph."""
