"""The top: reset, PLL, pins, and boards that amaranth-boards does not have."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import Board, Flash, InputClock, Uart, list_boards, load_board
from nnhw.errors import BoardError
from nnhw.hdl.link.ftdi import FtdiDevice
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.pll import nearest_at_most
from nnhw.hdl.top import StartReset, TopDesign, load_platform, make_top
from nnhw.protocol import DeviceIdentity
from sim.simulator import Simulator
from tests.hdl.link.engines import ProgramEngine, SumEngine

OTHER_CLOCK = "board 'icebreaker': '{}' is in amaranth-boards an oscillator"


class Echo(wiring.Component):
    """A device that registers its input."""

    def __init__(self) -> None:
        super().__init__({"rx": In(1), "tx": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.tx.eq(self.rx)
        return m


class UsbEcho(wiring.Component):
    """A device that drives the wires of the USB against what they show, in the clock of the USB."""

    def __init__(self) -> None:
        inputs = dict.fromkeys(("link_clock", "usb_d_p", "usb_d_n"), In(1))
        outputs = dict.fromkeys(("usb_d_p_out", "usb_d_n_out", "usb_driven", "usb_pullup"), Out(1))
        super().__init__({**inputs, **outputs})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains += ClockDomain("io", reset_less=True, local=True)
        m.d.comb += ClockSignal("io").eq(self.link_clock)
        m.d.sync += self.usb_pullup.eq(~self.usb_d_p)
        m.d.io += [self.usb_d_p_out.eq(~self.usb_d_p), self.usb_d_n_out.eq(~self.usb_d_n), self.usb_driven.eq(1)]
        return m


ECHOES = {"uart": Echo, "usb": UsbEcho}


def top_of(name: str) -> TopDesign:
    board = load_board(name)
    return make_top(lambda clock_hz: ECHOES[board.link](), board, nearest_at_most(board, board.target_clock_hz))


def parameters(design: TopDesign, cell: str) -> dict[str, str]:
    """Return the parameters of the one cell of a kind."""
    (text,) = re.findall(rf"cell \\{cell} .*?\n((?:.*\n)*?) *end\n", design.rtlil)
    return dict(re.findall(r"parameter \\(\w+) (.+)", text))


def test_top_makes_its_clock_from_the_pad_of_the_icebreaker() -> None:
    design = top_of("icebreaker")
    given = parameters(design, "SB_PLL40_PAD")
    assert given["FEEDBACK_PATH"] == '"SIMPLE"'
    assert given["DIVR"] == "4'0000"
    assert given["DIVF"] == "7'0111111"
    assert given["DIVQ"] == "3'100"
    assert given["FILTER_RANGE"] == "3'001"
    lines = design.constraints.splitlines()
    assert {"set_io clk12_0__io 35", "set_io uart_0__rx__io 6", "set_io uart_0__tx__io 9"} < set(lines)
    assert "set_frequency clk12_0__io 12.0" in lines


def test_top_makes_its_clock_in_the_core_of_the_hx8k() -> None:
    design = top_of("hx8k")
    board = load_board("hx8k")
    settings = nearest_at_most(board, board.target_clock_hz)
    assert int(parameters(design, "SB_PLL40_CORE")["DIVF"].split("'")[1], 2) == settings.multiplier - 1
    pins = [line.split()[1:] for line in design.constraints.splitlines() if line.startswith("set_io")]
    # The serial port's pins for flow control are not among them.
    assert pins == [["clk12_0__io", "J3"], ["uart_0__rx__io", "B10"], ["uart_0__tx__io", "B12"]]


def test_top_makes_its_clock_in_the_pll_of_an_ecp5() -> None:
    design = top_of("ulx3s_25f")
    given = parameters(design, "EHXPLLL")
    numbers = {
        name: int(given[name].split("'")[-1], 2 if "'" in given[name] else 10) for name in given if "_DIV" in name
    }
    assert numbers == {"CLKI_DIV": 1, "CLKFB_DIV": 1, "CLKOP_DIV": 24, "CLKOS_DIV": 6}
    assert given["FEEDBK_PATH"] == '"CLKOP"'
    lines = design.constraints.splitlines()
    pins = [line.split('"')[1::2] for line in lines if line.startswith("LOCATE")]
    assert pins == [["clk25_0__io", "G2"], ["uart_0__rx__io", "M1"], ["uart_0__tx__io", "L4"]]
    assert 'FREQUENCY PORT "clk25_0__io" 25000000.0 HZ;' in lines


def test_top_runs_at_the_oscillator_where_there_is_no_pll() -> None:
    design = top_of("nandland_go")
    assert "PLL" not in design.rtlil
    assert "set_frequency clk25_0__io 25.0" in design.constraints.splitlines()


@pytest.mark.parametrize(
    ("name", "board_class", "expected"),
    [
        (
            "icebreaker",
            "tinyfpga_bx:TinyFPGABXPlatform",
            {"set_io nnhw_uart_0__rx__io A2", "set_io nnhw_uart_0__tx__io A1"},
        ),
        (
            "ulx3s_25f",
            "ulx3s:ULX3S_25F_Platform",
            {
                'LOCATE COMP "nnhw_uart_0__rx__io" SITE "A2";',
                'LOCATE COMP "nnhw_uart_0__tx__io" SITE "A1";',
                'IOBUF PORT "nnhw_uart_0__rx__io" IO_TYPE=LVCMOS33;',
            },
        ),
    ],
)
def test_top_takes_the_pins_that_a_board_file_names(name: str, board_class: str, expected: set[str]) -> None:
    board = load_board(name)
    clock = board.input_clock if board.family == "ecp5" else InputClock("clk16", 16_000_000, "core")
    uart = Uart(1_000_000, rx="A2", tx="A1")
    mine = dataclasses.replace(
        board, platform=f"amaranth_boards.{board_class}", uart=uart, input_clock=clock, ftdi=None
    )
    design = make_top(lambda clock_hz: Echo(), mine, nearest_at_most(mine, 48e6))
    assert expected < set(design.constraints.splitlines())


@pytest.mark.parametrize("board", list_boards(), ids=lambda board: board.name)
def test_top_of_each_board_has_its_pins(board: Board) -> None:
    found = re.findall(r"^(?:set_io|LOCATE COMP) \S+ ", top_of(board.name).constraints, re.MULTILINE)
    assert len(found) == 1 + len(board.host_link.ports)


def test_top_gives_the_usb_the_clock_of_the_oscillator() -> None:
    design = top_of("fomu_pvt")
    lines = design.constraints.splitlines()
    pins = {"usb_0__d_p__io A1", "usb_0__d_n__io A2", "usb_0__pullup__io A4", "clk48_0__io F4"}
    assert {f"set_io {pin}" for pin in pins} < set(lines)
    # The wires are driven in both directions, with one enable; the oscillator feeds PLL and USB from one input buffer.
    assert design.rtlil.count("cell \\SB_IO ") == 4
    assert design.rtlil.count("cell \\SB_PLL40_CORE ") == 1
    (named,) = [line for line in lines if "oscillator_clock" in line]
    assert named.endswith(" 48.0")


def test_top_gives_the_usb_the_clock_of_the_design() -> None:
    design = top_of("icebreaker_bitsy")
    frequencies = [line for line in design.constraints.splitlines() if line.startswith("set_frequency")]
    assert frequencies == ["set_frequency clk12_0__io 12.0"]
    assert "cell \\SB_PLL40_PAD " in design.rtlil


class FlashEcho(wiring.Component):
    """A device that registers its inputs, that of the flash too."""

    def __init__(self) -> None:
        pins = {"cs": Out(1), "clk": Out(1), "copi": Out(1), "cipo": In(1)}
        super().__init__({"rx": In(1), "tx": Out(1), **pins})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += [self.tx.eq(self.rx), self.copi.eq(self.cipo), self.clk.eq(~self.clk), self.cs.eq(self.rx)]
        return m


def flash_top_of(name: str) -> TopDesign:
    board = load_board(name)
    return make_top(lambda clock_hz: FlashEcho(), board, nearest_at_most(board, board.target_clock_hz))


def test_top_connects_the_flash_of_the_icebreaker() -> None:
    lines = set(flash_top_of("icebreaker").constraints.splitlines())
    pins = {"cs": 16, "clk": 15, "copi": 14, "cipo": 17, "wp": 12, "hold": 13}
    assert {f"set_io spi_flash_1x_0__{pin}__io {number}" for pin, number in pins.items()} < lines
    assert not [line for line in top_of("icebreaker").constraints.splitlines() if "flash" in line]


@pytest.mark.parametrize("name", ["ulx3s_25f", "ecpix5_85f", "colorlight_5a75b_r7_0"])
def test_top_clocks_the_flash_of_an_ecp5_through_its_cell(name: str) -> None:
    design = flash_top_of(name)
    assert design.rtlil.count("cell \\USRMCLK ") == 1
    assert "USRMCLK" not in top_of(name).rtlil
    found = set(re.findall(r"^LOCATE COMP \"spi_flash\w*_0__(\w+)__io\"", design.constraints, re.MULTILINE))
    assert {"cs", "copi", "cipo"} <= found <= {"cs", "copi", "cipo", "wp", "hold"}


@pytest.mark.parametrize("board", [board for board in list_boards() if board.flash], ids=lambda board: board.name)
def test_top_of_each_board_with_flash_has_its_pins(board: Board) -> None:
    text = flash_top_of(board.name).constraints
    found = re.findall(r"^(?:set_io|LOCATE COMP) \S*(cs|copi|cipo)__io", text, re.MULTILINE)
    assert sorted(found) == ["cipo", "copi", "cs"]


def test_load_platform_rejects_unknown_flash() -> None:
    board = dataclasses.replace(load_board("icebreaker"), flash=Flash("flush", 0x20000))
    with pytest.raises(BoardError) as caught:
        load_platform(board)
    assert str(caught.value) == "board 'icebreaker': field 'flash.resource': Resource flush#0 does not exist"


@pytest.mark.parametrize("name", ["icebreaker", "hx8k", "ulx3s_25f"])
def test_top_is_the_same_text_every_time(name: str) -> None:
    design = top_of(name)
    assert design == top_of(name)
    assert "attribute \\src" not in design.rtlil
    assert str(Path(__file__).parents[2]) not in design.rtlil


def test_top_tells_the_device_its_clock() -> None:
    board = load_board("icebreaker")
    told: list[int] = []

    def make(clock_hz: int) -> Echo:
        told.append(clock_hz)
        return Echo()

    make_top(make, board, nearest_at_most(board, 40.6e6))
    assert told == [40_500_000]


@pytest.mark.parametrize("board", list_boards(), ids=lambda board: board.name)
def test_boards_are_known_to_amaranth_boards(board: object) -> None:
    assert load_platform(board)  # type: ignore[arg-type]


@pytest.mark.parametrize("cycles", [2, 5, 16])
def test_start_reset_waits_for_the_lock_and_then_some(cycles: int) -> None:
    reset = StartReset(cycles)
    held: list[int] = []

    async def bench(ctx: object) -> None:
        for lock, duration in ((0, 40), (1, 4 * cycles + 8), (0, 8), (1, 4 * cycles + 8)):
            ctx.set(reset.lock, lock)  # type: ignore[attr-defined]
            count = 0
            for _ in range(duration):
                await ctx.tick()  # type: ignore[attr-defined]
                count += ctx.get(reset.reset)  # type: ignore[attr-defined]
            held.append(count)

    simulator = Simulator(reset)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    before, first, lost, second = held
    assert before == 40
    assert cycles <= first - 2 <= 2 * cycles
    assert lost == 8 - 3
    assert cycles <= second - 2 <= 2 * cycles


@pytest.mark.parametrize("platform", ["os:system", "amaranth_boards.icebreaker:Resource", "evil_board:Platform"])
def test_load_platform_imports_and_calls_nothing_but_boards(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_board.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    board = dataclasses.replace(load_board("icebreaker"), platform=platform)
    with pytest.raises(BoardError, match=rf"needs '{platform}' of amaranth-boards, which cannot be loaded: "):
        load_platform(board)
    assert not (tmp_path / "ran").exists()


def test_load_platform_rejects_unknown_class() -> None:
    board = dataclasses.replace(load_board("icebreaker"), platform="amaranth_boards.icebreaker:Nothing")
    with pytest.raises(BoardError) as caught:
        load_platform(board)
    assert str(caught.value) == (
        "board 'icebreaker' needs 'amaranth_boards.icebreaker:Nothing' of amaranth-boards, which cannot be loaded: "
        "module 'amaranth_boards.icebreaker' has no attribute 'Nothing'; install a newer amaranth-boards, "
        "or correct the field 'platform' of the board file"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uart": Uart(1, "usb")}, "board 'icebreaker': field 'uart.resource': Resource usb#0 does not exist"),
        (
            {"input_clock": InputClock("clk99", 12_000_000, "pad")},
            "board 'icebreaker': field 'input_clock.resource': Resource clk99#0 does not exist",
        ),
        (
            {"input_clock": InputClock("clk12", 16_000_000, "pad")},
            OTHER_CLOCK.format("clk12")
            + " of 12000000 Hz, but field 'input_clock.hz' is 16000000; correct the board file",
        ),
        (
            {"input_clock": InputClock("led", 12_000_000, "pad")},
            OTHER_CLOCK.format("led")
            + " without a frequency, but field 'input_clock.hz' is 12000000; correct the board file",
        ),
    ],
)
def test_load_platform_rejects_unknown_resource(change: dict[str, object], message: str) -> None:
    with pytest.raises(BoardError) as caught:
        load_platform(dataclasses.replace(load_board("icebreaker"), **change))  # type: ignore[arg-type]
    assert str(caught.value) == message


def spi_board(**pins: str) -> Board:
    """Return the iCEBreaker with builds for its SPI port, some of whose pins are others."""
    board = load_board("icebreaker").with_link("spi")
    assert board.spi is not None
    return dataclasses.replace(board, spi=dataclasses.replace(board.spi, **pins))


class SpiEcho(wiring.Component):
    """A device that answers with what it gets."""

    def __init__(self) -> None:
        inputs = dict.fromkeys(("spi_cs", "spi_sck", "spi_copi"), In(1))
        super().__init__({**inputs, **dict.fromkeys(("spi_cipo", "spi_selected", "spi_irq"), Out(1))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.spi_cipo.eq(self.spi_copi & self.spi_sck), self.spi_selected.eq(~self.spi_cs)]
        return m


def test_top_puts_the_spi_port_at_the_pins_of_the_board_file() -> None:
    board = spi_board()
    design = make_top(lambda clock_hz: SpiEcho(), board, nearest_at_most(board, board.target_clock_hz))
    pins = dict(line.split()[1:] for line in design.constraints.splitlines() if line.startswith("set_io"))
    assert pins == {
        "clk12_0__io": "35",
        **{f"nnhw_spi_0__{name}__io": pin for name, pin in (("cs", "4"), ("sck", "45"), ("copi", "2"))},
        **{"nnhw_spi_0__cipo__io": "47", "nnhw_spi_0__irq__io": "3"},
    }


def test_top_puts_an_ftdi_chip_at_the_pins_of_the_flash() -> None:
    """They are the flash's in amaranth-boards, too; a device that reads the flash drives them in turns."""
    board = load_board("icebreaker").with_link("ftdi")
    identity = DeviceIdentity("3f1c09a5b77e2d84", 12, 5, 48_000_000)
    plain = LinkedEngine(SumEngine(12, 5), identity)
    loading = LinkedEngine(ProgramEngine(), identity, ProgramEngine.ARRAY_ID, 0x20000)
    for device, outputs in ((plain, 1), (loading, 4)):
        design = make_top(
            lambda clock_hz, device=device: FtdiDevice(device), board, nearest_at_most(board, board.target_clock_hz)
        )
        pins = dict(line.split()[1:] for line in design.constraints.splitlines() if line.startswith("set_io"))
        names = {"cs": "16", "sck": "15", "copi": "14", "cipo": "17"}
        assert pins == {"clk12_0__io": "35", **{f"nnhw_ftdi_0__{name}__io": pin for name, pin in names.items()}}
        # An output that is switched, or both ways, has a cell with an enable.
        assert len(re.findall(r"^\s+connect \\OUTPUT_ENABLE", design.rtlil, re.MULTILINE)) == outputs


def test_load_platform_rejects_an_ftdi_chip_at_other_pins_than_the_flash() -> None:
    board = load_board("icebreaker")
    assert board.ftdi is not None
    with pytest.raises(BoardError) as caught:
        load_platform(dataclasses.replace(board, ftdi=dataclasses.replace(board.ftdi, copi="17", cipo="17")))
    assert str(caught.value) == (
        "board 'icebreaker': field 'ftdi.copi' must be pin 14 of 'spi_flash_1x', with which this link shares its pins, "
        "but is 17; correct the board file"
    )


@pytest.mark.parametrize(
    ("pins", "name", "pin", "what"),
    [
        ({"cs": "35"}, "cs", "35", "that of 'clk12'"),
        ({"irq": "14"}, "irq", "14", "one of 'spi_flash_1x'"),
        ({"irq": "47"}, "irq", "47", "'spi.cipo' as well"),
        ({"irq": "9"}, "irq", "9", "one of 'uart'"),
    ],
)
def test_load_platform_rejects_pins_in_use(pins: dict[str, str], name: str, pin: str, what: str) -> None:
    with pytest.raises(BoardError) as caught:
        load_platform(spi_board(**pins))
    with pytest.raises(BoardError, match="which is in use"):
        load_platform(spi_board(**pins).with_link("uart"))
    assert str(caught.value) == (
        f"board 'icebreaker': field 'spi.{name}' is pin {pin}, which is in use: it is {what}; "
        "choose a free pin in the board file"
    )


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        (
            "icebreaker",
            "can",
            "--link is one of 'uart', 'spi', 'ftdi', 'usb'; given 'can'; board 'icebreaker' has 'uart', 'spi', 'ftdi'",
        ),
        (
            "icestick",
            "spi",
            (
                "board 'icestick' has no link 'spi', it has 'uart', 'ftdi'; use one of these, or give a board file "
                "with a table 'spi' that names the pins 'cs', 'sck', 'copi', 'cipo', 'irq'"
            ),
        ),
    ],
)
def test_board_rejects_a_link_that_it_lacks(name: str, kind: str, message: str) -> None:
    with pytest.raises(BoardError) as caught:
        load_board(name).with_link(kind)
    assert str(caught.value) == message
