"""Decisions that PyTorch's plain float32 takes otherwise than exact arithmetic does: rounding decides there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnhw.errors import IrError
from nnhw.ir import Graph, Location
from nnhw.ir.ops import Dequantize

from .collapse_chains import find_steps
from .hoist_shapes import hoist_shapes
from .regions import Region, check_elementwise, find_region, quantizers
from .sink_shapes import sink_shapes


@dataclass(frozen=True)
class RoundingNote:
    """One channel of a layer where an accumulator lies within rounding noise of a decision.

    Parameters
    ----------
    layer: name of the node whose sums decide.
    sums: the accumulators at which float32 gives another code.
    """

    layer: str
    location: Location
    channel: int
    sums: tuple[int, ...]

    def __str__(self) -> str:
        values = ", ".join(map(str, self.sums))
        return (
            f"{self.layer} {self.location}, channel {self.channel}: for the sums {values} float32 rounds to another "
            f"code than float64; hardware follows float64; scales that are powers of two avoid it"
        )


def find_rounding_notes(graph: Graph) -> tuple[RoundingNote, ...]:
    """List the channels of a captured graph in which float32 decides otherwise on either side of a step.

    Elsewhere both precisions agree, as far as a float32 chain is monotone, which its rounding is, too. Regions with
    several sources are left out.
    """
    graph = hoist_shapes(sink_shapes(graph))
    regions = [region for quantizer in quantizers(graph) if (region := find_region(graph, quantizer))]
    return tuple(note for region in regions if len(region.sources) == 1 for note in _notes_of(region))


def _notes_of(region: Region) -> Iterator[RoundingNote]:
    check_elementwise(region)
    steps, sums = find_steps(region), region.source.type.int_dtype
    points = np.concatenate([steps.starts.T - 1, steps.starts.T]).clip(sums.low, sums.high)
    first, classes = region.classes
    differs = (_single_precision(region, points[:, first]) != steps(points)[:, first])[:, classes]
    for channel in np.flatnonzero(differs.any(axis=0)):
        values = np.unique(points[differs[:, channel], channel])
        yield RoundingNote(region.source.name, region.source.location, int(channel), tuple(map(int, values)))


def _single_precision(region: Region, values: np.ndarray) -> np.ndarray:
    """Evaluate a region with every value and constant in float32, by the ops' own formulas."""
    flat = region.flat([region.quantizer.name])
    results = {name: array.astype(np.float32) for name, array in flat.constants.items()}
    results[flat.inputs[0].name] = values
    for node in flat.nodes:
        if node.name in results:
            continue
        operands = [results[name] for name in node.inputs]
        try:
            # dequantize multiplies in float64 by definition; in float32 it is a product like any other.
            is_entry = isinstance(node.op, Dequantize)
            results[node.name] = (
                operands[0].astype(np.float32) * operands[1] if is_entry else node.op.evaluate(*operands)
            )
        except IrError:  # NaN, which only float32 gives here: no code at all
            return np.full(values.shape, np.iinfo(np.int64).min)
    return results[flat.outputs[0]]
