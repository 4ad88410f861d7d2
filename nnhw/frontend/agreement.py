"""PyTorch's own evaluation against the captured graph: the codes of each quantizer by `==`, given those in front of it.

Where they differ, only rounding may be the reason: a bound of what it can do decides that, and not a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from nnhw.errors import ExactnessError
from nnhw.ir import Graph, Node, run
from nnhw.ir.noise import decided, rounding_noise
from nnhw.ir.ops import ArgMax, Quantize

from .evaluation import Evaluation, Evaluator, Signature

_COMPARED = 16  # images at a time: the codes of all layers are kept for them
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True)
class TracedQuantizer:
    """A call of a quantizer in the trace.

    Parameters
    ----------
    name: of the graph's node with its codes; None for weights.
    """

    signature: Signature
    name: str | None


@dataclass(frozen=True)
class Captured:
    """A model as a graph, and how its quantizers are found in it.

    Parameters
    ----------
    quantizers: the calls of quantizers in the trace, in order, those of weights among them.
    """

    graph: Graph
    quantizers: tuple[TracedQuantizer, ...]


@dataclass(frozen=True)
class OwnAnswers:
    """What PyTorch computes, compared with the graph.

    Parameters
    ----------
    precision: in which the model computes by itself: 'float32' or 'float64'.
    own: results in that precision, [N, *shape].
    double: results in float64; None where the model does not run in it.
    ties: by precision: on how many images a quantizer takes another code than in the graph, because rounding decides.
    """

    precision: str
    own: np.ndarray
    double: np.ndarray | None
    ties: dict[str, int]


def own_answers(model: nn.Module | ExportedProgram, captured: Captured, images: np.ndarray) -> OwnAnswers:
    """Let PyTorch evaluate a model in its own precision and in float64, and compare both with its graph.

    Raises
    ------
    ExactnessError: they differ by more than rounding explains.
    """
    own = Evaluator(model)
    parts = list(own.parts(images, _COMPARED))
    given = [own(part) for part in parts]
    precision = _precision(captured, given[0])
    ties = {precision: _ties(captured, parts, given, precision)}
    result = np.concatenate([evaluation.result for evaluation in given])
    if precision == "float64":
        return OwnAnswers(precision, result, result, ties)
    try:
        double = Evaluator(model, double=True)
        given = [double(part) for part in parts]
    except RuntimeError:  # an operator that torch has for float32 alone
        return OwnAnswers(precision, result, None, ties)
    ties["float64"] = _ties(captured, parts, given, "float64")
    return OwnAnswers(precision, result, np.concatenate([evaluation.result for evaluation in given]), ties)


def _precision(captured: Captured, evaluation: Evaluation) -> str:
    """Return the dtype in which activations reach the quantizers: the least precise of them."""
    calls = zip(captured.quantizers, evaluation.calls, strict=False)
    dtypes = {call.dtype for traced, call in calls if traced.name is not None}
    return "float64" if dtypes == {torch.float64} else "float32"


def _ties(captured: Captured, parts: Sequence[np.ndarray], given: Sequence[Evaluation], precision: str) -> int:
    pairs = zip(parts, given, strict=True)
    return sum(int(compare(captured, images, evaluation, precision).sum()) for images, evaluation in pairs)


def compare(captured: Captured, images: np.ndarray, evaluation: Evaluation, precision: str) -> np.ndarray:
    """Compare an evaluation by PyTorch with the graph of the same model.

    The graph is evaluated with PyTorch's own codes behind each quantizer, so that each layer is judged by itself.

    Parameters
    ----------
    images: [N, *shape], of which the evaluation is.
    precision: 'float32' or 'float64', in which PyTorch computed.

    Returns
    -------
    Of each image, whether a quantizer takes another code, because rounding decides: bool [N].

    Raises
    ------
    ExactnessError: PyTorch has another code, or result, than rounding explains: the graph is not the model.
    """
    graph, codes = captured.graph, _matched(captured.quantizers, evaluation)
    differs = _differences(graph, images, codes, evaluation.result)
    ties = np.zeros(len(images), dtype=bool)
    if differs:
        rows = np.flatnonzero(np.any(list(differs.values()), axis=0))
        part = {name: array[rows] for name, array in codes.items()}
        _explain(graph, images[rows], part, evaluation.result[rows], precision)
        for name in differs.keys() & codes.keys():
            np.logical_or(ties, differs[name], out=ties)
    return ties


def _matched(traced: Sequence[TracedQuantizer], evaluation: Evaluation) -> dict[str, np.ndarray]:
    """Return PyTorch's codes by the graph's names. What is never read is in no trace, but PyTorch computes it."""
    codes: dict[str, np.ndarray] = {}
    calls = iter(evaluation.calls)
    for expected in traced:
        found = next((call for call in calls if call.signature == expected.signature), None)
        if found is None:
            raise ExactnessError(
                f"PyTorch calls other quantizers than the trace of the model has, from '{expected.name}' on; branches "
                f"and loops must not depend on how or how often the model is called"
            )
        if expected.name is not None:
            codes.setdefault(expected.name, found.codes.astype(np.int64))
    return codes


def _differences(
    graph: Graph, images: np.ndarray, codes: Mapping[str, np.ndarray], result: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the rows that differ, bool [N], by the name of the quantizer, or of the result."""
    differs: dict[str, np.ndarray] = {}

    def observe(name: str, computed: np.ndarray) -> None:
        if name in codes and not np.array_equal(codes[name], computed):
            differs[name] = _rows(codes[name] != computed)

    replaced = {name: array for name, array in codes.items() if name in graph}
    _check_shapes(graph, replaced, result)
    computed = run(graph, images, observe, replaced)[0].astype(result.dtype)
    if not np.array_equal(result, computed):
        differs[""] = _rows((result != computed) & ~_both_nan(result, computed))
    return differs


def _check_shapes(graph: Graph, codes: Mapping[str, np.ndarray], result: np.ndarray) -> None:
    for name, array in (*codes.items(), (graph.outputs[0], result)):
        if array.shape[1:] != graph.node(name).type.shape:
            raise ExactnessError(
                f"{graph.node(name)} has the shape {list(array.shape[1:])} in PyTorch, and "
                f"{list(graph.node(name).type.shape)} in its trace; this is a mistake of nnhw, please report the model"
            )


def _both_nan(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return where two results are NaN, which is no disagreement; lowering refuses it."""
    return (left != left) & (right != right)


def _rows(differs: np.ndarray) -> np.ndarray:
    return np.any(differs.reshape(len(differs), -1), axis=1, keepdims=False)


def _explain(
    graph: Graph, images: np.ndarray, codes: Mapping[str, np.ndarray], result: np.ndarray, precision: str
) -> None:
    """Raise ExactnessError unless rounding explains each difference."""
    values: dict[str, np.ndarray] = {}
    computed: dict[str, np.ndarray] = {}

    def observe(name: str, array: np.ndarray) -> None:
        computed[name] = array
        values[name] = codes.get(name, array)

    run(graph, images, observe, codes)
    unit = UNIT_ROUNDOFF[precision]
    noise = rounding_noise(graph, values, unit)
    for node, theirs, ours, possible in _judged(graph, values, computed, noise, codes, result, unit):
        wrong = (theirs != ours) & ~possible & ~_both_nan(theirs, ours)
        if wrong.any():
            raise ExactnessError(_message(node, theirs, ours, wrong, precision))


def _judged(
    graph: Graph,
    values: Mapping[str, np.ndarray],
    computed: Mapping[str, np.ndarray],
    noise: Mapping[str, np.ndarray],
    codes: Mapping[str, np.ndarray],
    result: np.ndarray,
    unit: float,
) -> Iterator[tuple[Node, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield each quantizer, then the result: PyTorch's values, the graph's, and where rounding allows PyTorch's."""
    for node in graph.nodes:
        if isinstance(node.op, Quantize) and node.name in codes:
            x, scale = node.inputs
            low, high = decided(node, [values[x], graph.constants[scale]], noise[x], unit)
            theirs = codes[node.name]
            yield node, theirs, computed[node.name], (low <= theirs) & (theirs <= high)
    last = graph.output_nodes[0]
    ours = computed[last.name]
    if isinstance(last.op, ArgMax):
        yield last, result, ours, _may_be_greatest(last.op, values[last.inputs[0]], noise[last.inputs[0]], result)
    elif last.type.is_int:
        yield last, result, ours, np.zeros(ours.shape, dtype=bool)
    else:
        yield last, result, ours.astype(result.dtype), np.abs(result - ours) <= noise[last.name]


def _may_be_greatest(op: ArgMax, x: np.ndarray, error: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return where the element at an index can be the greatest."""
    axis = op.axis + 1
    least = (x - error).max(axis=axis, keepdims=True)
    place = index if op.keepdim else np.expand_dims(index, axis)
    possible = np.take_along_axis(x + error, place, axis) >= least
    return possible if op.keepdim else possible.squeeze(axis)


def _message(node: Node, theirs: np.ndarray, ours: np.ndarray, wrong: np.ndarray, precision: str) -> str:
    place = tuple(np.argwhere(wrong)[0])
    what = "code" if isinstance(node.op, Quantize) else "result"
    return (
        f"{node} is the first whose {what} differs between PyTorch's own {precision} and the graph that was captured, "
        f"in {int(_rows(wrong).sum())} of the images in which they were compared: {theirs[place]} and {ours[place]} at "
        f"{list(map(int, place[1:]))} of one of them, which is more than rounding explains; so the graph is not the "
        f"model: look for what depends on the batch, the call or the dtype in front of it, else please report the model"
    )
