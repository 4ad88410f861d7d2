"""Passes lower a captured float graph to an integer graph. Each is one file with one function from graph to graph."""

from .align_sums import align_sums
from .cancel_permutes import cancel_permutes
from .collapse_chains import collapse_chains
from .drop_unread import drop_unread
from .fold_constants import fold_constants
from .fold_fixed_channels import fold_fixed_channels
from .fold_mirrors import fold_mirrors
from .fold_permutes import fold_permutes
from .hoist_shapes import hoist_shapes
from .join_rescaled import join_rescaled
from .merge_gates import merge_gates
from .merge_parallel import merge_parallel
from .narrow_codes import narrow_codes
from .order import PIPELINE, lower
from .permute_input import permute_input
from .rounding_notes import RoundingNote, find_rounding_notes
from .savings import OPTIMIZATIONS, Size, savings
from .separate_padding import separate_padding
from .share_twins import share_twins
from .sink_extremes import sink_extremes
from .sink_integer_pooling import sink_integer_pooling
from .sink_shapes import sink_shapes
from .split import Parts, split
from .turn_products import turn_products

__all__ = [
    "OPTIMIZATIONS",
    "PIPELINE",
    "Parts",
    "RoundingNote",
    "Size",
    "align_sums",
    "cancel_permutes",
    "collapse_chains",
    "drop_unread",
    "find_rounding_notes",
    "fold_constants",
    "fold_fixed_channels",
    "fold_mirrors",
    "fold_permutes",
    "hoist_shapes",
    "join_rescaled",
    "lower",
    "merge_gates",
    "merge_parallel",
    "narrow_codes",
    "permute_input",
    "savings",
    "separate_padding",
    "share_twins",
    "sink_extremes",
    "sink_integer_pooling",
    "sink_shapes",
    "split",
    "turn_products",
]
