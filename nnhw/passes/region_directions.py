"""Directions of a region: the pieces of its range on which it rises, falls or stays constant.

They follow from the trends of its ops and the signs of their parameters, never from samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nnhw.ir import Node
from nnhw.ir.ops import Add, Dequantize, Greater, GreaterEqual, Maximum, Minimum, Subtract, Where

from .regions import Region, RegionEvaluator

_MONOTONE_IN_EACH = (Add, Subtract, Minimum, Maximum, Greater, GreaterEqual)
"""Ops that are monotone in each operand, the other one being fixed; a product of two values is not."""


@dataclass(frozen=True)
class MonotonePieces:
    """A partition of a region's integer range into pieces on which its function is monotone, in each class.

    Parameters
    ----------
    starts: int64 [pieces, classes], ascending; a piece ends where the next begins, and may be empty.
    directions: int64 of the same shape: 1 never falls, -1 never rises, 0 constant.
    """

    starts: np.ndarray
    directions: np.ndarray

    def ends(self, end: int) -> np.ndarray:
        """Return the first place behind each piece, int64 [pieces, classes]; behind the last piece it is `end`."""
        return np.concatenate([self.starts[1:], np.full_like(self.starts[:1], end)])

    def cut_at(self, starts: np.ndarray) -> np.ndarray:
        """Return the direction in each piece of a finer partition, whose starts contain these: int64 as `starts`."""
        index = (self.starts[np.newaxis] <= starts[:, np.newaxis]).sum(axis=1) - 1
        return np.take_along_axis(self.directions, index, axis=0)


def find_pieces(region: Region) -> MonotonePieces | None:
    """Return the monotone pieces of a region with one source; None if they do not follow from its ops."""
    known: dict[str, MonotonePieces | None] = {}
    for node in region.nodes:
        known[node.name] = _entry(region) if isinstance(node.op, Dequantize) else _pieces_of(region, node, known)
    return known[region.quantizer.name]


def first_reached(low: np.ndarray, high: np.ndarray, reached: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return, by bisection, the first place of each range low..high - 1 where `reached` holds; `high` if there is none.

    Parameters
    ----------
    low, high: int64 arrays of one shape, a range for each element.
    reached: gives a bool for each place; once it holds in a range, it holds up to the end of it.
    """
    while (active := low < high).any():
        middle = (low + high) // 2
        hit = reached(middle)
        high = np.where(active & hit, middle, high)
        low = np.where(active & ~hit, middle + 1, low)
    return low


def _entry(region: Region) -> MonotonePieces:
    shape = (1, len(region.classes[0]))
    return MonotonePieces(np.full(shape, region.source.type.int_dtype.low), np.ones(shape, dtype=np.int64))


def _pieces_of(region: Region, node: Node, known: dict[str, MonotonePieces | None]) -> MonotonePieces | None:
    names = [name for name in node.inputs if name in known]
    operands = [pieces for name in names if (pieces := known[name]) is not None]
    if len(operands) < len(names):
        return None
    if isinstance(node.op, Where):
        return _chosen(region, node, known)
    if len(names) == 1:
        return _through(region, node, names[0], operands[0])
    if not isinstance(node.op, _MONOTONE_IN_EACH):
        return None
    starts = np.sort(np.concatenate([pieces.starts for pieces in operands]), axis=0)
    moves = [pieces.cut_at(starts) * _trend(region, node, position) for position, pieces in enumerate(operands)]
    # A sum of a rising and a falling operand may do either.
    opposed = (np.max(moves, axis=0) > 0) & (np.min(moves, axis=0) < 0)
    return None if opposed.any() else MonotonePieces(starts, np.sign(np.sum(moves, axis=0)))


def _chosen(region: Region, node: Node, known: dict[str, MonotonePieces | None]) -> MonotonePieces:
    """Return the pieces of a `where`: in each of them the condition is constant, and the chosen operand is monotone."""
    condition, *choices = node.inputs
    found = {name: pieces for name in node.inputs if (pieces := known.get(name)) is not None}
    cut = [pieces.starts for pieces in found.values()]
    if condition in found:
        cut += _changes(region, condition, found[condition])
        starts = np.sort(np.concatenate(cut), axis=0)
        # The pieces are cut at all changes of the condition, so its value at the start decides for the piece. An empty
        # piece may start behind the range: its value does not matter.
        holds = RegionEvaluator(region, [condition])(starts.clip(max=region.source.type.int_dtype.high))[0] != 0
    else:
        starts = np.sort(np.concatenate(cut), axis=0)
        # A constant condition decides by itself.
        holds = np.broadcast_to(region.per_class(node, region.graph.constants[condition]) != 0, starts.shape)
    directions = [found[name].cut_at(starts) if name in found else np.zeros_like(starts) for name in choices]
    return MonotonePieces(starts, np.where(holds, *directions))


def _changes(region: Region, name: str, pieces: MonotonePieces) -> list[np.ndarray]:
    """Return two places for each piece: in front of, between and behind them the condition holds always or never.

    A condition holds if it is not 0. So one that rises may hold below 0, cease to hold at 0, and hold again above.
    """
    evaluate, high = RegionEvaluator(region, [name]), region.source.type.int_dtype.high
    found = []
    for sign in (1, -1):
        # Whether the condition is above 0 (below 0 for sign -1) changes at most once in a monotone piece.
        rises = sign * pieces.directions >= 0

        def beyond(places: np.ndarray, sign: int = sign, rises: np.ndarray = rises) -> np.ndarray:
            reached: np.ndarray = (sign * evaluate(np.minimum(places, high))[0] > 0) == rises
            return reached

        found.append(first_reached(pieces.starts, pieces.ends(high + 1), beyond))
    return found


def _through(region: Region, node: Node, name: str, pieces: MonotonePieces) -> MonotonePieces | None:
    """Return the pieces behind an op with one operand that is not constant; None if it is not known to be monotone."""
    trend = _trend(region, node, node.inputs.index(name))
    if trend is not None:
        return MonotonePieces(pieces.starts, pieces.directions * trend)
    return _turned(region, node, name, pieces) if node.op.turns() else None


def _trend(region: Region, node: Node, position: int) -> np.ndarray | None:
    trend = node.op.trend(position, region.graph.operands(node))
    return None if trend is None else np.nan_to_num(region.per_class(node, trend)).astype(np.int64)


def _turned(region: Region, node: Node, name: str, pieces: MonotonePieces) -> MonotonePieces:
    """Cut the operand's pieces where it passes a turn of the op, such as the minimum of SiLU."""
    sums, turns = region.source.type.int_dtype, np.array(node.op.turns())
    evaluate = RegionEvaluator(region, [name])

    def values(places: np.ndarray) -> np.ndarray:
        return evaluate(np.minimum(places, sums.high))[0]

    # Each turn in each piece: [turns * pieces, classes].
    low, high = (np.tile(ends, (len(turns), 1)) for ends in (pieces.starts, pieces.ends(sums.high + 1)))
    rises = np.tile(pieces.directions >= 0, (len(turns), 1))
    turn = np.repeat(turns, len(pieces.starts))[:, np.newaxis]
    cuts = first_reached(low, high, lambda places: (values(places) > turn) == rises)
    starts = np.sort(np.concatenate([pieces.starts, cuts]), axis=0)
    # Directions alternate from turn to turn, so the parity of the number of turns below decides.
    passed = np.searchsorted(turns, values(starts))
    direction = np.where(passed % 2 == 0, node.op.first_direction(), -node.op.first_direction())
    return MonotonePieces(starts, pieces.cut_at(starts) * direction)
