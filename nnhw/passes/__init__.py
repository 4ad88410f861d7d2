"""Passes: from the captured graph to an integer one. Each is one file, one function graph -> graph."""

from .collapse_chains import collapse_chains
from .pipeline import PIPELINE, lower
from .rounding import RoundingNote, find_rounding_notes
from .sink_pooling import sink_integer_pooling, sink_pooling
from .sink_reshapes import sink_reshapes
from .split import Parts, split

__all__ = [
    "PIPELINE",
    "Parts",
    "RoundingNote",
    "collapse_chains",
    "find_rounding_notes",
    "lower",
    "sink_integer_pooling",
    "sink_pooling",
    "sink_reshapes",
    "split",
]
