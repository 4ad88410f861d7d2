"""Decisions that PyTorch's plain float32 takes otherwise than exact arithmetic does: rounding decides there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnhw.errors import IrError
from nnhw.ir import Graph, Location
from nnhw.ir.ops import Dequantize, Threshold

from .chains import Chain, find_chain, quantizers
from .collapse_chains import find_steps
from .sink_pooling import sink_pooling
from .sink_reshapes import sink_reshapes


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

    Elsewhere both precisions agree, as far as a float32 chain is monotone, which its rounding is, too.
    """
    graph = sink_pooling(sink_reshapes(graph))
    chains = [chain for quantizer in quantizers(graph) if (chain := find_chain(graph, quantizer))]
    return tuple(note for chain in chains for note in _notes_of(chain))


def _notes_of(chain: Chain) -> Iterator[RoundingNote]:
    steps, sums = find_steps(chain), chain.source.type.int_dtype
    points = np.concatenate([steps.thresholds.T - 1, steps.thresholds.T]).clip(sums.low, sums.high)
    op = Threshold(chain.codes.low, chain.codes.bipolar)
    exact = op.evaluate(points, steps.thresholds, steps.descending)
    differs = _single_precision(chain, points) != exact
    for channel in np.flatnonzero(differs.any(axis=0)):
        values = np.unique(points[differs[:, channel], channel])
        yield RoundingNote(chain.source.name, chain.source.location, int(channel), tuple(map(int, values)))


def _single_precision(chain: Chain, values: np.ndarray) -> np.ndarray:
    """Evaluate a chain with every value and constant in float32, by the ops' own formulas."""
    flat = chain.flat()
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
