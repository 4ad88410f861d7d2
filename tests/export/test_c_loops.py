"""C of recurrent networks: a function for each step, with the states in a struct, equal to the interpreter."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.random_recurrent import random_recurrent
from nnhw import ir
from nnhw.errors import ExportError
from nnhw.export.c import CProgram, make_c
from nnhw.export.c.c_text import c_type
from nnhw.export.c.plan import make_plan
from nnhw.flow.virtual.compiled import find_cc
from nnhw.passes import Parts, lower, split
from tests.export.test_c import Library, compiled

SEEDS = range(1, 13)
pytestmark = pytest.mark.skipif(find_cc() is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')")


def run_steps(library: Library, program: CProgram, parts: Parts, sequence: np.ndarray) -> np.ndarray:
    """Return the last codes of the network behind each step of one sequence, and check those of its input."""
    entry, result = parts.body.inputs[0].type, parts.body.output_nodes[0].type
    codes = np.zeros(entry.shape, c_type(entry.int_dtype).removesuffix("_t"))
    made = np.zeros(result.shape, c_type(result.int_dtype).removesuffix("_t"))
    state = np.full(4096, 0xAA, np.uint8)
    scratch = np.full(program.scratch_bytes // 8, 0xAAAAAAAAAAAAAAAA, np.uint64)
    library.call(program, "reset", state)
    results = []
    for step in np.ascontiguousarray(sequence, np.float32):
        library.call(program, "quantize", step, codes)
        library.call(program, "step", codes, made, state, scratch)
        results.append(made.copy())
    return np.stack(results)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Library, list[CProgram], list[Parts]]:
    parts = [split(lower(random_recurrent(seed))) for seed in SEEDS]
    programs = [make_c(one.body, one.head, one.tail, name=f"net{seed}") for seed, one in zip(SEEDS, parts, strict=True)]
    return (
        compiled(programs, tmp_path_factory.mktemp("c"), "-fsanitize=undefined", "-fno-sanitize-recover"),
        programs,
        parts,
    )


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_c_computes_step_after_step(library: tuple[Library, list[CProgram], list[Parts]], number: int) -> None:
    handle, program, parts = library[0], library[1][number], library[2][number]
    rng = np.random.default_rng(number)
    for steps in (9, 1, 10, 40):
        sequence = rng.normal(size=(steps, *parts.head.inputs[0].type.shape)).astype(np.float32)
        codes = ir.run(parts.head, sequence[None])[0]
        made = run_steps(handle, program, parts, sequence)
        assert np.array_equal(made, ir.one_step(parts.body).run(codes)[0])
        whole = ir.run(parts.body, codes)[0][0]
        assert np.array_equal(made if parts.body.output_nodes[0].type.is_sequence else made[-1], whole)


def test_c_goes_on_from_a_copy_of_the_states(library: tuple[Library, list[CProgram], list[Parts]]) -> None:
    handle, program, parts = library[0], library[1][0], library[2][0]
    state, other = np.zeros(4096, np.uint8), np.zeros(4096, np.uint8)
    result = parts.body.output_nodes[0].type
    made = [np.zeros(result.shape, c_type(result.int_dtype).removesuffix("_t")) for _ in range(2)]
    codes = ir.run(parts.head, np.random.default_rng(0).normal(size=(1, 9, *parts.head.inputs[0].type.shape)))[0][0]
    codes = codes.astype(c_type(parts.body.inputs[0].type.int_dtype).removesuffix("_t"))
    scratch = np.zeros(program.scratch_bytes // 8, np.uint64)
    handle.call(program, "reset", state)
    for step in codes[:4]:
        handle.call(program, "step", np.ascontiguousarray(step), made[0], state, scratch)
    other[:] = state
    for which, kept in enumerate((state, other)):
        for step in codes[4:]:
            handle.call(program, "step", np.ascontiguousarray(step), made[which], kept, scratch)
    assert np.array_equal(*made)
    assert isinstance(handle.handle, ctypes.CDLL)


def test_states_are_stored_as_callers_have_them() -> None:
    """A state is in C order even if all its readers could read pixels, and nothing is read behind its end."""
    builder = ir.Builder("step")
    x, state = builder.input("x", (8,), low=0, high=7), builder.input("state", (3, 2, 4), low=0, high=7)
    point = state.conv2d(np.ones((4, 3, 1, 1), np.int64), name="point")
    flat = state.max_pool2d((1, 1), name="pool").flatten(name="flat")
    both = point.flatten().linear(np.ones((8, 32), np.int64)).weighted_sum(x, factors=(1, 1))
    result = both.weighted_sum(flat.linear(np.ones((8, 24), np.int64)), factors=(1, 1))
    plan = make_plan(builder.build(result, flat))
    assert plan.values["flat"].storage.in_c_order
    (layer,) = (layer for layer in plan.layers if layer.name == "layer_point")
    assert layer.helpers == ["products_uint8_uint8_int32"]


def test_export_rejects_a_loop_from_the_end_by_name() -> None:
    graph = next(g for seed in range(99) if "reverse_steps" in ir.dumps(g := random_recurrent(seed, reverses=True)))
    with pytest.raises(
        ExportError, match=r"^reverse_steps .* reads a sequence from its end, .*; C computes one step at"
    ):
        make_c(split(lower(graph)).body)
