"""Patterns: operators written as calls in a Python function, and the search for them in a graph."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from nnhw.errors import InputError
from nnhw.ir import Graph, Location, Op, TensorType
from nnhw.ir.ops import OPS

COMMUTATIVE = frozenset({"add", "mul", "minimum", "maximum"})
"""Operators whose two inputs a pattern finds in either order."""
LABEL = "label"
"""The keyword of a call in a pattern that names the value; no operator has an attribute of that name."""


@dataclass(frozen=True, eq=False)
class Wildcard:
    """A parameter of a pattern: it matches any value, the same one wherever it stands."""

    name: str


@dataclass(frozen=True, eq=False)
class OpPattern:
    """An operator in a pattern.

    Parameters
    ----------
    op: its name.
    inputs: the patterns of its inputs.
    attributes: values of those that matter; the others may have any value.
    label: the name of the value in the match; None for no name.
    """

    op: str
    inputs: tuple[Wildcard | OpPattern, ...]
    attributes: Mapping[str, Any]
    label: str | None


class PatternOperators:
    """The first argument of a pattern: `ir.add(x, y)` matches an addition with any attributes."""

    def __getattr__(self, name: str) -> Callable[..., OpPattern]:
        row = operator(name)

        def call(*inputs: Wildcard | OpPattern, label: str | None = None, **attributes: Any) -> OpPattern:
            check_attributes(row, attributes)
            for position, given in enumerate(inputs):
                if not isinstance(given, Wildcard | OpPattern):
                    raise InputError(
                        f"input {position} of '{name}' in a pattern must be a parameter of the pattern or an operator, "
                        f"given {given!r}; compare numbers in the condition `where`"
                    )
            if row.arity not in (-1, len(inputs)):
                raise InputError(f"'{name}' has {row.arity} inputs, the pattern gives it {len(inputs)}")
            return OpPattern(name, inputs, attributes, label)

        return call


@dataclass(frozen=True)
class MatchedValue:
    """A value of the graph, as the user's functions of a rewrite see it."""

    name: str
    graph: Graph

    @property
    def op(self) -> Op:
        """The operator that computes it, with its attributes."""
        return self.graph.node(self.name).op

    @property
    def type(self) -> TensorType:
        """Its shape and dtype: the range of its integers, or float64."""
        return self.graph.node(self.name).type

    @property
    def location(self) -> Location:
        """The module and the line of the user's model that it is from."""
        return self.graph.node(self.name).location

    @property
    def constant(self) -> np.ndarray | None:
        """Its array if it is a constant; None otherwise."""
        return self.graph.constants.get(self.name)


class Match(Mapping[str, MatchedValue]):
    """A place where a pattern stands: `match.x`, or `match["x"]`, is the value of its parameter or label `x`.

    Parameters
    ----------
    graph: the graph that was searched.
    root: name of the value that the pattern's result stands for.
    names: names of values, by parameter and label.
    inner: names of the values that the pattern's operators compute; the member `covered`.
    """

    def __init__(self, graph: Graph, root: str, names: Mapping[str, str], inner: frozenset[str]) -> None:
        self.graph = graph
        self.root = MatchedValue(root, graph)
        self.covered = inner
        self._names = dict(names)

    def __getitem__(self, name: str) -> MatchedValue:
        if name not in self._names:
            raise KeyError(name)
        return MatchedValue(self._names[name], self.graph)

    def __getattr__(self, name: str) -> MatchedValue:
        # Names with '_' are Python's own: before `_names` is set, as in copies, asking for it would come here again.
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"the pattern has no parameter or label '{name}'; it has {', '.join(self._names)}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_OF_A_MATCH = ("graph", "root", "covered")


def operator(name: str) -> type[Op]:
    """Return the IR's operator with a name. Raises: InputError if there is none."""
    if name not in OPS:
        near = difflib.get_close_matches(name, OPS, n=1)
        meant = f"; did you mean '{near[0]}'?" if near else "."
        raise InputError(f"the IR has no operator '{name}'{meant} Its operators are {', '.join(OPS)}")
    return OPS[name]


def check_attributes(row: type[Op], attributes: Mapping[str, Any]) -> None:
    """Check the names of attributes. Raises: InputError for one that the operator does not have."""
    known = [field.name for field in fields(row)]
    wrong = next((name for name in attributes if name not in known), None)
    if wrong is not None:
        raise InputError(f"'{row.name}' has no attribute '{wrong}'; it has {', '.join(known) or 'none'}")


def read_pattern(function: Callable[..., Any]) -> OpPattern:
    """Return the pattern that a function returns, called with `ir` and a wildcard for each further parameter.

    Raises
    ------
    InputError: the function returns no operator, does not use a parameter, names a value like a member of matches, or
        uses an operator that does not exist.
    """
    _, *parameters = inspect.signature(function).parameters
    result = function(PatternOperators(), *map(Wildcard, parameters))
    if not isinstance(result, OpPattern):
        raise InputError(
            f"the pattern '{function.__name__}' must return an operator, such as `ir.add(x, y)`, given {result!r}: "
            "a pattern of a value alone would be found everywhere"
        )
    names = [*parameters, *(part.label for part in _parts(result) if isinstance(part, OpPattern) and part.label)]
    taken = next((name for name in names if hasattr(Match, name) or name in _OF_A_MATCH), None)
    if taken is not None:
        raise InputError(
            f"the pattern '{function.__name__}' cannot call a value '{taken}': a match has something else of that name"
        )
    unused = set(parameters) - {part.name for part in _parts(result) if isinstance(part, Wildcard)}
    if unused:
        raise InputError(f"the pattern '{function.__name__}' does not use its parameter '{min(unused)}'; leave it out")
    return result


def _parts(pattern: Wildcard | OpPattern) -> Iterator[Wildcard | OpPattern]:
    yield pattern
    if isinstance(pattern, OpPattern):
        for part in pattern.inputs:
            yield from _parts(part)


def find(graph: Graph, pattern: OpPattern, root: str) -> Iterator[Match]:
    """Yield every way in which a pattern's result can be the value `root`."""
    for names, inner in _matches(graph, pattern, root, {}, frozenset()):
        yield Match(graph, root, names, inner)


Found = tuple[dict[str, str], frozenset[str]]


def _matches(
    graph: Graph, pattern: Wildcard | OpPattern, name: str, names: dict[str, str], inner: frozenset[str]
) -> Iterator[Found]:
    """Yield the names of values, and the inner values, with which `pattern` stands at the value `name`."""
    if isinstance(pattern, Wildcard):
        # A parameter that occurs twice must be the same value both times.
        if names.get(pattern.name, name) == name:
            yield {**names, pattern.name: name}, inner
        return
    node = graph.node(name)
    if node.op.name != pattern.op or len(node.inputs) != len(pattern.inputs):
        return
    if any(getattr(node.op, key) != value for key, value in pattern.attributes.items()):
        return
    if pattern.label is not None:
        if names.get(pattern.label, name) != name:
            return
        names = {**names, pattern.label: name}
    orders = [node.inputs]
    # Equal inputs have one order: the other would be the same match again.
    if pattern.op in COMMUTATIVE and node.inputs != node.inputs[::-1]:
        orders.append(node.inputs[::-1])
    # Both orders may match in different ways; the condition `where` decides which of them counts.
    for order in orders:
        yield from _inputs(graph, pattern.inputs, order, names, inner | {name})


def _inputs(
    graph: Graph,
    patterns: tuple[Wildcard | OpPattern, ...],
    order: tuple[str, ...],
    names: dict[str, str],
    inner: frozenset[str],
) -> Iterator[Found]:
    if not patterns:
        yield names, inner
        return
    for found, deeper in _matches(graph, patterns[0], order[0], names, inner):
        yield from _inputs(graph, patterns[1:], order[1:], found, deeper)
