"""Boards: the files that ship, names and aliases, and mistakes in a user's own file."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nnhw.boards import BOARD_NAMES, Board, Flash, Uart, board_of, list_boards, load_board
from nnhw.errors import BoardError, ProblemList
from nnhw.families import FAMILIES

FOLDER = Path(__file__).parents[1] / "boards"
ULPI_PINS = 'clk = "20"\ndir = "21"\nnxt = "22"\nstp = "23"\nrst = "24"\n'
UART_RULE = (
    "table 'uart' must have either 'resource' (a serial port in amaranth-boards) or both 'rx' and 'tx' "
    "(pins of the package, with 'io_standard' where the board needs one)"
)
PLATFORM_RULE = (
    "field 'platform' must be 'module:Class' of amaranth_boards, such as "
    "'amaranth_boards.icebreaker:ICEBreakerPlatform'"
)
WORD_RULE = "must be a word of letters, digits, '_', '-' and '.'"
FLIP_FLOP_RULE = "in family 'ice40' each flip-flop is part of a logic cell"


def write_board(folder: Path, **changes: str | None) -> Path:
    """Write the file of the iCEBreaker with lines changed (or, for None, left out); return its path."""
    lines = (FOLDER / "icebreaker.toml").read_text(encoding="utf-8").splitlines()
    for name, value in changes.items():
        matching = [index for index, line in enumerate(lines) if re.match(name if "=" in name else rf"{name} *=", line)]
        assert matching, name
        lines[matching[0]] = "" if value is None else f"{name} = {value}"
    path = folder / "mine.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_boards_have_a_row_for_each_file() -> None:
    assert sorted(BOARD_NAMES) == sorted(path.stem for path in FOLDER.glob("*.toml"))
    assert [board.name for board in list_boards()] == list(BOARD_NAMES)


def test_boards_have_flip_flops_beside_luts_on_the_ecp5() -> None:
    for board in list_boards():
        assert board.resources.ff == (board.resources.lc if board.family == "ecp5" else 0)


def test_boards_have_names_of_their_own() -> None:
    names = [name for board in list_boards() for name in (board.name, *board.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("icebreaker", "icebreaker"), ("ice40", "icebreaker"), ("hx8k", "ice40_hx8k_b_evn"), ("ecp5", "ulx3s_25f")],
)
def test_load_board_knows_aliases(name: str, expected: str) -> None:
    assert load_board(name).name == expected


def test_load_board_reads_all_fields() -> None:
    board = load_board("icebreaker")
    assert (board.family, board.device, board.package) == ("ice40", "up5k", "sg48")
    assert (board.resources.lc, board.resources.ebr, board.resources.spram, board.resources.dsp) == (5280, 30, 4, 8)
    assert (board.input_clock.resource, board.input_clock.hz, board.input_clock.pll) == ("clk12", 12_000_000, "pad")
    assert (board.uart.resource, board.uart.baud) == ("uart", 3_000_000)


def test_load_board_rejects_unknown_name() -> None:
    with pytest.raises(BoardError) as caught:
        load_board("icebraker")
    assert str(caught.value) == (
        "board 'icebraker' is not known; did you mean 'icebreaker' or 'icebreaker_bitsy'? 'nnhw boards' lists all, "
        "and a board of your own is a file: --board PATH.toml"
    )


def test_load_board_rejects_name_without_any_near() -> None:
    with pytest.raises(BoardError, match=r"^board 'qqqq' is not known; 'nnhw boards' lists all, and "):
        load_board("qqqq")


def test_load_board_takes_a_file(tmp_path: Path) -> None:
    board = load_board(str(write_board(tmp_path, name='"mine"', baud="1_000_000")))
    assert isinstance(board, Board)
    assert (board.name, board.uart.baud) == ("mine", 1_000_000)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"title": None}, "field 'title' (a text) is missing"),
        ({"ebr": None}, "field 'resources.ebr' (a whole number of 0 or more) is missing"),
        ({"lc": '"many"'}, "field 'resources.lc' must be a whole number of 0 or more, but is 'many'"),
        ({"hz": "true"}, "field 'input_clock.hz' must be a whole number of 0 or more, but is True"),
        ({"hz": "0"}, "field 'input_clock.hz' must be more than 0"),
        ({"aliases": "[1]"}, "field 'aliases' must be a list of texts, but is [1]"),
        ({"pll": '"own"'}, "field 'input_clock.pll' must be one of 'pad', 'core', 'none', but is 'own'"),
        ({"family": '"xc7"'}, "field 'family' must be one of 'ice40', 'ecp5', but is 'xc7'"),
        (
            {"baud": '1\nrx = "6"'},
            f"{UART_RULE}, but has 'resource', 'rx'",
        ),
        (
            {"baud": "1", "resource = .uart.": None},
            f"{UART_RULE}, but has none of them",
        ),
        ({"package": '"sg48"\nspeed = "6"'}, "field 'speed' must be left out, but is '6'"),
        (
            {"lc": "5280\nff = 5280"},
            f"field 'resources.ff' must be left out, but is 5280: {FLIP_FLOP_RULE}",
        ),
        ({"platform": '"module"'}, f"{PLATFORM_RULE}, but is 'module'"),
        ({"platform": '"os:system"'}, f"{PLATFORM_RULE}, but is 'os:system'"),
        ({"platform": '"amaranth_boards.a.b:C"'}, f"{PLATFORM_RULE}, but is 'amaranth_boards.a.b:C'"),
        ({"package": '"--run=x"'}, f"field 'package' {WORD_RULE}, but is '--run=x'"),
        ({"openfpgaloader": '"-x"'}, f"field 'openfpgaloader' {WORD_RULE}, but is '-x'"),
        (
            {"resource = .uart.": None, "baud": '1\nresource = "a b"'},
            f"field 'uart.resource' {WORD_RULE}, but is 'a b'",
        ),
        ({"hz": "5_000_000_000"}, "field 'input_clock.hz' must be 4294967295 or less"),
        ({"name": '".."'}, "field 'name' must serve as a folder's name, but is '..'"),
        ({"name": '"a/b"'}, "field 'name' must serve as a folder's name, but is 'a/b'"),
        (
            {"offset": '0x20000\n[usb]\nclock = "oscillator"\nd_p = "1"\nd_n = "2"\npullup = "3"'},
            (
                "field 'usb.clock' is 'oscillator', which needs an oscillator of 48000000 Hz that reaches the design, "
                "but 'input_clock' has 12000000 Hz, and pll 'pad'; use 'design'"
            ),
        ),
        (
            {"offset": '0x20000\n[usb]\nclock = "pll"\nd_p = "1"\nd_n = "2"\npullup = "3"'},
            "field 'usb.clock' must be 'oscillator' or 'design', but is 'pll'",
        ),
        (
            {"offset": '0x20000\n[ulpi]\nresource = "ulpi"\nreset = "none"'},
            "field 'ulpi.reset' must be 'high' or 'low', but is 'none'",
        ),
        (
            {"offset": f'0x20000\n[ulpi]\n{ULPI_PINS}data = "1 2 3 4 5 6 7"'},
            (
                "table 'ulpi' must have either 'resource' (a USB port behind a ULPI PHY in amaranth-boards) or all of "
                "'clk', 'data', 'dir', 'nxt', 'stp', 'rst' (pins of the package, with 'io_standard' where the board "
                "needs one), but has 'clk', 'data[0]', 'data[1]', 'data[2]', 'data[3]', 'data[4]', 'data[5]', "
                "'data[6]', 'dir', 'nxt', 'stp', 'rst'"
            ),
        ),
        (
            {"offset": f'0x20000\n[ulpi]\n{ULPI_PINS}data = "1 2 3 4 5 6 7 8 9"'},
            "field 'ulpi.data' must name eight pins, separated by blanks, but is '1 2 3 4 5 6 7 8 9'",
        ),
    ],
)
def test_load_board_rejects_mistake(tmp_path: Path, changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(BoardError) as caught:
        load_board(write_board(tmp_path, **changes))
    assert str(caught.value) == f"board file 'mine.toml': {message}"


@pytest.mark.parametrize("depth", [200, 100_000])
def test_load_board_rejects_deep_nesting(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(f"aliases = {'[' * depth}{']' * depth}", encoding="utf-8")
    with pytest.raises(BoardError, match=r"^board file 'deep\.toml' cannot be read: it is nested too deeply"):
        load_board(path)


@pytest.mark.parametrize("board", list_boards(), ids=lambda board: board.name)
def test_board_of_reads_what_a_build_folder_keeps_of_a_board(board: Board) -> None:
    assert board_of(json.loads(json.dumps(dataclasses.asdict(board))), "map.json") == board


def test_load_board_takes_pins_of_a_serial_port(tmp_path: Path) -> None:
    changes = {"resource = .uart.": None, "baud": '1_000_000\nrx = "6"\ntx = "9"\nio_standard = "SB_LVCMOS"'}
    board = load_board(write_board(tmp_path, **changes))
    assert board.uart == Uart(1_000_000, rx="6", tx="9", io_standard="SB_LVCMOS", adapter="ft2232h")


def test_load_board_reads_where_a_program_lies_in_flash(tmp_path: Path) -> None:
    assert load_board("icebreaker").flash == Flash("spi_flash_1x", 0x20000)
    assert load_board("blackice").flash is None
    path = write_board(tmp_path, **{"offset": "0x30000"})
    assert load_board(path).flash == Flash("spi_flash_1x", 0x30000)


@pytest.mark.parametrize("board", [board for board in list_boards() if board.flash], ids=lambda board: board.name)
def test_boards_keep_programs_behind_their_bitstreams(board: Board) -> None:
    """Measured: what `icepack` and `ecppack` (without compression) make of an empty design; ECP5: and its block RAM."""
    largest = {
        **{"up5k": 104_090, "hx8k": 135_100, "hx1k": 32_220, "lp1k": 32_220},
        **{"12k": 582_343, "25k": 582_343, "45k": 1_032_299, "85k": 1_927_699},
    }
    assert board.flash is not None
    block_ram_bytes = 18 * 1024 // 8 * board.resources.ebr if board.family == "ecp5" else 0
    assert board.flash.offset >= largest[board.device.rpartition("-")[2]] + block_ram_bytes


@pytest.mark.parametrize("offset", ["0", "0x20100", "0x1000000"])
def test_load_board_rejects_offset_of_a_program(tmp_path: Path, offset: str) -> None:
    with pytest.raises(BoardError) as caught:
        load_board(write_board(tmp_path, offset=offset))
    assert str(caught.value) == (
        "board file 'mine.toml': field 'flash.offset' must be a multiple of 0x10000 between the bitstream and 16 MiB, "
        f"but is {int(offset, 0):#x}"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": None}, "field 'flash.offset' (a whole number of 0 or more) is missing"),
        ({"offset": '"1"'}, "field 'flash.offset' must be a whole number of 0 or more, but is '1'"),
        ({"offset": "0x20000\nsize = 1"}, "field 'flash.size' is not known; did you mean 'flash.resource'?"),
    ],
)
def test_load_board_rejects_mistake_in_flash(tmp_path: Path, changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(BoardError) as caught:
        load_board(write_board(tmp_path, **changes))
    assert str(caught.value).startswith(f"board file 'mine.toml': {message.split(';')[0]}")


@pytest.mark.parametrize(("speed", "given"), [("", ""), ('speed = "9"', "9")], ids=["missing", "wrong"])
def test_load_board_rejects_speed_of_an_ecp5(tmp_path: Path, speed: str, given: str) -> None:
    text = (FOLDER / "ulx3s_25f.toml").read_text(encoding="utf-8").replace('speed = "6"', speed)
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BoardError) as caught:
        load_board(path)
    assert str(caught.value) == f"board file 'mine.toml': field 'speed' must be one of '6', '7', '8', but is '{given}'"


def test_boards_of_every_family() -> None:
    assert {board.family for board in list_boards()} == set(FAMILIES)


def test_load_board_rejects_unknown_field(tmp_path: Path) -> None:
    path = write_board(tmp_path, package='"sg48"\ntitel = "x"')
    with pytest.raises(BoardError) as caught:
        load_board(path)
    assert str(caught.value) == "board file 'mine.toml': field 'titel' is not known; did you mean 'title'?"


def test_load_board_names_unknown_fields_in_the_order_of_the_file(tmp_path: Path) -> None:
    names = ["zeta", "eta", "theta", "iota", "kappa", "mu"]
    path = write_board(tmp_path, package='"sg48"\n' + "\n".join(f'{name} = "x"' for name in names))
    with pytest.raises(ProblemList) as caught:
        load_board(path)
    assert re.findall(r"field '(\w+)' is not known", str(caught.value)) == names


def test_load_board_rejects_table_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = (FOLDER / "icebreaker.toml").read_text(encoding="utf-8").split("[uart]")[0]
    path.write_text(f"uart = 3\n{text}", encoding="utf-8")
    with pytest.raises(BoardError) as caught:
        load_board(path)
    assert str(caught.value) == "board file 'mine.toml': field 'uart' must be a table, but is 3"


def test_load_board_lists_all_mistakes(tmp_path: Path) -> None:
    path = write_board(tmp_path, title=None, lc='"many"', dsp="-1")
    with pytest.raises(Exception, match="3 problems") as caught:
        load_board(path)
    assert all(name in str(caught.value) for name in ("'title'", "'resources.lc'", "'resources.dsp'"))


@pytest.mark.parametrize("content", [None, "name = ", "\udcff"])
def test_load_board_rejects_unreadable_file(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BoardError, match=r"board file 'mine\.toml' cannot be read: "):
        load_board(path)


def test_boards_need_neither_torch_nor_amaranth() -> None:
    heavy = "{'torch', 'amaranth', 'amaranth_boards'}"
    code = f"import sys, nnhw.boards as boards; boards.load_board('ice40'); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=FOLDER.parent, check=True)
    assert done.stdout.strip() == "set()"
