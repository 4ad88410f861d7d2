"""Synthesis: counts, memories against the plan, size against the device, and the cache."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from amaranth.back.rtlil import convert
from amaranth.hdl import Cat, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import Board, load_board
from nnhw.errors import BuildError
from nnhw.families import ECP5, FAMILIES
from nnhw.flow.implementation import synthesis
from nnhw.flow.implementation.synthesis import Memory, Netlist, check_memories, check_size, parse_memories, synthesize
from nnhw.flow.tools.cache import Cache
from nnhw.hdl.memory import block_ram
from tests.flow.designs import ProductDevice, RomDevice, top_of

BOARD = load_board("icebreaker")
ROM = Memory("device.rom", 512, 8, planned=True, ebr=1, mapped=True)


@pytest.fixture(scope="module")
def netlist(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    folder = tmp_path_factory.mktemp("synthesis")
    return synthesize(top_of(RomDevice(), BOARD).rtlil, BOARD, folder, planned_ebr=1)


def test_synthesize_counts_cells(netlist: Netlist) -> None:
    taken = netlist.resources
    assert (taken.ebr, taken.spram, taken.dsp) == (1, 0, 0)
    # At the least the counter, the registers of the reset, and the parity.
    assert 20 < taken.lc < 60
    assert netlist.cells["SB_PLL40_PAD"] == 1


def test_synthesize_finds_memories(netlist: Netlist) -> None:
    assert netlist.memories == (ROM,)


def test_synthesize_names_no_folder_of_this_machine(netlist: Netlist) -> None:
    text = (netlist.folder / "design.json").read_text()
    assert '"src"' not in text
    for part in (str(Path(__file__).parents[2]), str(Path(synthesis.__file__).parent), "/share/", str(netlist.folder)):
        assert part not in text


def test_synthesize_gives_the_same_bytes(netlist: Netlist, tmp_path: Path) -> None:
    synthesize(top_of(RomDevice(), BOARD).rtlil, BOARD, tmp_path)
    assert (tmp_path / "design.json").read_bytes() == (netlist.folder / "design.json").read_bytes()


def test_synthesize_takes_what_is_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache, rtlil = Cache(tmp_path / "cache"), top_of(RomDevice(), BOARD).rtlil
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder in folders:
        folder.mkdir()
    first = synthesize(rtlil, BOARD, folders[0], cache=cache)
    monkeypatch.setattr(synthesis, "run_yosys", lambda *arguments: pytest.fail("yosys ran"))
    second = synthesize(rtlil, BOARD, folders[1], cache=cache)
    assert (second.cells, second.memories) == (first.cells, first.memories)
    with pytest.raises(pytest.fail.Exception):
        synthesize(rtlil, BOARD, folders[2], dsp=True, cache=cache)
    # A netlist of other code is none of this code's.
    monkeypatch.setattr(synthesis, "sources_hash", lambda module: f"changed {module}")
    with pytest.raises(pytest.fail.Exception):
        synthesize(rtlil, BOARD, folders[2], cache=cache)


def test_synthesize_says_again_what_it_said_when_it_is_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache, rtlil = Cache(tmp_path / "cache"), top_of(RomDevice(), BOARD).rtlil
    monkeypatch.setattr(synthesis, "rewrite", lambda netlist, board, order: ["one", "two"])
    notes: list[str] = []
    for name in ("made", "taken"):
        (tmp_path / name).mkdir()
        synthesize(rtlil, BOARD, tmp_path / name, cache=cache, note=notes.append)
        monkeypatch.setattr(synthesis, "run_yosys", lambda *arguments: pytest.fail("yosys ran"))
    assert notes == ["one", "two"] * 2


ECP5_BOARD = load_board("ulx3s_25f")


class MemoryDevice(wiring.Component):
    """Writes what it receives into memories, and sends the parity of what it reads.

    Parameters
    ----------
    shapes: (words, bits) of the memories.
    rom: they are filled at the start, and never written.
    """

    def __init__(self, shapes: list[tuple[int, int]], rom: bool) -> None:
        self.shapes, self.rom = shapes, rom
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write, data = Signal(16), Signal(16), Signal(max(bits for _, bits in self.shapes))
        m.d.sync += [read.eq(read + self.rx), write.eq(write + 3), data.eq(Cat(self.rx, data))]
        content, words = Random(1), []
        for index, (depth, bits) in enumerate(self.shapes):
            init = [content.getrandbits(bits) for _ in range(depth)] if self.rom else []
            m.submodules[f"memory{index}"] = memory = block_ram(depth, bits, init)
            reader = memory.read_port(domain="sync")
            m.d.comb += reader.addr.eq(read)
            words.append(reader.data)
            if not self.rom:
                writer = memory.write_port(domain="sync")
                m.d.comb += [writer.addr.eq(write), writer.data.eq(data), writer.en.eq(self.rx)]
        m.d.sync += self.tx.eq(Cat(words).xor())
        return m


ECP5_SHAPES = [
    *((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1)),
    *((300, 72), (700, 40), (3000, 5), (5000, 3), (3000, 27), (1025, 19), (1088, 37)),
]
ICE40_SHAPES = [(256, 16), (512, 8), (1024, 4), (2048, 2), (1025, 5), (300, 9), (20, 40), (2816, 16)]


@pytest.mark.parametrize("rom", [False, True], ids=["ram", "rom"])
@pytest.mark.parametrize(("board", "shapes"), [(ECP5_BOARD, ECP5_SHAPES), (BOARD, ICE40_SHAPES)], ids=["ecp5", "ice40"])
def test_synthesize_takes_the_block_rams_of_the_cost_model(
    board: Board, shapes: list[tuple[int, int]], rom: bool, tmp_path: Path
) -> None:
    netlist = synthesize(top_of(MemoryDevice(shapes, rom), board).rtlil, board, tmp_path)
    found = {(memory.depth, memory.bits): memory.ebr for memory in netlist.memories}
    assert found == {shape: FAMILIES[board.family].block_rams(*shape, rom=rom) for shape in shapes}


def test_synthesize_puts_no_register_beside_a_block_ram_of_the_ecp5(tmp_path: Path) -> None:
    netlist = synthesize(top_of(MemoryDevice([(512, 36)], False), ECP5_BOARD).rtlil, ECP5_BOARD, tmp_path)
    # Data, addresses, output, and the reset: a copy of the word that is written would be 36 more.
    assert netlist.cells["TRELLIS_FF"] < 36 + 2 * 9 + 1 + 20


class Product(wiring.Component):
    """A device that multiplies."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left, right, product = Signal(8), Signal(8, init=1), Signal(16)
        m.d.sync += [left.eq(left + self.rx), right.eq(right * 3), product.eq(left * right), self.tx.eq(product.xor())]
        return m


def test_synthesize_uses_dsp_blocks_when_asked(tmp_path: Path) -> None:
    rtlil = top_of(Product(), BOARD).rtlil
    assert synthesize(rtlil, BOARD, tmp_path).resources.dsp == 0
    assert synthesize(rtlil, BOARD, tmp_path, dsp=True).resources.dsp == 1


def test_synthesize_uses_dsp_blocks_of_the_ecp5_when_asked(tmp_path: Path) -> None:
    rtlil = top_of(Product(), ECP5_BOARD).rtlil
    assert synthesize(rtlil, ECP5_BOARD, tmp_path).resources.dsp == 0
    # The other one is the product with 3, which the iCE40's synthesis leaves to logic.
    assert synthesize(rtlil, ECP5_BOARD, tmp_path, dsp=True).resources.dsp == 2


class Instances(wiring.Component):
    """A device with a DSP block that is instantiated."""

    def __init__(self, cell: str, left: str, right: str, product: tuple[str, int]) -> None:
        self.cell, self.left, self.right, self.product = cell, left, right, product
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, product = Signal(16), Signal(self.product[1])
        m.d.sync += [count.eq(count + self.rx), self.tx.eq(product.xor())]
        inputs = {f"i_{self.left}": count, f"i_{self.right}": count} if self.product[1] > 1 else {}
        m.submodules.dsp = Instance(self.cell, **inputs, **{f"o_{self.product[0]}": product})
        return m


def test_synthesize_keeps_dsp_blocks_that_are_instantiated(tmp_path: Path) -> None:
    ice40 = Instances("SB_MAC16", "A", "B", ("O", 32))
    assert synthesize(top_of(ice40, BOARD).rtlil, BOARD, tmp_path).resources.dsp == 1
    ecp5 = Instances("MULT18X18D", "A0", "B0", ("P0", 1))
    assert synthesize(top_of(ecp5, ECP5_BOARD).rtlil, ECP5_BOARD, tmp_path).resources.dsp == 1


class Registers(wiring.Component):
    """Delays its input; of each two registers, the second one is called as bit 1 of the first one is in yosys.

    Parameters
    ----------
    bits: of the second ones.
    """

    def __init__(self, bits: list[int]) -> None:
        self.bits = bits
        width = 4 * len(bits) + sum(bits)
        super().__init__({"d": In(width), "q": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        registers = Cat(
            register
            for index, bits in enumerate(self.bits)
            for register in (Signal(4, name=f"word{index}"), Signal(bits, name=f"word{index}[1]"))
        )
        m.d.sync += registers.eq(self.d)
        m.d.comb += self.q.eq(~registers)
        return m


class Enables(wiring.Component):
    """Three registers of one, two and three bits, each with an enable and a reset of its own."""

    def __init__(self) -> None:
        super().__init__({"data": In(3), "enable": In(3), "clear": In(3), "o1": Out(1), "o2": Out(2), "o3": Out(3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for index in range(3):
            register = getattr(self, f"o{index + 1}")
            with m.If(self.clear[index]):
                m.d.sync += register.eq(0)
            with m.Elif(self.enable[index]):
                m.d.sync += register.eq(self.data)
        return m


def test_synthesize_makes_logic_of_enables_and_resets_of_few_flip_flops(tmp_path: Path) -> None:
    rtlil = convert(Enables(), name="top", emit_src=False)
    cells = synthesize(rtlil, BOARD, tmp_path).cells
    own = {kind: count for kind, count in cells.items() if kind.startswith("SB_DFF")}
    # The reset of the clock domain keeps the flip-flops apart no more than their own.
    assert own == {"SB_DFF": 3, "SB_DFFESR": 3}


def inputs_of_outputs(netlist: Netlist) -> list[set[int]]:
    """Return the bits of `d` that each bit of `q` depends on, through any cells."""
    design = json.loads((netlist.folder / "design.json").read_text())["modules"]["top"]
    drivers = [
        (set(cell["connections"][output]), cell)
        for cell in design["cells"].values()
        for output, direction in cell["port_directions"].items()
        if direction == "output"
    ]

    def inputs(net: int | str) -> set[int]:
        cells = [cell for nets, cell in drivers if net in nets]
        assert len(cells) < 2
        ends = [port for cell in cells for port, way in cell["port_directions"].items() if way == "input"]
        found = {index for index, bit in enumerate(design["ports"]["d"]["bits"]) if bit == net}
        return found.union(*(inputs(bit) for port in ends for bit in cells[0]["connections"][port] if bit != net))

    return [inputs(bit) for bit in design["ports"]["q"]["bits"]]


@pytest.mark.parametrize("board", [BOARD, ECP5_BOARD], ids=["ice40", "ecp5"])
def test_synthesize_keeps_signals_apart_whose_names_look_like_bits(board: Board, tmp_path: Path) -> None:
    # Where yosys confuses them, it joins two nets for the first width, and fails for each of the others.
    rtlil = convert(Registers([1, 2, 6]), name="top", emit_src=False)
    assert all(f" \\word{index}[1]\n" in rtlil for index in range(3))
    dependences = inputs_of_outputs(synthesize(rtlil, board, tmp_path))
    assert dependences == [{index} for index in range(len(dependences))]
    assert len(dependences) == 3 * 4 + 9


def test_synthesize_rejects_memory_that_cannot_be_block_ram(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        synthesize(top_of(RomDevice(registered=False), BOARD).rtlil, BOARD, tmp_path)
    assert str(caught.value) == (
        "a memory cannot be block RAM as planned: no valid mapping found for memory top.device.rom; "
        "its read port must be registered, without a reset or an initial value of the register"
    )


def test_synthesize_rejects_other_count_of_block_rams(netlist: Netlist) -> None:
    with pytest.raises(BuildError) as caught:
        check_memories(netlist, planned_ebr=2)
    assert str(caught.value) == (
        "the mapping planned 2 block RAMs, but synthesis used 1 ('device.rom' 1); "
        "this is a mistake in nnhw's cost model: please report it with the model"
    )


def test_check_memories_rejects_other_count_of_large_rams(tmp_path: Path) -> None:
    netlist = Netlist(tmp_path, {"SB_SPRAM256KA": 3}, ())
    check_memories(netlist, planned_ebr=0, planned_spram=3)
    with pytest.raises(BuildError) as caught:
        check_memories(netlist, planned_ebr=0, planned_spram=2)
    assert str(caught.value) == (
        "the mapping planned 2 large RAMs, but synthesis used 3; "
        "this is a mistake in nnhw's cost model: please report it with the model"
    )


def test_check_memories_rejects_memory_in_logic(tmp_path: Path) -> None:
    lost = (ROM, Memory("a.b", 16, 4, planned=True, ebr=0), Memory("a.c", 16, 4, planned=False, ebr=0))
    with pytest.raises(BuildError) as caught:
        check_memories(Netlist(tmp_path, {"SB_RAM40_4K": 1}, lost), planned_ebr=1)
    assert str(caught.value) == (
        "synthesis put memory into logic that was planned as block RAM: 'a.b' (16 x 4 bits); "
        "its read port must be registered, without a reset or an initial value of the register"
    )


def test_check_size_rejects_each_resource_that_is_exceeded(tmp_path: Path) -> None:
    cells = {"SB_LUT4": 5281, "SB_RAM40_4K": 20, "SB_RAM40_4KNR": 11, "SB_SPRAM256KA": 4, "SB_MAC16": 9}
    with pytest.raises(BuildError) as caught:
        check_size(Netlist(tmp_path, cells, ()), BOARD)
    assert str(caught.value) == (
        "the design needs 5281 logic cells of 5280, 31 block RAMs of 30, 9 DSP blocks of 8 that 'icebreaker' has; "
        "use a smaller network, a slower --target-fps, smaller foldings in --overrides, or a larger board"
    )


def test_check_size_counts_flip_flops_of_the_ecp5_apart(tmp_path: Path) -> None:
    full = {"LUT4": 20_000, "CCU2C": 2144, "TRELLIS_FF": 24_288}
    check_size(Netlist(tmp_path, full, (), ECP5), ECP5_BOARD)
    with pytest.raises(BuildError, match="the design needs 24289 flip-flops of 24288 that 'ulx3s_25f' has"):
        check_size(Netlist(tmp_path, {**full, "TRELLIS_FF": 24_289}, (), ECP5), ECP5_BOARD)


def test_check_size_takes_a_full_device(tmp_path: Path) -> None:
    cells = {"SB_DFFE": 5280, "SB_RAM40_4K": 30, "SB_SPRAM256KA": 4, "SB_MAC16": 8}
    check_size(Netlist(tmp_path, cells, ()), BOARD)


DUMP = r"""
  attribute \ram_style "block"
  cell $mem_v2 \b.rom
    parameter \SIZE 512
    parameter \WIDTH 10
    connect \RD_DATA \x
  end
  cell $mem_v2 \a.rom
    parameter \SIZE 4
    parameter \WIDTH 3
  end
"""


def test_parse_memories_reads_a_dump() -> None:
    assert parse_memories(DUMP, {"b.rom": 2}) == (
        Memory("a.rom", 4, 3, planned=False, ebr=0),
        Memory("b.rom", 512, 10, planned=True, ebr=2),
    )
    assert parse_memories("", {}) == ()


@pytest.mark.parametrize(
    ("name", "kind", "ports"), [("icebreaker", "SB_MAC16", "CLK"), ("ulx3s_25f", "MULT18X18D", "CLK0")]
)
def test_synthesize_keeps_the_registers_of_dsp_blocks(name: str, kind: str, ports: str, tmp_path: Path) -> None:
    board = load_board(name)
    netlist = synthesize(top_of(ProductDevice(), board).rtlil, board, tmp_path, dsp=True)
    assert netlist.unclocked == ()
    cells = json.loads((tmp_path / "design.json").read_text())["modules"]["top"]["cells"].values()
    (block,) = [cell for cell in cells if cell["type"] == kind]
    registers = [
        cell["connections"]["C" if "C" in cell["connections"] else "CLK"] for cell in cells if "FF" in cell["type"]
    ]
    assert block["connections"][ports] in registers
    if kind == "SB_MAC16":
        assert block["parameters"]["A_REG"] == block["parameters"]["TOP_8x8_MULT_REG"] == "1"


def test_synthesize_refuses_dsp_blocks_without_a_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(synthesis, "hiding_commands", lambda family: ([], []))
    with pytest.raises(BuildError, match=r"synthesis cut the clock of 1 DSP blocks, such as 'device\.products"):
        synthesize(top_of(ProductDevice(), BOARD).rtlil, BOARD, tmp_path, dsp=True)
