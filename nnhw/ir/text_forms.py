"""Readers of the parts of a graph's text: names, types, numbers and locations, each with its errors."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import DTypeLike

from nnhw.errors import IrError

from .expressions import Expression, Form, Symbol, Text, TextError, show
from .graph import Location
from .types import BIPOLAR, FLOAT, FloatType, IntType, TensorType
from .verify import ELEMENTS_MAX, is_too_large

NODE = "a node looks like (NAME (OPERATOR :ATTRIBUTE VALUE ..) (INPUT ..) TYPE SHAPE)"
"""The form of a node, for error messages."""
SEQUENCE = "steps"
"""The word in front of the sizes in a sequence's shape."""
_TYPE = "a type is (float64), (bipolar) or (int LOW HIGH)"
_NUMBERS: dict[DTypeLike, tuple[type, str]] = {
    np.float64: (float, "numbers with a point"),
    np.bool_: (bool, "true and false"),
    np.int64: (int, "whole numbers of the type stated"),
}
_ODD_NAN = re.compile(r"nan:([0-9a-f]{16})")
"""A NaN whose bits are not those of NumPy's: all 64 of them, in hexadecimal, so that arrays are read back exactly."""


class FormReader:
    """Reads parts of one text; its methods raise TextError with the place of what they cannot read."""

    def __init__(self, source: Text) -> None:
        self.source = source

    def type_at(self, form: Form) -> TensorType:
        """Return the type and shape that a node states behind its inputs."""
        if len(form) < 5:
            raise self.error(form, 3, f"behind a node's type stands its shape, as in (int 0 3) (16 26 26); {NODE}")
        dtype = self.dtype(self.form_at(form, 3, _TYPE))
        shape = self.form_at(form, 4, "a shape is (SIZE ..), whole numbers of at least 1, without the batch")
        is_sequence = shape[:1] == (SEQUENCE,)
        for index, size in enumerate(shape[is_sequence:], int(is_sequence)):
            # type() instead of isinstance(), for which true is an int.
            if type(size) is not int or size < 1:
                raise self.error(
                    shape,
                    index,
                    f"a shape has whole numbers of at least 1, got {short(size)}; a sequence's begins with the word "
                    f"{SEQUENCE}, as in ({SEQUENCE} 16)",
                )
        type_ = TensorType(tuple(size for size in shape if isinstance(size, int)), dtype, is_sequence)
        if is_too_large(type_):
            raise self.error(form, 4, f"a value has at most {ELEMENTS_MAX} elements, got the shape {show(shape)}")
        return type_

    def dtype(self, form: Form) -> IntType | FloatType:
        """Return the element type that a form states. Raises: TextError."""
        try:
            match tuple(form):
                case ("float64",):
                    return FLOAT
                case ("bipolar",):
                    return BIPOLAR
                case ("int", low, high) if type(low) is int and type(high) is int:
                    return IntType(low, high)
        except IrError as error:
            raise self.error(form, None, str(error)) from error
        raise self.error(form, None, f"{_TYPE}, got {short(form)}")

    def number(self, form: Form, index: int, dtype: DTypeLike) -> float | int | bool:
        """Return a number of a constant, by the constant's dtype. Raises: TextError."""
        value = form[index]
        kind, named = _NUMBERS[dtype]
        if kind is float and isinstance(value, Symbol) and (odd := _ODD_NAN.fullmatch(value)):
            return float(np.uint64(int(odd[1], 16)).view(np.float64))
        if type(value) is not kind:
            raise self.error(form, index, f"this constant has {named}, got {short(value)}")
        assert isinstance(value, int | float)
        if kind is int and not -(1 << 63) <= value < 1 << 63:
            raise self.error(form, index, "a whole number has at most 64 bits")
        return value

    def location(self, form: Form) -> Location:
        """Return the source location that a form states. Raises: TextError."""
        match tuple(form):
            case ("at", str(module), str(file), line) if type(line) is int and line >= 0:
                return Location(str(module), str(file), line)
        raise self.error(form, None, f"a place looks like (at MODULE FILE LINE), got {short(form)}")

    def name(self, form: Form, index: int) -> str:
        """Return the name at an index of a form. Raises: TextError."""
        name = form[index] if index < len(form) else None
        if not isinstance(name, str):
            raise self.error(form, index, f"a name is a word or a string in double quotes, got {short(name)}")
        return str(name)

    def form_at(self, form: Form, index: int, needed: str) -> Form:
        """Return the form at an index of a form. Raises: TextError."""
        item = form[index]
        if not isinstance(item, Form):
            raise self.error(form, index, f"{needed}, got {short(item)}")
        return item

    def error(self, form: Expression, index: int | None, message: str) -> TextError:
        """Return an error with the place of an item of a form, or of the form itself if `index` is None."""
        if not isinstance(form, Form):
            return self.source.error(0, message)
        inside = index is not None and index < len(form.places)
        return self.source.error(form.places[index] if inside and index is not None else form.place, message)


def keyword(item: Expression) -> str:
    """Return the first word of a form; an empty text for any other item."""
    return str(item[0]) if isinstance(item, tuple) and item and isinstance(item[0], Symbol) else ""


def shown(type: TensorType) -> str:
    """Return the text of a type and its shape."""
    dtype = type.dtype
    words = (
        "(float64)"
        if isinstance(dtype, FloatType)
        else "(bipolar)"
        if dtype.bipolar
        else f"(int {dtype.low} {dtype.high})"
    )
    return f"{words} {show((SEQUENCE, *type.shape) if type.is_sequence else type.shape)}"


def short(item: Expression | None) -> str:
    """Return the text of an item for an error, cut to 60 characters."""
    if item is None:
        return "nothing"
    shown = show(item)
    return shown if len(shown) <= 60 else f"{shown[:56]} .."
