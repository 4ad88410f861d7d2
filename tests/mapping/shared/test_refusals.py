"""What a shared engine does not run: which layer, what it needs, what there is, and what helps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.errors import MappingError, ProblemList
from nnhw.ir import Graph, IntType
from nnhw.ir.ops import Concat, WeightedSum
from nnhw.mapping.shared import compile_body, compile_network, network_of
from tests.mapping.networks import I4, U2
from tests.mapping.shared.networks import NETWORKS, U4, U8, Lined, three_summands, turned
from tests.mapping.shared.programs import array_of

ARRAY = array_of(16, 1, 4)


def sums_between_layers() -> Graph:
    net = Lined((4, 4, 4), U4)
    a = net.conv(net.input, 4, (1, 1))
    b = net.line(net.conv(net.input, 4, (1, 1)), I4)
    return net.body(net.line(net.add(WeightedSum((1, 1)), a, b)))


def turning() -> Graph:
    net = Lined((4, 4, 4), U4)
    return net.body(net.table(net.conv(net.input, 4, (1, 1))))


def misaligned() -> Graph:
    net = Lined((4, 4, 4), U2)
    a, b = net.line(net.conv(net.input, 6, (1, 1)), U2), net.line(net.conv(net.input, 6, (1, 1)), U2)
    return net.body(net.line(net.conv(net.add(Concat(0), a, b), 4, (1, 1)), U2))


def wide_input() -> Graph:
    net = Lined((4, 4, 4), U8)
    return net.body(net.line(net.conv(net.input, 4, (1, 1))))


def wide_weights() -> Graph:
    net = Lined((4, 4, 4), U4)
    return net.body(net.line(net.conv(net.input, 4, (1, 1), IntType(-100, 100))))


def large_kernel() -> Graph:
    net = Lined((32, 6, 6), U4)
    return net.body(net.linear(net.input, 3))


def map_of_sums() -> Graph:
    net = Lined((4, 4, 4), U4)
    return net.body(net.conv(net.input, 20, (1, 1)))


def large_factors() -> Graph:
    net = Lined((4, 4, 4), U4)
    x = net.line(net.conv(net.input, 4, (1, 1)))
    return net.body(net.line(net.add(WeightedSum((1, 600)), x, net.input)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (turned, r"layer 'permute3' .*\(transpose\) does not run on a shared engine; use --style streaming"),
        (three_summands, r"layer 'weighted_sum5' .* adds 3 values, the array adds two at once"),
        (sums_between_layers, r"value 'conv2d1' has the codes .*, the array stores 4 bits; quantize it to 4 bits"),
        (turning, r"layer 'conv2d1' .* its channels turn in different ways, .* quantizer with equal steps, or --style"),
        (misaligned, r"joins 'threshold2' of 6 channels: .* multiples of 16 .*; change the number of channels"),
        (wide_input, r"value 'x' has the codes 0\.\.255, the array stores 4 bits; .* for the layers that read it"),
        (wide_weights, r"layer 'conv2d1' .* has weights of .*, the array takes -8\.\.7; use an array with more weight"),
        (large_kernel, r"needs 1152 rows of weights at once, the cache has 1024; use a smaller kernel"),
        (map_of_sums, r"ends the network in sums of 20 channels and 16 pixels, the array sends 16"),
        (large_factors, r"adds with the factors \[1, 600\], too large for weights of 4 bits"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_refusal_says_what_and_why_and_what_helps(make: object, message: str) -> None:
    with pytest.raises(MappingError, match=message):
        compile_body(make(), ARRAY)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"sum_bits": 8}, r"needs sums of \d+ bits, the array has 8; use an array with more, or --style streaming"),
        ({"factor_bits": 6}, r"needs a requantizer with factors of \d+ bits, the array has 6"),
        ({"addend_bits": 8}, r"needs a requantizer with addends of \d+ bits, the array has 8"),
        ({"rows": 20}, r"needs \d+ rows of weights at once, the cache has 20"),
    ],
)
def test_limit_of_the_array_is_named(limits: dict[str, int], message: str) -> None:
    with pytest.raises((MappingError, ProblemList), match=message):
        compile_body(NETWORKS["plain"](0), array_of(16, 1, 4, **limits))


def test_codes_between_engines_need_a_usual_zero_point() -> None:
    network = replace(network_of(NETWORKS["zero_point_out"](0)), sent=False)
    with pytest.raises(
        MappingError, match=r"codes -3\.\.12, and between engines .* choose its zero point as 0 or 8, or "
    ):
        compile_network(network, ARRAY)


def test_all_layers_that_no_array_runs_are_listed_at_once() -> None:
    net = Lined((4, 4, 4), U4)
    a, b = net.line(net.conv(net.input, 4, (1, 1))), net.table(net.conv(net.input, 4, (1, 1)), U4)
    body = net.body(net.table(net.conv(net.line(net.add(WeightedSum((1, 1)), a, b)), 3, (1, 1)), U4))
    with pytest.raises(ProblemList) as caught:
        compile_body(body, ARRAY)
    assert len(caught.value.problems) == 2


def test_no_shift_of_the_array_is_large_enough() -> None:
    array = array_of(16, 1, 8)
    body = NETWORKS["wide"](0)
    with pytest.raises(MappingError, match=r"needs a requantizer with a shift of \d+, the array has \(3,\)"):
        compile_body(body, type(array)(**{**vars(array), "shifts": (3,)}))
    assert np.array_equal(array.shifts, (20, 36))
