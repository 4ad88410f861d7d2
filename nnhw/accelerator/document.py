"""The JSON form of parameter objects, as in `accelerator.json`; their arrays are in a file beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np


def dump(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the JSON form of a parameter object: its class and its fields.

    Parameters
    ----------
    value: a dataclass, an array, a tuple, or what JSON has.
    arrays: arrays are added to it, each with a key that stands in their place in the JSON form.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: dump(getattr(value, field.name), arrays) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, np.ndarray):
        key = f"array_{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    if isinstance(value, tuple):
        return [dump(item, arrays) for item in value]
    return value


def load(value: Any, arrays: Mapping[str, np.ndarray], types: Mapping[str, type]) -> Any:
    """Return the parameter object of a JSON form: the inverse of `dump`.

    Parameters
    ----------
    value: the JSON form.
    arrays: the arrays that it names.
    types: the dataclasses that may occur, by name.

    Raises
    ------
    ValueError: a field is missing, unknown, or not of its type; besides, whatever the dataclasses raise.
    """
    if isinstance(value, list):
        # Parameter objects have tuples alone, which can be hashed, so a list of JSON can be nothing else.
        return tuple(load(item, arrays, types) for item in value)
    if isinstance(value, dict):
        return _load_array(value, arrays) if "type" not in value else _load_fields(value, arrays, types)
    return value


def _load_array(value: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the array that an object of the JSON form names."""
    name = value.get("array")
    if not isinstance(name, str) or name not in arrays:
        raise ValueError(f"there is no array {name!r}")
    return arrays[name]


def _load_fields(value: Mapping[str, Any], arrays: Mapping[str, np.ndarray], types: Mapping[str, type]) -> Any:
    """Return a parameter object whose fields have the types that its class declares."""
    name = value["type"]
    if not isinstance(name, str) or name not in types:
        raise ValueError(
            f"there is no configuration {name!r}; if it is an engine of yours, import it, or give --extension MODULE"
        )
    kinds = _field_types(types[name])
    if value.keys() - {"type"} != kinds.keys():
        raise ValueError(f"{name} has the fields {', '.join(kinds)}, given {', '.join(value.keys() - {'type'})}")
    # All fields must be there, those with defaults too: a file without one is of another version.
    fields = {key: _as_word(load(value[key], arrays, types), kind) for key, kind in kinds.items()}
    for key, field in fields.items():
        if not _is_of(field, kinds[key]):
            raise ValueError(f"field '{key}' of {name} cannot be {str(field)[:80]}")
    return types[name](**fields)


def _as_word(value: Any, kind: Any) -> Any:
    """Return a value as a member of the enumeration, if its field is one."""
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value


@cache
def _field_types(kind: type) -> dict[str, Any]:
    """Return the annotated types of a dataclass's fields, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of an annotated type. `True` is no int here, and a str must be printable."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        parts = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return len(value) == len(parts) and all(map(_is_of, value, parts))
    # `isinstance(True, int)` holds, and a flag in place of a number would go unnoticed.
    if kind in (int, bool, float, NoneType):
        return type(value) is kind
    if kind is str:
        return isinstance(value, str) and value.isprintable()
    # Protocols such as `Requantizer` cannot be tested with isinstance; having their members is what they ask for.
    if getattr(kind, "_is_protocol", False):
        members = {name for name in (*vars(kind), *kind.__annotations__) if not name.startswith("_")}
        return dataclasses.is_dataclass(value) and all(hasattr(value, name) for name in members)
    return isinstance(value, origin or kind)
