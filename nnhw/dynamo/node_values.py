"""The kind of each value of a graph: a constant, a size, or computed by PyTorch or possibly by an accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor, fx

from nnhw.frontend.layout import HANDLERS as LAYOUT
from nnhw.frontend.slices import HANDLERS as SLICES

from .operators import LINEAR, QUANTIZE, VALUE, Operators, operation_of, operators_of

_CODES = frozenset(LAYOUT) | frozenset(SLICES) | {"aten.max_pool2d.default", "aten.max_pool1d.default", QUANTIZE}
"""Operators that make codes from codes."""
_REQUANTIZING = frozenset({QUANTIZE, "nnhw.rescale.default", "nnhw.lookup.default"})
_EXACT = (torch.float32, torch.float64)
UNQUANTIZED = "nothing quantizes its inputs"


class Dependence(Enum):
    """The kind of a value.

    CONSTANT: depends on parameters and buffers alone. SIZE: a size of a tensor. HOST: PyTorch has to compute it. PART:
    an accelerator can compute it from one value of the kind HOST, its source.
    """

    CONSTANT = auto()
    SIZE = auto()
    HOST = auto()
    PART = auto()


@dataclass(frozen=True)
class NodeValue:
    """The kind of a node's value, and what is known of it.

    Parameters
    ----------
    source: of the kind PART: the node of the kind HOST that it is computed from.
    codes: whether it is integer codes times a scale.
    raw: whether it is behind a layer with weights, without a quantizer in between.
    quantized: of the kind CONSTANT: whether a quantizer has made it.
    why: of the kind HOST: why PyTorch has to compute it.
    """

    kind: Dependence
    source: fx.Node | None = None
    codes: bool = False
    raw: bool = False
    quantized: bool = False
    why: str = ""


class TracedGraph:
    """A graph, and the operators of its nodes, which are found when they are asked for; nodes may be added.

    Parameters
    ----------
    constants: the tensors of parameters and buffers, by their placeholders or attributes.
    """

    def __init__(self, graph: fx.Graph, constants: Mapping[fx.Node, Tensor]) -> None:
        self.graph = graph
        self.constants = dict(constants)
        self._operators: dict[fx.Node, Operators] = {}

    def operators(self, node: fx.Node) -> Operators:
        """Return the operators of a node."""
        if node not in self._operators:
            self._operators[node] = operators_of(node)
        return self._operators[node]

    def changes(self) -> Iterator[tuple[fx.Node, fx.Node]]:
        """Yield the nodes that change a tensor in place, each with that tensor, in order."""
        for node in self.graph.nodes:
            yield from ((node, changed) for changed in self.operators(node).changed)

    def training(self) -> fx.Node | None:
        """Return the first node that computes as in training, or else that changes a buffer; None if there is none."""
        training = [node for node in self.graph.nodes if self.operators(node).training]
        return next(iter([*training, *(node for node, tensor in self.changes() if tensor in self.constants)]), None)

    def values(self, refused: Mapping[fx.Node, str]) -> dict[fx.Node, NodeValue]:
        """Return the kind of each node's value.

        Parameters
        ----------
        refused: nodes that PyTorch has to compute, with the reason.
        """
        found: dict[fx.Node, NodeValue] = {}
        changed = {tensor for _, tensor in self.changes()}
        for node in self.graph.nodes:
            if node in refused:
                found[node] = NodeValue(Dependence.HOST, why=refused[node])
            elif node in self.constants:
                # A parameter or buffer that is changed in place is no constant.
                found[node] = NodeValue(Dependence.HOST if node in changed else Dependence.CONSTANT)
            elif node.op != "output":
                found[node] = self._value(node, found)
        return found

    def _value(self, node: fx.Node, found: Mapping[fx.Node, NodeValue]) -> NodeValue:
        """Return the kind of a node's value, given those of its inputs."""
        made, inputs = self.operators(node), [found[one] for one in node.all_input_nodes]
        if isinstance(node.meta.get(VALUE), torch.SymInt | int):
            return NodeValue(Dependence.SIZE)
        if node.op in ("placeholder", "get_attr", "call_module"):
            return NodeValue(Dependence.HOST)
        # Before constants are recognized: a random constant has to be drawn at each call.
        if made.failed or made.random:
            why = ", which gives random numbers" if made.random else ""
            return NodeValue(Dependence.HOST, why=f"the accelerator has no '{operation_of(node)}'{why}")
        if inputs and all(value.kind is Dependence.CONSTANT for value in inputs) and not made.changed:
            return NodeValue(
                Dependence.CONSTANT, quantized=QUANTIZE in made.names or any(value.quantized for value in inputs)
            )
        data = [one for one in node.all_input_nodes if found[one].kind in (Dependence.HOST, Dependence.PART)]
        if not data:
            return NodeValue(Dependence.HOST, why="does not depend on the input")
        return self._computed(node, data, found)

    def _computed(self, node: fx.Node, data: Sequence[fx.Node], found: Mapping[fx.Node, NodeValue]) -> NodeValue:
        """Return the kind of the value of a node that depends on the model's input; `data`: its inputs that do."""
        made, name = self.operators(node), operation_of(node)
        if made.unknown:
            return NodeValue(Dependence.HOST, why=f"the accelerator has no '{name}'")
        floats = [one for one in data if found[one].kind is Dependence.HOST]
        if len(floats) == len(data) and QUANTIZE not in made.names:
            return NodeValue(Dependence.HOST, why=UNQUANTIZED)
        if problem := _rounds(node, *data):
            return NodeValue(Dependence.HOST, why=problem)
        if QUANTIZE in made.names:
            if len(data) > 1:
                return NodeValue(Dependence.HOST, why="its scale depends on the input")
            # A quantizer of a host's value begins a region; one of a part's value stays in it.
            source = data[0] if found[data[0]].kind is Dependence.HOST else found[data[0]].source
            return NodeValue(Dependence.PART, source, codes=True)
        if floats:
            return NodeValue(
                Dependence.HOST, why=f"reads '{floats[0].name}', which PyTorch computes and nothing quantizes"
            )
        if len({found[one].source for one in data}) > 1:
            names = " and ".join(f"'{one.name}'" for one in data[:2])
            return NodeValue(
                Dependence.HOST, why=f"joins {names}, which are computed from different values; a part has one"
            )
        if LINEAR & set(made.names):
            return self._product(node, data, found)
        given = [found[one] for one in data]
        codes = all(value.codes for value in given) and set(made.names) <= _CODES
        raw = any(value.raw for value in given) and not _REQUANTIZING & set(made.names)
        return NodeValue(Dependence.PART, given[0].source, codes, raw)

    def _product(self, node: fx.Node, data: Sequence[fx.Node], found: Mapping[fx.Node, NodeValue]) -> NodeValue:
        """Return the kind of the result of a layer with weights; `data`: its inputs that depend on the input."""
        if len(data) > 1:
            return NodeValue(Dependence.HOST, why="multiplies two values that both depend on the input")
        if not any(found[one].quantized for one in node.all_input_nodes):
            return NodeValue(Dependence.HOST, why="its weights are not quantized")
        if found[data[0]].raw:
            return NodeValue(Dependence.HOST, why=f"reads '{data[0].name}', which is not quantized")
        return NodeValue(Dependence.PART, found[data[0]].source, raw=True)


def _rounds(*nodes: fx.Node) -> str:
    """Return why a part cannot compute the values of nodes exactly; empty if all are float32 or float64."""
    for node in nodes:
        value = node.meta.get(VALUE)
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype not in _EXACT:
            kind = f"it computes in {str(value.dtype).removeprefix('torch.')}, in which every step rounds"
            return f"{kind}; only float32 and float64 are exact: use model.float()"
    return ""
