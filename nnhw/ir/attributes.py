"""Attributes of operators: their names, kinds and defaults, for the text form, the builder and the docs."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field
from typing import Any

from .ops import Op

KINDS: dict[str, str] = {
    "int": "a whole number of 64 bits",
    "float": "a number with a point, such as 1.0",
    "bool": "true or false",
    "str": "a word",
    "Pair": "two whole numbers (A B)",
    "tuple[int, ...]": "whole numbers (A ..)",
    "Graph": "a graph (graph NAME NODE.. (outputs NAME..))",
}
"""Kinds of attributes: the annotation of an operator's field, and in words which values it takes."""


def fields_of(op: type[Op]) -> dict[str, Field[Any]]:
    """Return the attributes of an operator by name, in order."""
    return {field.name: field for field in dataclasses.fields(op)}


def is_needed(field: Field[Any]) -> bool:
    """Return whether an attribute has no default."""
    return field.default is MISSING


def takes(field: Field[Any]) -> str:
    """Return in words which values an attribute takes."""
    return KINDS[kind_of(field)]


def kind_of(field: Field[Any]) -> str:
    """Return an attribute's kind, a key of `KINDS`: its annotation, which is a class in operators of a user's module.

    Any other annotation is an alias of a tuple of whole numbers, as operators have no further kinds of attributes.
    """
    annotation = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "")
    return annotation if annotation in KINDS else "tuple[int, ...]"


def fits(field: Field[Any], value: object) -> bool:
    """Return whether a value is exactly of an attribute's kind: 1 is no float, and True no whole number."""
    kind = kind_of(field)
    if kind in ("Pair", "tuple[int, ...]"):
        return isinstance(value, tuple) and all(map(_is_integer, value)) and (kind != "Pair" or len(value) == 2)
    if kind == "int":
        return _is_integer(value)
    return isinstance(value, str) if kind == "str" else type(value).__name__ == kind


def signature(op: type[Op]) -> str:
    """Return an operator's text form, such as (clamp :low VALUE :high VALUE); attributes with a default in brackets."""
    written = [f":{name} VALUE" if is_needed(field) else f"[:{name} VALUE]" for name, field in fields_of(op).items()]
    return f"({' '.join([op.name, *written])})"


def _is_integer(value: object) -> bool:
    # type() instead of isinstance(), for which True is an int.
    return type(value) is int and -(1 << 63) <= value < 1 << 63
