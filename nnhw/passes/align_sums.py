"""Pass: a float sum of dequantized integers whose scales have a simple ratio becomes an integer sum.

add(dequantize(a, 0.5), dequantize(b, 0.25)) --> dequantize(weighted_sum(a, b; 2, 1), 0.25)
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from nnhw.ir import Graph, Node
from nnhw.ir.ops import Add, Dequantize, Subtract, WeightedSum

from .edit import Edit, sole_names
from .joins import COMBINATIONS, COMBINATIONS_OF_CLASSES
from .wide_joins import MOST_BITS, MOST_CODES, MOST_STEPS

_SMALL_FACTOR = 16
"""Factors up to this are always taken: a search over all combinations of codes would hardly find smaller ones."""
_GREATEST_FACTOR = 2**12
"""Factors above this are taken only where no other ones can be found."""
_MOST_RESULTS = 2**8
"""Most codes of a result."""
_EXACT_BITS = 53
"""Significant bits of a float64."""


def align_sums(graph: Graph) -> Graph:
    """Replace each sum or difference of dequantized integers by an integer one, where no rounding can differ.

    Exact, since it is done only where scales and integers have so few bits that float64 rounds no product and no sum.
    """
    # The nodes are those of the given graph; an edit before may have removed some of them, or changed what they read.
    for node in graph.nodes:
        operands = graph.data_inputs(graph.node(node.name)) if node.name in graph else ()
        is_sum = isinstance(node.op, Add | Subtract) and len(operands) == 2
        sources = {operand.inputs[0] for operand in operands if isinstance(operand.op, Dequantize)}
        if is_sum and len(sources) == 2:
            graph = _aligned(graph, graph.node(node.name), *operands)
    return graph


def _aligned(graph: Graph, node: Node, left: Node, right: Node) -> Graph:
    scales = [graph.constants[operand.inputs[1]] for operand in (left, right)]
    values = [graph.node(operand.inputs[0]) for operand in (left, right)]
    factors = _factors(*scales)
    if factors is None or (max(factors) > _SMALL_FACTOR and _has_smaller(values, factors)):
        return graph
    # Both scales are whole multiples of `unit`, so the float sum is `unit` times the integer sum. No product or partial
    # sum has more bits than the two together: if these are 53 at most, nothing rounds.
    unit = np.divide(*np.broadcast_arrays(scales[0], float(factors[0])))
    greatest = sum(factor * _size(value) for factor, value in zip(factors, values, strict=True))
    if any(_bits(float(number)) + greatest.bit_length() > _EXACT_BITS for number in np.unique(unit)):
        return graph
    # With its sign. The limit is one of the sum and not of the factors: 1031 : 8192 is no wider than 4001 : 4096.
    if greatest.bit_length() + 1 > MOST_BITS:
        return graph
    signed = factors if isinstance(node.op, Add) else (factors[0], -factors[1])
    edit = Edit(graph, sole_names(graph, (left, right), node))
    total = edit.add(node, WeightedSum(signed), [value.name for value in values], f"{node.name}.sum")
    edit.add(node, Dequantize(), [total, edit.constant(f"{node.name}.scale", unit)])
    return edit.apply(node.name)


def _factors(left: np.ndarray, right: np.ndarray) -> tuple[int, int] | None:
    """Return the ratio left : right of the scales in lowest terms; None if channels differ, or it has too many bits."""
    if left.shape != right.shape:
        return None
    # Exact fractions: scales that are equal only as rounded floats have another ratio, and rounding would decide.
    ratios = {Fraction(float(a)) / Fraction(float(b)) for a, b in zip(left.flat, right.flat, strict=True)}
    ratio = ratios.pop()
    # A factor of so many bits makes a sum of more.
    if ratios or max(ratio.numerator, ratio.denominator).bit_length() > MOST_BITS:
        return None
    # The common unit must be a float64 itself, as it becomes the scale of the sum.
    exact = all(Fraction(float(a) / ratio.numerator) * ratio.numerator == Fraction(float(a)) for a in left.flat)
    return (ratio.numerator, ratio.denominator) if exact else None


def _has_smaller(values: list[Node], factors: tuple[int, int]) -> bool:
    """Return whether `collapse_chains` finds factors that are mostly smaller, by evaluation."""
    sizes = [codes.high - codes.low + 1 for codes in (value.type.int_dtype for value in values)]
    channels = values[0].type.shape[0] if values[0].type.shape else 1  # as many classes at most
    if math.prod(sizes) <= COMBINATIONS and math.prod(sizes) * channels <= COMBINATIONS_OF_CLASSES:
        return True
    is_code = min(sizes) <= MOST_CODES and min(sizes) * channels * _MOST_RESULTS <= MOST_STEPS
    return is_code and max(factors) > _GREATEST_FACTOR


def _size(value: Node) -> int:
    codes = value.type.int_dtype
    return max(-codes.low, codes.high, 1)


def _bits(number: float) -> int:
    """Return the significant bits of a float64: the length of its odd part."""
    numerator = Fraction(number).numerator
    return (numerator // (numerator & -numerator)).bit_length()
