"""Requantizers: exact integer functions from a raw sum to a code, each with the latency of its hardware.

Most of them find an *index*, which counts from the lowest code: code = `code.low` + index; of a bipolar code index 0
is -1 and index 1 is +1. Latencies are in moves: cycles in which the pipeline is not held up.
"""

from nnhw.engines.requantize.base import Requantizer, codes_of, index_span
from nnhw.engines.requantize.channel_product import (
    ADDER_BITS,
    DSP_PIECE_BITS,
    FUSED_BITS,
    FUSED_FACTOR_BITS,
    FUSED_MOVES,
    LOWER_BITS,
    ConstantProduct,
    lower_bits,
    pieces,
    radix4_digits,
    reject_wide,
    tree_depth,
)
from nnhw.engines.requantize.common_steps import CommonSteps
from nnhw.engines.requantize.double_scaler import HIGH_SHIFT, DoubleScaler
from nnhw.engines.requantize.multiply_shift import MultiplyShift
from nnhw.engines.requantize.ranked import RankedSteps, reaching
from nnhw.engines.requantize.scaler import Scaler
from nnhw.engines.requantize.table import Table
from nnhw.engines.requantize.thresholds import Thresholds, ThresholdSearch, count_reached

__all__ = [
    "ADDER_BITS",
    "DSP_PIECE_BITS",
    "FUSED_BITS",
    "FUSED_FACTOR_BITS",
    "FUSED_MOVES",
    "HIGH_SHIFT",
    "LOWER_BITS",
    "CommonSteps",
    "ConstantProduct",
    "DoubleScaler",
    "MultiplyShift",
    "RankedSteps",
    "Requantizer",
    "Scaler",
    "Table",
    "ThresholdSearch",
    "Thresholds",
    "codes_of",
    "count_reached",
    "index_span",
    "lower_bits",
    "pieces",
    "radix4_digits",
    "reaching",
    "reject_wide",
    "tree_depth",
]
