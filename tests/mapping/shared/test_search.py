"""The array that is chosen: it fits, its limits are just what the network needs, and no other one is faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.errors import MappingError
from nnhw.families import ECP5, ICE40, Cost
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import choose_array, compile_network, network_of
from nnhw.mapping.shared.program.lines import Line, at_shift
from nnhw.mapping.shared.program.needs import activation_bits, choose_shifts, weight_bits, with_rows
from nnhw.mapping.shared.search.array_cost import array_cost
from nnhw.mapping.shared.search.arrays import with_blocks
from nnhw.mapping.shared.settings import ARRAYS
from tests.mapping.shared.networks import I4, NETWORKS, U4, Lined
from tests.mapping.shared.programs import array_of, check_program

UP5K = Budget(lc=3800, ebr=28, dsp=8, spram=4)
"""About what the link leaves of the device."""


@pytest.mark.parametrize("name", ["depthwise", "wide"])
def test_chosen_array_fits_and_runs_the_network(name: str) -> None:
    body = NETWORKS[name](0)
    choice = choose_array(network_of(body), UP5K, ICE40)
    taken = choice.cost
    assert (taken.lc <= UP5K.lc, taken.ebr <= UP5K.ebr, taken.dsp <= UP5K.dsp, taken.spram) == (True, True, True, 4)
    check_program(body, choice.compiled)


def test_products_of_eight_bits_are_made_in_dsp_blocks_and_in_logic_where_there_is_room() -> None:
    network = network_of(NETWORKS["wide"](0))
    few, many = (choose_array(network, Budget(lc=lc, ebr=50, dsp=28), ECP5).compiled for lc in (6500, 20_000))
    assert few.config.array.products < many.config.array.products
    assert 0 < many.config.array.dsp_lanes < many.config.array.lanes
    assert many.cycles < few.cycles


def test_products_of_eight_bits_are_made_in_dsp_blocks_where_logic_is_short() -> None:
    array = choose_array(network_of(NETWORKS["wide"](0)), UP5K, ICE40).compiled.config.array
    assert array.dsp
    assert array.products <= 16
    assert (array.weight_bits, array.activation_bits) == (8, 8)


def test_no_limit_of_the_chosen_array_can_be_lower() -> None:
    network = network_of(NETWORKS["plain"](0))
    array = choose_array(network, UP5K, ICE40).compiled.config.array
    for name in ("sum_bits", "factor_bits", "addend_bits"):
        with pytest.raises(MappingError, match="use an array with more"):
            compile_network(network, replace(array, **{name: getattr(array, name) - 1}))


def test_chosen_array_is_faster_than_others_that_fit() -> None:
    network = network_of(NETWORKS["depthwise"](0))
    choice = choose_array(network, UP5K, ICE40)
    array = choice.compiled.config.array
    for lanes, simd in ((4, 4), (8, 1), (8, 4), (16, 1), (16, 2)):
        other = replace(array, lanes=lanes, simd=simd, drains=1, dsp=False)
        taken = array_cost(other, ICE40, True)
        if taken.lc <= UP5K.lc and taken.ebr <= UP5K.ebr:
            assert ARRAYS.slower * compile_network(network, replace(other, rows=1024)).cycles >= choice.compiled.cycles


def test_linear_layers_stream_their_weights_where_that_is_faster() -> None:
    assert choose_array(network_of(NETWORKS["perceptron"](0)), UP5K, ICE40).compiled.config.array.weight_stream
    assert not choose_array(network_of(NETWORKS["residual"](0)), UP5K, ICE40).compiled.config.array.weight_stream


def test_memory_in_block_ram_is_as_large_as_the_program_needs() -> None:
    body = NETWORKS["joined"](0)
    budget = Budget(lc=20000, ebr=50, dsp=28)
    choice = choose_array(network_of(body), budget, ECP5)
    compiled = choice.compiled
    need = compiled.program_words + compiled.plan.words
    assert 0 <= compiled.config.array.words - need < 512
    assert choice.cost.ebr <= budget.ebr
    assert choice.cost.spram == 0
    check_program(body, compiled)


def test_board_without_room_says_what_the_smallest_array_takes() -> None:
    network = network_of(NETWORKS["plain"](0))
    with pytest.raises(MappingError, match=r"the smallest array .* there are 500, 28, 8 and 4; use a larger board"):
        choose_array(network, replace(UP5K, lc=500), ICE40)


def test_lanes_are_in_the_dsp_blocks_that_are_left() -> None:
    array = array_of(8, 2, 4)
    logic = array_cost(array, ICE40, True)
    for blocks, lanes in ((0, 0), (3, 3), (20, 8)):
        mixed = with_blocks(array, blocks, ICE40)
        assert mixed.dsp_lanes == lanes
        assert array_cost(mixed, ICE40, True).dsp == lanes
        assert array_cost(mixed, ICE40, True).lc <= logic.lc - 40 * lanes
        assert mixed.id == array.id
    assert with_blocks(array, 7, ECP5).dsp_lanes == 3
    assert with_blocks(array_of(8, 2, 2), 8, ICE40).dsp_lanes == 0


def test_lanes_in_dsp_blocks_are_refused_where_they_come_later_than_the_others() -> None:
    for wrong in (replace(array_of(8, 2, 4), lanes=4), array_of(8, 2, 2)):
        with pytest.raises(MappingError, match=f"8 of {wrong.lanes} lanes cannot be in DSP blocks beside others"):
            replace(wrong, dsp_lanes=8)


def test_constants_of_lanes_that_leave_at_once_share_block_rams() -> None:
    one, two = (array_cost(array_of(16, 2, 4, drains=drains), ICE40, True).ebr for drains in (1, 2))
    assert two - one < one - array_cost(array_of(16, 2, 4, drains=16), ICE40, True).ebr


def test_widths_follow_from_codes_and_weights() -> None:
    for name, activations, weights in (("plain", 4, 4), ("bipolar", 2, 2), ("wide", 8, 8), ("joined", 4, 4)):
        network = network_of(NETWORKS[name](0))
        assert (activation_bits(network), weight_bits(network)) == (activations, weights), name


def test_cache_has_the_rows_that_its_block_rams_hold_anyway() -> None:
    array = array_of(16, 1, 8)
    assert with_rows(array, 300, ICE40).rows == 512
    assert with_rows(array, 576, ICE40).rows == 768
    assert with_rows(array, 40, ICE40).rows == 256


def test_shifts_keep_the_widest_factor_narrow() -> None:
    def lines(shift: int, factor: int) -> tuple[Line, ...]:
        none = np.zeros(1, np.int64)
        return (Line(none + factor, none, shift, 0, 1, slack=none),)

    wide, others = lines(30, (1 << 20) - 1), [lines(shift, 1 << 17) for shift in (8, 13, 23, 25, 29)]
    shifts = choose_shifts([wide, *others])
    # 29 does with 30, and 23 with 25, without a factor wider than the widest; each other one has a shift of its own.
    assert shifts == (8, 13, 25, 30)
    widths = [at_shift(own, min(shift for shift in shifts if shift >= own[0].shift)).factor_bits for own in others]
    assert max(widths) <= wide[0].factor_bits == 21
    assert choose_shifts([wide]) == (30,)
    assert choose_shifts([]) == (0,)


def test_block_rams_are_those_of_the_cache_the_constants_and_the_steps() -> None:
    array = array_of(16, 1, 8, rows=768, factor_bits=29, addend_bits=46)
    # Rows of two words, three times 256 deep; constants of 16, 30, and, in two words, 18 and 11 bits; steps of 36 bits.
    assert array_cost(array, ICE40, True).ebr == 2 * 4 * 3 + (1 + 2 + 2 + 1) + 3
    assert array_cost(array, ICE40, True).spram == 4


def test_a_layer_alone_takes_much_less_with_an_engine_of_its_own() -> None:
    net, budget = Lined((8, 8, 8), U4, 0), Budget(lc=4500, ebr=30, spram=4)
    body = net.body(net.line(net.conv(net.input, 16, (3, 3), I4)))
    shared = choose_array(network_of(body), budget, ICE40)
    cycles = shared.compiled.cycles
    own = map_body(body, "icebreaker", replace(budget, spram=0), target_interval=cycles)
    assert own.schedule.interval_cycles <= cycles
    taken = sum((cost(stage.config) for stage in own.stages), Cost())
    assert 2 * taken.lc < shared.cost.lc
    assert 2 * taken.ebr < shared.cost.ebr
