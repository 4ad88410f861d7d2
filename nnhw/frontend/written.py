"""Models that quantize by themselves, without a library: their quantizers are found in the trace.

What `nnhw.nn.written` has marked is compared with the model as its user wrote it: where it has marked codes, the user's
own operations must give codes times the scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from nnhw.errors import CaptureError, ExactnessError
from nnhw.nn.functional import along_axis
from nnhw.nn.written.rewriting import NEAR, Marked, mark, may_quantize

from .archive import random_input
from .evaluation import Evaluation, Evaluator, QuantizerCall
from .export import exported_again, fitting, has_loop, opened
from .locations import Lines, location_of


@dataclass(frozen=True, eq=False)
class Written:
    """A traced model whose own quantizers were found.

    Parameters
    ----------
    program: as it was traced.
    marked: the same with `nnhw.quantize` behind each value that was found.
    quantizers: these values, by the name of the node in `program`.
    """

    program: ExportedProgram
    marked: ExportedProgram
    quantizers: Mapping[str, Marked]


@dataclass(frozen=True)
class Found:
    """What was found in a traced model.

    Parameters
    ----------
    written: the model with its quantizers; None: it has none.
    uneven: problems with quantizers whose numbers are no codes.
    """

    written: Written | None = None
    uneven: tuple[CaptureError, ...] = ()


def find_quantizers(program: ExportedProgram, example: Tensor | None, lines: Lines) -> Found:
    """Return a traced model with its own quantizers marked."""
    if has_loop(program) or not may_quantize(program.graph):
        return Found()
    example = fitting(program, random_input(program) if example is None else example.detach().cpu())
    images = example.repeat_interleave(2, dim=0) if len(example) == 1 and _takes_any(program) else example
    module = opened(program)
    marks = mark(module, images[:2] if _takes_any(program) else images)
    uneven = tuple(CaptureError(one.text(location_of(one.node, lines))) for one in marks.uneven)
    if not marks.quantizers:
        return Found(None, uneven)
    marked = exported_again(program, module, example, lines)
    return Found(Written(program, marked, {one.name: one for one in marks.quantizers}), uneven)


def _takes_any(program: ExportedProgram) -> bool:
    """Return whether a program takes batches of any size."""
    name = program.graph_signature.user_inputs[0]
    value = next(node.meta["val"] for node in program.graph.nodes if node.name == name)
    return not isinstance(value.shape[0], int)


class WrittenEvaluator(Evaluator):
    """A model as its user wrote it: its results, and the codes that its own operations give where they were marked.

    Parameters
    ----------
    written: the trace, which gives the codes.
    model: the model itself, which gives the results; None: the trace gives them, too.
    double, weights: see `Evaluator`.
    """

    def __init__(
        self,
        written: Written,
        model: nn.Module | ExportedProgram | None = None,
        *,
        double: bool = False,
        weights: Mapping[int, np.ndarray] = MappingProxyType({}),
    ) -> None:
        super().__init__(written.program, double=double, weights=weights)
        self._quantizers = written.quantizers
        self._own = Evaluator(model, double=double) if isinstance(model, nn.Module) else None
        self._roundings = 1.0

    def __call__(self, images: np.ndarray, *, numbers: bool = False) -> Evaluation:
        """Evaluate images [N, *shape]; see `Evaluator`."""
        found = replace(super().__call__(images, numbers=numbers), roundings=self._roundings)
        return found if self._own is None else replace(found, result=self._own(images).result)

    def _result(self, batch: Tensor, calls: list[QuantizerCall]) -> Any:
        assert isinstance(self.model, fx.GraphModule)
        return _Watching(self.model, self, calls).run(batch)

    def call_of(self, marked: Marked, value: Tensor, number: int) -> tuple[QuantizerCall, Tensor]:
        """Return a value as the call of a quantizer, and the value that goes on.

        Raises
        ------
        ExactnessError: it is between two codes.
        """
        format = marked.format
        scale = along_axis(format.scale, value, format.axis)
        codes = torch.round(value / scale)
        apart = (value - codes * scale).abs()
        if not bool(((apart <= NEAR * scale) & (format.low <= codes) & (codes <= format.high)).all()):
            raise ExactnessError(
                f"'{marked.name}' was found to be codes {format.low}..{format.high} of the scale "
                f"{float(format.scale[0]):.6g}, but is none of them; this is a mistake of nnhw, please report the model"
            )
        unit = torch.finfo(value.dtype).eps / 2
        self._roundings = max(self._roundings, float((apart / (codes.abs().clamp(1) * scale)).max()) / unit)
        if marked.is_weight and number in self._weights:
            codes = torch.from_numpy(self._weights[number]).to(value.dtype)
            value = codes * scale
        kept = None if marked.is_weight else value.cpu().numpy().copy()
        exact = codes.to(torch.int16).cpu().numpy()
        return QuantizerCall((*format.options, tuple(value.shape[1:])), exact, value.dtype, kept), value


class _Watching(fx.Interpreter):
    """Runs a trace, and notes the codes of the values that were marked."""

    def __init__(self, module: fx.GraphModule, evaluator: WrittenEvaluator, calls: list[QuantizerCall]) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self._evaluator, self._calls = evaluator, calls

    def run_node(self, n: fx.Node) -> Any:
        """Compute a node."""
        result = super().run_node(n)
        marked = self._evaluator._quantizers.get(n.name)
        if marked is None:
            return result
        call, result = self._evaluator.call_of(marked, result, len(self._calls))
        self._calls.append(call)
        return result
