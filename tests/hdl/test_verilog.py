"""Verilog text: the same for the same component, and nothing of this machine in it."""

from __future__ import annotations

import re
from pathlib import Path

from amaranth.lib import data

from nnhw.flow.tools.toolchain import run_yosys
from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.engine import HARDWARE
from nnhw.hdl.verilog import to_rtlil, to_verilog
from sim.cases import CASES


def verilog_of(case: str) -> str:
    """Return the Verilog of a row."""
    config = CASES[case]()
    return to_verilog(HARDWARE[type(config)](config), run_yosys)


def test_verilog_is_the_same_each_time() -> None:
    assert verilog_of("matmul_folded") == verilog_of("matmul_folded")


def test_verilog_names_neither_this_machine_nor_the_tool() -> None:
    text = verilog_of("window_3x3_rows")
    assert str(Path(__file__).parents[2]) not in text
    assert not re.search(r"\bsrc\b|Yosys|Amaranth|\.py", text)
    config = CASES["pool_binary"]()
    assert "src" not in to_rtlil(HARDWARE[type(config)](config))


def test_verilog_top_has_the_ports_of_the_streams() -> None:
    first = verilog_of("pool_binary").splitlines()[0]
    names = set(re.findall(r"\w+", first.split("(")[1]))
    assert first.startswith("module top(")
    assert names == {"clk", "rst", *(f"{s}__{m}" for s in "io" for m in ("valid", "ready", "payload"))}


def test_verilog_keeps_initial_values_of_registers_that_are_ports() -> None:
    buffer = to_verilog(StreamBuffer(data.ArrayLayout(8, 1)), run_yosys)
    assert re.search(r"\breg i__ready = 1'h1;", buffer)
    assert re.search(r"\breg o__valid = 1'h0;", buffer)
