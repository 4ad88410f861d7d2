"""Families as the cost model sees them: block RAM by shape, and what must fit together."""

from __future__ import annotations

import pytest

from nnhw.families import ECP5, FAMILIES, ICE40, Family


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_family_block_ram_modes_are_one_each_and_one_more_word_is_more(family: Family) -> None:
    for words, bits in family.block_ram.modes:
        assert words * bits in (family.block_ram.bits, family.block_ram.bits * 8 // 9)
        assert family.block_rams(words, bits) == family.block_rams(words, bits, rom=True) == 1
    deepest, widest = family.block_ram.modes[-1][0], family.block_ram.modes[0]
    assert family.block_rams(deepest + 1, family.block_ram.modes[-1][1]) == 2
    assert family.block_rams(widest[0], widest[1] + 1) == 2


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_family_single_word_takes_no_block_ram(family: Family) -> None:
    assert family.block_rams(1, 100) == 0
    assert family.block_rams(2, 1) == 1


@pytest.mark.parametrize(
    ("family", "depth", "bits", "ram", "rom"),
    [
        (ECP5, 512, 37, 2, 2),
        (ECP5, 700, 40, 3, 3),
        (ECP5, 3000, 5, 2, 1),
        (ECP5, 1025, 19, 3, 2),
        (ECP5, 3000, 27, 5, 5),
        (ECP5, 5632, 256, 87, 86),
        (ICE40, 2816, 16, 12, 12),
        (ICE40, 1025, 5, 2, 2),
        (ICE40, 20, 40, 3, 3),
    ],
)
def test_family_block_rams_of_memories_that_are_written_and_not(
    family: Family, depth: int, bits: int, ram: int, rom: int
) -> None:
    assert family.block_rams(depth, bits) == ram
    assert family.block_rams(depth, bits, rom=True) == rom


@pytest.mark.parametrize(
    ("depth", "bits", "banks"), [(512, 72, 1), (768, 72, 1), (1280, 36, 3), (2304, 64, 5), (18432, 16, 9)]
)
def test_family_rom_banks_are_those_that_synthesis_puts_a_multiplexer_behind(depth: int, bits: int, banks: int) -> None:
    assert ECP5.rom_banks(depth, bits) == banks


def test_family_block_rams_of_words_that_are_written_in_parts_have_whole_write_masks() -> None:
    assert ECP5.block_rams(5632, 256, parts=2) == 90
    assert ECP5.block_rams(512, 32, parts=4) == 1
    assert ECP5.block_rams(512, 512, parts=2) == 15
    assert ECP5.block_rams(1024, 512, parts=2) == 29
    assert ICE40.block_rams(512, 32, parts=4) == ICE40.block_rams(512, 32)


ICE40_RAMS = {
    (565, 35): 7,
    (1061, 51): 16,
    (1353, 20): 8,
    (1728, 22): 11,
    (1728, 42): 21,
    (1792, 46): 23,
    (2624, 16): 12,
    (2624, 24): 18,
    (2624, 28): 21,
    (2752, 21): 16,
    (2816, 16): 12,
    (3456, 10): 9,
    (4288, 23): 26,
    (4503, 18): 21,
    (4672, 18): 23,
    (4990, 16): 20,
    (5696, 13): 20,
    (5728, 11): 17,
    (7763, 8): 16,
}
ICE40_ROMS = {
    (408, 6): 1,
    (1238, 23): 8,
    (1792, 24): 12,
    (2305, 16): 10,
    (2560, 16): 10,
    (2624, 33): 25,
    (2816, 16): 12,
    (3052, 9): 7,
    (3072, 16): 12,
    (3264, 24): 21,
    (3648, 23): 23,
    (4160, 20): 23,
    (4736, 20): 25,
    (5824, 17): 26,
    (6400, 15): 25,
    (7360, 13): 26,
}


def test_family_block_rams_are_those_of_the_shape_that_synthesis_chooses() -> None:
    """Measured with yosys 0.70; in half of these the shape of the fewest block RAMs is another one."""
    assert {shape: ICE40.block_rams(*shape) for shape in ICE40_RAMS} == ICE40_RAMS
    assert {shape: ICE40.block_rams(*shape, rom=True) for shape in ICE40_ROMS} == ICE40_ROMS
    # Written in parts.
    assert ICE40.block_rams(6775, 16, parts=4) == 28
    assert ICE40.block_rams(7512, 12, parts=2) == 24
    assert ICE40.block_rams(846, 28, parts=4) == 7


def test_family_block_rams_never_hold_less_than_the_memory() -> None:
    for family in FAMILIES.values():
        for depth in range(2, 5000, 97):
            for bits in range(1, 80, 7):
                rom = family.block_rams(depth, bits, rom=True)
                assert rom <= family.block_rams(depth, bits)
                assert rom * family.block_ram.bits >= depth * bits
