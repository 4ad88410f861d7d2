"""Finding the quantizers of a trace among the calls of an evaluation, by their order and signature."""

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
    signature: see `nnhw.frontend.evaluation.Signature`.
    name: name of the graph's node with its codes; None for weights, and for codes that nothing reads.
    weights: codes of a quantizer of weights; None for one whose codes depend on the images.
    label: name of the quantized weights.
    steps_first: it quantizes a sequence [steps, batch, ..].
    """

    signature: Signature
    name: str | None
    weights: np.ndarray | None
    label: str = ""
    steps_first: bool = False


@dataclass(frozen=True)
class TracedLoop:
    """A loop in the trace: its quantizers are called in each step, one after the other.

    Parameters
    ----------
    steps: their number, if the model fixes it; else it is that of the images.
    """

    quantizers: tuple[TracedQuantizer, ...]
    steps: int | None = None


Traced = TracedQuantizer | TracedLoop


def called(traced: Sequence[Traced], evaluation: Evaluation) -> list[tuple[TracedQuantizer, list[int]]]:
    """Return the numbers of the calls of each traced quantizer: one, or one for each step where it is in a loop.

    Raises: ExactnessError if calls are missing.
    """
    return [(quantizer, places) for quantizer, places, _ in _called(traced, evaluation)]


def matched(traced: Sequence[Traced], evaluation: Evaluation) -> dict[str, QuantizerCall]:
    """Return each quantizer's call by its name in the graph; those in a loop are one, with codes [N, steps, ..]."""
    found: dict[str, QuantizerCall] = {}
    for quantizer, places, in_loop in _called(traced, evaluation):
        calls = [evaluation.calls[place] for place in places]
        if quantizer.name is not None:
            # Equal quantizers of one value are one node of the graph: the first call speaks for all.
            found.setdefault(quantizer.name, _joined(calls) if in_loop else _ordered(quantizer, calls[0]))
    return found


def _called(traced: Sequence[Traced], evaluation: Evaluation) -> Iterator[tuple[TracedQuantizer, list[int], bool]]:
    """Yield (quantizer, numbers of its calls, whether it is in a loop); calls that were not traced are skipped."""
    # One iterator for all: each search goes on where the one before has ended.
    calls = enumerate(evaluation.calls)
    for one in traced:
        if isinstance(one, TracedQuantizer):
            yield one, [_next(one, calls)], False
            continue
        steps = [
            [_next(quantizer, calls) for quantizer in one.quantizers] for _ in range(one.steps or evaluation.steps)
        ]
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
    """Return whether a call has the signature of a traced quantizer, in which None stands for any size."""
    *plain, sizes = expected
    *others, given_sizes = given
    pairs = zip(sizes, given_sizes, strict=False)
    return plain == others and len(sizes) == len(given_sizes) and all(size in (None, other) for size, other in pairs)


def _joined(calls: Sequence[QuantizerCall]) -> QuantizerCall:
    numbers = [call.numbers for call in calls if call.numbers is not None]
    codes = np.stack([call.codes for call in calls], axis=1)
    return QuantizerCall(calls[0].signature, codes, calls[0].dtype, np.stack(numbers, axis=1) if numbers else None)


def _ordered(quantizer: TracedQuantizer, call: QuantizerCall) -> QuantizerCall:
    """Return a call whose codes have the batch as first axis."""
    if not quantizer.steps_first:
        return call
    numbers = None if call.numbers is None else call.numbers.swapaxes(0, 1)
    return QuantizerCall(call.signature, call.codes.swapaxes(0, 1), call.dtype, numbers)
