"""A rewrite: a pattern, its replacement, and the condition under which it applies."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.errors import InputError, IrError, NnhwError
from nnhw.ir import FLOAT, Graph, IntType, Node, Op, Operand, TensorType
from nnhw.ir.graph import infer
from nnhw.ir.ops import Constant

from .pattern import Match, MatchedValue, OpPattern, check_attributes, find, operator, read_pattern


class Rewrite:
    """A change of graphs: every place of a pattern gets a replacement.

    Parameters
    ----------
    before: function of `ir` and a parameter for each value that may be anything; returns the pattern. `ir.NAME(..)`
        is the operator NAME of the IR, with attributes as keywords where they matter: `ir.add(ir.linear(x, w), c)`.
    after: function of `ir` and the match; returns the value that takes the place. `ir.NAME(..)` adds an operator, with
        all of its attributes, `ir.constant(array)` a constant; `match.x` is the value of the parameter `x`.
    where: function of the match; returns whether the rewrite applies there. By default it applies everywhere.
    approximates: results may change; otherwise a rewrite that changes a result is refused.
    optional: the pattern may be nowhere in a model; otherwise that is an error.
    name: for messages; by default the name of `before`.

    Raises
    ------
    InputError: `before` returns no pattern; see `read_pattern`.
    """

    def __init__(
        self,
        before: Callable[..., Any],
        after: Callable[[Building, Match], MatchedValue],
        *,
        where: Callable[[Match], bool] = lambda match: True,
        approximates: bool = False,
        optional: bool = False,
        name: str | None = None,
    ) -> None:
        self.name = name or before.__name__
        self.pattern: OpPattern = read_pattern(before)
        self.after = after
        self.where = where
        self.approximates = approximates
        self.optional = optional
        self._line = _line_of(after)

    def __repr__(self) -> str:
        return f"<Rewrite '{self.name}'{', approximates' if self.approximates else ''}>"

    def matches(self, graph: Graph, passed: frozenset[str] = frozenset()) -> Match | None:
        """Return the first place in a graph at which the pattern stands and the condition holds.

        Parameters
        ----------
        passed: names of values that are skipped, such as those that the rewrite has made itself.
        """
        for node in graph.nodes:
            if node.name in passed:
                continue
            for match in find(graph, self.pattern, node.name):
                # A match that holds anything of `passed` is the rewrite's own work.
                if passed.isdisjoint(match.covered) and self._applies(match):
                    return match
        return None

    def replaced(self, match: Match) -> tuple[Graph, frozenset[str]]:
        """Return the graph with the match replaced, and the names of the values that are new in it.

        Raises
        ------
        InputError: `after` fails, or what it returns cannot take the place.
        """
        building = Building(match)
        result = self._called(lambda: self.after(building, match), match)
        if not isinstance(result, MatchedValue):
            raise InputError(f"{self} must return a value of the graph, given {result!r}")
        wanted, given = match.root.type, building.type_of(result.name)
        # Ranges of integers may differ: types behind the place are found anew.
        if given.shape != wanted.shape or given.is_int != wanted.is_int:
            raise InputError(
                f"{self} cannot replace {match.graph.node(match.root.name)}: it needs a value of type {wanted}, "
                f"given {given}"
            )
        return building.finished(result.name)

    def _applies(self, match: Match) -> bool:
        return bool(self._called(lambda: self.where(match), match))

    def _called(self, function: Callable[[], Any], match: Match) -> Any:
        """Return the result of a function of the user's. Raises: InputError with the place if it fails."""
        place = f"{self} at {match.graph.node(match.root.name)}"
        try:
            return function()
        except NnhwError as error:
            raise InputError(f"{place}: {error}") from error
        except Exception as error:  # the user's own code may fail in any way
            raise InputError(f"{place} fails: {type(error).__name__}: {error}") from error

    def __str__(self) -> str:
        return f"the rewrite '{self.name}'{self._line}"


class Building:
    """The first argument of a replacement: `ir.add(x, y)` adds an addition to the graph, and returns its result.

    An operator takes values, and all of its attributes as keywords. Arrays and numbers become constants: integers
    where they are int64 or bool, else float64.
    """

    def __init__(self, match: Match) -> None:
        self._match = match
        self._nodes: dict[str, Node] = {}
        self._constants: dict[str, np.ndarray] = {}

    def constant(self, array: np.ndarray | float, type: IntType | None = None, name: str = "") -> MatchedValue:
        """Return a constant.

        Parameters
        ----------
        array: numbers; integers and bools stay integers, others become float64.
        type: range of integers, by which sums are bounded; by default from the least number, or 0, to the greatest.
        name: for the new value; it gets a suffix.
        """
        numbers = np.asarray(array)
        if numbers.dtype.kind in "iu":
            numbers = numbers.astype(np.int64)
            dtype: Any = type or IntType(int(numbers.min(initial=0)), int(numbers.max(initial=0)))
        elif numbers.dtype.kind == "b":
            dtype = IntType(0, 1)
        else:
            numbers, dtype = numbers.astype(np.float64), FLOAT
        added = self._unique(name or f"{self._match.root.name}.constant")
        self._constants[added] = numbers
        return self._add(Node(added, Constant(), (), TensorType(numbers.shape, dtype), self._match.root.location))

    def __getattr__(self, name: str) -> Callable[..., MatchedValue]:
        # Python asks for names such as __deepcopy__, which are no operators.
        if name.startswith("_"):
            raise AttributeError(name)
        row = operator(name)

        def add(*inputs: MatchedValue | np.ndarray | float, name: str = "", **attributes: Any) -> MatchedValue:
            check_attributes(row, attributes)
            missing = [
                field.name
                for field in dataclasses.fields(row)
                if field.name not in attributes
                and field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ]
            if missing:
                raise InputError(f"'{row.name}' needs its attribute '{missing[0]}'")
            values = [given if isinstance(given, MatchedValue) else self.constant(given) for given in inputs]
            return self._computed(row(**attributes), values, name)

        return add

    def like(self, value: MatchedValue, *inputs: MatchedValue) -> MatchedValue:
        """Add an operator like that of another value, with the same attributes, for other inputs; return its result."""
        return self._computed(value.op, list(inputs), "")

    def type_of(self, name: str) -> TensorType:
        """Return the type of an old or a new value."""
        return (self._nodes.get(name) or self._match.graph.node(name)).type

    def finished(self, result: str) -> tuple[Graph, frozenset[str]]:
        """Return the graph with `result` in the place of the match, and the names of the new values."""
        graph, place = self._match.graph, self._match.root.name
        if result not in self._nodes:
            nodes = tuple(_renamed(node, place, result) for node in graph.nodes if node.name != place)
            outputs = tuple(result if name == place else name for name in graph.outputs)
            return dataclasses.replace(graph, nodes=tuple(nodes), outputs=outputs).pruned(), frozenset()
        needed = list(self._nodes.values())
        while needed[-1].name != result:
            needed.pop()  # it was added after the result, so the result does not depend on it
        if result not in self._constants:  # a computed result keeps the replaced value's name, by which users find it
            needed[-1] = dataclasses.replace(needed[-1], name=place)
        return graph.replace(place, needed, self._constants), frozenset(node.name for node in needed)

    def _computed(self, op: Op, inputs: list[MatchedValue], name: str) -> MatchedValue:
        root = self._match.graph.node(self._match.root.name)
        names = tuple(value.name for value in inputs)
        if not names:
            raise IrError(f"'{op.name}' needs inputs, given none")
        node = Node(self._unique(name or root.name), op, names, self.type_of(names[0]), root.location)
        constants = {**self._match.graph.constants, **self._constants}
        operands = [Operand(self.type_of(given), constants.get(given)) for given in names]
        return self._add(dataclasses.replace(node, type=infer(node, operands)))

    def _add(self, node: Node) -> MatchedValue:
        self._nodes[node.name] = node
        # Old and new nodes together, so that a new value knows its operator and type; no output is needed for that.
        built = Graph(self._match.graph.name, (*self._match.graph.nodes, *self._nodes.values()), (), self._constants)
        return MatchedValue(node.name, built)

    def _unique(self, name: str) -> str:
        tried, number = f"{name}.rewritten", 1
        while tried in self._nodes or tried in self._match.graph:
            number += 1
            tried = f"{name}.rewritten_{number}"
        return tried


def _renamed(node: Node, old: str, new: str) -> Node:
    if old not in node.inputs:
        return node
    return dataclasses.replace(node, inputs=tuple(new if name == old else name for name in node.inputs))


def _line_of(function: Callable[..., Any]) -> str:
    """Return the file and the line of a function for messages; empty if they are not known."""
    try:
        return f" ({Path(inspect.getfile(function)).name}:{inspect.getsourcelines(function)[1]})"
    except (OSError, TypeError):
        return ""
