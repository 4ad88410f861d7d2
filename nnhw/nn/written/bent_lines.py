"""Functions of one value that consist of straight lines, such as 0.5 * (|x| - |x - a| + a), which is x clamped to 0..a.

Bounds of the parts of such a sum say nothing about the sum; the points at which it bends do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, fx

from nnhw.nn.kinds import operation

_SUMS = frozenset({"add", "sub", "rsub", "mul", "div", "neg"})
_KINKS: Mapping[str, Callable[[Sequence[object]], list[float]]] = {
    "abs": lambda args: [0.0],
    "relu": lambda args: [0.0],
    "relu6": lambda args: [0.0, 6.0],
    "leaky_relu": lambda args: [0.0],
    **dict.fromkeys(
        ("clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "maximum", "minimum"),
        lambda args: [float(one) for one in args if isinstance(one, int | float)],
    ),
}
"""Operations that bend --> the numbers of their operand at which they do, from their other arguments."""
_FLAT = 2.0**-48
"""Slope, relative to the greatest value, that is one of rounding."""

Points = Tensor
"""float64 [2, N]: places and values; the function is a straight line between and beyond them. Places ascend."""
IDENTITY: Points = torch.tensor([[-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]], dtype=torch.float64)


def bent(
    node: fx.Node,
    operands: Sequence[tuple[fx.Node, Points]],
    constants: Mapping[fx.Node, Tensor],
    compute: Callable[[Mapping[fx.Node, Tensor]], Tensor],
) -> Points | None:
    """Return an operation on functions of one value as such a function; None if it is none.

    Parameters
    ----------
    operands: the operands that are such functions; all others are constants.
    compute: calls the operator with numbers for these operands.
    """
    name = operation(node, {})
    read = [arg for arg in node.args if any(arg is operand for operand, _ in operands)]
    product = name in ("mul", "div") and (len(read) > 1 or node.args[0] is not operands[0][0])
    if "rounding_mode" in node.kwargs:
        return None
    if (name not in _SUMS and name not in _KINKS) or product:
        return None
    places = torch.cat([points[0] for _, points in operands])
    if name in _KINKS:
        if len(read) > 1:
            return None
        others = [arg for arg in (*node.args, *node.kwargs.values()) if arg is not operands[0][0]]
        known = [float(constants[arg].reshape(-1)[0]) if arg in constants else arg for arg in others]  # type: ignore[index]
        places = torch.cat([places, *(_crossings(operands[0][1], level) for level in _KINKS[name](known))])
    # A place beyond the outermost bend on either side tells the slope there.
    places = torch.unique(places)
    places = torch.cat([places[:1] - 1, places, places[-1:] + 1])
    try:
        values = compute({operand: at(points, places) for operand, points in operands})
    except RuntimeError:
        return None
    return torch.stack([places, values.double().expand_as(places)])


def at(points: Points, places: Tensor) -> Tensor:
    """Return the values of a function at some places."""
    xs, ys = points
    piece = torch.searchsorted(xs, places, right=True).clamp(1, len(xs) - 1)
    slope = (ys[piece] - ys[piece - 1]) / (xs[piece] - xs[piece - 1])
    # From the nearer end, where the value is known exactly.
    near = torch.where(places >= xs[piece], piece, piece - 1)
    return ys[near] + slope * (places - xs[near])


def bounds_of(points: Points) -> tuple[float, float]:
    """Return the least and the greatest value of a function, which may be infinite."""
    ys = points[1]
    greatest = float(ys.abs().max())
    left, right = float(ys[1] - ys[0]), float(ys[-1] - ys[-2])
    left, right = (0.0 if abs(rise) <= _FLAT * max(greatest, 1.0) else rise for rise in (left, right))
    low = float("-inf") if left > 0 or right < 0 else float(ys.min())
    high = float("inf") if left < 0 or right > 0 else float(ys.max())
    return low, high


def _crossings(points: Points, level: float) -> Tensor:
    """Return the places at which a function has a value."""
    xs, ys = points
    found = []
    pieces = range(len(xs) - 1)
    for piece in pieces:
        rise = float(ys[piece + 1] - ys[piece])
        if not rise:
            continue
        place = float(xs[piece] + (level - ys[piece]) / rise * (xs[piece + 1] - xs[piece]))
        inside = float(xs[piece]) <= place <= float(xs[piece + 1])
        beyond = (piece == 0 and place < float(xs[0])) or (piece == pieces[-1] and place > float(xs[-1]))
        if inside or beyond:
            found.append(place)
    return torch.tensor(found, dtype=torch.float64)
