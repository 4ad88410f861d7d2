"""Evaluation with PT2E's own operators: a model's result, and the codes of each of its quantizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .evaluation import Evaluator, QuantizerCall, Recorder
from .pt2e_rewriter import DEQUANTIZE, MOST_CODES, NAMESPACE, QUANTIZE, arguments_of

RECIPROCAL = True
"""torch's operators multiply by the reciprocal of the scale, which rounds differently from a division."""


class _Recorder(Recorder):
    """Records the codes that quantizers make, and those of weights, which are only dequantized."""

    def __init__(self, double: bool, weights: Mapping[int, Any], numbers: bool) -> None:
        super().__init__(double, weights, numbers)
        self._made: list[Tensor] = []

    def observe(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Record the call if it is one of PT2E's quantizers."""
        schema = getattr(func, "_schema", None)
        namespace, _, name = schema.name.partition("::") if schema is not None else ("", "", "")
        if namespace != NAMESPACE or name not in QUANTIZE + DEQUANTIZE:
            return
        given = arguments_of(func, args, kwargs)
        codes = result if name in QUANTIZE else given["input"]
        if name in QUANTIZE:
            self._made.append(codes)
        # These were recorded when they were made; all other codes are those of weights.
        elif any(codes is made for made in self._made):
            return
        if given["quant_max"] - given["quant_min"] < MOST_CODES:
            self.calls.append(self._call(given, codes, name in QUANTIZE))

    def _call(self, given: Mapping[str, Any], codes: Tensor, is_made: bool) -> QuantizerCall:
        """Return a call as that of `nnhw.quantize` which replaces it in the trace."""
        axis = given.get("axis", -1)
        zero_point = torch.as_tensor(given.get("zero_point", given.get("zero_points")), dtype=torch.int64).reshape(-1)
        # Codes become distances from the zero point, as the graph has them.
        spread = zero_point.reshape([-1 if place == axis else 1 for place in range(codes.dim())])
        ends = int(given["quant_min"]), int(given["quant_max"])
        signature = (*ends, axis, False, "half_even", RECIPROCAL and is_made, False, tuple(codes.shape[1:]))
        distances = (codes.to(torch.int64) - spread).to(torch.int16)
        numbers = given["input"].cpu().numpy().copy() if self.keeps_numbers and is_made else None
        return QuantizerCall(signature, distances.cpu().numpy(), torch.float32, numbers)


class Pt2eEvaluator(Evaluator):
    """A model as torch evaluates it, with the operators of PT2E as its quantizers."""

    _recorder = _Recorder
