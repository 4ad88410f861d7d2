"""The netlist as a virtual board: equal where synthesis is right, different where one cell of it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nnhw.accelerator import Accelerator
from nnhw.boards import Board, load_board
from nnhw.errors import BuildError, LinkError
from nnhw.families import FAMILIES
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.flow.implementation.timing_closure import usable_clocks
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.verification import netlist
from nnhw.flow.verification.netlist import Pins, find_pins, netlist_verilog, run_netlist, with_rate
from nnhw.flow.virtual.device_hardware import make_linked_device
from nnhw.hdl.top import make_top

CONV_NET = """
import torch
from nnhw.nn import Int, QuantConv2d, QuantLinear, UInt
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(
    UInt(8, scale=2**-8),
    QuantConv2d(1, 6, 3, weight_quant=Int(8, "max_abs")), nn.ReLU(), UInt(8, scale=2**-6), nn.Flatten(),
    QuantLinear(96, 5, weight_quant=Int(8, "max_abs")),
)
example_input = torch.rand(4, 1, 6, 6)
"""
PINS = Pins("clk_0__io", {"rx": "uart_0__rx__io"}, {"tx": "uart_0__tx__io"})
PROGRESS = SilentProgress()


def synthesize_net(folder: Path, board: Board, least_hz: int = 0) -> tuple[Path, int]:
    """Return a build folder with a netlist that has memories, DSP blocks and carry chains; its clock."""
    (folder / "net.py").write_text(CONV_NET, encoding="utf-8")
    options = Options(style="streaming", target_fps=100_000)
    build = build_file(str(folder / "net.py"), board.name, options, out=folder / "b", stop_at="map")
    settings = next(clock for clock in usable_clocks(board) if clock.output_hz >= least_hz)
    accelerator = Accelerator.load(build.path)
    design = make_top(lambda hz: make_linked_device(accelerator, hz, board.host_link, board.flash), board, settings)
    netlist = synthesize(design.rtlil, board, build.path, dsp=True)
    assert netlist.resources.dsp
    assert netlist.resources.ebr
    return build.path, settings.output_hz


@pytest.fixture(scope="module", params=["icebreaker", "ulx3s_25f"])
def synthesized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """A folder of `synthesize_net`; its board; its clock."""
    # 16.75 cycles in a bit: a bench gives it 17, and takes its bytes a little later than the line would.
    least_hz = {"icebreaker": 50_250_000}.get(request.param, 0)
    folder, clock_hz = synthesize_net(tmp_path_factory.mktemp("netlist"), load_board(request.param), least_hz)
    return folder, request.param, clock_hz


@pytest.mark.parametrize(("name", "link"), [("icebreaker", "spi"), ("icebreaker", "ftdi"), ("fomu_pvt", "usb")])
def test_netlist_computes_the_model_through_the_pins_of_each_link(tmp_path: Path, name: str, link: str) -> None:
    board = load_board(name).with_link(link)
    folder, clock_hz = synthesize_net(tmp_path, board)
    run = run_netlist(folder, board, clock_hz, 3, PROGRESS)
    assert (run.samples, run.mismatches, run.bad_frames) == (3, 0, 0)


def test_netlist_computes_the_model(synthesized: tuple[Path, str, int]) -> None:
    folder, board, clock_hz = synthesized
    run = run_netlist(folder, load_board(board), clock_hz, 64, PROGRESS)
    assert run.equal
    assert (run.samples, run.mismatches, run.bad_frames) == (64, 0, 0)


def test_netlist_shows_a_product_whose_clock_is_cut(synthesized: tuple[Path, str, int], tmp_path: Path) -> None:
    folder, board, clock_hz = synthesized
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    document = json.loads((folder / "design.json").read_text(encoding="utf-8"))
    kind, clock = {"icebreaker": ("SB_MAC16", "CLK"), "ulx3s_25f": ("MULT18X18D", "CLK0")}[board]
    cut = [cell for cell in document["modules"]["top"]["cells"].values() if cell["type"] == kind]
    cut[0]["connections"][clock] = ["0"]
    (tmp_path / "design.json").write_text(json.dumps(document), encoding="utf-8")
    run = run_netlist(tmp_path, load_board(board), clock_hz, 3, PROGRESS)
    assert run.mismatches
    assert not run.equal


@pytest.mark.parametrize("synthesized", ["ulx3s_25f"], indirect=True)
def test_netlist_shows_an_output_register_that_is_left_out(synthesized: tuple[Path, str, int], tmp_path: Path) -> None:
    folder, board, clock_hz = synthesized
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    document = json.loads((folder / "design.json").read_text(encoding="utf-8"))
    memories = [cell for cell in document["modules"]["top"]["cells"].values() if cell["type"] == "DP16KD"]
    late = [cell for cell in memories if cell["parameters"]["REGMODE_B"] == "OUTREG"]
    late[0]["parameters"] |= {"REGMODE_A": "NOREG", "REGMODE_B": "NOREG"}
    (tmp_path / "design.json").write_text(json.dumps(document), encoding="utf-8")
    assert run_netlist(tmp_path, load_board(board), clock_hz, 3, PROGRESS).mismatches


def test_netlist_that_is_silent_is_a_link_error(synthesized: tuple[Path, str, int], tmp_path: Path) -> None:
    folder, board, clock_hz = synthesized
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    document = json.loads((folder / "design.json").read_text(encoding="utf-8"))
    top = document["modules"]["top"]
    (tx,) = (port["bits"][0] for name, port in top["ports"].items() if name.endswith("__tx__io"))
    cell = FAMILIES[load_board(board).family].models.pin
    (pin,) = (c for c in top["cells"].values() if c["type"] == cell.kind and c["connections"][cell.pad] == [tx])
    pin["connections"][cell.outside] = ["1"]
    (tmp_path / "design.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(LinkError, match="netlist"):
        run_netlist(tmp_path, load_board(board), clock_hz, 1, PROGRESS)


def netlist_of(**cells: dict[str, Any]) -> dict[str, Any]:
    """Return a netlist with the pins of a clock and a serial line, and some cells."""
    ports = {PINS.clock: 2, PINS.inputs["rx"]: 3, PINS.outputs["tx"]: 4}
    return {"ports": {name: {"direction": "inout", "bits": [bit]} for name, bit in ports.items()}, "cells": cells}


def pin(pad: int, **ports: int | str) -> dict[str, Any]:
    connections = {"PACKAGE_PIN": [pad], **{name: [bit] for name, bit in ports.items()}}
    return {"type": "SB_IO", "parameters": {}, "connections": connections}


def test_netlist_verilog_of_a_table_between_two_pins() -> None:
    table = {
        "type": "SB_LUT4",
        "parameters": {"LUT_INIT": "0000000000000101"},
        "connections": {"O": [6], "I0": [5], "I1": ["1"], "I2": ["x"], "I3": ["0"]},
    }
    netlist = netlist_of(rx=pin(3, D_IN_0=5), table=table, tx=pin(4, D_OUT_0=6))
    lines = netlist_verilog(netlist, FAMILIES["ice40"].models, PINS).splitlines()
    assert lines[:2] == ["`timescale 1ps / 1ps", "module netlist(input clk, input rx, output tx);"]
    assert lines[2:7] == [f"wire n{net};" for net in (2, 3, 4, 5, 6)]
    assert lines[7:] == [
        "assign n5 = n3;",
        "assign n6 = 16'b0000000000000101 >> {1'b0, 1'b0, 1'b1, n5};",
        "assign n4 = n6;",
        "assign n2 = clk;",
        "assign n3 = rx;",
        "assign tx = n4;",
        "endmodule",
    ]


def test_netlist_verilog_of_cells_with_parameters() -> None:
    cell = {
        "type": "SB_RAM40_4K",
        "parameters": {"READ_MODE": "00", "TITLE": "01 ", "INIT": "x1"},
        "connections": {"RADDR": [7, "0", 5], "RE": ["1"]},
    }
    pll = {
        "type": "SB_PLL40_PAD",
        "parameters": {},
        "connections": {"PACKAGEPIN": [2], "PLLOUTGLOBAL": [9], "LOCK": [8]},
    }
    lines = netlist_verilog(netlist_of(ram=cell, pll=pll), FAMILIES["ice40"].models, PINS).splitlines()
    ram = "SB_RAM40_4K #(.READ_MODE(2'b00), .TITLE(\"01\"), .INIT(2'bx1)) c0 (.RADDR({n5, 1'b0, n7}), .RE(1'b1));"
    assert ram in lines
    assert {"assign n9 = n2;", "assign n8 = 1;"} <= set(lines)


def test_netlist_verilog_of_pins_that_are_driven_at_times() -> None:
    shared, result = pin(3, D_IN_0=5, D_OUT_0=6, OUTPUT_ENABLE=7), pin(4, D_OUT_0=6, OUTPUT_ENABLE=7)
    lines = netlist_verilog(netlist_of(rx=shared, tx=result), FAMILIES["ice40"].models, PINS).splitlines()
    assert lines[-6:-1] == [
        "assign n3 = n7 == 1 ? n6 : rx;",
        "assign n5 = n3;",
        "assign n4 = n7 == 1 ? n6 : 1'b1;",
        "assign n2 = clk;",
        "assign tx = n4;",
    ]


def test_netlist_verilog_refuses_a_pin_without_a_direction() -> None:
    with pytest.raises(BuildError, match="neither an input nor an output"):
        netlist_verilog(netlist_of(rx=pin(3, D_IN_0="x")), FAMILIES["ice40"].models, PINS)


def test_netlist_pins_are_those_of_the_platform() -> None:
    ports = dict.fromkeys(("clk12_0__io", "uart_0__rx__io", "uart_0__tx__io", "spi_flash_0__cs__io"))
    found = find_pins(ports, load_board("icebreaker"))
    assert found == Pins("clk12_0__io", {"rx": "uart_0__rx__io"}, {"tx": "uart_0__tx__io"})
    names = {f"spi_{name}": f"nnhw_spi_0__{name}__io" for name in ("cs", "sck", "copi", "cipo", "irq")}
    ports = dict.fromkeys(("clk12_0__io", "spi_flash_1x_0__cs__io", *names.values()))
    found = find_pins(ports, load_board("icebreaker").with_link("spi"))
    outputs = {name: names.pop(name) for name in ("spi_cipo", "spi_irq")}
    assert found == Pins("clk12_0__io", names, outputs)
    with pytest.raises(BuildError, match=r"none of them is the board's 'uart_\\d\+__tx__io'"):
        find_pins(dict.fromkeys(("clk12_0__io", "uart_0__rx__io")), load_board("icebreaker"))


@pytest.mark.parametrize("bench", netlist.BENCHES.values())
def test_bench_of_netlists_has_the_rate_that_is_asked_for(bench: netlist.Bench) -> None:
    text = bench.text
    assert "localparam CLOCK_HZ = 24000000, RATE = 1000000;" in with_rate(text, 24_000_000, 1_000_000)
    with pytest.raises(AssertionError):
        with_rate(text.replace("RATE", "SPEED"), 24_000_000, 1_000_000)
