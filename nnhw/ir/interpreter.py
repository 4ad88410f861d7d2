"""The interpreter: evaluates a graph with NumPy by the definition (`evaluate`) of each op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from nnhw.errors import InputError, IrError

from .domains import remedy_for_nan
from .graph import Graph, Node, inner_name, named
from .ops import Constant, Input, Scan
from .ops.boundary import NoCode
from .types import IntType

Observer = Callable[[str, np.ndarray], None]
Inputs = np.ndarray | Sequence[np.ndarray] | Mapping[str, np.ndarray]

CHUNK = 250
"""Images that `run_in_chunks` evaluates at a time: enough for a small overhead of each call, few enough for memory."""
VALUES = 2**24
"""Values of all nodes together that are evaluated at a time, unless one image has more: 128 MiB at 8 bytes each.
Comparisons hold a few copies of them."""
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
    inputs: one array [N, *shape] per input of the graph, or [N, steps, *shape] if it is a sequence: by name, in order,
        or the only one. Integers of any width or floats; they become int64 or float64.
    observe: called with (name, array) of each value that is not a constant, in order, as it was computed. Values in
        the body of a loop come in front of the loop's, as sequences, by the name that `inner_name` gives them.
    replace: values by name that readers get instead of the computed ones.

    Returns
    -------
    One array [N, *shape], or [N, steps, *shape], per output: int64 or float64.

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
        if isinstance(node.op, Input):
            values[node.name] = given[node.name]
        elif isinstance(node.op, Scan) and (observe is not None or replace):
            values[node.name] = _watched(node, node.op, [values[name] for name in node.inputs], observe, replace)
        else:
            values[node.name] = _evaluate(graph, node, values)
        if observe is not None:
            observe(node.name, values[node.name])
        values[node.name] = replace.get(node.name, values[node.name])
        for name in node.inputs:
            # Free the array behind its last reader, so that memory holds a few values instead of all.
            if last_use[name] == index and name not in graph.outputs:
                values.pop(name, None)
    return tuple(values[name] for name in graph.outputs)


def run_steps(
    scan: Scan,
    inputs: Sequence[np.ndarray],
    observe: Callable[[int], Observer] | None = None,
    replace: Callable[[int], Mapping[str, np.ndarray]] | None = None,
) -> np.ndarray:
    """Run the body of a loop for each step of its sequences; return the results, [N, steps, *shape].

    Parameters
    ----------
    scan: the loop's op.
    inputs: the sequences [N, steps, *shape], then the initial states, [N, *shape], or [*shape] if constant.
    observe, replace: each gives, for the number of a step, the argument of `run` for that step.
    """
    names = [node.name for node in scan.body.inputs]
    count = len(names) - len(scan.states)
    starts = zip(inputs[count:], scan.states, strict=True)
    # Constant initial states have no batch axis.
    states = [np.broadcast_to(array, (len(inputs[0]), *node.type.shape)) for array, node in starts]
    results = []
    for step in range(inputs[0].shape[1]):
        given = dict(zip(names, [*(array[:, step] for array in inputs[:count]), *states], strict=True))
        result, *states = _run(scan.body, given, observe and observe(step), replace(step) if replace else _NOTHING)
        results.append(result)
    return np.stack(results, axis=1)


def _watched(
    node: Node, scan: Scan, inputs: Sequence[np.ndarray], observe: Observer | None, replace: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Run a loop, and observe or replace the values of its body as sequences; see `run`."""
    start = inner_name(node.name, "")
    seen: dict[str, list[np.ndarray]] = {}
    others = {name.removeprefix(start): array for name, array in replace.items() if name.startswith(start)}

    # The values of all steps are collected, and reported as sequences once the loop is done.
    def watch(step: int) -> Observer:
        return lambda name, array: seen.setdefault(name, []).append(array)

    def replaced(step: int) -> Mapping[str, np.ndarray]:
        return {name: array[:, step] for name, array in others.items()}

    results = run_steps(scan, inputs, watch, replaced)
    for name, arrays in seen.items():
        if observe is not None:
            observe(inner_name(node.name, name), np.stack(arrays, axis=1))
    return results


def joined(results: Sequence[np.ndarray]) -> np.ndarray:
    """Return the only result as it is; several as one [N, elements], one behind the other, to be compared at once."""
    if len(results) == 1:
        return results[0]
    floats = [array.dtype for array in results if array.dtype.kind == "f"]
    flat = [array.reshape(len(array), -1) for array in results]
    return np.concatenate(flat, axis=1, dtype=max(floats) if floats else None)


def images_at_a_time(graph: Graph, most: int, values: int = VALUES) -> int:
    """Return how many images to evaluate at a time: at most `most`, and fewer where their values take much memory."""
    each = sum(node.type.size for node in graph.nodes if not isinstance(node.op, Constant))
    return min(most, max(1, values // max(1, each)))


def run_in_chunks(graph: Graph, inputs: Inputs, size: int = CHUNK) -> tuple[np.ndarray, ...]:
    """Run a graph on parts of a batch, so that memory does not grow with the batch; see `run`.

    Parameters
    ----------
    size: images at a time at most; of sequences about so many steps of all together.
    """
    given = _by_name(graph, inputs)
    count = min((len(array) for array in given.values()), default=0)
    size = images_at_a_time(graph, size)
    size = max(1, size // max((given[node.name].shape[1] for node in graph.inputs if node.type.is_sequence), default=1))
    parts = [
        _explained(graph, {name: array[start : start + size] for name, array in given.items()}, start)
        # Even an empty batch is run once, for the shapes and dtypes of its outputs.
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
    """Run a graph; if a quantizer reads NaN, raise an error that names the node where the NaN comes from.

    Parameters
    ----------
    first: number of the first image in the whole batch, for the message.
    """
    try:
        return _run(graph, given, observe, replace)
    except NoCode as error:
        # Once more with the first bad image alone, observed: the first run has freed what it had computed.
        image = {name: array[error.image : error.image + 1] for name, array in given.items()}
        node, number = _first_nan(graph, image), error.image + first
        if isinstance(node.op, Input):
            where = f"input '{node.name}' of graph '{graph.name}' holds NaN in image {number}"
            raise InputError(f"{where}, which has no code; give finite numbers") from None
        raise IrError(
            f"{node} gives NaN in image {number}, which has no code in {error.place}; {remedy_for_nan(node.op)}"
        ) from None


def _first_nan(graph: Graph, image: Mapping[str, np.ndarray]) -> Node:
    """Return the first node that gives NaN for an image [1, ..] for which a quantizer reads NaN."""
    found: list[str] = []

    def observe(name: str, array: np.ndarray) -> None:
        if array.dtype.kind == "f" and np.isnan(array).any():
            found.append(name)

    with suppress(NoCode):
        _run(graph, image, observe)
    return named(graph, found[0])


def _evaluate(graph: Graph, node: Node, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Compute one node. An op that is not `along_steps` computes each step of a sequence as if it were an image."""
    operands = [values[name] for name in node.inputs]
    by_step = node.type.is_sequence and not node.op.along_steps
    lead: tuple[int, ...] = (0, 1)
    if by_step:
        lead = next(values[data.name].shape[:2] for data in graph.data_inputs(node))
        pairs = zip(node.inputs, operands, strict=True)
        operands = [array if name in graph.constants else folded(array) for name, array in pairs]
    try:
        result = node.op.evaluate(*operands)
    except NoCode as error:
        # Steps were folded into the batch: the image of a step is its row divided by the number of steps.
        raise NoCode(error.image // lead[1], error.place if isinstance(node.op, Scan) else str(node)) from error
    except IrError as error:
        raise IrError(f"{node}: {error}") from error
    return result.reshape(*lead, *result.shape[1:]) if by_step else result


def folded(array: np.ndarray) -> np.ndarray:
    """Reshape a sequence [N, steps, *shape] so that its steps are the images of a batch: [N * steps, *shape]."""
    return array.reshape(-1, *array.shape[2:])


def _by_name(graph: Graph, inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the checked arrays of all inputs by name; see `run`. Raises: InputError."""
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
    steps = {node.name: arrays[node.name].shape[1] for node in graph.inputs if node.type.is_sequence}
    for what, sizes in (
        ("batch sizes", {name: len(array) for name, array in arrays.items()}),
        ("numbers of steps", steps),
    ):
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
            raise InputError(f"the inputs of graph '{graph.name}' need equal {what}, got {listed}")
    return arrays


def _checked(graph: Graph, node: Node, array: np.ndarray) -> np.ndarray:
    where = f"input '{node.name}' of graph '{graph.name}'"
    lead = ["N", "steps"] if node.type.is_sequence else ["N"]
    needed = ", ".join([*lead, *map(str, node.type.shape)])
    if array.ndim != len(node.type.shape) + len(lead) or array.shape[len(lead) :] != node.type.shape:
        raise InputError(f"{where} needs an array of shape [{needed}], got {list(array.shape)}")
    if node.type.is_sequence and not array.shape[1]:
        raise InputError(f"{where} needs sequences of one step or more, got the shape {list(array.shape)}")
    if array.dtype.kind not in "buif":
        raise InputError(f"{where} needs numbers, got {array.dtype}")
    if not isinstance(node.type.dtype, IntType):
        return array.astype(np.float64)
    if array.dtype.kind == "f":
        raise InputError(f"{where} needs integers in {node.type.dtype}, got {array.dtype}")
    if not node.type.dtype.holds(array):
        raise InputError(f"{where} needs values in {node.type.dtype}, got {array.min()}..{array.max()}")
    return array.astype(np.int64)
