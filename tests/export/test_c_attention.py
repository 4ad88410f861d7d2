"""Exported C of attention: products of two values, integer softmax and normalization, constants of each position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnhw import ir
from nnhw.export.c import make_c
from nnhw.frontend import capture
from nnhw.passes import lower, split
from tests.export.test_c import CC, compiled, expected, float_ends
from tests.frontend.examples import BETWEEN_VALUES, trimmed
from tests.frontend.models import settled
from tests.frontend.tested import OnDevice, example_images

pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')")
POWERS = [65535, 50000, 20000, 3000, 17, 1, 0]


def products(lead: tuple[int, ...], low: int, high: int) -> dict[str, ir.Graph]:
    """Return products of a value with itself, either side transposed or not."""
    made = {}
    for turned in ((False, True), (True, False)):
        builder = ir.Builder("product")
        x = builder.input("x", (*lead, 5, 7), low=low, high=high)
        made[f"{lead} {low} {turned}"] = builder.build(x.matrix_product(x, *turned))
    return made


def graphs() -> dict[str, ir.Graph]:
    """Return graphs of one operator over axes of every kind."""
    made = {**products((), -128, 127), **products((3,), 0, 70_000), **products((2, 3), -(2**20), 2**20)}
    for shape, axis in (((7,), 0), ((4, 6), 0), ((4, 6), 1), ((3, 4, 5), 0), ((3, 4, 5), 2), ((2, 3, 4, 5), 1)):
        builder = ir.Builder("softmax")
        x = builder.input("x", shape, low=-9, high=9)
        keep = np.ones(shape, np.int64)
        keep.reshape(-1)[1::3] = 0
        keep.swapaxes(0, axis)[0] = 1
        masked = x.integer_softmax(POWERS, keep, axis=axis, bits=7, high=64)
        made[f"softmax {shape} {axis}"] = builder.build(
            x.integer_softmax(POWERS, axis=axis).weighted_sum(masked, factors=(1, 512))
        )
        for most, epsilon in ((100, 0), (2**28, 2**50)):
            builder = ir.Builder("norm")
            x = builder.input("x", shape, low=-most, high=most)
            both = [x.integer_norm(epsilon, axis, bits, centered) for bits, centered in ((10, True), (15, False))]
            made[f"norm {shape} {axis} {most}"] = builder.build(both[0].weighted_sum(both[1], factors=(1, 1 << 22)))
        builder = ir.Builder("constant")
        x = builder.input("x", shape, low=0, high=3)
        values = np.arange(-3, np.prod(shape) - 3).reshape(shape) * 1000
        made[f"constant {shape} {axis}"] = builder.build(x.weighted_sum(x.broadcast(values), factors=(1, 2)))
    return made


def test_c_of_attention_operators_equals_the_interpreter(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = list(graphs().values())
    all_parts = [float_ends(graph) for graph in made]
    programs = [
        make_c(graph, parts.head, parts.tail, f"net_{k}")
        for k, (graph, parts) in enumerate(zip(made, all_parts, strict=True))
    ]
    library = compiled(programs, tmp_path, "-fsanitize=undefined", "-fno-sanitize-recover=all")
    for graph, parts, program in zip(made, all_parts, programs, strict=True):
        kind = graph.inputs[0].type.int_dtype
        images = rng.integers(kind.low, kind.high + 1, (6, *graph.inputs[0].type.shape)).astype(np.float32)
        images[0], images[1] = kind.low, kind.high
        for given, wanted in zip(library.run(program, parts, images), expected(parts, images), strict=True):
            np.testing.assert_array_equal(given, wanted)


def test_c_of_examples_between_values_equals_the_interpreter(tmp_path: Path) -> None:
    images = example_images(6)
    models = [trimmed(settled(OnDevice([function])), images) for function in BETWEEN_VALUES.values()]
    nets = [split(lower(capture(model, images))) for model in models]
    programs = [make_c(parts.body, parts.head, parts.tail, f"net_{k}") for k, parts in enumerate(nets)]
    library = compiled(programs, tmp_path)
    seen = 0
    for parts, program in zip(nets, programs, strict=True):
        results = library.run(program, parts, images.numpy())
        for given, wanted in zip(results, expected(parts, images.numpy()), strict=True):
            np.testing.assert_array_equal(given, wanted)
        seen += len(np.unique(results[-1])) > 1
    assert seen >= len(nets) - 1
