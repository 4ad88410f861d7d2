"""Graphs written in Python: a builder whose values have a method for each operator.

builder = Builder("strokes")
pixels = builder.input("pixels", (1, 4, 4), low=0, high=3)
edges = pixels.conv2d([[[[1, -1], [1, -1]]]], padding=(1, 1), name="edges")
codes = edges.threshold([[1, 4]], low=0)
graph = builder.build(codes.max_pool2d((2, 2)).flatten())
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nnhw.errors import IrError

from .attributes import fields_of, fits, is_needed, kind_of, takes
from .builder_values import Value
from .graph import NOWHERE, Graph, GraphBuilder, Location
from .ops import OPS
from .types import BIPOLAR, BIT, FLOAT, FloatType, IntType, TensorType
from .verify import verify

# Frames of these files are skipped in the search for the user's line.
_OWN = {str(Path(__file__).with_name(name)) for name in ("builder.py", "builder_values.py")}


class Builder:
    """Makes a graph value by value. Each value has its type and shape at once, by its operator's rule.

    Every call is checked when it is made: an error names the operator, the value, and the user's line.

    Parameters
    ----------
    name: name of the graph.
    locations: whether each value records the line of the user's program that made it.
    """

    def __init__(self, name: str, locations: bool = True) -> None:
        self._builder = GraphBuilder(name)
        self._locations = locations

    def input(
        self,
        name: str,
        shape: Sequence[int],
        low: int | None = None,
        high: int | None = None,
        bipolar: bool = False,
        is_sequence: bool = False,
    ) -> Value:
        """Return an input: of integers low..high, of bipolar values (-1 and 1), or else of float64.

        Parameters
        ----------
        shape: without the batch; of a sequence, the shape of one step.
        low, high: both or neither.
        is_sequence: whether it is a sequence of steps of that shape.
        """
        if bipolar:
            dtype: IntType | FloatType = BIPOLAR
        elif low is not None and high is not None:
            dtype = IntType(low, high)
        elif low is high:
            dtype = FLOAT
        else:
            raise IrError(f"input '{name}' of integers needs both low and high, got {low} and {high}")
        location = self._location(name)
        return Value(
            self, self._builder.input(self._free(name), TensorType(tuple(shape), dtype, is_sequence), location)
        )

    def constant(self, values: ArrayLike, dtype: IntType | None = None, name: str = "") -> Value:
        """Return a constant of whole numbers, floats or booleans, none of them rounded.

        Parameters
        ----------
        values: the numbers; the constant has their shape, without a batch.
        dtype: type of whole numbers or booleans; None: the smallest range that holds them.
        name: its name; empty: `constant` with a number.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or not array.size:
            raise IrError(f"constant '{name}' needs numbers, got {array.dtype} of shape {list(array.shape)}")
        type: IntType | FloatType = FLOAT
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        elif array.dtype.kind == "b":
            type = dtype or BIT
        else:
            if array.dtype == np.uint64 and int(array.max()) >= 1 << 63:
                raise IrError(f"constant '{name}' needs numbers of at most 64 bits with their sign, got {array.max()}")
            array = array.astype(np.int64)
            type = dtype or IntType(int(array.min()), int(array.max()))
        free = self._free(name) if name else self._builder.unique("constant")
        added = self._builder.constant(free, array, TensorType(array.shape, type), self._location(free))
        return Value(self, added)

    def apply(self, operator: str, *inputs: Value | ArrayLike, name: str = "", **attributes: Any) -> Value:
        """Add an operator by its name in `OPS`; the methods of `Value` do it for each of them.

        Parameters
        ----------
        operator: its name, such as "conv2d".
        inputs: its operands: values of this builder, or arrays of numbers, which become constants.
        name: name of the result; empty: the operator's name, with a number if that is taken.
        attributes: the operator's attributes; those with a default may be left out.

        Raises: IrError that names the operator and the line for operands or attributes that do not fit.
        """
        row = OPS.get(operator)
        if row is None or row.arity == 0:
            raise IrError(f"there is no operator '{operator}'; there are {', '.join(OPS)}")
        location = self._location(name or operator)
        where = f"{operator} '{name or operator}'"
        where += f" ({location.file}:{location.line})" if location.line else ""
        try:
            op = row(**self._attributes(operator, attributes))
            free = self._free(name) if name else self._builder.unique(operator)
            names = [self._operand(value, f"{free}.{_role(operator, at)}") for at, value in enumerate(inputs)]
            return Value(self, self._builder.add(free, op, names, location))
        except IrError as error:
            # Type rules may have put the same place in front already.
            raise IrError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from error

    def build(self, *outputs: Value) -> Graph:
        """Return the verified graph of these outputs; all inputs stay, other unneeded values are left out."""
        return verify(self._builder.build([self._operand(value, "output") for value in outputs]))

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value of this builder."""
        return self._builder.type_of(name)

    def _operand(self, value: Value | ArrayLike, name: str) -> str:
        if isinstance(value, Value):
            if value.builder is not self:
                raise IrError(f"value '{value.name}' is of another builder; make it with this one")
            return value.name
        return self.constant(value, name=self._builder.unique(name)).name

    def _attributes(self, operator: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes in the operator's kinds: lists as tuples, and ints as floats where that is exact."""
        fields, made = fields_of(OPS[operator]), {}
        for name, value in given.items():
            field = fields.get(name)
            if field is None:
                known = ", ".join(fields) or "none"
                raise IrError(f"it has no attribute '{name}'; it has {known}")
            if isinstance(value, np.generic):
                value = value.item()
            # The text form knows Python's numbers only, and attributes are hashed and compared.
            if isinstance(value, list | tuple | np.ndarray):
                value = tuple(item.item() if isinstance(item, np.generic) else item for item in value)
            if kind_of(field) == "float" and type(value) is int and int(float(value)) == value:
                value = float(value)
            if not fits(field, value):
                raise IrError(f"attribute '{name}' takes {takes(field)}, got {value!r}")
            made[name] = value
        missing = [name for name, field in fields.items() if is_needed(field) and name not in made]
        if missing:
            raise IrError(f"it needs the attribute '{missing[0]}', {takes(fields[missing[0]])}")
        return made

    def _free(self, name: str) -> str:
        if not name or not name.isprintable():
            raise IrError(f"a name needs printable characters, got {name!r}")
        if self._builder.unique(name) != name:
            raise IrError(f"the name '{name}' is taken; give another one")
        return name

    def _location(self, name: str) -> Location:
        """Return the line of the user's program that makes a value: the first caller outside of builder and values."""
        if not self._locations:
            return NOWHERE
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename in _OWN:
            frame = frame.f_back
        return Location(name, Path(frame.f_code.co_filename).name, frame.f_lineno)


def _role(operator: str, position: int) -> str:
    """Return the role of an operand, such as "weight"; a constant operand is named by it."""
    known = _ROLES.get(operator, ())
    return known[position] if position < len(known) else f"input{position}"


_ROLES: dict[str, tuple[str, ...]] = {
    "linear": ("x", "weight"),
    "conv2d": ("x", "weight"),
    "quantize": ("x", "scale"),
    "dequantize": ("x", "scale"),
    "threshold": ("x", "thresholds", "descending"),
    "step_table": ("x", "thresholds", "codes"),
    "integer_softmax": ("x", "table", "keep"),
    "broadcast": ("x", "values"),
    "rescale": ("x", "multiplier", "exponent", "bias"),
    "prelu": ("x", "slope"),
    "where": ("condition", "x", "y"),
    "scan": ("steps", "state"),
    "batch_norm": ("x", "weight", "bias", "mean", "variance"),
}
"""Roles of the operands of operators that may have constant ones, in order."""
