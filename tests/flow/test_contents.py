"""What memories hold, apart from a design: the rest is the same for all contents."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hypothesis import given
from hypothesis import strategies as st

from nnhw.boards import load_board
from nnhw.families import ICE40
from nnhw.flow.implementation.contents import TABLE, Parted, marker, part
from nnhw.hdl.cells import CELLS
from nnhw.hdl.memory import block_ram, logic_rom
from tests.flow.designs import top_of

BOARD = load_board("icebreaker")


class Holder(wiring.Component):
    """Has a block RAM that is read, one that is written, too, a ROM of logic, and a lookup table."""

    def __init__(self, words: list[int], written: list[int], logic: list[int], table: int) -> None:
        self.words, self.written, self.logic, self.table = words, written, logic, table
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rom = rom = block_ram(len(self.words), 5, self.words)
        m.submodules.ram = ram = block_ram(8, 4, self.written)
        m.submodules.logic = logic = logic_rom(len(self.logic), 3, self.logic)
        bits = [memory.read_port().data.xor() for memory in (rom, ram, logic)]
        writer = ram.write_port()
        m.d.comb += [writer.en.eq(self.rx), writer.data.eq(self.rx)]
        bits.append(CELLS["ice40"].lookup_table(m, "table", self.table, rom.read_port().data[:4]))
        m.d.sync += self.tx.eq(sum(bits))
        return m


def parted(words: list[int], written: list[int], logic: list[int], table: int) -> Parted:
    return part(top_of(Holder(words, written, logic, table), BOARD).rtlil, ICE40)


WORDS, WRITTEN, LOGIC = [3, 1, 4, 1, 5, 9, 2, 6], [1] * 8, [1, 2, 3, 4]


def test_part_takes_what_block_rams_and_tables_hold() -> None:
    found = parted(WORDS, WRITTEN, LOGIC, 0x1234)
    numbers = {
        path: (words << np.arange(words.shape[1])).sum(axis=1).tolist() for path, words in found.memories.items()
    }
    assert numbers == {"device.rom": WORDS, "device.ram": WRITTEN}
    assert {path: (bits << np.arange(16)).sum() for path, bits in found.tables.items()} == {"device.table": 0x1234}
    assert f"cell \\{TABLE} \\table" in found.skeleton
    assert f"module \\{TABLE}\n" in found.skeleton


def test_part_leaves_the_same_skeleton_whatever_is_in_memories() -> None:
    one, two = parted(WORDS, WRITTEN, LOGIC, 0x1234), parted([0] * 8, [7] * 8, LOGIC, 0)
    assert one.skeleton == two.skeleton
    assert not two.memories["device.rom"].any()


@pytest.mark.parametrize(
    "other",
    [([*WORDS, 1], WRITTEN, LOGIC, 1), (WORDS, WRITTEN, [1, 2, 3, 5], 1), (WORDS, [], LOGIC, 1)],
    ids=["a word more", "constants of logic", "written, and empty"],
)
def test_part_leaves_another_skeleton_for_another_design(other: tuple[list[int], list[int], list[int], int]) -> None:
    assert parted(WORDS, WRITTEN, LOGIC, 1).skeleton != parted(*other).skeleton


def test_part_leaves_memories_that_keep_their_contents() -> None:
    rtlil = top_of(Holder(WORDS, WRITTEN, LOGIC, 1), BOARD).rtlil
    found = part(rtlil, ICE40, ["device.rom"])
    assert found.memories.keys() == {"device.ram"}
    other = part(top_of(Holder([0] * 8, WRITTEN, LOGIC, 1), BOARD).rtlil, ICE40, ["device.rom"])
    assert found.skeleton != other.skeleton


def test_part_leaves_modules_that_are_there_twice() -> None:
    memory = "\n".join(
        (
            *('attribute \\ram_style "block"', "memory width 1 size 2 \\rom", "cell $meminit_v2 $1"),
            *('parameter \\MEMID "\\\\rom"', "connect \\DATA 2'10", "end"),
        )
    )
    once = f"module \\a\n{memory}\nend\nmodule \\top\ncell \\a \\one\nend\nend"
    twice = once.replace("cell \\a \\one\nend", "cell \\a \\one\nend\ncell \\a \\two\nend")
    assert part(once, ICE40).memories.keys() == {"one.rom"}
    assert part(twice, ICE40) == Parted(twice, {}, {})


@given(words=st.integers(2, 300), bits=st.integers(1, 40))
def test_marker_has_no_constant_column_and_columns_that_differ(words: int, bits: int) -> None:
    found = marker("memory", words, bits)
    assert found.shape == (words, bits)
    assert (found == marker("memory", words, bits)).all()
    assert found.any(axis=0).all()
    assert not found.all(axis=0).any()
    if words >= 12:
        assert len({column.tobytes() for column in found.T}) == bits
