"""The JSON form of configurations: what `accelerator.json` holds, with arrays beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


def dump(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the JSON form of a configuration; arrays go to `arrays` under a number."""
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
    """Return the configuration of a JSON form: the inverse of `dump`.

    Parameters
    ----------
    types: the dataclasses that may occur, by name.
    """
    if isinstance(value, list):
        return tuple(load(item, arrays, types) for item in value)
    if isinstance(value, dict):
        if "type" not in value:
            return arrays[value["array"]]
        fields = {key: load(item, arrays, types) for key, item in value.items() if key != "type"}
        return types[value["type"]](**fields)
    return value
