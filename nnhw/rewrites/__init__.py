"""Rewrites of graphs by the user: a pattern of operators, what takes its place, and the proof that nothing changes."""

from .apply import Place, Rewritten, apply_rewrites
from .pattern import Match, Value
from .rewrite import Rewrite

__all__ = ["Match", "Place", "Rewrite", "Rewritten", "Value", "apply_rewrites"]
