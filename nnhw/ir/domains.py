"""Advice, for error messages, on operators that give NaN or infinity."""

from __future__ import annotations

from .ops import Divide, Op, Sqrt

_REMEDIES: dict[type[Op], str] = {
    Sqrt: "no number below 0 has a square root: put torch.relu in front, or take the root of a square",
    Divide: "keep what it divides by away from 0, as by adding a constant, and check it for NaN and infinity",
}
_OTHERWISE = "check its parameters for NaN, infinity and division by zero"


def remedy_for_nan(op: Op) -> str:
    """Return, as part of a message, what a user can do about an operator that gives NaN or infinity."""
    return _REMEDIES.get(type(op), _OTHERWISE)
