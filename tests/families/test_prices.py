"""Parts and their prices: every family prices every kind, and lists of parts are added, repeated and chosen."""

from __future__ import annotations

import pytest

from nnhw.families import ECP5, FAMILIES, ICE40, Cost, Family
from nnhw.families.parts import (
    NOTHING,
    SHARED_COLUMNS_WORDS,
    Kind,
    LogicFact,
    Share,
    accumulator,
    adder,
    block_rams,
    chain,
    choice,
    clamp,
    comparison,
    constant_comparison,
    counter,
    counting,
    dsp_blocks,
    dsp_products,
    fifo_control,
    fifo_words,
    fork_control,
    gates,
    inverters,
    lane_memory,
    large_ram,
    limit,
    listed,
    logic_rom,
    lut_ram,
    luts,
    memory,
    multiplexer,
    register,
    registered_sum,
    rom,
    rom_output,
    rom_register,
    state,
    stream_buffer,
    tree_adder,
    where,
    wide_product,
)
from nnhw.families.prices import PRICES

EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
GROWING = (luts, register, adder, chain, registered_sum, accumulator, tree_adder, stream_buffer, counter, comparison)
"""Functions that list a part of one size, which takes more logic the larger it is."""
SINGLES = [
    *(one(12) for one in (*GROWING, state, gates, choice, inverters, counting, constant_comparison, clamp)),
    *(one(12) for one in (block_rams, dsp_blocks, dsp_products, fifo_control, fork_control)),
    *(limit(5, 12), multiplexer(12, 8), rom(600, 12), logic_rom(40, 12, 12), rom_output(9000, 40)),
    *(rom_register(9000, 40), memory(600, 12), lane_memory(600, 3, 40, 32, 4), large_ram(600, 12)),
    *(wide_product(12, 12, False), fifo_words(12, 8)),
]
"""A list with one part of each kind that no family can be without."""


def test_list_of_parts_has_all_kinds_but_the_one_of_families_with_lut_memories() -> None:
    (item,) = zip(*(one.items[0][1:] for one in [*SINGLES, lut_ram(40, 12)]), strict=True)
    assert {part.kind for part in item} == set(Kind) == PRICES.keys()


@EVERY
def test_family_prices_every_kind_of_part(family: Family) -> None:
    for one in [*SINGLES, *([lut_ram(40, 12)] if family.lut_ram.words else [])]:
        cost = family.price(one)
        assert min(cost.lc, cost.ff, cost.ebr, cost.dsp, cost.spram) >= 0
        assert cost.ff == 0 or not family.logic.flip_flop_packs


@EVERY
def test_family_prices_grow_with_what_is_priced(family: Family) -> None:
    for one in GROWING:
        costs = [family.price(one(size)) for size in (8, 16, 32, 64)]
        assert [cost.lc for cost in costs] == sorted(cost.lc for cost in costs)
        assert costs[0].lc + costs[0].ff < costs[-1].lc + costs[-1].ff


@EVERY
def test_family_has_words_of_a_lut_for_which_equal_columns_are_counted(family: Family) -> None:
    assert family.logic.rom_words <= SHARED_COLUMNS_WORDS


@EVERY
def test_price_of_a_list_is_that_of_its_parts(family: Family) -> None:
    one, two = family.price(adder(9) + state(9)), family.price(memory(600, 12))
    cell = adder(9) + state(9)
    assert family.price(3 * cell + 2 * memory(600, 12)) == 3 * one + 2 * two
    assert family.price(listed([cell, memory(600, 12), cell])) == 2 * one + two
    assert family.price(cell + -1 * cell) == family.price(0 * cell) == family.price(NOTHING) == Cost()


def test_fact_of_a_family_decides_between_two_lists() -> None:
    either = 2 * where(LogicFact.PACKS, register(3), luts(5) + memory(600, 12))
    assert ICE40.price(either) == 2 * ICE40.price(register(3))
    assert ECP5.price(either) == 2 * ECP5.price(luts(5) + memory(600, 12))


@EVERY
def test_remainder_takes_a_share_of_the_luts_and_all_else(family: Family) -> None:
    whole = luts(40) + state(9) + memory(600, 12)
    cost, half = family.price(whole), family.price(whole.reduced(0.5))
    assert half == Cost(20, cost.ebr, ff=cost.ff)
    assert family.price(whole.reduced(Share.CONSTANT_LUT)).lc == 40 * family.logic.constant_lut


@EVERY
def test_rows_name_equal_parts_once_and_add_up_to_the_price(family: Family) -> None:
    cell = adder(9) + state(9) + where(LogicFact.PACKS, counter(5), counter(7))
    total = 4 * cell + adder(9) + dsp_blocks(2) + luts(5) + 3 * luts(7) + (luts(8) + register(3)).reduced(0.25)
    rows = family.prices.rows(total)
    assert sum((row.cost for row in rows), Cost()) == family.price(total)
    assert [(row.number, row.share) for row in rows if str(row.part) == "adder 9"] == [(5, 1.0)]
    logic = [(str(row.part), row.share, row.cost.lc) for row in rows if row.part.kind == Kind.LUTS]
    assert logic == [("26 LUTs", 1.0, 26.0), ("8 LUTs", 0.25, 2.0)]


def test_families_price_what_differs_between_them() -> None:
    assert (ICE40.price(register(8)), ECP5.price(register(8))) == (Cost(8), Cost(ff=8))
    assert (ICE40.price(gates(8)), ECP5.price(gates(8))) == (Cost(8), Cost())
    assert (ICE40.price(choice(8)), ECP5.price(choice(8))) == (Cost(), Cost(8))
    assert (ICE40.price(dsp_products(5)).dsp, ECP5.price(dsp_products(5)).dsp) == (3, 5)
    assert (ICE40.price(wide_product(4, 4, False)), ECP5.price(wide_product(4, 4, False))) == (Cost(16), Cost(dsp=1))
