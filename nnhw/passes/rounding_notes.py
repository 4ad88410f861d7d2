"""Codes that PyTorch may compute differently from the hardware, which follows the graph in float64.

That is where rounding to float32, or the last bits of a function, decide on a code.
"""

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
from .step_finder import Steps
from .wide_joins import fixed_at

_LISTED = 8
"""Tuples of sums that a note shows where branches are joined."""


@dataclass(frozen=True)
class RoundingNote:
    """A channel of a layer in which some sums lie so close to a step that rounding decides on their code.

    Parameters
    ----------
    layer: name of the node with the sums.
    location: where the user's model has it.
    channel: number of the channel.
    sums: the integers for which PyTorch may give another code; for each a tuple, one integer per node in `layers`.
    layers: names of all nodes whose integers are joined, `layer` among them.
    functions: names of the functions whose last bits decide, even in float64; empty if only float32 differs.
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
    """List the channels of a captured graph in which float32 or last bits may lead PyTorch to another code.

    Only the sums on both sides of each step are evaluated, and the ends of the range, where a function may be at its
    limit. Between them both precisions agree if the float32 chain is monotone, and rounding is monotone. Where branches
    are joined, the steps of the widest one are evaluated for each combination of the others' integers, or for an even
    selection of combinations if there are too many.
    """
    graph = flatten_positions(hoist_shapes(sink_shapes(graph)))
    regions = [region for quantizer in quantizers(graph) if (region := find_region(graph, quantizer))]
    return tuple(note for region in regions for note in _notes_of(region))


def _notes_of(region: Region) -> Iterator[RoundingNote]:
    check_elementwise(region)
    ranges = [source.type.int_dtype for source in region.sources]
    # The widest source is bisected, and the combinations of the others are listed, so that they are as few as possible.
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
    """Yield a note for each channel that has differing values.

    Parameters
    ----------
    lead: index of the source whose layer is named.
    values: integers of each source, int64 [N, classes].
    differs: whether the codes may differ, bool [N, classes].
    """
    source, names = region.sources[lead], tuple(source.name for source in region.sources)
    for channel, kind in enumerate(region.classes[1]):
        found = np.unique(np.stack([array[differs[:, kind], kind] for array in values], axis=1), axis=0)
        if len(found):
            sums = tuple(map(tuple, found.tolist()))
            yield RoundingNote(source.name, source.location, channel, sums, names, functions)


def _combinations(region: Region, lead: int) -> list[np.ndarray]:
    """Return combinations of the integers of all sources but `lead`, int64 [rows] each: all, or an even selection."""
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
        except IrError:
            # Float32 overflows to NaN here, and float64 does not. NaN has no code: give one that differs from all.
            return np.full(values[0].shape, np.iinfo(np.int64).min)
    return results[flat.outputs[0]]
