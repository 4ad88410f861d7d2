"""Memories that synthesis leaves out, because nothing depends on what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import load_board
from nnhw.errors import BuildError
from nnhw.families import FAMILIES
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.flow.implementation.unneeded import Declared, declared_memories, unneeded_block_rams
from nnhw.hdl.memory import block_ram, logic_rom
from tests.flow.designs import top_of

BOARD = load_board("icebreaker")
DECLARED = {
    "device.constant.rom": Declared(256, 40, block=True),
    "device.small": Declared(8, 3, block=False),
    "device.buffer": Declared(512, 8, block=True, rom=False),
}


class Constant(wiring.Component):
    """40 bits a word, all of the same value."""

    def __init__(self) -> None:
        super().__init__({"addr": In(8), "data": Out(40)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rom = rom = block_ram(256, 40, [0x5A] * 256)
        reader = rom.read_port()
        m.d.comb += [reader.addr.eq(self.addr), self.data.eq(reader.data)]
        return m


class ConstantDevice(wiring.Component):
    """Sends the parity of three memories, one of which holds the same in all words."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.constant = constant = Constant()
        m.submodules.small = small = logic_rom(8, 3, [1, 2, 3, 4, 5, 6, 7, 0])
        m.submodules.buffer = buffer = block_ram(512, 8)
        count = Signal(9)
        few, reader, writer = small.read_port(), buffer.read_port(), buffer.write_port()
        m.d.sync += [count.eq(count + self.rx), self.tx.eq((constant.data ^ few.data ^ reader.data).xor())]
        m.d.comb += [constant.addr.eq(count), few.addr.eq(count), reader.addr.eq(count), writer.addr.eq(~count)]
        m.d.comb += [writer.en.eq(self.rx), writer.data.eq(count)]
        return m


class MaskedDevice(wiring.Component):
    """Sends the parity of a memory, each bit of which counts only where a ROM has a 1; it has none."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.mask = mask = block_ram(512, 8, [0] * 512)
        m.submodules.buffer = buffer = block_ram(512, 8)
        count = Signal(9)
        kept, reader, writer = mask.read_port(), buffer.read_port(), buffer.write_port()
        m.d.sync += [count.eq(count + self.rx), self.tx.eq((kept.data & reader.data).xor() ^ count[-1])]
        m.d.comb += [kept.addr.eq(count), reader.addr.eq(count), writer.addr.eq(~count)]
        m.d.comb += [writer.en.eq(self.rx), writer.data.eq(count)]
        return m


@pytest.mark.parametrize("name", ["icebreaker", "ulx3s_25f"])
def test_synthesize_takes_a_memory_of_which_it_finds_late_that_nothing_depends_on_it(name: str, tmp_path: Path) -> None:
    board, notes = load_board(name), []
    netlist = synthesize(top_of(MaskedDevice(), board).rtlil, board, tmp_path, planned_ebr=2, note=notes.append)
    assert netlist.resources.ebr == 0
    assert notes[-1] == (
        "block RAMs that synthesis left out, because what they hold changes nothing: 'device.mask' 1, 'device.buffer' 1"
    )


def test_declared_memories_are_found_in_all_modules() -> None:
    assert declared_memories(top_of(ConstantDevice(), BOARD).rtlil) == DECLARED


def test_unneeded_block_rams_are_those_that_are_fewer() -> None:
    family = FAMILIES["ice40"]
    assert unneeded_block_rams(DECLARED, {"device.buffer": 1}, family) == {"device.constant.rom": 3}
    assert unneeded_block_rams(DECLARED, {"device.constant.rom": 1}, family) == {
        "device.constant.rom": 2,
        "device.buffer": 1,
    }
    assert unneeded_block_rams(DECLARED, {"device.constant.rom": 3, "device.buffer": 1}, family) == {}


def test_synthesize_takes_a_memory_that_is_left_out_and_says_so(tmp_path: Path) -> None:
    rtlil, notes = top_of(ConstantDevice(), BOARD).rtlil, []
    netlist = synthesize(rtlil, BOARD, tmp_path, planned_ebr=4, note=notes.append)
    assert netlist.resources.ebr == 1
    assert notes[-1] == (
        "block RAMs that synthesis left out, because what they hold changes nothing: 'device.constant.rom' 3"
    )
    with pytest.raises(BuildError, match="the mapping planned 5 block RAMs, but synthesis used 1"):
        synthesize(rtlil, BOARD, tmp_path, planned_ebr=5)
