"""Rewrites of graphs by the user: a pattern of operators, its replacement, and a comparison of both on numbers."""

from .apply import MatchedPlace, Rewritten, apply_rewrites
from .pattern import Match, MatchedValue
from .rewrite import Rewrite

__all__ = ["Match", "MatchedPlace", "MatchedValue", "Rewrite", "Rewritten", "apply_rewrites"]
