"""The families' cells against the plain form that is simulated: adder cells by proof, DSP blocks in Icarus Verilog."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Shape, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.errors import MappingError
from nnhw.flow.tools.processes import ToolFailure
from nnhw.flow.tools.toolchain import run_yosys
from nnhw.hdl.cells import cells_of
from nnhw.hdl.dsp import DspProducts

CYCLES = 3000

# What the block does with one register at each input and one at the output, no pipeline register, no cascade.
# Source: Lattice FPGA-TN-02205, ECP5 sysDSP usage guide; ports as in yosys `techlibs/lattice/cells_bb_ecp5.v`.
MULT18X18D = """
module MULT18X18D({ports}, input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK0, CE0, RST0);
  parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
  parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
  parameter REG_INPUTC_CLK = "NONE", REG_PIPELINE_CLK = "NONE", GSR = "ENABLED";
  parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
  reg signed [18:0] a, b;
  reg [35:0] p;
  wire signed [37:0] product = a * b;
  assign {{{results}}} = REG_OUTPUT_CLK == "CLK0" ? p : product[35:0];
  always @(posedge CLK0) if (CE0) begin
    if (REG_INPUTA_CLK == "CLK0") a <= {{SIGNEDA & A17, {a}}};
    if (REG_INPUTB_CLK == "CLK0") b <= {{SIGNEDB & B17, {b}}};
    p <= product[35:0];
  end
endmodule
"""


@dataclass(frozen=True)
class Device:
    """Stands for a platform of Amaranth."""

    device: str


ICE40, ECP5 = Device("iCE40UP5K"), Device("LFE5U-25F")


class Pair(wiring.Component):
    """A first adder of two lanes."""

    def __init__(self, function: str, shape: Shape) -> None:
        self.function = function
        members = {"x": In(shape), "u": In(1), "y": In(shape), "v": In(1)}
        super().__init__({**members, "o": Out(Shape(shape.width + 1, shape.signed))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cells = cells_of(platform)
        add = cells.add_gated if self.function == "gated" else cells.add_inverted
        m.d.comb += self.o.eq(add(m, (self.x, self.u), (self.y, self.v)))
        return m


def write(component: wiring.Component, name: str, platform: object, folder: Path) -> None:
    """Write the RTLIL of a component."""
    text = rtlil.convert(component, name=name, platform=platform, emit_src=False)
    (folder / f"{name}.il").write_text(text, encoding="utf-8")


def prove(first: wiring.Component, second: wiring.Component, platform: object, folder: Path) -> None:
    """Prove that a component made for a platform equals another one made for simulation, for every input."""
    write(first, "cells", platform, folder)
    write(second, "plain", None, folder)
    run_yosys(
        [
            "read_rtlil cells.il",
            "read_verilog +/ecp5/common_sim.vh +/ecp5/ccu2c_sim.vh",
            "hierarchy -check -top cells",
            "proc",
            "flatten",
            "read_rtlil plain.il",
            "proc",
            "miter -equiv -flatten -make_outputs plain cells miter",
            "sat -verify -prove trigger 0 miter",
        ],
        folder,
    )


SHAPES = [unsigned(1), unsigned(2), unsigned(7), unsigned(8), signed(1), signed(2), signed(7), signed(8)]


@pytest.mark.parametrize("platform", [ICE40, ECP5], ids=lambda device: device.device)
@pytest.mark.parametrize(
    ("function", "shape"),
    [("gated", shape) for shape in SHAPES] + [("inverted", shape) for shape in SHAPES if shape.signed],
)
def test_first_adder_of_a_family_equals_the_plain_one(
    function: str, shape: Shape, platform: Device, tmp_path: Path
) -> None:
    prove(Pair(function, shape), Pair(function, shape), platform, tmp_path)


class Plain(wiring.Component):
    """One of the other adders."""

    def __init__(self, function: str, x: Shape, y: Shape) -> None:
        self.function = function
        bits = max(x.width, y.width) + 1
        total = Shape(x.width) if function == "accumulate" else Shape(bits, x.signed)
        super().__init__({"x": In(x), "y": In(y), "u": In(1), "v": In(x), "w": In(y), "o": Out(total)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cells = cells_of(platform)
        if self.function == "accumulate":
            total = cells.accumulate(m, self.x, self.u, self.y)
        elif self.function == "add":
            total = cells.add(m, self.x, self.y)
        else:
            total = cells.add_ands(m, list(zip(self.x, self.v, strict=True)), list(zip(self.y, self.w, strict=True)))
        m.d.comb += self.o.eq(total)
        return m


@pytest.mark.parametrize(
    ("function", "x", "y"),
    [
        *[("add", shape, shape) for shape in SHAPES],
        ("add", signed(7), signed(3)),
        ("add", unsigned(3), unsigned(6)),
        *[("accumulate", unsigned(6), shape) for shape in (signed(3), unsigned(3), signed(8), unsigned(6))],
        ("accumulate", signed(5), unsigned(4)),
        ("ands", unsigned(3), unsigned(3)),
    ],
)
def test_adder_of_the_ecp5_equals_the_plain_one(function: str, x: Shape, y: Shape, tmp_path: Path) -> None:
    prove(Plain(function, x, y), Plain(function, x, y), ECP5, tmp_path)


def test_proof_finds_a_difference(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure):
        prove(Pair("inverted", signed(4)), Pair("gated", signed(4)), ECP5, tmp_path)


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("platform", [ICE40, ECP5], ids=lambda device: device.device)
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (signed(8), signed(8)),
        (unsigned(8), signed(8)),
        (signed(8), unsigned(8)),
        (unsigned(8), unsigned(8)),
        (unsigned(4), signed(3)),
        (unsigned(8), signed(16)),
        (signed(16), signed(16)),
        (unsigned(16), unsigned(9)),
    ],
    ids=str,
)
def test_dsp_block_equals_the_plain_products(a: Shape, b: Shape, lanes: int, platform: Device, tmp_path: Path) -> None:
    assert compare(a, b, lanes, platform, tmp_path) == (CYCLES, 0)


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")
def test_comparison_of_dsp_blocks_finds_a_difference(tmp_path: Path) -> None:
    cycles, different = compare(signed(8), signed(8), 2, ICE40, tmp_path, spoil="p_A_SIGNED")
    assert cycles == CYCLES
    assert different > CYCLES // 4


def compare(a: Shape, b: Shape, lanes: int, platform: Device, folder: Path, spoil: str = "") -> tuple[int, int]:
    """Return how many cycles of random factors and stalls were compared, and in how many products were different.

    Parameters
    ----------
    spoil: a parameter of the block to set to zero.
    """
    write(DspProducts(lanes, a, b), "cells", platform, folder)
    write(DspProducts(lanes, a, b), "plain", None, folder)
    if spoil:
        path = folder / "cells.il"
        lines = path.read_text(encoding="utf-8").splitlines()
        name = spoil.removeprefix("p_")
        changed = [line.replace("1'1", "1'0") if f"\\{name} " in line else line for line in lines]
        assert changed != lines
        path.write_text("\n".join(changed) + "\n", encoding="utf-8")
    model = "+/ice40/cells_sim.v"
    if platform is ECP5:
        model = "mult.v"
        (folder / model).write_text(_ecp5_model(), encoding="utf-8")
    run_yosys(
        [
            "read_rtlil cells.il",
            f"read_verilog -defer {model}",
            "hierarchy -check -top cells",
            "proc",
            "flatten",
            "opt_clean",
            "write_verilog -noattr cells.v",
            "design -reset",
            "read_rtlil plain.il",
            "hierarchy -top plain",
            "proc",
            "flatten",
            "write_verilog -noattr plain.v",
        ],
        folder,
    )
    (folder / "bench.v").write_text(_bench(lanes * a.width, lanes * b.width, lanes * (a.width + b.width)))
    subprocess.run(["iverilog", "-o", "bench", "bench.v", "cells.v", "plain.v"], cwd=folder, check=True)
    done = subprocess.run(["vvp", "-n", "bench"], cwd=folder, check=True, capture_output=True, text=True)
    cycles, different = done.stdout.split()[-2:]
    return int(cycles), int(different)


def _ecp5_model() -> str:
    names = {letter: ", ".join(f"{letter}{bit}" for bit in reversed(range(size))) for letter, size in _SIZES.items()}
    ports = f"input {names['A']}, {names['B']}, {names['C']}, output {names['P']}"
    return MULT18X18D.format(ports=ports, results=names["P"], a=names["A"], b=names["B"])


_SIZES = {"A": 18, "B": 18, "C": 18, "P": 36}


def _bench(a_bits: int, b_bits: int, o_bits: int) -> str:
    """Return a test bench; the first two moves fill the registers, which start undefined."""
    return f"""
module bench;
  reg clk = 0, ce = 1; reg [{a_bits - 1}:0] a = 0; reg [{b_bits - 1}:0] b = 0;
  wire [{o_bits - 1}:0] first, second;
  integer moves = 0, cycles = 0, different = 0;
  cells c(.clk(clk), .rst(1'b0), .ce(ce), .i_a(a), .i_b(b), .o(first));
  plain p(.clk(clk), .rst(1'b0), .ce(ce), .i_a(a), .i_b(b), .o(second));
  initial begin
    while (cycles < {CYCLES}) begin
      a = {{$urandom, $urandom}}; b = {{$urandom, $urandom}}; ce = moves < 3 || $urandom % 4 != 0;
      if ($urandom % 16 == 0) a = {{64{{1'b1}}}}; if ($urandom % 16 == 0) b = {{64{{1'b1}}}};
      #1 clk = 1; #1 clk = 0;
      moves = moves + ce;
      if (moves > 3) begin cycles = cycles + 1; if (first !== second) different = different + 1; end
    end
    $display("%0d %0d", cycles, different);
    $finish;
  end
endmodule
"""


def test_dsp_products_reject_wide_factors() -> None:
    with pytest.raises(MappingError) as error:
        DspProducts(1, signed(17), unsigned(4))
    assert str(error.value) == (
        "a product in a DSP block has factors of at most 16 bits, given 17 and 4; use narrower quantizers, or no DSP "
        "blocks for this layer"
    )
