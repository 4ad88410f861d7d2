"""Reading a graph from the expression of its text; every node is checked, with errors that show its place."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from nnhw.errors import IrError, NnhwError, ProblemList, raise_all

from .attributes import fields_of, fits, is_needed, kind_of, signature, takes
from .expressions import Expression, Form, Symbol, Text, TextError, show
from .graph import NOWHERE, Graph, Node, infer, inner_name
from .ops import OPS, Constant, Input, Op, Operand
from .text_forms import NODE, FormReader, keyword, short, shown
from .types import BIT, FLOAT, FloatType, TensorType
from .verify import ELEMENTS_MAX, array_problem, is_too_large

VERSION = 1
"""Version of the text form."""
_GRAPH = f"a graph looks like (graph NAME (version {VERSION}) NODE.. (outputs NAME..))"


class _Skipped(Exception):
    """Raised for a node that reads a node with a problem: its own type is unknown, so it cannot be checked."""


class GraphReader(FormReader):
    """Makes the graph of one text.

    Parameters
    ----------
    source: the text.
    arrays: arrays of constants whose numbers are not in the text, by node name.
    """

    def __init__(self, source: Text, arrays: Mapping[str, np.ndarray]) -> None:
        super().__init__(source)
        self.arrays = dict(arrays)
        self.nodes: dict[str, Node] = {}
        self.places: dict[str, int] = {}

    def graph(self, form: Expression) -> Graph:
        """Return the graph. Raises: TextError for one problem, ProblemList for more."""
        if not isinstance(form, Form) or len(form) < 2 or form[0] != "graph":
            raise self.error(form, 0, f"{_GRAPH}; is this an .ir file?")
        name, start = self.name(form, 1), 2
        if len(form) > 2 and isinstance(form[2], Form) and form[2][:1] == ("version",):
            self._check_version(form[2])
            start = 3
        last = form[-1]
        if not isinstance(last, Form) or last[:1] != ("outputs",) or len(form) == start:
            raise self.error(form, len(form) - 1, f"{_GRAPH}; its end must be (outputs NAME..)")
        self._read_nodes(form, start)
        keys, outputs = self._outputs(last)
        if not outputs:
            raise self.error(form, len(form) - 1, f"graph '{name}' has no output; name one, as in (outputs y)")
        unused = sorted(set(self.arrays) - set(self.nodes))
        if unused:
            raise self.error(form, 0, f"array '{unused[0]}' has no constant node; delete it, or add the node")
        return Graph(name, tuple(self.nodes.values()), outputs, self.arrays, keys)

    def _check_version(self, form: Form) -> None:
        if len(form) != 2 or type(form[1]) is not int or form[1] < 1:
            raise self.error(form, 0, f"a version is a whole number, as in (version {VERSION}), got {show(form)}")
        if form[1] != VERSION:
            raise self.error(
                form, 1, f"the text is of version {form[1]}, and this nnhw reads {VERSION}; use the nnhw that wrote it"
            )

    def _read_nodes(self, form: Form, start: int) -> None:
        """Read all nodes; all problems are reported at once."""
        nodes = [self.form_at(form, index, NODE) for index in range(start, len(form) - 1)]
        for node in nodes:
            if node and isinstance(node[0], str):
                # All names first, so that a use before its definition is told from an unknown name.
                self.places.setdefault(str(node[0]), node.place)
        problems: list[NnhwError] = []
        failed: set[str] = set()
        for node in nodes:
            try:
                made = self._node(node, failed)
                self.nodes[made.name] = made
            except (TextError, ProblemList, _Skipped) as problem:
                if not isinstance(problem, _Skipped):
                    problems += problem.problems if isinstance(problem, ProblemList) else [problem]
                if node and isinstance(node[0], str):
                    failed.add(str(node[0]))
        raise_all(problems)

    def _node(self, form: Form, failed: set[str]) -> Node:
        if len(form) < 3:
            raise self.error(form, None, f"{NODE}, got {short(form)}")
        name = self.name(form, 0)
        if not name or not name.isprintable():
            raise self.error(form, 0, "a node needs a name of printable characters")
        if name in self.nodes or name in failed:
            first = self.source.line(self.places[name])
            raise self.error(
                form, 0, f"'{name}' is defined twice, first in line {first}; give one of them another name"
            )
        op = self._op(self.form_at(form, 1, NODE), name)
        inputs = self._inputs(self.form_at(form, 2, NODE), name, failed)
        rest = list(range(3, len(form)))
        stated = None
        if rest and keyword(form[3]) not in ("data", "at"):
            stated = self.type_at(form)
            rest = rest[2:]
        clauses = self._clauses(form, rest)
        type = self._resolved(form, name, op, inputs, stated, "data" in clauses)
        if "data" in clauses:
            self._keep(name, op, type, clauses["data"])
        self._check_array(form, name, op, type)
        location = self.location(clauses["at"]) if "at" in clauses else NOWHERE
        return Node(name, op, inputs, type, location)

    def _clauses(self, form: Form, rest: Sequence[int]) -> dict[str, Form]:
        """Return the clauses behind a node's type, such as (at ..), by their first word."""
        found: dict[str, Form] = {}
        for index in rest:
            word, item = keyword(form[index]), form[index]
            if not isinstance(item, Form) or word not in ("data", "at"):
                raise self.error(
                    form,
                    index,
                    f"behind a node's type come (data NUMBER..) and (at MODULE FILE LINE), got {short(item)}",
                )
            if word in found:
                raise self.error(form, index, f"a node has one ({word} ..), got two; delete one of them")
            found[word] = item
        return found

    def _op(self, form: Form, node: str) -> Op:
        name = self.name(form, 0) if form else ""
        row = OPS.get(name)
        if row is None:
            near = difflib.get_close_matches(name, OPS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise self.error(
                form,
                0,
                f"unknown operator '{name}'; {hint}known are {', '.join(OPS)}. If it is one of your own, import the "
                "module that registers it, or give --extension MODULE",
            )
        given = self._attributes(form, row, node)
        fields = fields_of(row)
        missing = [attribute for attribute, field in fields.items() if is_needed(field) and attribute not in given]
        if missing:
            needed = f":{missing[0]} ({takes(fields[missing[0]])})"
            raise self.error(form, 0, f"operator {name} needs the attribute {needed}; write {signature(row)}")
        try:
            return row(**given)
        except IrError as error:
            raise self.error(form, 0, str(error)) from error

    def _attributes(self, form: Form, row: type[Op], node: str) -> dict[str, Any]:
        """Return the values that an operator's form gives, by attribute; the body of a loop is read as a graph."""
        fields = fields_of(row)
        given: dict[str, Any] = {}
        for index in range(1, len(form), 2):
            key = form[index]
            name = key[1:] if isinstance(key, Symbol) and key.startswith(":") else ""
            field, where = fields.get(name), f"attribute :{name} of operator {row.name}"
            if field is None:
                raise self.error(
                    form, index, f"operator {row.name} has no attribute {short(key)}; write {signature(row)}"
                )
            if name in given:
                raise self.error(form, index, f"{where} is given twice; delete one")
            if index + 1 == len(form):
                raise self.error(form, index, f"{where} needs {takes(field)} behind it")
            value: object = form[index + 1]
            if kind_of(field) == "Graph" and isinstance(value, Form):
                value = self._body(value, node)
            if not fits(field, value):
                raise self.error(form, index + 1, f"{where} takes {takes(field)}, got {short(form[index + 1])}")
            # Plain tuples and text, not forms and symbols of this reader: attributes are compared and hashed.
            plain = str(value) if isinstance(value, str) else value
            given[name] = tuple(plain) if isinstance(plain, Form) else plain
        return given

    def _body(self, form: Form, node: str) -> Graph:
        """Return the body of a loop; its arrays are removed from those of the whole text."""
        start = inner_name(node, "")
        taken = [name for name in self.places if name.startswith(start)]
        if taken:
            raise self.error(
                form,
                None,
                f"'{taken[0]}' is the name of a value in this body, seen from outside; give that node another one",
            )
        own = {name.removeprefix(start): self.arrays.pop(name) for name in list(self.arrays) if name.startswith(start)}
        return GraphReader(self.source, own).graph(form)

    def _inputs(self, form: Form, name: str, failed: set[str]) -> tuple[str, ...]:
        names = tuple(self.name(form, index) for index in range(len(form)))
        for index, used in enumerate(names):
            if used in self.nodes or used in failed:
                continue
            if used in self.places:
                line = self.source.line(self.places[used])
                message = f"'{name}' uses '{used}' before its definition in line {line}; put that one in front"
            else:
                near = difflib.get_close_matches(used, self.nodes, n=1)
                message = f"'{name}' uses '{used}', which is not defined" + (
                    f"; did you mean '{near[0]}'?" if near else ""
                )
            raise self.error(form, index, message)
        # Behind the search for unknown names, which are problems of their own.
        if failed & set(names):
            raise _Skipped
        return names

    def _resolved(
        self, form: Form, name: str, op: Op, inputs: tuple[str, ...], stated: TensorType | None, has_data: bool
    ) -> TensorType:
        """Return a node's type; a type that is stated must be the one that its operator's rule gives."""
        if isinstance(op, Input | Constant):
            if inputs:
                raise self.error(form, 2, f"{op.name} '{name}' takes no inputs, got {', '.join(inputs)}; write ()")
            if stated is None:
                raise self.error(form, 1, f"{op.name} '{name}' needs its type and shape, as in (int 0 3) (16 26 26)")
            if has_data and isinstance(op, Input):
                raise self.error(form, 1, f"input '{name}' has no data: the caller gives it; use constant for numbers")
            return stated
        if has_data:
            raise self.error(form, 1, f"{op.name} '{name}' computes its value; only a constant has (data ..)")
        operands = [Operand(self.nodes[used].type, self.arrays.get(used)) for used in inputs]
        # The rule may need the numbers of a constant; without them, the stated type has to be believed.
        bare = [used for used in inputs if isinstance(self.nodes[used].op, Constant) and used not in self.arrays]
        if bare:
            if stated is None:
                raise self.error(form, 0, f"'{name}' has no type, which follows from '{bare[0]}', which has no array")
            return stated
        inferred = self._inferred(form, Node(name, op, inputs, stated or TensorType((), FLOAT)), operands)
        if stated is not None and stated != inferred:
            raise self.error(
                form,
                3,
                f"{op.name} '{name}' gives {shown(inferred)}, got {shown(stated)}; write the former, or leave it out",
            )
        return inferred

    def _inferred(self, form: Form, node: Node, operands: Sequence[Operand]) -> TensorType:
        try:
            type = infer(node, operands)
        except IrError as error:
            raise self.error(form, 1, str(error)) from error
        except Exception as error:
            # Type rules need not foresee all that a text can hold, so they may fail in any way.
            raise self.error(
                form, 1, f"{node.op.name} '{node.name}' cannot take these operands and attributes ({error!r})"
            ) from error
        if is_too_large(type):
            raise self.error(
                form, 1, f"{node.op.name} '{node.name}' gives {type}; at most {ELEMENTS_MAX} elements are accepted"
            )
        return type

    def _keep(self, name: str, op: Op, type: TensorType, form: Form) -> None:
        """Store the numbers of a constant that the text holds."""
        if name in self.arrays:
            raise self.error(form, 0, f"constant '{name}' has its numbers twice: here, and in the .npz file beside it")
        values = form[1:]
        if len(values) != math.prod(type.shape):
            raise self.error(
                form,
                0,
                f"constant '{name}' of shape {show(type.shape)} needs {math.prod(type.shape)} numbers, "
                f"got {len(values)}",
            )
        dtype: DTypeLike = np.int64
        if isinstance(type.dtype, FloatType):
            dtype = np.float64
        elif type.dtype == BIT and isinstance(values[0], bool):
            dtype = np.bool_
        numbers = [self.number(form, index, dtype) for index in range(1, len(form))]
        self.arrays[name] = np.array(numbers, dtype).reshape(type.shape)

    def _check_array(self, form: Form, name: str, op: Op, type: TensorType) -> None:
        array = self.arrays.get(name)
        if array is None:
            return
        if not isinstance(op, Constant):
            raise self.error(form, 1, f"{op.name} '{name}' has an array in the .npz file, but only constants have one")
        if problem := array_problem(type, array):
            raise self.error(form, 0, f"constant '{name}' {problem}")

    def _outputs(self, form: Form) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the keys, none of a tuple, and the names of the nodes."""
        pairs = [isinstance(part, Form) for part in form[1:]]
        if not any(pairs):
            return (), tuple(self._output(form, index) for index in range(1, len(form)))
        found: dict[str, str] = {}
        for index, part in enumerate(form[1:], 1):
            if not isinstance(part, Form) or len(part) != 2:
                raise self.error(form, index, f"outputs with keys are all (KEY NAME), got {show(part)}")
            found[self.name(part, 0)] = self._output(part, 1)
        if len(found) < len(pairs):
            raise self.error(form, 0, "outputs need keys of their own, but one is there twice")
        return tuple(found), tuple(found.values())

    def _output(self, form: Form, index: int) -> str:
        name = self.name(form, index)
        if name not in self.nodes:
            near = difflib.get_close_matches(name, self.nodes, n=1)
            raise self.error(
                form, index, f"output '{name}' is not a node" + (f"; did you mean '{near[0]}'?" if near else "")
            )
        return name
