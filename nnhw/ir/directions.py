"""Loops in both directions for hardware that has one: the graph of a frame, and the rounds in which frames are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.errors import IrError

from .graph import Graph, GraphBuilder, Node
from .ops import Concat, Constant, Input, LastStep, ReverseSteps, Scan, Slice
from .positions import steps_as_positions
from .rounds import Rounds, SentPart
from .steps import OneStep, one_step
from .types import IntType, TensorType
from .verify import verify


@dataclass(frozen=True)
class OneDirection:
    """A graph that reads its sequence from the first frame to the last.

    Parameters
    ----------
    graph: it has no `reverse_steps`.
    rounds: how its frames come from the model's input, and its results from the frames' results; None: they are these.
    """

    graph: Graph
    rounds: Rounds | None = None

    def sent(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return all frames that are sent for sequences, those of the first round first, [steps, *shape] each."""
        if self.rounds is None:
            return list(sequences)
        step, found, kept = one_step(self.graph), list[np.ndarray](), list[np.ndarray]()
        for number in range(self.rounds.count):
            frames = self.rounds.frames(sequences, kept, number)
            kept = [step.run(one[None])[0] for one in frames]
            found += frames
        return found


def one_direction(graph: Graph) -> OneDirection:
    """Return an integer graph of one sequence for hardware that reads sequences in one direction.

    A loop that reads the reversed input gets it as a second part of the frame, and both loops run side by side. A value
    that is needed in the other direction than that in which a loop makes it is a result of the frame, and a part of it
    in the next round. All parts that are known are sent in each round, so whatever was there before is there again.

    Raises
    ------
    IrError: shapes or types cannot be parts of one frame; or the initial state of a loop is computed.
    """
    if not any(isinstance(node.op, ReverseSteps) for node in graph.nodes):
        return OneDirection(graph)
    # If the result is a sequence, the hardware may also make it from its last step to its first, and the host turn it
    # round; that can save a round, as the loop that is read last then needs no reversal.
    result = graph.output_nodes[0]
    tried = [_Director(graph, result.name, flip) for flip in ((False, True) if result.type.is_sequence else (False,))]
    return min(tried, key=lambda one: (one.count, len(one.parts))).finish()


def device_step(graph: Graph) -> OneStep:
    """Return what hardware computes in one frame of an integer graph with loops.

    A frame is one step of a sequence: see `one_direction`, `one_step`. Where loops get their steps from a whole value,
    it is that value: see `steps_as_positions`.
    """
    if not graph.inputs[0].type.is_sequence:
        return steps_as_positions(graph)
    directed = one_direction(graph)
    return replace(one_step(directed.graph), rounds=directed.rounds)


_Key = tuple[str, bool]
"""Name of a value of the given graph, and whether its steps come from the last one to the first."""


class _Director:
    """Makes the graph of a frame, at first with an input for each part.

    Parameters
    ----------
    result: name of the value that is the result. reverses: its steps may come from the last one to the first.
    """

    def __init__(self, graph: Graph, result: str, reverses: bool) -> None:
        self.graph, self.result, self.reverses = graph, graph.node(result), reverses
        self.builder = GraphBuilder(graph.name)
        self.parts: dict[_Key, str] = {}
        self.made: dict[_Key, str] = {}
        self.ready: dict[str, int] = {}
        """The first round in which a value of the new graph is what it should be."""
        self.made_result = self.value(result, reverses)

    @property
    def count(self) -> int:
        """Number of rounds."""
        return self.ready[self.made_result] + 1

    def value(self, name: str, flip: bool) -> str:
        """Return the name of a value, or of its reversal, in the new graph."""
        key = name, flip
        if key not in self.made:
            self.made[key] = self._make(self.graph.node(name), flip)
        return self.made[key]

    def _make(self, node: Node, flip: bool) -> str:
        if isinstance(node.op, Constant):
            added = self.builder.constant(node.name, self.graph.constants[node.name], node.type, node.location)
            self.ready[added] = 0
            return added
        if isinstance(node.op, ReverseSteps):
            return self.value(node.inputs[0], not flip)
        if isinstance(node.op, LastStep):
            # What counts of the new graph is the last frame.
            return self.value(node.inputs[0], False)
        if isinstance(node.op, Input):
            return self._part(node, flip, 0)
        # What a loop has made comes from its first step to its last; the other way round only the host can bring it.
        if isinstance(node.op, Scan) and flip:
            return self._part(node, flip, self.ready[self.value(node.name, False)] + 1)
        if isinstance(node.op, Scan):
            self._check_starts(node, node.op)
        inputs = [self.value(operand, flip) for operand in node.inputs]
        added = self.builder.add(node.name, node.op, inputs, node.location)
        self.ready[added] = max(self.ready[operand] for operand in inputs)
        return added

    def _part(self, node: Node, flip: bool, ready: int) -> str:
        added = self.builder.input(f"{node.name}.backwards" if flip else node.name, node.type.sequence, node.location)
        self.parts[node.name, flip], self.ready[added] = added, ready
        return added

    def _check_starts(self, node: Node, scan: Scan) -> None:
        for start in node.inputs[len(node.inputs) - len(scan.states) :]:
            if start not in self.graph.constants:
                raise IrError(f"{node} has a state that begins as the value '{start}' that is computed")

    def finish(self) -> OneDirection:
        """Return the graph with the parts of a frame as one input, and with all results as one."""
        kept = list(dict.fromkeys(name for name, _ in self.parts if not isinstance(self.graph.node(name).op, Input)))
        outputs = [self.made_result, *(self.made[name, False] for name in kept)]
        separate = self.builder.build(outputs)
        last_step = not self.result.type.is_sequence
        if list(self.parts) == [(self.graph.inputs[0].name, False)]:
            builder = GraphBuilder(self.graph.name)
            builder.copy(separate.nodes, separate)
            ends = [builder.add("last", LastStep(), outputs)] if last_step else outputs
            return OneDirection(verify(builder.build(ends)))
        element = _joined_type([separate.node(name).type for name in self.parts.values()], "parts of a frame")
        _joined_type([separate.node(name).type for name in outputs], "results of a frame")
        starts = np.cumsum([0, *(separate.node(name).type.shape[0] for name in outputs)]).tolist()
        # The model's own result comes first, so what is kept of a frame's result begins behind it.
        sources = dict(zip(kept, starts[1:], strict=False))
        parts = [
            SentPart(separate.node(name).type.shape[0], sources.get(key[0], -1), key[1], self.ready[name])
            for key, name in self.parts.items()
        ]
        given = self.graph.inputs[0].type
        # Any code will do, as the results of these rounds do not count; 0 is no code of a bipolar type.
        filler = 1 if element.bipolar else min(max(0, element.low), element.high)
        rounds = Rounds(
            *(self.count, given.shape, given.int_dtype, tuple(parts), filler, starts[1]), self.reverses, last_step
        )
        return OneDirection(_joined(separate, list(self.parts.values()), element, outputs), rounds)


def _joined(separate: Graph, parts: Sequence[str], element: IntType, outputs: Sequence[str]) -> Graph:
    """Return the graph whose inputs are parts of one, and whose outputs are one."""
    builder = GraphBuilder(separate.name)
    types = [separate.node(name).type for name in parts]
    sizes = np.cumsum([0, *(kind.shape[0] for kind in types)]).tolist()
    whole = TensorType((sizes[-1], *types[0].shape[1:]), element, is_sequence=True)
    given = builder.input(builder.unique("frame"), whole)
    names = {
        name: builder.add(name, Slice(0, first, end), [given])
        for name, first, end in zip(parts, sizes, sizes[1:], strict=False)
    }
    for node in separate.nodes:
        if node.name in separate.constants:
            names[node.name] = builder.constant(node.name, separate.constants[node.name], node.type, node.location)
        elif node.name not in names:
            inputs = [names[operand] for operand in node.inputs]
            op = node.op
            if isinstance(op, Scan):
                op = Scan(_widened(op.body, [builder.type_of(name).step for name in inputs], len(op.states)))
            names[node.name] = builder.add(node.name, op, inputs, node.location)
    results = [names[name] for name in outputs]
    ends = results if len(results) == 1 else [builder.add("results", Concat(0), results)]
    return verify(builder.build(ends))


def _widened(body: Graph, types: Sequence[TensorType], states: int) -> Graph:
    """Return a loop's body whose steps have other types; codes of the parts of a frame may share a wider one."""
    steps = body.inputs[: len(body.inputs) - states]
    if all(node.type == kind for node, kind in zip(steps, types, strict=False)):
        return body
    builder = GraphBuilder(body.name)
    wider: Mapping[str, TensorType] = dict(zip([node.name for node in steps], types, strict=False))
    for node in body.nodes:
        if isinstance(node.op, Input):
            builder.input(node.name, wider.get(node.name, node.type), node.location)
        elif node.name in body.constants:
            builder.constant(node.name, body.constants[node.name], node.type, node.location)
        else:
            builder.add(node.name, node.op, node.inputs, node.location)
    return builder.build(body.outputs)


def _joined_type(types: Sequence[TensorType], what: str) -> IntType:
    """Return the type of the elements of values side by side. Raises: IrError if they cannot be."""
    shapes = {kind.shape[1:] for kind in types if kind.shape}
    elements = [kind.int_dtype for kind in types]
    if len(shapes) != 1 or any(not kind.shape for kind in types) or len({one.bipolar for one in elements}) > 1:
        given = ", ".join(map(str, types))
        raise IrError(
            f"the {what} of a model that reads sequences in both directions need maps of one size, all of signs or "
            f"none, got {given}"
        )
    low, high = min(one.low for one in elements), max(one.high for one in elements)
    return IntType(low, high, elements[0].bipolar)
