"""`nnhw export core`: files that other tools take, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nnhw.accelerator import Accelerator
from nnhw.cli import app
from nnhw.errors import BuildError, InputError
from nnhw.flow.commands.exporting_core import export_core
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.flow.tools.toolchain import run_yosys

ROOT = Path(__file__).resolve().parents[2]
NETWORK = """
import torch
from torch import nn
from nnhw.nn import Int, QuantLinear

torch.manual_seed(0)
model = nn.Sequential(Int(4, 0.25), QuantLinear(6, 4, weight_quant=Int(3))).eval()
example_input = torch.randn(8, 6)
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("core")
    (folder / "net.py").write_text(NETWORK, encoding="utf-8")
    made = build_file(str(folder / "net.py"), "icebreaker", Options(), out=folder / "build", stop_at="map")
    return made.path


@pytest.mark.parametrize("bus", ["axi-stream", "wishbone"])
def test_core_and_its_instance_are_verilog_that_yosys_takes(build: Path, bus: str, tmp_path: Path) -> None:
    made = export_core(build, bus=bus, name="digits", clock_mhz=40, out=tmp_path / "out")
    names = ["digits.v", "digits_instance.v", "digits.xdc", "digits.sdc", "README.md"]
    assert [path.name for path in made.paths] == names
    script = [
        "read_verilog digits.v digits_instance.v",
        "hierarchy -check -top digits_instance",
        "proc",
        "check -assert",
    ]
    run_yosys(script, tmp_path / "out")
    ports = re.findall(
        r"^\| `(\w+)` \| (input|output) \| (\d+) \|$", (tmp_path / "out" / "README.md").read_text(), re.M
    )
    text = (tmp_path / "out" / "digits.v").read_text(encoding="utf-8")
    top = text[text.index("module digits(") :]
    for name, direction, bits in ports:
        width = rf"\[{int(bits) - 1}:0\] " if int(bits) > 1 else ""
        assert re.search(rf"^  {direction} {width}{name};$", top, re.M), name
    clock = "aclk" if bus == "axi-stream" else "clk_i"
    assert (
        tmp_path / "out" / "digits.xdc"
    ).read_text() == f"create_clock -period 25.000 -name {clock} [get_ports {clock}]\n"


def test_command_says_what_it_wrote(build: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["export", "core", str(build), "--out", str(out)])
    assert result.exit_code == 0, result.output
    name = f"{Accelerator.load(build).name}_core"
    assert f"wrote {out / name}.v" in result.output
    assert f"module {name}(" in (out / f"{name}.v").read_text(encoding="utf-8")


def test_what_no_core_can_be_made_of_is_said(build: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--bus is one of axi-stream, wishbone; given 'ahb'"):
        export_core(build, bus="ahb")
    with pytest.raises(InputError, match=r"--name is a Verilog name of letters, digits and _, .* given '1st'"):
        export_core(build, name="1st")
    with pytest.raises(InputError, match=r"--clock needs a number of MHz from 0.001 to 10000, given 0"):
        export_core(build, clock_mhz=0)
    with pytest.raises(BuildError):
        export_core(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="is a file, but a folder is needed there; give another with --out"):
        export_core(build, out=tmp_path / "file" / "out")


def test_litex_puts_the_core_on_its_bus(build: Path, tmp_path: Path) -> None:
    pytest.importorskip("litex", reason="needs LiteX: pip install 'nnhw[dev]'")
    export_core(build, bus="wishbone", name="digits", out=tmp_path)
    example = str(ROOT / "examples" / "litex_core.py")
    done = subprocess.run(
        [sys.executable, example, "digits.v"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "{'network': '0x10000000', 'csr': '0x0'}" in done.stdout
    read = "read_verilog digits.v build/gateware/sim.v"
    run_yosys([read, "hierarchy -check -top top", "proc", "select -assert-count 1 t:digits"], tmp_path)
