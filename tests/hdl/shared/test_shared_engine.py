"""The shared engine against the golden output and its count of cycles, on programs made by chance."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nnhw.engines.shared import Compute, Emit, Fill, SharedConfig
from nnhw.engines.shared.cycle_model import lone_schedule
from nnhw.engines.shared.cycles import program_cycles
from tests.engines.shared.programs import ARRAY, convolution
from tests.hdl.shared.bench import Run, check, run_engine
from tests.hdl.shared.random_programs import ARRAYS, STREAMING, random_frames, random_program

SEEDS = dict.fromkeys(ARRAYS, (0, 1)) | dict.fromkeys(STREAMING, (7, 11))
SEEDS |= {"parts": (1, 0), "stepped": (8, 11), "narrow steps": (7, 15), "steps in blocks": (10, 12)}
SEEDS |= {"stepped, streaming": (41, 13), "narrow steps, streaming": (62, 61), "steps in blocks, streaming": (13, 48)}
"""Of two programs for each array; all those of `STREAMING` have records whose weights come meanwhile.

The first ones of all arrays have every kind of record between them; the second ones are run by `make test-long`.
"""
PROGRAMS = [(name, first) for name, (first, _) in SEEDS.items()]
MORE = [pytest.param(name, second, marks=pytest.mark.long) for name, (_, second) in SEEDS.items()]


@pytest.mark.parametrize(("name", "seed"), [*PROGRAMS, *MORE])
def test_programs_give_the_golden_output_in_the_cycles_of_the_schedule(name: str, seed: int) -> None:
    program = random_program((ARRAYS | STREAMING)[name], seed)
    frames = random_frames(program, 2, seed)
    run = run_engine(program, frames)
    check(program, frames, run)
    cycles = program_cycles(program)
    taken = [(record, end - start) for (start, record), (end, _) in zip(run.starts, run.starts[1:], strict=False)]
    assert len(taken) >= len(program.records)
    assert taken == [(record, cycles[record].total) for record, _ in taken]
    assert lone_schedule(program).interval_cycles == sum(one.total for one in cycles)


STALLED = {"dsp": 11, "slices": 11, "wide, streaming": 7, "narrow steps": 15}
STALLS = [("random", "none"), ("none", "random"), ("alternating", "rare"), ("bursts", "bursts")]
# Each array with a pattern for either side, each pattern with an array that streams or has steps.
STALLED_ROWS = [
    pytest.param(name, seed, pattern, marks=() if (row + column) % 2 == 0 else pytest.mark.long)
    for row, (name, seed) in enumerate(STALLED.items())
    for column, pattern in enumerate(STALLS)
]


@pytest.mark.parametrize(("name", "seed", "pattern"), STALLED_ROWS)
def test_stalls_change_nothing(name: str, seed: int, pattern: tuple[str, str]) -> None:
    program = random_program((ARRAYS | STREAMING)[name], seed)
    frames = random_frames(program, 2, 3)
    check(program, frames, run_engine(program, frames, pattern))


def convolve(seed: int) -> SharedConfig:
    """Return a program of one convolution, whose numbers are often in the middle of two codes."""
    rng = np.random.default_rng(seed)
    record = convolution(rng.integers(-8, 8, (8, 2, 3, 3)), 5, stride=2)
    constants = {"factor": rng.choice([-4, 4, 8], 8), "addend": 4 * rng.integers(-8, 8, 8)}
    record = replace(record, **constants, shift=1, gap=1, even=True)
    return SharedConfig(replace(ARRAY, dsp=True), (Fill(200, 25, 2, True), record, Emit(300, 9, 8, True)))


def test_a_convolution_rounds_ties_to_even() -> None:
    program = convolve(5)
    frames = random_frames(program, 2, 1)
    check(program, frames, run_engine(program, frames))


def test_random_programs_hold_every_kind_of_record() -> None:
    """Those of the tests above do."""
    programs = [random_program((ARRAYS | STREAMING)[name], seed) for name, seed in PROGRAMS]
    records = [record for program in programs for record in program.records]
    computes = [record for record in records if isinstance(record, Compute)]
    seen = {
        "channelwise": any(record.channelwise for record in computes),
        "dense": any(not record.channelwise for record in computes),
        "hold": any(record.hold for record in computes),
        "raw": {record.raw for record in computes} == {0, 1, 2, 3, 4},
        "pooling": any(record.window > 1 for record in computes),
        "border": any(record.row < 0 for record in computes),
        "ties": any(record.even for record in computes),
        "slices": any(record.source_slice and record.target_slice for record in computes),
        "no gap": any(not record.gap for record in computes),
        "ties of lanes": any(record.tie_bits is not None for record in computes),
        "streamed": {bool(record.raw) for record in computes if record.streamed} == {False, True},
        "steps": any(record.function is not None for record in computes),
    }
    assert all(seen.values()), seen


@pytest.mark.parametrize("name", STREAMING)
def test_weights_come_meanwhile_in_programs_of_arrays_that_stream(name: str) -> None:
    records = [record for seed in SEEDS[name] for record in random_program(STREAMING[name], seed).records]
    streamed = [record for record in records if isinstance(record, Compute) and record.streamed]
    assert {bool(record.raw) for record in streamed} == {False, True}
    assert max(record.words for record in streamed) > 1


@pytest.mark.parametrize("name", [name for name, array in (ARRAYS | STREAMING).items() if array.step_memory])
def test_programs_of_arrays_with_a_step_memory_go_through_functions(name: str) -> None:
    programs = [random_program((ARRAYS | STREAMING)[name], seed) for seed in SEEDS[name]]
    for program in programs:
        assert any(record.function is not None for record in program.records if isinstance(record, Compute))
        assert len(program.loads) * program.array.rows >= len(program.functions[0].codes)
    if name in ARRAYS:
        assert max(len(program.functions) for program in programs) == 2


@cache
def stepped() -> tuple[SharedConfig, list[np.ndarray], Run]:
    """Return a program with two functions, frames, and its run."""
    program = random_program(ARRAYS["narrow steps"], 7)
    frames = random_frames(program, 2, 1)
    return program, frames, run_engine(program, frames)


@cache
def convolved() -> tuple[SharedConfig, list[np.ndarray], Run]:
    """Return the program of a convolution, a frame, and its run."""
    program = convolve(6)
    frames = random_frames(program, 1, 1)
    return program, frames, run_engine(program, frames)


@pytest.mark.parametrize("mutant", ["a_code", "a_step", "swapped", "a_line", "other_word"])
def test_the_bench_finds_mutants_of_step_functions(mutant: str) -> None:
    program, frames, run = stepped()
    check(program, frames, run)
    first, second = program.functions
    records = program.records
    changes: dict[str, tuple[dict[str, object], bool]] = {
        "a_code": ({"functions": tuple(replace(one, codes=one.codes ^ 1) for one in (first, second))}, True),
        "a_step": (
            {"functions": tuple(replace(one, steps=one.steps ^ ((1 << one.cell_bits) - 1)) for one in (first, second))},
            True,
        ),
        "swapped": ({"functions": (second, first)}, True),
        "a_line": ({"function": None}, False),
        "other_word": ({"low": 1}, False),
    }
    change, of_program = changes[mutant]
    if of_program:
        other = replace(program, **change)  # type: ignore[arg-type]
    else:
        changed = [
            replace(one, **change) if isinstance(one, Compute) and one.function is not None else one  # type: ignore[arg-type]
            for one in records
        ]
        other = replace(program, records=tuple(changed))
    with pytest.raises(AssertionError):
        check(other, frames, run)


@pytest.mark.parametrize("mutant", ["dead_lane", "swapped_lanes", "no_border", "no_tie"])
def test_the_bench_finds_mutants(mutant: str) -> None:
    program, frames, run = convolved()
    check(program, frames, run)
    changes = {
        "dead_lane": lambda one: replace(one, weights=np.where(np.arange(8)[:, None] == 3, 0, one.weights)),
        "swapped_lanes": lambda one: replace(one, weights=np.roll(one.weights, 1, axis=1)),
        "no_border": lambda one: replace(one, border=one.border ^ 1),
        "no_tie": lambda one: replace(one, even=False),
    }
    changed = [changes[mutant](one) if isinstance(one, Compute) else one for one in program.records]
    with pytest.raises(AssertionError):
        check(replace(program, records=tuple(changed)), frames, run)
