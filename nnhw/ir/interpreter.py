"""The interpreter: runs a graph by the one meaning of each op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from nnhw.errors import InputError, IrError

from .domains import remedy_for_nan
from .graph import Graph, Node
from .ops import Constant, Input
from .ops.boundary import NoCode
from .types import IntType

Observer = Callable[[str, np.ndarray], None]
Inputs = np.ndarray | Sequence[np.ndarray] | Mapping[str, np.ndarray]

CHUNK = 250
_NOTHING: Mapping[str, np.ndarray] = MappingProxyType({})


def run(
    graph: Graph,
    inputs: Inputs,
    observe: Observer | None = None,
    replace: Mapping[str, np.ndarray] = _NOTHING,
) -> tuple[np.ndarray, ...]:
    """Compute the outputs of a graph.

    Parameters
    ----------
    inputs: one array [N, *shape] per input of the graph: by name, in order, or the only one.
        Integers of any width or floats; they become int64 or float64.
    observe: called with (name, array) of each value that is not a constant, in order, as it was computed.
    replace: by name, what whoever reads a value gets instead of what was computed.

    Returns
    -------
    One array [N, *shape] per output: int64 or float64.

    Raises
    ------
    InputError for an input that is missing, or of the wrong shape, type or range.
    """
    return _explained(graph, _by_name(graph, inputs), 0, observe, replace)


def _run(
    graph: Graph,
    given: Mapping[str, np.ndarray],
    observe: Observer | None,
    replace: Mapping[str, np.ndarray] = _NOTHING,
) -> tuple[np.ndarray, ...]:
    values: dict[str, np.ndarray] = dict(graph.constants)
    last_use = {name: index for index, node in enumerate(graph.nodes) for name in node.inputs}
    for index, node in enumerate(graph.nodes):
        if isinstance(node.op, Constant):
            continue
        values[node.name] = given[node.name] if isinstance(node.op, Input) else _evaluate(node, values)
        if observe is not None:
            observe(node.name, values[node.name])
        values[node.name] = replace.get(node.name, values[node.name])
        for name in node.inputs:
            if last_use[name] == index and name not in graph.outputs:
                values.pop(name, None)
    return tuple(values[name] for name in graph.outputs)


def run_in_chunks(graph: Graph, inputs: Inputs, size: int = CHUNK) -> tuple[np.ndarray, ...]:
    """Do as `run`, `size` images at a time, so that memory does not grow with the batch."""
    given = _by_name(graph, inputs)
    count = min((len(array) for array in given.values()), default=0)
    parts = [
        _explained(graph, {name: array[start : start + size] for name, array in given.items()}, start)
        for start in range(0, max(count, 1), size)
    ]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _explained(
    graph: Graph,
    given: Mapping[str, np.ndarray],
    first: int,
    observe: Observer | None = None,
    replace: Mapping[str, np.ndarray] = _NOTHING,
) -> tuple[np.ndarray, ...]:
    """Run a graph; of NaN that a quantizer is given, say where it comes from.

    Parameters
    ----------
    first: number of the first image.
    """
    try:
        return _run(graph, given, observe, replace)
    except NoCode as error:
        image = {name: array[error.image : error.image + 1] for name, array in given.items()}
        node, number = _first_nan(graph, image), error.image + first
        if isinstance(node.op, Input):
            where = f"input '{node.name}' of graph '{graph.name}' holds NaN in image {number}"
            raise InputError(f"{where}, which has no code; give finite numbers") from None
        raise IrError(
            f"{node} gives NaN in image {number}, which has no code in {error.place}; {remedy_for_nan(node.op)}"
        ) from None


def _first_nan(graph: Graph, image: Mapping[str, np.ndarray]) -> Node:
    """Return the first node that gives NaN for an image of which a quantizer is given NaN."""
    found: list[str] = []

    def observe(name: str, array: np.ndarray) -> None:
        if array.dtype.kind == "f" and np.isnan(array).any():
            found.append(name)

    with suppress(NoCode):
        _run(graph, image, observe)
    return graph.node(found[0])


def _evaluate(node: Node, values: Mapping[str, np.ndarray]) -> np.ndarray:
    try:
        return node.op.evaluate(*(values[name] for name in node.inputs))
    except NoCode as error:
        raise NoCode(error.image, str(node)) from error
    except IrError as error:
        raise IrError(f"{node}: {error}") from error


def _by_name(graph: Graph, inputs: Inputs) -> dict[str, np.ndarray]:
    names = [node.name for node in graph.inputs]
    if isinstance(inputs, np.ndarray):
        inputs = (inputs,)
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise InputError(f"graph '{graph.name}' needs {len(names)} inputs ({', '.join(names)}), got {len(inputs)}")
        inputs = dict(zip(names, inputs, strict=True))
    if inputs.keys() != set(names):
        raise InputError(f"graph '{graph.name}' needs the inputs {', '.join(names)}, got {', '.join(inputs) or 'none'}")
    arrays = {node.name: _checked(graph, node, np.asarray(inputs[node.name])) for node in graph.inputs}
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name}: {len(array)}" for name, array in arrays.items())
        raise InputError(f"the inputs of graph '{graph.name}' need equal batch sizes, got {lengths}")
    return arrays


def _checked(graph: Graph, node: Node, array: np.ndarray) -> np.ndarray:
    where = f"input '{node.name}' of graph '{graph.name}'"
    needed = ", ".join(["N", *map(str, node.type.shape)])
    if array.ndim != len(node.type.shape) + 1 or array.shape[1:] != node.type.shape:
        raise InputError(f"{where} needs an array of shape [{needed}], got {list(array.shape)}")
    if array.dtype.kind not in "buif":
        raise InputError(f"{where} needs numbers, got {array.dtype}")
    if not isinstance(node.type.dtype, IntType):
        return array.astype(np.float64)
    if array.dtype.kind == "f":
        raise InputError(f"{where} needs integers in {node.type.dtype}, got {array.dtype}")
    if not node.type.dtype.holds(array):
        raise InputError(f"{where} needs values in {node.type.dtype}, got {array.min()}..{array.max()}")
    return array.astype(np.int64)
