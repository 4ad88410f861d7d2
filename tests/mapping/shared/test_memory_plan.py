"""Memory: how long values live, what may lie over what, and the peak that is found."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.errors import MappingError
from nnhw.ir import Graph
from nnhw.ir.ops import WeightedSum
from nnhw.mapping.shared import Compiled, compile_body, compile_network, network_of
from nnhw.mapping.shared.compile import refuse_program, tilers_of
from nnhw.mapping.shared.program.memory_plan import MemorySearcher, ProgramTooLarge, find_lives
from nnhw.mapping.shared.program.tensors import lay_out
from nnhw.mapping.shared.program.walks import allows, distances
from nnhw.mapping.shared.settings import MEMORY
from tests.mapping.networks import I4
from tests.mapping.shared.networks import U4, Lined, residual
from tests.mapping.shared.programs import array_of, check_program

ARRAY = array_of(16, 1, 4)
"""A granule of 16 channels is a word."""


def chain(*outputs: int, size: int = 8, kernel: int = 3) -> Graph:
    """Convolutions one behind the other."""
    net = Lined((16, size, size), U4)
    x = net.input
    for channels in outputs:
        border = (kernel // 2, kernel // 2)
        x = net.line(net.conv(net.pad(x, border, border) if kernel > 1 else x, channels, (kernel, kernel)))
    return net.body(x)


def words(compiled: Compiled) -> list[int]:
    return [life.words for life in compiled.plan.lives]


def test_convolution_lies_over_its_input_with_a_lag() -> None:
    body = chain(16, 16)
    compiled = compile_body(body, ARRAY)
    # A row and a pixel are still to be read when the first pixel is written; the next layer moves on by as much.
    assert words(compiled) == [64, 64, 64]
    assert compiled.plan.words == 64 + 9 + 9
    check_program(body, compiled)


def test_pointwise_layer_lies_over_its_input() -> None:
    body = chain(16, 16, 16, kernel=1)
    compiled = compile_body(body, ARRAY)
    assert compiled.plan.words == 64
    check_program(body, compiled)


def test_layer_of_several_tiles_leaves_its_input_alone() -> None:
    body = chain(32, kernel=1)
    compiled = compile_body(body, ARRAY)
    assert words(compiled) == [64, 128]
    assert compiled.plan.words == 64 + 128
    check_program(body, compiled)


def test_depthwise_layer_of_several_tiles_lies_over_its_input() -> None:
    net = Lined((40, 6, 6), U4)
    x = net.line(net.conv(net.pad(net.input), 40, (3, 3), groups=40))
    body = net.body(x)
    compiled = compile_body(body, ARRAY)
    assert words(compiled) == [108, 108]
    assert compiled.plan.words == 108 + 7 * 3
    check_program(body, compiled)


def test_value_that_is_added_later_is_kept() -> None:
    body = residual(0)
    compiled = compile_body(body, ARRAY)
    lives = {life.name: life for life in compiled.plan.lives}
    summand = compiled.network.tasks[2].sources[0]
    assert lives[summand].dies == 2 > lives[summand].born + 1
    assert compiled.plan.words < sum(words(compiled))
    check_program(body, compiled)


def test_sum_lies_over_one_of_its_summands() -> None:
    net = Lined((16, 4, 4), U4)
    a = net.line(net.conv(net.input, 16, (1, 1)))
    b = net.line(net.conv(net.input, 16, (1, 1)), I4)
    body = net.body(net.line(net.add(WeightedSum((1, 1)), a, b)))
    compiled = compile_body(body, ARRAY)
    assert compiled.plan.words == 32
    check_program(body, compiled)


def test_result_may_lie_where_no_word_is_written_before_its_last_read() -> None:
    reads, writes = np.array([2, 3, 4, 5]), np.array([0, 1, 2, 3])
    assert [distance for distance in range(-4, 5) if allows(reads, writes, distance)] == [-4, -3, -2, 4]
    assert distances(reads, writes) == [-2]


def test_distances_are_the_nearest_that_are_allowed() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        reads, writes = (rng.integers(-1, 12, int(rng.integers(1, 20))) for _ in range(2))
        if seed % 2:  # as windows read and write: later words later
            reads, writes = np.sort(reads), np.sort(writes) + int(rng.integers(0, 8))
        down = next((one for one in range(0, -len(writes), -1) if allows(reads, writes, one)), None)
        up = next((one for one in range(1, len(reads)) if allows(reads, writes, one)), None)
        assert distances(reads, writes) == [one for one in (down, up) if one is not None], seed


def test_distance_is_allowed_where_no_word_is_written_before_its_last_read() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        reads, writes = (rng.integers(0, 6, int(rng.integers(1, 6))) for _ in range(2))
        for distance in range(-6, 7):
            pairs = [
                (reads[word + distance], write)
                for word, write in enumerate(writes)
                if 0 <= word + distance < len(reads)
            ]
            assert allows(reads, writes, distance) == all(read <= write for read, write in pairs)


def test_memory_that_is_too_small_says_what_takes_it() -> None:
    small = array_of(16, 1, 4, words=400)
    with pytest.raises(
        MappingError, match=r"needs \d+ words of 64 bits, the memory has 400: .*values 82 .most at once: 'x' 64"
    ):
        compile_body(chain(16, 16), small)


def test_memory_map_says_what_lies_where() -> None:
    compiled = compile_body(chain(16, 16), ARRAY)
    lines = compiled.memory_map.splitlines()
    assert lines[1].split()[:3] == [str(compiled.program_words), "0", str(compiled.program_words - 1)]
    assert "x (16 x 8 x 8)" in compiled.memory_map
    assert "input .. conv2d2" in compiled.memory_map
    free = ARRAY.words - compiled.program_words - compiled.plan.words
    assert lines[-1].split()[0] == str(free)


@pytest.mark.parametrize("body", [chain(16, 32, 16, 48), residual(1)])
def test_bound_of_a_narrow_beam_changes_no_place(body: Graph) -> None:
    network = network_of(body)
    tensors = lay_out(network, ARRAY)
    tilers = tilers_of(network, tensors, ARRAY)
    search = MemorySearcher(find_lives(network, tensors, tilers), tilers, ())
    wide = search.beam(MEMORY.beam, None)
    assert wide is not None
    assert search.run() == dict(wide.places())
    assert search.beam(MEMORY.beam, wide.words - 1) is None


def test_no_plan_is_made_where_program_and_input_have_no_room() -> None:
    network = network_of(chain(16, 16))
    with pytest.raises(
        ProgramTooLarge, match=r"at least 452 words of 64 bits, the memory has 451: .* input 64;"
    ) as early:
        refuse_program(network, array_of(16, 1, 4, words=451))
    assert early.value.plan is None


def test_what_is_not_refused_early_may_still_have_no_room_for_its_values() -> None:
    network, array = network_of(chain(16, 16)), array_of(16, 1, 4, words=452)
    refuse_program(network, array)
    with pytest.raises(ProgramTooLarge, match=r"needs 470 words .*values 82") as planned:
        compile_network(network, array)
    assert planned.value.plan is not None
