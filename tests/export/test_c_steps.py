"""Step functions in C: each form on every sum that there is, or at all places where it could differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nnhw import ir
from nnhw.export.c import make_c
from nnhw.export.c.wide_lines import NearLines, fit_near_lines
from nnhw.flow.virtual.compiled import find_cc
from nnhw.flow.virtual.native import NativeNetwork, compile_c
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir.ops import Rescale, Slice, StepTable, WeightedSum
from nnhw.ir.types import IntType, TensorType
from nnhw.mapping.requantize import NormalSteps
from nnhw.nn import Int
from nnhw.passes import lower, split

needs_compiler = pytest.mark.skipif(
    find_cc() is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')"
)
SUMS = IntType(-30_000, 35_535)


def graph_of(
    raw: IntType, channels: int, op: ir.ops.Op, constants: dict[str, np.ndarray], sums: np.ndarray
) -> ir.Graph:
    """Return the graph of one function of sums: a map with all sums in each channel."""
    builder = ir.GraphBuilder("steps")
    inputs = [builder.input("x", TensorType((channels, 1, len(sums)), raw))]
    for name, array in constants.items():
        kind = IntType(int(array.min()), int(array.max()))
        inputs.append(builder.constant(name, array, TensorType(array.shape, kind)))
    return builder.build([builder.add("y", op, inputs)])


def check(graph: ir.Graph, codes: np.ndarray, forms: tuple[str, str], folder: Path) -> None:
    """Compile a graph in both kinds of C, usual and small, each of this form, and compare it with the interpreter."""
    for small, form in zip((False, True), forms, strict=True):
        program = make_c(graph, small=small)
        assert any(one.endswith(form) for one in program.forms), program.forms
        for flags in (("-O3", "-march=native"), ("-O1",)):
            network = NativeNetwork(program, graph, compile_c(program, folder, flags))
            made = network(codes)
            assert made.size
            assert (made == ir.run(graph, codes)[0]).all()


def check_steps(steps: np.ndarray, codes: np.ndarray, raw: IntType, forms: tuple[str, str], folder: Path) -> None:
    """Compare a step table at the ends of the range, and at each step and around it, or everywhere."""
    places = np.arange(raw.low, raw.high + 1) if raw.high - raw.low < 1 << 17 else None
    if places is None:
        near = steps.reshape(-1, 1) + np.arange(-2, 3)
        places = np.unique(np.clip(np.append(near, [raw.low, raw.high]), raw.low, raw.high))
    op = StepTable(int(codes.min()), int(codes.max()))
    graph = graph_of(raw, len(steps), op, {"steps": steps, "codes": codes}, places)
    check(graph, np.broadcast_to(places, (1, len(steps), 1, len(places))), forms, folder)


def noisy(distance: float, noise: float, count: int, seed: int) -> np.ndarray:
    """Return ascending steps about `distance` apart, each up to `noise` sums away from a line."""
    rng = np.random.default_rng(seed)
    return np.sort(np.round(distance * (np.arange(count) - count / 2) + rng.uniform(-noise, noise, count)).astype(int))


@needs_compiler
@pytest.mark.parametrize(
    ("noise", "form", "entries"),
    [
        (120, "multiply, shift and comparison", 101),
        (260, "multiply, shift and 2 comparisons", 102),
        (330, "multiply, shift and 3 comparisons", 103),
        (3000, "search", None),
    ],
)
def test_steps_near_a_line_are_equal_at_every_sum(noise: int, form: str, entries: int | None, tmp_path: Path) -> None:
    steps = noisy(300, noise, 100, 1)[None].repeat(3, axis=0)
    codes = np.arange(-50, 51)[None].repeat(3, axis=0)
    # A search needs the codes as well, and its steps are as narrow as they can be.
    sizes = [3 * len(np.unique(steps)) + 1] * 2 if entries is None else [entries * 4, entries * 2]
    check_steps(steps, codes, SUMS, tuple(f"{form} in {size:,} bytes of tables" for size in sizes), tmp_path)


@needs_compiler
def test_channels_with_other_steps_few_steps_and_falling_codes_are_equal(tmp_path: Path) -> None:
    rows = [noisy(90, 40, 200, 1), noisy(310, 100, 180, 2), noisy(7, 3, 150, 3), noisy(1, 0, 1, 4), noisy(1, 0, 0, 5)]
    steps = np.full((len(rows), 200), SUMS.high + 1)
    codes = np.zeros((len(rows), 201), dtype=np.int64)
    for channel, row in enumerate(rows):
        steps[channel, : len(row)] = row
        codes[channel] = (
            100 - np.minimum(np.arange(201), len(row)) if channel == 1 else np.minimum(np.arange(201), len(row))
        )
    check_steps(steps, codes, SUMS, ("tables", "tables"), tmp_path)
    # Codes that are no line of the count come from a table of their own.
    codes[0] = np.random.default_rng(1).permutation(201) - 50
    check_steps(steps, codes, SUMS, ("tables", "tables"), tmp_path)


@needs_compiler
@pytest.mark.parametrize("raw", [IntType(-(1 << 31), (1 << 31) - 2), IntType(-(1 << 44), 1 << 45)])
def test_steps_of_wide_sums_are_equal_around_each_step(raw: IntType, tmp_path: Path) -> None:
    distance = (raw.high - raw.low) / 300
    steps = noisy(distance, distance / 3, 255, 7)[None]
    check_steps(steps, np.arange(256)[None], raw, ("tables", "tables"), tmp_path)


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_double_rounding_is_equal_at_every_sum(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    channels = 8
    # The first two have ties by the dozen, on both sides of 0.
    multiplier = np.append([1 << 30, 3 << 29], rng.integers(1 << 30, 1 << 31, channels - 2))
    exponent, bias = -rng.integers(1, 12, channels), rng.integers(-3000, 3000, channels)
    constants = {"multiplier": multiplier, "exponent": exponent, "bias": bias}
    places = np.arange(SUMS.low, SUMS.high + 1)
    codes = np.broadcast_to(places, (1, channels, 1, len(places)))
    graph = graph_of(SUMS, channels, Rescale(3, -128, 127, "double"), constants, places)
    check(graph, codes, ("rescale, double rounding",) * 2, tmp_path)
    assert "rounded(" not in make_c(graph).files["steps.c"]


@needs_compiler
@pytest.mark.parametrize(("rounding", "low"), [("single", -128), ("double", 0)])
def test_a_rescale_that_is_a_line_is_computed_as_one(rounding: str, low: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    constants = {
        "multiplier": rng.integers(1 << 30, 1 << 31, 6),
        "exponent": -rng.integers(4, 9, 6),
        "bias": rng.integers(-3000, 3000, 6),
    }
    places = np.arange(SUMS.low, SUMS.high + 1)
    graph = graph_of(SUMS, 6, Rescale(0, low, 127, rounding), constants, places)
    check(graph, np.broadcast_to(places, (1, 6, 1, len(places))), ("multiply and shift",) * 2, tmp_path)


class Residual(nn.Module):
    """Two values with scales of no simple ratio, added."""

    def __init__(self) -> None:
        super().__init__()
        self.entry, self.first, self.second, self.sum = (Int(8, scale) for scale in (0.05, 0.0373, 0.0986, 0.11))

    def forward(self, x: Tensor) -> Tensor:
        """[N, 2, ..] --> [N, 1, ..]."""
        x = self.entry(x)
        result: Tensor = self.sum(self.first(x[:, :1]) + self.second(x[:, 1:]))
        return result


@needs_compiler
def test_a_residual_add_is_equal_for_every_pair_of_codes(tmp_path: Path) -> None:
    body = split(lower(capture_quantizers(Residual().eval(), torch.randn(2, 2, 4, 4)).graph)).body
    total, made = body.node("sum.sum"), body.node("sum")
    assert isinstance(total.op, WeightedSum)
    builder = ir.GraphBuilder("pairs")
    code = IntType(-128, 127)
    x = builder.input("x", TensorType((2, 256, 256), code))
    parts = [builder.add(name, Slice(0, k, k + 1), [x]) for k, name in enumerate(("first", "second"))]
    constants = [builder.constant(name, body.constants[name], body.node(name).type) for name in made.inputs[1:]]
    graph = builder.build([builder.add("y", made.op, [builder.add("sums", total.op, parts), *constants])])
    pairs = np.stack(np.meshgrid(*[np.arange(-128, 128)] * 2, indexing="ij"))
    steps = body.constants[made.inputs[1]].shape[1]
    assert steps == 255
    program = make_c(graph)
    assert program.forms[-1].endswith("threshold by multiply, shift and comparison in 1,024 bytes of tables")
    network = NativeNetwork(program, graph, compile_c(program, tmp_path))
    made_codes = network(pairs[None])
    assert made_codes.size == 1 << 16
    assert len(np.unique(made_codes)) == 256
    assert (made_codes == ir.run(graph, pairs[None])[0]).all()


def counted(lines: NearLines, channel: int, sums: np.ndarray) -> np.ndarray:
    """Return the steps that sums reach, as C counts them."""
    near = np.clip(sums, lines.low[channel], lines.last[channel])
    place = ((near - lines.low[channel]) >> lines.drop).astype(np.uint64)
    product = place * np.uint64(lines.multiplier[channel]) + np.uint64(lines.addend[channel])
    assert int(product.max(initial=0)) < 1 << 32
    count = (product >> np.uint64(lines.shift)).astype(np.int64)
    return count + sum((lines.steps[channel][count + k] <= near).astype(np.int64) for k in range(lines.late))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.floats(4, 1e6), st.floats(0, 4))
def test_near_lines_count_every_step_or_are_none(seed: int, count: int, distance: float, noise: float) -> None:
    rng = np.random.default_rng(seed)
    steps = np.unique(np.round(distance * (np.arange(count) + rng.uniform(0, noise, count))).astype(np.int64))
    reach = int(2 * distance * (count + 4)) + 10
    raw = IntType(-reach, reach)
    codes = np.arange(len(steps) + 1)
    function = NormalSteps.of(steps[None], codes[None], IntType(0, len(steps)), raw)
    lines = fit_near_lines(function)
    if lines is None:
        # Steps lie within `noise` distances of a line, and are rounded to whole sums.
        assert noise > 1
        return
    sums = np.unique(np.clip(np.append(steps[:, None] + np.arange(-2, 3), [raw.low, raw.high]), raw.low, raw.high))
    assert (counted(lines, 0, sums) == np.searchsorted(steps, sums, side="right")).all()
