"""The DSP block of a requantizer against the plain form that is simulated, in Icarus Verilog."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nnhw.flow.tools.toolchain import run_yosys
from nnhw.hdl.shared.multiply_add import DELAY, MultiplyAdd
from tests.hdl.test_cells import ICE40, write

CYCLES = 3000


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("is_signed", [True, False])
def test_block_equals_the_plain_form(is_signed: bool, tmp_path: Path) -> None:
    assert compare(is_signed=is_signed, folder=tmp_path) == (CYCLES, 0)


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("spoilt", ["B_SIGNED", "TOPADDSUB_CARRYSELECT", "D_REG", "PIPELINE_16x16_MULT_REG2"])
def test_comparison_finds_a_difference(spoilt: str, tmp_path: Path) -> None:
    cycles, different = compare(is_signed=True, folder=tmp_path, spoilt=spoilt)
    assert cycles == CYCLES
    assert different > CYCLES // 4


def compare(*, is_signed: bool, folder: Path, spoilt: str = "") -> tuple[int, int]:
    """Return how many cycles of random numbers were compared, and in how many the results were different.

    Parameters
    ----------
    spoilt: a parameter of the block that is set to zero.
    """
    write(MultiplyAdd(is_signed=is_signed), "cells", ICE40, folder)
    write(MultiplyAdd(is_signed=is_signed), "plain", None, folder)
    path = folder / "cells.il"
    lines = path.read_text(encoding="utf-8").splitlines()
    changed = [
        line.replace("1'1", "1'0").replace("2'10", "2'00") if spoilt and f"\\{spoilt} " in line else line
        for line in lines
    ]
    assert bool(spoilt) == (changed != lines)
    path.write_text("\n".join(changed) + "\n", encoding="utf-8")
    tail = ["proc", "flatten"]
    head = ["read_rtlil cells.il", "read_verilog -defer +/ice40/cells_sim.v", "hierarchy -check -top cells"]
    plain = ["design -reset", "read_rtlil plain.il", "hierarchy -top plain"]
    ends = ["opt_clean", "write_verilog -noattr cells.v"], ["write_verilog -noattr plain.v"]
    run_yosys([*head, *tail, *ends[0], *plain, *tail, *ends[1]], folder)
    (folder / "bench.v").write_text(BENCH, encoding="utf-8")
    subprocess.run(["iverilog", "-o", "bench", "bench.v", "cells.v", "plain.v"], cwd=folder, check=True)
    done = subprocess.run(["vvp", "-n", "bench"], cwd=folder, check=True, capture_output=True, text=True)
    cycles, different = done.stdout.split()[-2:]
    return int(cycles), int(different)


# The first cycles fill the registers, which start undefined.
BENCH = f"""
module bench;
  reg clk = 0, ce = 1; reg [15:0] a = 0, b = 0; reg [31:0] addend = 0;
  wire [31:0] first, second;
  integer cycles = 0, different = 0, seed = 1;
  cells one(.clk(clk), .rst(1'b0), .ce(ce), .a(a), .b(b), .addend(addend), .o(first));
  plain two(.clk(clk), .rst(1'b0), .ce(ce), .a(a), .b(b), .addend(addend), .o(second));
  initial begin
    while (cycles < {CYCLES + DELAY}) begin
      #1 clk = 1; #1 clk = 0;
      if (cycles >= {DELAY} && first !== second) different = different + 1;
      cycles = cycles + 1;
      a = $random(seed); b = $random(seed); addend = $random(seed);
      ce = cycles < {DELAY} || $random(seed) % 4 != 0;
    end
    $display("%0d %0d", cycles - {DELAY}, different);
    $finish;
  end
endmodule
"""
