"""One step of a graph of sequences, as an ordinary graph: states are inputs, and the next states are outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.errors import IrError

from .graph import NOWHERE, Graph, Node, inner_name
from .ops import AsSteps, Input, LastStep, ReverseSteps, Scan
from .rounds import Rounds
from .verify import verify


@dataclass(frozen=True)
class State:
    """A value that is kept from one step to the next.

    Parameters
    ----------
    given: name of the graph's input that receives it.
    made: name of the node that computes it for the next step.
    start: its value in the first step, int64 or float64 of its shape.
    """

    given: str
    made: str
    start: np.ndarray


@dataclass(frozen=True)
class OneStep:
    """One step of a graph of sequences, or all of its steps side by side.

    Parameters
    ----------
    graph: a graph without sequences. Its inputs are one step of the whole graph's inputs, then the states. Its outputs
        are the results as if this step were the last one, then the next states.
    states: the states in the order of these inputs and outputs.
    whole: the graph of sequences.
    rounds: how the host sends sequences; None: as they are, see `nnhw.ir.directions`.
    positions: 0, or the number of steps that the graph computes at once: see `nnhw.ir.positions`.
    """

    graph: Graph
    states: tuple[State, ...]
    whole: Graph
    rounds: Rounds | None = None
    positions: int = 0

    def without_unread(self) -> OneStep:
        """Return the step without the states that no result of any step depends on."""
        results = self.graph.outputs[: len(self.graph.outputs) - len(self.states)]
        # Grown from nothing, as states may depend on each other in a ring that no result reads.
        kept: tuple[State, ...] = ()
        while True:
            # What results and kept states are computed from; a state among it is kept, too.
            graph = replace(self.graph, outputs=(*results, *(state.made for state in kept))).pruned()
            read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
            found = tuple(state for state in self.states if state.given in read)
            if found == kept:
                break
            kept = found
        gone = {state.given for state in self.states} - {state.given for state in kept}
        nodes = tuple(node for node in graph.nodes if node.name not in gone)
        return replace(self, graph=replace(graph, nodes=nodes), states=kept)

    def run(self, steps: np.ndarray) -> np.ndarray:
        """Run sequences [N, steps, *shape] from the start; return the first output of every step, [N, steps, ..]."""
        values = self.values(list(steps))
        return values[self.graph.outputs[0]].reshape(*steps.shape[:2], *self.graph.output_nodes[0].type.shape)

    def values(self, sequences: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return all values of the graph in every step, by name: [steps of all sequences, *shape].

        The rows of the first sequence come first, then those of the next one.

        Parameters
        ----------
        sequences: inputs, [steps, *shape] each; they may have different numbers of steps.
        """
        from .interpreter import run

        # All sequences run side by side as one batch, step by step; rows are put where they belong by these offsets.
        firsts = np.cumsum([0, *map(len, sequences)])
        found: dict[str, np.ndarray] = {}
        states = [np.broadcast_to(state.start, (len(sequences), *state.start.shape)) for state in self.states]
        running = list(range(len(sequences)))
        for step in range(max(map(len, sequences))):
            # Sequences that have ended leave the batch, and their states with them.
            kept = [place for place, index in enumerate(running) if len(sequences[index]) > step]
            running = [running[place] for place in kept]
            states = [state[kept] for state in states]
            seen: dict[str, np.ndarray] = {}
            inputs = np.stack([sequences[index][step] for index in running])
            results = run(self.graph, [inputs, *states], observe=seen.__setitem__)
            states = list(results[len(results) - len(self.states) :])
            for name, value in seen.items():
                whole = found.setdefault(name, np.zeros((firsts[-1], *value.shape[1:]), value.dtype))
                whole[firsts[running] + step] = value
        return found

    def values_of_images(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Return all values of a graph of whole images by name, [N, *shape] as `graph` has them; see `run`.

        Parameters
        ----------
        images: the input, [N, *shape].
        """
        from .interpreter import run

        found: dict[str, np.ndarray] = {}
        run(self.whole, images, observe=found.__setitem__)
        if not self.positions:
            return found
        # What the whole graph has as [N, steps, elements], this one has as maps [N, elements, steps, 1].
        for node in self.graph.nodes:
            array = found.get(node.name)
            if array is not None and array.shape[1:] != node.type.shape:
                found[node.name] = np.moveaxis(array, 1, -1).reshape(-1, *node.type.shape)
        return found


class StepRunner:
    """Runs single steps and keeps the states in between, as a device does.

    Parameters
    ----------
    step: one step of a graph with one result.
    turns: number of sequences that are interleaved: each gives one step in turn.
    """

    def __init__(self, step: OneStep, turns: int = 1) -> None:
        self._step = step
        self._states = [self._starts() for _ in range(turns)]

    def _starts(self) -> list[np.ndarray]:
        return [np.array(state.start)[None] for state in self._step.states]

    def __call__(self, codes: np.ndarray, begins: np.ndarray) -> np.ndarray:
        """Return the results, int64 [N, *shape], of N steps in the order in which they come.

        Parameters
        ----------
        codes: the inputs of the steps, [N, *shape].
        begins: bool [N], whether a step is the first one of its sequence, which resets its states.
        """
        from .interpreter import run

        results = []
        for codes_of_step, first in zip(codes, begins, strict=True):
            # A queue: with T interleaved sequences, the next step of this one comes after T - 1 others.
            given = self._states.pop(0)
            result, *made = run(self._step.graph, [codes_of_step[None], *(self._starts() if first else given)])
            self._states.append(made)
            results.append(result)
        return np.concatenate(results)


def one_step(graph: Graph) -> OneStep:
    """Return one step of a graph: its loops are replaced by their bodies, whose states become inputs and outputs.

    Nodes of bodies get their outside names (`inner_name`). A graph without sequences stays as it is.

    Raises
    ------
    IrError: the graph reverses a sequence, or makes one of a whole value, which needs all of its steps; or the initial
        state of a loop is computed.
    """
    unroller = Unroller(graph)
    for node in graph.nodes:
        unroller.add(node)
    return unroller.finish()


class Unroller:
    """Makes the graph of one step.

    Members
    -------
    names: by names of the given graph, the names of the new one, where they differ.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.names: dict[str, str] = {}
        self.states: list[State] = []

    def add(self, node: Node) -> None:
        """Add one node of the graph of sequences, as what it does in one step."""
        if isinstance(node.op, Scan):
            self._in_line(node, node.op)
        elif isinstance(node.op, LastStep):
            # As if this step were the last one.
            self.names[node.name] = self._name(node.inputs[0])
        elif isinstance(node.op, AsSteps):
            raise IrError(
                f"{node} turns a whole value into steps, so all of it is needed before the first step; give the loop's "
                f"steps one by one, as the input of a separate model"
            )
        elif isinstance(node.op, ReverseSteps):
            raise IrError(
                f"{node} reads a sequence from its end, so all of it must be there in front of the first step; run "
                f"a model with both directions on whole sequences"
            )
        else:
            self._copy(node, node.name, self.graph)

    def finish(self, positions: int = 0) -> OneStep:
        """Return the graph of one step, or of so many."""
        outputs = [*map(self._name, self.graph.outputs), *(state.made for state in self.states)]
        # Users count on this order of inputs, and nodes stand in the order in which loops were met.
        order = [node.name for node in self.graph.inputs] + [state.given for state in self.states]
        given = sorted((node for node in self.nodes if isinstance(node.op, Input)), key=lambda n: order.index(n.name))
        rest = [node for node in self.nodes if not isinstance(node.op, Input)]
        made = Graph(self.graph.name, (*given, *rest), tuple(outputs), self.constants).pruned()
        return OneStep(verify(made), tuple(self.states), self.graph, positions=positions)

    def _name(self, name: str) -> str:
        return self.names.get(name, name)

    def _copy(self, node: Node, name: str, graph: Graph) -> None:
        inputs = tuple(self._name(operand) for operand in node.inputs)
        self.nodes.append(replace(node, name=name, inputs=inputs, type=node.type.step))
        if node.name in graph.constants:
            self.constants[name] = graph.constants[node.name]

    def _in_line(self, loop: Node, scan: Scan) -> None:
        """Add the body of a loop in the place of the loop."""
        # Inside of the body, names are the body's own; the sequences that it reads are the loop's operands.
        outer = dict(self.names)
        names = {node.name: inner_name(loop.name, node.name) for node in scan.body.nodes}
        steps = len(scan.body.inputs) - len(scan.states)
        for node, operand in zip(scan.body.inputs[:steps], loop.inputs, strict=False):
            names[node.name] = outer.get(operand, operand)
        self.names = names
        step_inputs = {node.name for node in scan.body.inputs[:steps]}
        for node in scan.body.nodes:
            if node.name not in step_inputs:
                placed = node if node.location != NOWHERE else replace(node, location=loop.location)
                self._copy(placed, names[node.name], scan.body)
        self.names = {**outer, loop.name: names[scan.body.outputs[0]]}
        pairs = zip(scan.states, scan.body.outputs[1:], loop.inputs[steps:], strict=True)
        for node, made, start in pairs:
            if start not in self.graph.constants:
                raise IrError(
                    f"{loop} has the state '{node.name}', which begins as the value '{start}' that is computed; one "
                    f"step alone needs a constant"
                )
            array = np.broadcast_to(self.graph.constants[start], node.type.shape)
            self.states.append(State(names[node.name], names[made], array))
