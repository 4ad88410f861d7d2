"""Decisions that PyTorch may take otherwise than the hardware: rounding to float32, or to last bits, decides there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.errors import IrError
from nnhw.ir import Graph, Location
from nnhw.ir.ops import Dequantize

from .bisection import SCANNED_AT_MOST, find_steps
from .flatten_positions import flatten_positions
from .hoist_shapes import hoist_shapes
from .margins import Margins
from .regions import Region, check_elementwise, find_region, quantizers
from .sink_shapes import sink_shapes
from .steps import Steps
from .wide_joins import fixed_at

_LISTED = 8


@dataclass(frozen=True)
class RoundingNote:
    """One channel of a layer where integers lie within rounding noise of a decision.

    Parameters
    ----------
    layer: name of the node whose sums decide.
    sums: the integers at which it gives another code: one of each source, in the order of `layers`.
    layers: names of all nodes whose integers are joined, `layer` among them.
    functions: names of those whose last bits decide, also in float64; none if float32 alone is concerned.
    """

    layer: str
    location: Location
    channel: int
    sums: tuple[tuple[int, ...], ...]
    layers: tuple[str, ...]
    functions: tuple[str, ...] = ()

    def __str__(self) -> str:
        joined = len(self.layers) > 1
        shown = [str(values if joined else values[0]) for values in self.sums[: _LISTED if joined else None]]
        values = ", ".join(shown) + (f", .. ({len(self.sums)} in all)" if len(shown) < len(self.sums) else "")
        of = f" of {' and '.join(self.layers)}" if joined else ""
        where = f"{self.layer} {self.location}, channel {self.channel}: for the sums {values}{of}"
        if self.functions:
            return (
                f"{where} the last bits of {' and '.join(self.functions)} decide, which PyTorch's float64 may round to "
                f"another code than hardware"
            )
        return (
            f"{where} float32 rounds to "
            f"another code than float64; hardware follows float64; scales that are powers of two avoid it"
        )


def find_rounding_notes(graph: Graph) -> tuple[RoundingNote, ...]:
    """List the channels of a captured graph in which float32 decides otherwise on either side of a step.

    Elsewhere both precisions agree, as far as a float32 chain is monotone, which its rounding is, too; the ends of the
    range are looked at as well, for there a function may be at its limit. Where branches are joined, the steps of the
    widest are looked at for each combination of the others' integers, or for an even spread of them where there are too
    many. The same places are noted if the last bits of functions that PyTorch computes by itself decide there.
    """
    graph = flatten_positions(hoist_shapes(sink_shapes(graph)))
    regions = [region for quantizer in quantizers(graph) if (region := find_region(graph, quantizer))]
    return tuple(note for region in regions for note in _notes_of(region))


def _notes_of(region: Region) -> Iterator[RoundingNote]:
    check_elementwise(region)
    ranges = [source.type.int_dtype for source in region.sources]
    lead = int(np.argmax([kind.high - kind.low for kind in ranges]))
    others = _combinations(region, lead)
    classes = len(region.classes[0])
    steps = find_steps(fixed_at(region, lead, *others) if others else region)
    channels = slice(None) if others else region.classes[0]
    starts, codes = steps.starts[channels], steps.codes[channels]
    ends = np.full((1, len(starts)), ranges[lead].high)
    points = np.concatenate([starts.T - 1, starts.T, ends]).clip(ranges[lead].low, ranges[lead].high)
    wanted = Steps(starts, codes)(points).reshape(-1, classes)
    # Each place of each combination is a row: [places * rows, classes].
    values = [np.tile(array, len(points))[:, np.newaxis].repeat(classes, axis=1) for array in others]
    values.insert(lead, points.reshape(-1, classes))
    margins = Margins(region)
    yield from _listed_notes(region, lead, values, _single_precision(region, values) != wanted)
    if margins.library:
        functions = tuple(node.name for node in margins.library)
        yield from _listed_notes(region, lead, values, margins.undecided(*values), functions)


def _listed_notes(
    region: Region, lead: int, values: Sequence[np.ndarray], differs: np.ndarray, functions: tuple[str, ...] = ()
) -> Iterator[RoundingNote]:
    """Yield a note for each channel with values [N, classes] that differ."""
    source, names = region.sources[lead], tuple(source.name for source in region.sources)
    for channel, kind in enumerate(region.classes[1]):
        found = np.unique(np.stack([array[differs[:, kind], kind] for array in values], axis=1), axis=0)
        if len(found):
            sums = tuple(map(tuple, found.tolist()))
            yield RoundingNote(source.name, source.location, channel, sums, names, functions)


def _combinations(region: Region, lead: int) -> list[np.ndarray]:
    """Return integers of all sources but one, int64 [rows] each: all combinations, or as many as are affordable."""
    ranges = [source.type.int_dtype for source in region.sources]
    size = ranges[lead].high - ranges[lead].low + 1
    others = [np.arange(kind.low, kind.high + 1) for index, kind in enumerate(ranges) if index != lead]
    count = math.prod(map(len, others))
    most = max(SCANNED_AT_MOST // (size * len(region.classes[0])), 1)
    index = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
    places = np.unravel_index(index, [len(array) for array in others]) if others else ()
    return [array[place] for array, place in zip(others, places, strict=True)]


def _single_precision(region: Region, values: Sequence[np.ndarray]) -> np.ndarray:
    """Evaluate a region with every value and constant in float32, by the ops' own formulas."""
    flat = region.flat([region.quantizer.name])
    results = {name: array.astype(np.float32) for name, array in flat.constants.items()}
    results |= {region_input.name: array for region_input, array in zip(flat.inputs, values, strict=True)}
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
            return np.full(values[0].shape, np.iinfo(np.int64).min)
    return results[flat.outputs[0]]
