"""Tasks that take turns by bands of rows: equal to the interpreter, in less memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnhw.engines.shared import Compute
from nnhw.engines.shared.cycles import program_cycles
from nnhw.families import ECP5, ICE40
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.shared import choose_array, compile_body, compile_network, network_of
from nnhw.mapping.shared.compile import tilers_of
from nnhw.mapping.shared.program.fusion import Fusion, fusable, fused_cycles
from nnhw.mapping.shared.program.memory_plan import ProgramTooLarge
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.program.tensors import lay_out
from nnhw.mapping.shared.search.arrays import compiled_choice
from nnhw.mapping.shared.search.fitting import compile_fitting
from tests.mapping.shared.networks import I4, NETWORKS, U4, Lined
from tests.mapping.shared.programs import array_of, check_program

ARRAYS = {
    "8x2x8": array_of(8, 2, 8, words=1 << 14),
    "4x2x4": array_of(4, 2, 4, words=1 << 14),
    "16x4x4": array_of(16, 4, 4, drains=2, words=1 << 14),
    "16x1x4": array_of(16, 1, 4, words=1 << 14),
}
EIGHT_BITS = ("wide", "zero_point")
"""Networks with codes of 8 bits."""
RUNNABLE = [
    (name, array)
    for name in (*NETWORKS, "separable")
    for array in ARRAYS
    if name not in EIGHT_BITS or ARRAYS[array].activation_bits == 8
]


def separable(size: int) -> Graph:
    """Depthwise and pointwise layers, of which the second widens a large map and the third makes it small."""
    net = Lined((16, size, size), U4)
    x = net.line(net.conv(net.pad(net.input), 16, (3, 3), groups=16))
    x = net.line(net.conv(x, 48, (1, 1)))
    x = net.line(net.conv(net.pad(x), 48, (3, 3), groups=48, stride=(2, 2)))
    x = net.line(net.conv(x, 16, (1, 1)))
    return net.body(x)


def runs(network: TaskNetwork, array: object) -> list[tuple[int, int]]:
    return list(fusable(network, tilers_of(network, lay_out(network, array), array)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "array"), RUNNABLE)
def test_layers_that_take_turns_compute_what_they_do_one_after_the_other(name: str, array: str) -> None:
    body = separable(12) if name == "separable" else NETWORKS[name](1)
    network = network_of(body)
    used = replace(ARRAYS[array], row_steps=any(task.needs_row_steps for task in network.tasks))
    whole = compile_network(network, used)
    for first, end in runs(network, used):
        rows = network.tasks[end - 1].window.blocks[0]
        for count in {min(rows, count) for count in (2, 3, 8)} - {1}:
            turns = compile_network(network, used, fusions=[Fusion(first, end, count)])
            check_program(body, turns)
            assert turns.config.products == whole.config.products


@pytest.mark.parametrize("array", ARRAYS)
def test_cycles_and_words_that_turns_take_are_known_before_the_program_is_made(array: str) -> None:
    network = network_of(separable(12))
    tilers = tilers_of(network, lay_out(network, ARRAYS[array]), ARRAYS[array])
    whole = compile_network(network, ARRAYS[array])
    fusion = Fusion(1, 3, 3)
    turns = compile_network(network, ARRAYS[array], fusions=[fusion])
    alone = [fused_cycles(Fusion(task, task + 1, 1), tilers) for task in (1, 2)]
    cycles, words = (own - sum(pair[index] for pair in alone) for index, own in enumerate(fused_cycles(fusion, tilers)))
    assert turns.program_words - whole.program_words == words
    leads = [
        sum(isinstance(record, Compute) and not record.gap for record in compiled.config.records)
        for compiled in (turns, whole)
    ]
    assert turns.cycles - whole.cycles == cycles + leads[0] - leads[1]
    assert turns.cycles == sum(record.total for record in program_cycles(turns.config))


def test_a_value_between_layers_that_take_turns_needs_a_few_rows_only() -> None:
    network = network_of(separable(24))
    array = ARRAYS["16x1x4"]
    whole, turns = (compile_network(network, array, fusions=fusions) for fusions in ((), (Fusion(1, 3, 4),)))
    wide = network.tasks[1].node
    assert turns.tensors[wide].rows == 7
    assert whole.plan.words == 3 * 576
    assert turns.plan.words == 576 + 7 * 24 * 3
    assert f"{wide} (48 x 24 x 24, 7 rows at once)" in turns.memory_map
    assert turns.memory_map.splitlines()[-1].endswith("take turns, 4 bands of rows")


def test_output_channels_that_take_turns_lie_over_what_they_are_made_of() -> None:
    net = Lined((32, 16, 8), U4)
    body = net.body(net.line(net.conv(net.input, 32, (1, 1))))
    network, array = network_of(body), ARRAYS["16x1x4"]
    whole, turns = (compile_network(network, array, fusions=fusions) for fusions in ((), (Fusion(0, 1, 8),)))
    assert whole.plan.words == 2 * 16 * 8 * 2
    assert turns.plan.words == (16 + 2) * 8 * 2
    check_program(body, turns)


def test_values_that_others_read_are_not_between_layers_that_take_turns() -> None:
    network = network_of(NETWORKS["residual"](0))
    assert (0, 2) not in runs(network, ARRAYS["8x2x8"])
    assert all(not network.tasks[index].is_sum for run in runs(network, ARRAYS["8x2x8"]) for index in range(*run))


def test_a_network_too_large_for_the_memory_takes_turns_and_those_that_cost_the_fewest_cycles() -> None:
    body, array = separable(48), ARRAYS["16x1x4"]
    network = network_of(body)
    whole = compile_network(network, array)
    need = whole.program_words + whole.plan.words
    small = compile_fitting(network, replace(array, words=int(0.8 * need)))
    assert small.program_words + small.plan.words <= 0.8 * need
    assert whole.cycles < small.cycles < 1.05 * whole.cycles
    check_program(body, small)
    for first, end in runs(network, array):
        for count in (2, 3, 4, 6, 8, 12):
            try:
                other = compile_network(network, small.config.array, fusions=[Fusion(first, end, count)])
            except ProgramTooLarge:
                continue
            assert other.cycles >= small.cycles - len(other.config.records)  # an idle cycle of each is not looked at
    assert not compile_fitting(network, array).fusions


def test_a_program_for_a_given_array_takes_turns_too() -> None:
    body, array = separable(48), ARRAYS["16x1x4"]
    whole = compile_body(body, array)
    small = compile_body(body, replace(array, words=int(0.8 * (whole.program_words + whole.plan.words))))
    assert (len(whole.fusions), len(small.fusions)) == (0, 1)


def test_groups_of_layers_take_turns_where_one_does_not_suffice() -> None:
    net = Lined((8, 64, 64), U4)
    x = net.input
    for _ in range(2):
        x = net.line(net.conv(x, 48, (1, 1)))
        x = net.line(net.conv(net.pad(x), 48, (3, 3), groups=48), I4)
        x = net.line(net.conv(x, 8, (1, 1)))
    body, array = net.body(x), replace(ARRAYS["16x1x4"], words=1 << 15)
    network = network_of(body)
    whole = compile_network(network, array)
    small = compile_fitting(network, replace(array, words=(whole.program_words + whole.plan.words) * 13 // 16))
    assert len(small.fusions) == 2
    check_program(body, small)


def test_a_network_that_does_not_fit_in_turns_either_says_what_it_needs() -> None:
    network = network_of(separable(48))
    with pytest.raises(ProgramTooLarge, match=r"the memory has 1500: .*most at once"):
        compile_fitting(network, replace(ARRAYS["16x1x4"], words=1500))


def test_boards_get_a_program_in_turns_where_their_large_ram_is_too_small() -> None:
    body = separable(80)
    compiled = choose_array(network_of(body), Budget(lc=3800, ebr=28, dsp=8, spram=4), ICE40).compiled
    assert compiled.fusions
    check_program(body, compiled)


def test_memory_in_block_ram_takes_a_program_in_turns_where_there_is_too_little() -> None:
    body, budget = separable(48), Budget(lc=6000, ebr=24, dsp=8)
    network = network_of(body)
    array = array_of(16, 1, 4, words=1 << 16, rows=64, factor_bits=20, addend_bits=40)
    choice = compiled_choice(network, array, budget, ECP5)
    assert choice is not None
    assert choice.compiled.fusions
    assert choice.cost.ebr <= budget.ebr
    check_program(body, choice.compiled)
    with pytest.raises(ProgramTooLarge, match=r"the program needs at least \d+ words of 64 bits, the memory has \d+"):
        compiled_choice(network, array, replace(budget, ebr=12), ECP5)
