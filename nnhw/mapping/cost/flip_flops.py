"""Flip-flops of systolic arrays, for families that count them apart from LUTs."""

from __future__ import annotations

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.matmul import MatmulConfig
from nnhw.mapping.resources import counter_bits, tree_widths


def array_flip_flops(config: MatmulConfig) -> int:
    """Return the flip-flops of an array: trees, accumulators, drain, activations on their way, words of weights."""
    raw, depth = config.raw.bits, config.folds * config.steps
    arithmetic, lanes = config.arithmetic, config.simd * config.activation.bits
    logic, dsp = config.pe - config.dsp_pe, config.dsp_pe
    waits = raw * (config.tree_levels - arithmetic.tree_levels(config.simd)) if logic and dsp else 0
    products = logic * (tree_flip_flops(arithmetic, config.simd, raw) + waits)
    if dsp:
        waits = raw * (config.tree_levels - arithmetic.dsp_levels(config.simd))
        widths = [arithmetic.activation.bits + arithmetic.weight.bits] * config.simd
        products += dsp * (_sum_of(tree_widths(widths), raw) + waits)
    sums = config.pe * raw * (1 + (config.steps > 1))
    ways = lanes * (1 + config.late + config.groups) + config.groups * counter_bits(depth)
    return products + sums + ways + _weights(config, depth)


def tree_flip_flops(arithmetic: LaneArithmetic, simd: int, raw: int) -> int:
    """Return the flip-flops of the tree of a cell whose products are made of LUTs: one behind each adder's bit.

    Parameters
    ----------
    raw: bits of the raw sum: what lies above is left out.
    """
    kind, a, w = arithmetic.kind, arithmetic.activation.bits, arithmetic.weight.bits
    if kind == "xnor" or (a == 1 and w == 1):
        return _tree([1] * simd, raw)
    if kind in ("select", "ternary"):
        return _tree([a] * simd, raw)
    if arithmetic.has_tables:
        return _tree([3] * simd, raw + 1) + raw
    bits = max(a, w)
    total = sum(_tree([bits] * simd, raw - plane) for plane in range(arithmetic.planes))
    widths, shift = [bits + (simd - 1).bit_length()] * arithmetic.planes, 1
    while len(widths) > 1:
        pairs = [widths[index : index + 2] for index in range(0, len(widths), 2)]
        widths = [max(pair[0], pair[1] + shift) + 1 if len(pair) == 2 else pair[0] for pair in pairs]
        total, shift = total + sum(min(width, raw) for width in widths), 2 * shift
    return total


def _tree(widths: list[int], raw: int) -> int:
    """Return the flip-flops behind the levels of a tree; a number alone has one behind it, too."""
    return _sum_of(tree_widths(widths) or [widths], raw)


def _sum_of(levels: list[list[int]], raw: int) -> int:
    return sum(min(width, raw) for level in levels for width in level)


def _weights(config: MatmulConfig, depth: int) -> int:
    """Return the flip-flops behind memories of weights; a block RAM has its own, unless it is too slow for them."""
    if depth == 1:
        return 0
    word = config.simd * config.weight.bits
    in_block = config.pe - config.logic_pe
    return word * (config.logic_pe * (1 + config.split_logic) + in_block * (config.registered or config.tail_words > 0))
