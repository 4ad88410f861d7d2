"""Comparing PyTorch's own evaluation with the captured graph: the codes of each quantizer must be equal.

Each quantizer is judged with PyTorch's codes in front of it. A difference is accepted only where floating-point
rounding can explain it, which is decided by a bound of the rounding errors, and not by a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from nnhw.errors import ExactnessError
from nnhw.ir import Graph, Node, run
from nnhw.ir.graph import levels, named
from nnhw.ir.interpreter import folded, images_at_a_time, joined
from nnhw.ir.noise import decided, rounding_noise
from nnhw.ir.ops import ArgMax, Quantize, Rescale

from .doors import door_of
from .evaluation import Evaluation, Evaluator, QuantizerCall
from .graphs import GraphModel
from .matching import Traced, called, matched
from .written import Written, WrittenEvaluator

_COMPARED = 16  # images at a time: the codes of all layers are kept for them
_NUMBERS = 4  # images of which the numbers in front of quantizers are compared, too
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True)
class Captured:
    """A captured model: its graph, and where its quantizers are in it.

    Parameters
    ----------
    graph: the float-level graph.
    quantizers: the calls of quantizers in the trace in order, also those of weights, and loops with quantizers inside.
    traced: the traced model: the user's, or the one that its door has made from it.
    written: the trace of a model that quantizes by itself; None for all others.
    """

    graph: Graph
    quantizers: tuple[Traced, ...]
    traced: nn.Module | ExportedProgram
    written: Written | None = None

    def own_evaluator(self, model: nn.Module | ExportedProgram) -> Evaluator:
        """Return the evaluation of the user's model by its framework."""
        return door_of(model).evaluator(model) if self.written is None else WrittenEvaluator(self.written, model)

    def double_evaluator(self, weights: Mapping[int, np.ndarray]) -> Evaluator:
        """Return PyTorch's evaluation of the trace in float64; see `Evaluator`."""
        if self.written is None:
            return Evaluator(self.traced, double=True, weights=weights)
        return WrittenEvaluator(self.written, double=True, weights=weights)


@dataclass(frozen=True)
class OwnAnswers:
    """PyTorch's own results, after they were compared with the graph.

    Parameters
    ----------
    precision: the model's own precision: 'float32' or 'float64'.
    own: results in that precision, [N, *shape].
    double: results in float64; None where the model does not run in it.
    ties: by precision, the number of images on which a quantizer has another code than in the graph because of
        rounding.
    """

    precision: str
    own: np.ndarray
    double: np.ndarray | None
    ties: dict[str, int]


@dataclass(frozen=True)
class _Given:
    """PyTorch's values for some images.

    Parameters
    ----------
    codes: codes of each quantizer, by its name in the graph.
    result: the model's results.
    precision: 'float32' or 'float64'.
    numbers: numbers in front of each quantizer, by name, where these are compared, too.
    roundings: see `Evaluation`.
    """

    codes: Mapping[str, np.ndarray]
    result: np.ndarray
    precision: str
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)
    roundings: float = 1.0

    @property
    def unit_roundoff(self) -> float:
        """Half of the distance from 1 to the next larger number of the precision, for as many roundings."""
        return UNIT_ROUNDOFF[self.precision] * self.roundings


@dataclass(frozen=True)
class _Judged:
    """Values of a node that are compared.

    Parameters
    ----------
    what: 'operand' or 'code' of a quantizer, or 'result'.
    theirs, ours: PyTorch's values, and the graph's.
    possible: bool: rounding can explain PyTorch's value.
    """

    node: Node
    what: str
    theirs: np.ndarray
    ours: np.ndarray
    possible: np.ndarray


def own_answers(model: nn.Module | ExportedProgram, captured: Captured, images: np.ndarray) -> OwnAnswers:
    """Evaluate a model by its framework, and the traced model by PyTorch in float64; compare both with the graph.

    A graph of the IR has no evaluation but its own.

    Raises
    ------
    ExactnessError: they differ by more than rounding explains.
    """
    if isinstance(model, GraphModel):
        return OwnAnswers("float64", model.compute(images), None, {})
    # First the framework's own evaluation of the user's model, then the traced model in float64, which shows mistakes
    # that float32's rounding could hide.
    precision, own, ties = agree(captured, captured.own_evaluator(model), images)
    evaluator = Evaluator(captured.traced)
    # Codes of weights in the model's own precision: in float64 some could differ, which would be another model.
    weights = _weights(captured.quantizers, evaluator(next(evaluator.parts(images, 1))))
    double = None
    counts = {precision: ties}
    try:
        evaluator = captured.double_evaluator(weights)
        _compare_numbers(captured, evaluator, images)
        if precision == "float32":
            _, double, counts["float64"] = agree(captured, evaluator, images)
    except RuntimeError:  # an operator that torch has for float32 alone
        return OwnAnswers(precision, own, None, counts)
    return OwnAnswers(precision, own, own if double is None else double, counts)


def compare_conventions(captured: Captured, evaluator: Evaluator, images: np.ndarray) -> None:
    """Compare a framework's quantizers with the traced ones, wherever both read exactly the same number.

    Rounding errors cannot explain a difference there: the quantizers follow another convention, such as for ties.

    Raises
    ------
    ExactnessError: the two have different codes for the same number.
    """
    traced = Evaluator(captured.traced)
    # Both keep the numbers of all quantizers.
    for part in evaluator.parts(images, images_at_a_time(captured.graph, len(images))):
        theirs = matched(captured.quantizers, evaluator(part, numbers=True))
        ours = matched(captured.quantizers, traced(part, numbers=True))
        _compare_codes(captured.graph, theirs, ours)


def _compare_codes(graph: Graph, theirs: Mapping[str, QuantizerCall], ours: Mapping[str, QuantizerCall]) -> None:
    """Raise ExactnessError where a quantizer has two codes for one number; see `compare_conventions`."""
    for name, call in theirs.items():
        own = ours[name]
        if call.numbers is None or own.numbers is None or call.numbers.dtype != own.numbers.dtype:
            continue
        differs = (call.numbers == own.numbers) & (call.codes != own.codes)
        if differs.any():
            place = tuple(np.argwhere(differs)[0])
            raise ExactnessError(
                f"{graph.node(name)} is the first quantizer that gives another code than its framework for "
                f"the same number: {own.codes[place]} and {call.codes[place]} for {call.numbers[place]}; this is a "
                f"mistake of nnhw, please report the model"
            )


def agree(captured: Captured, evaluator: Evaluator, images: np.ndarray) -> tuple[str, np.ndarray, int]:
    """Compare an evaluation with the graph; return (precision, results, number of images on which rounding decides).

    Raises
    ------
    ExactnessError: an evaluation differs from the graph by more than rounding explains.
    """
    precision, results, ties = "", [], 0
    for part in evaluator.parts(images, images_at_a_time(captured.graph, _COMPARED)):
        evaluation = evaluator(part)
        # By the dtypes of the first batch's calls: all batches have the same.
        if not precision:
            precision = _precision(captured, evaluation)
            # Weights are the same for all images.
            _compare_weights(captured, evaluation)
        ties += int(compare(captured, part, evaluation, precision).sum())
        results.append(evaluation.result)
    return precision, np.concatenate(results), ties


def _compare_numbers(captured: Captured, evaluator: Evaluator, images: np.ndarray) -> None:
    """Compare the numbers in front of quantizers, too; on a few images, as a mistake would change most of them."""
    part = next(evaluator.parts(images, images_at_a_time(captured.graph, _NUMBERS)))
    evaluation = evaluator(part, numbers=True)
    calls = matched(captured.quantizers, evaluation)
    numbers = {name: call.numbers for name, call in calls.items() if call.numbers is not None}
    given = _Given(_codes(calls), evaluation.result, "float64", numbers, evaluation.roundings)
    _explain(captured.graph, part, given)


def _precision(captured: Captured, evaluation: Evaluation) -> str:
    """Return the least precise dtype in which activations reach quantizers: 'float32' or 'float64'."""
    pairs = called(captured.quantizers, evaluation)
    dtypes = {evaluation.calls[n].dtype for traced, places in pairs if traced.name is not None for n in places}
    return "float64" if dtypes == {torch.float64} else "float32"


def compare(captured: Captured, images: np.ndarray, evaluation: Evaluation, precision: str) -> np.ndarray:
    """Compare an evaluation by PyTorch with the graph of the same model.

    The graph is evaluated with PyTorch's own codes behind each quantizer, so that each layer is judged by itself.

    Parameters
    ----------
    images: [N, *shape], of which the evaluation is.
    precision: 'float32' or 'float64', in which PyTorch computed.

    Returns
    -------
    bool [N]: whether a quantizer has another code for an image, because of rounding.

    Raises
    ------
    ExactnessError: PyTorch has a code or result that rounding does not explain: the graph is not the model.
    """
    graph, codes = captured.graph, _codes(matched(captured.quantizers, evaluation))
    differs = _differences(graph, images, codes, evaluation.result)
    ties = np.zeros(len(images), dtype=bool)
    # The bound of rounding errors costs more than the evaluation, so that it is computed for differing rows alone.
    if differs:
        rows = np.flatnonzero(np.any(list(differs.values()), axis=0))
        part = {name: array[rows] for name, array in codes.items()}
        given = _Given(part, evaluation.result[rows], precision, roundings=evaluation.roundings)
        _explain(graph, images[rows], given)
        for name in differs.keys() & codes.keys():
            np.logical_or(ties, differs[name], out=ties)
    return ties


def _compare_weights(captured: Captured, evaluation: Evaluation) -> None:
    for traced, places in called(captured.quantizers, evaluation):
        for place in places:
            if traced.weights is not None and not _same_weights(traced.weights, evaluation.calls[place].codes):
                raise ExactnessError(
                    f"the quantized weights '{traced.label}' have other codes in the graph than where the model is "
                    f"evaluated; this is a mistake of nnhw, please report the model"
                )


def _same_weights(traced: np.ndarray, given: np.ndarray) -> bool:
    """Return whether codes are the same; what is repeated for each image of a batch is traced once."""
    is_start = given.ndim > 0 and traced.shape == (1, *given.shape[1:])
    repeated = np.broadcast_to(traced, given.shape) if is_start else traced
    return np.array_equal(repeated, given)


def _codes(calls: Mapping[str, QuantizerCall]) -> dict[str, np.ndarray]:
    return {name: call.codes.astype(np.int64) for name, call in calls.items()}


def _weights(traced: Sequence[Traced], evaluation: Evaluation) -> dict[int, np.ndarray]:
    """Return the codes of weights, by the number of the quantizer's call."""
    pairs = called(traced, evaluation)
    return {
        n: evaluation.calls[n].codes for quantizer, places in pairs if quantizer.weights is not None for n in places
    }


def _differences(
    graph: Graph, images: np.ndarray, codes: Mapping[str, np.ndarray], result: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the rows that differ, bool [N], by the name of the quantizer; by "" for the result."""
    differs: dict[str, np.ndarray] = {}

    def observe(name: str, computed: np.ndarray) -> None:
        if name in codes and not np.array_equal(codes[name], computed):
            differs[name] = _rows(codes[name] != computed)

    # PyTorch's codes replace those of the graph, so that a difference does not spread to the quantizers behind it.
    known = {prefix + node.name for prefix, part in levels(graph) for node in part.nodes}
    replaced = {name: array for name, array in codes.items() if name in known}
    _check_shapes(graph, replaced, result)
    # The result is rounded to PyTorch's dtype, as the graph's float64 would differ nearly everywhere.
    computed = joined(run(graph, images, observe, replaced)).astype(result.dtype)
    if not np.array_equal(result, computed):
        differs[""] = _rows((result != computed) & ~_both_nan(result, computed))
    return differs


def _results(graph: Graph, result: np.ndarray) -> Iterator[tuple[Node, np.ndarray]]:
    """Yield each output of a graph with its part of what an evaluation gives, where several are joined."""
    nodes = graph.output_nodes
    if len(nodes) == 1:
        yield nodes[0], result
        return
    ends = np.cumsum([node.type.size for node in nodes])
    if result.shape[1:] != (ends[-1],):
        raise ExactnessError(
            f"the results of '{graph.name}' have {list(result.shape[1:])} elements in PyTorch, and {ends[-1]} in its "
            f"trace; this is a mistake of nnhw, please report the model"
        )
    for node, part in zip(nodes, np.split(result, ends[:-1], axis=1), strict=True):
        yield node, part.reshape(len(part), *node.type.shape)


def _check_shapes(graph: Graph, codes: Mapping[str, np.ndarray], result: np.ndarray) -> None:
    results = {node.name: array for node, array in _results(graph, result)}
    for name, array in (*codes.items(), *results.items()):
        node = named(graph, name)
        lead = 1 + (node.type.is_sequence or name not in graph)
        if array.shape[lead:] != node.type.shape:
            raise ExactnessError(
                f"{node} has the shape {list(array.shape[lead:])} in PyTorch, and "
                f"{list(node.type.shape)} in its trace; this is a mistake of nnhw, please report the model"
            )


def _both_nan(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return where both results are NaN, which counts as equal here; lowering refuses it."""
    return (left != left) & (right != right)


def _rows(differs: np.ndarray) -> np.ndarray:
    return np.any(differs.reshape(len(differs), -1), axis=1, keepdims=False)


def _explain(graph: Graph, images: np.ndarray, given: _Given) -> None:
    """Raise ExactnessError unless rounding explains each difference."""
    values: dict[str, np.ndarray] = {}
    computed: dict[str, np.ndarray] = {}

    def observe(name: str, array: np.ndarray) -> None:
        computed[name] = array
        values[name] = given.codes.get(name, array)

    run(graph, images, observe, given.codes)
    for prefix, part in levels(graph):
        level = replace(
            given, codes=_at_level(prefix, part, given.codes), numbers=_at_level(prefix, part, given.numbers)
        )
        own = _at_level(prefix, part, computed)
        noise = rounding_noise(part, _at_level(prefix, part, values), given.unit_roundoff)
        judgements = [*_judged(part, own, noise, level)]
        if not prefix:
            judgements += [_judged_result(part, own, noise, *one) for one in _results(part, given.result)]
        for judged in judgements:
            wrong = (judged.theirs != judged.ours) & ~judged.possible & ~_both_nan(judged.theirs, judged.ours)
            if wrong.any():
                raise ExactnessError(_message(judged, wrong, given.precision))


def _at_level(prefix: str, graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values of a graph, or of a loop's body in it, by their own names, with the steps as rows."""
    names = ((node, f"{prefix}{node.name}") for node in graph.nodes)
    found = {node: arrays[name] for node, name in names if name in arrays}
    return {node.name: folded(array) if prefix or node.type.is_sequence else array for node, array in found.items()}


def _judged(
    graph: Graph, computed: Mapping[str, np.ndarray], noise: Mapping[str, np.ndarray], given: _Given
) -> Iterator[_Judged]:
    """Yield the operand and the code of each quantizer for comparison."""
    for node in graph.nodes:
        # Only at quantizers has the graph numbers that PyTorch has, too.
        if not isinstance(node.op, Quantize | Rescale) or node.name not in given.codes:
            continue
        operands = [computed[name] if name in computed else graph.constants[name] for name in node.inputs]
        x = operands[0]
        error = noise[node.inputs[0]]
        if node.name in given.numbers:
            theirs = given.numbers[node.name]
            yield _Judged(node, "operand", theirs, x, np.abs(theirs - x) <= error)
        low, high = decided(node, operands, error, given.unit_roundoff)
        codes = given.codes[node.name]
        yield _Judged(node, "code", codes, computed[node.name], (low <= codes) & (codes <= high))


def _judged_result(
    graph: Graph, computed: Mapping[str, np.ndarray], noise: Mapping[str, np.ndarray], last: Node, result: np.ndarray
) -> _Judged:
    result = folded(result) if last.type.is_sequence else result
    ours = computed[last.name]
    if isinstance(last.op, ArgMax):
        x = computed[last.inputs[0]]
        possible = _may_be_greatest(last.op, x, noise[last.inputs[0]], result.astype(np.int64))
    else:
        possible = np.abs(result - ours) <= (0 if last.type.is_int else noise[last.name])
    return _Judged(last, "result", result, ours.astype(result.dtype), possible)


def _may_be_greatest(op: ArgMax, x: np.ndarray, error: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return where the element at PyTorch's index can be the greatest, given the errors of all elements."""
    axis = op.axis + 1
    # An element can be the greatest if its number plus its error reaches the greatest number less its error.
    least = (x - error).max(axis=axis, keepdims=True)
    place = index if op.keepdim else np.expand_dims(index, axis)
    possible = np.take_along_axis(x + error, place, axis) >= least
    return possible if op.keepdim else possible.squeeze(axis)


def _message(judged: _Judged, wrong: np.ndarray, precision: str) -> str:
    place = tuple(np.argwhere(wrong)[0])
    return (
        f"{judged.node} is the first whose {judged.what} differs between PyTorch's own {precision} and the graph that "
        f"was captured, in {int(_rows(wrong).sum())} of the images in which they were compared: "
        f"{judged.theirs[place]} and {judged.ours[place]} at {list(map(int, place[1:]))} of one of them, which is more "
        f"than rounding explains; so the graph is not the model: look for what depends on the batch, the call or the "
        f"dtype in front of it, else please report the model"
    )
