"""The quantizers of a trace, found among the calls of an evaluation: by order, and by what a call is known by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.errors import ExactnessError

from .evaluation import Evaluation, QuantizerCall, Signature


@dataclass(frozen=True)
class TracedQuantizer:
    """A call of a quantizer in the trace.

    Parameters
    ----------
    name: of the graph's node with its codes; None for weights, and for what nobody reads.
    weights: the codes of what does not depend on the images; None for what does.
    label: the name of what it quantizes, of weights.
    steps_first: what it quantizes is a sequence [steps, batch, ..].
    """

    signature: Signature
    name: str | None
    weights: np.ndarray | None
    label: str = ""
    steps_first: bool = False


@dataclass(frozen=True)
class TracedLoop:
    """A loop in the trace: its quantizers are called in each step, one after the other."""

    quantizers: tuple[TracedQuantizer, ...]


Traced = TracedQuantizer | TracedLoop


def called(traced: Sequence[Traced], evaluation: Evaluation) -> list[tuple[TracedQuantizer, list[int]]]:
    """Return the numbers of the calls of each traced quantizer: one, or one for each step where it is in a loop.

    Raises: ExactnessError if calls are missing.
    """
    return [(quantizer, places) for quantizer, places, _ in _called(traced, evaluation)]


def matched(traced: Sequence[Traced], evaluation: Evaluation) -> dict[str, QuantizerCall]:
    """Return the calls by the graph's names: those of a loop as one, with codes [N, steps, ..]."""
    found: dict[str, QuantizerCall] = {}
    for quantizer, places, in_loop in _called(traced, evaluation):
        calls = [evaluation.calls[place] for place in places]
        if quantizer.name is not None:
            found.setdefault(quantizer.name, _joined(calls) if in_loop else _ordered(quantizer, calls[0]))
    return found


def _called(traced: Sequence[Traced], evaluation: Evaluation) -> Iterator[tuple[TracedQuantizer, list[int], bool]]:
    """Yield each quantizer with its calls, and whether it is in a loop. What is never read is called, not traced."""
    calls = enumerate(evaluation.calls)
    for one in traced:
        if isinstance(one, TracedQuantizer):
            yield one, [_next(one, calls)], False
            continue
        steps = [[_next(quantizer, calls) for quantizer in one.quantizers] for _ in range(evaluation.steps)]
        for quantizer, places in zip(one.quantizers, zip(*steps, strict=True), strict=True):
            yield quantizer, list(places), True


def _next(expected: TracedQuantizer, calls: Iterator[tuple[int, QuantizerCall]]) -> int:
    place = next((number for number, call in calls if _is_same(expected.signature, call.signature)), None)
    if place is None:
        raise ExactnessError(
            f"PyTorch calls other quantizers than the trace of the model has, from '{expected.name}' on; branches "
            f"and loops must not depend on how or how often the model is called"
        )
    return place


def _is_same(expected: Signature, given: Signature) -> bool:
    """Return whether a call is one of a traced quantizer, whose sizes that come with the input are None."""
    *plain, sizes = expected
    *others, given_sizes = given
    pairs = zip(sizes, given_sizes, strict=False)
    return plain == others and len(sizes) == len(given_sizes) and all(size in (None, other) for size, other in pairs)


def _joined(calls: Sequence[QuantizerCall]) -> QuantizerCall:
    numbers = [call.numbers for call in calls if call.numbers is not None]
    codes = np.stack([call.codes for call in calls], axis=1)
    return QuantizerCall(calls[0].signature, codes, calls[0].dtype, np.stack(numbers, axis=1) if numbers else None)


def _ordered(quantizer: TracedQuantizer, call: QuantizerCall) -> QuantizerCall:
    """Return a call with the batch in front."""
    if not quantizer.steps_first:
        return call
    numbers = None if call.numbers is None else call.numbers.swapaxes(0, 1)
    return QuantizerCall(call.signature, call.codes.swapaxes(0, 1), call.dtype, numbers)
