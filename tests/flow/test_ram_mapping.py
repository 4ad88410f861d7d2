"""Block RAMs made with written-out initial bits: the cells are those that yosys makes with its own file."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import load_board
from nnhw.families import FAMILIES
from nnhw.flow.implementation import synthesis
from nnhw.flow.implementation.ram_mapping import ram_mapping
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.flow.tools.toolchain import find_tool, share_folder
from nnhw.hdl.memory import block_ram
from nnhw.hdl.verilog import to_rtlil

WIDTHS = (16, 7, 4, 2)


class Roms(wiring.Component):
    """ROMs of several widths, side by side."""

    def __init__(self) -> None:
        super().__init__({"address": In(9), "data": Out(sum(WIDTHS))})

    def elaborate(self, platform: object) -> Module:
        m, random, words = Module(), Random(3), list[Value]()
        for number, width in enumerate(WIDTHS):
            rom = block_ram(512, width, [random.getrandbits(width) for _ in range(512)])
            m.submodules[f"rom_{number}"] = rom
            port = rom.read_port(domain="sync")
            m.d.comb += port.addr.eq(self.address)
            words.append(port.data)
        m.d.comb += self.data.eq(Cat(words))
        return m


def cells(board: str, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    synthesize(to_rtlil(Roms()), load_board(board), folder)
    made = json.loads((folder / "design.json").read_text())["modules"]["top"]["cells"]
    kinds = FAMILIES[load_board(board).family].kinds.block_rams
    return {name: cell["parameters"] for name, cell in made.items() if cell["type"].startswith(kinds)}


@pytest.mark.parametrize("board", ["icebreaker", "ulx3s_25f"])
def test_ram_mapping_gives_the_cells_of_yosys(board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = cells(board, tmp_path / "fast")
    commands = (tmp_path / "fast" / "yosys.ys").read_text()
    assert "techmap -map block_rams.v" in commands
    monkeypatch.setattr(synthesis, "ram_mapping", lambda *arguments: None)
    own = cells(board, tmp_path / "own")
    assert "block_rams.v" not in (tmp_path / "own" / "yosys.ys").read_text()
    assert fast == own
    assert any("1" in value for cell in fast.values() for name, value in cell.items() if name.startswith("INIT"))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_ram_mapping_is_left_to_yosys_where_its_files_are_others(family: str, tmp_path: Path) -> None:
    found = FAMILIES[family].tools.block_rams
    assert ram_mapping(found, share_folder(find_tool("yosys"))) is not None
    assert ram_mapping(found, tmp_path) is None
    for name in (*found.libraries, found.cells):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("// no call of its function")
    assert ram_mapping(found, tmp_path) is None
