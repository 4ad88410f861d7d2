"""The command line: what a person types, sees, and gets as exit code."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner, Result

import nnhw
from nnhw import cli
from nnhw.cli import app
from nnhw.errors import DoesNotFitError, ExactnessError, MappingError, NnhwError, TimingError
from nnhw.flow.build_stages import STAGE_NAMES
from nnhw.passes import PIPELINE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No heading is wrapped, wherever the tests run."""
    monkeypatch.setattr(cli.OUT, "width", 120)


def nnhw_command(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_cli_help_names_the_commands() -> None:
    result = nnhw_command("--help")
    assert result.exit_code == 0
    for name in ("doctor", "boards", "build", "check", "fit", "ir", "report", "sim", "run", "program", "search"):
        assert f" {name} " in result.output


def test_cli_version() -> None:
    assert nnhw_command("--version").output == f"nnhw {nnhw.__version__}\n"


def test_cli_rejects_an_unknown_command() -> None:
    result = nnhw_command("bild")
    assert result.exit_code == 2
    said = "Usage: No such command 'bild'. Did you mean 'build'? see 'root --help'\n"
    assert (result.stdout, result.stderr) == ("", said)


def test_cli_boards_lists_both() -> None:
    output = nnhw_command("boards").output
    assert "icebreaker" in output
    assert "ice40_hx8k_b_evn" in output


def test_cli_doctor_names_tools_and_versions() -> None:
    result = nnhw_command("doctor")
    assert result.exit_code == 0, result.output
    for name in ("Python", "torch", "yosys", "nextpnr-ice40", "Verilator", "C++ compiler"):
        assert name in result.output
    assert "everything that a build needs is here" in result.output


def test_cli_doctor_says_what_a_missing_tool_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    from nnhw.flow.commands.doctor import Check

    missing = Check("yosys", None, "to make a netlist", "the virtual board", "pip install pyosys", required=True)
    monkeypatch.setattr("nnhw.flow.commands.doctor.diagnose", lambda: (missing,))
    result = nnhw_command("doctor")
    assert result.exit_code == 1
    assert "yosys is missing: pip install pyosys. Without it works: the virtual board." in result.output
    assert "needed and missing: yosys" in result.output


def test_cli_error_is_a_message_and_exit_code_1(tmp_path: Path) -> None:
    result = nnhw_command("report", str(tmp_path))
    assert result.exit_code == 1
    assert result.output == (
        f"Error: '{tmp_path}' is no build folder: it has no manifest.json; make one with 'nnhw build'\n"
    )


def test_cli_build_from_rejects_what_is_no_build_before_it_begins(small_net: str, tmp_path: Path) -> None:
    result = nnhw_command("build", small_net, "--from", str(tmp_path / "none"), "--out", str(tmp_path / "b"))
    assert result.exit_code == 1
    expected = f"Error: '{tmp_path / 'none'}' is no build folder: it has no manifest.json; make one with 'nnhw build'\n"
    assert result.output.endswith(expected)
    assert not (tmp_path / "b").exists()


def test_cli_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nnhw", "--debug", "report", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")


def test_cli_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nnhw.flow.pipeline.Build.load", interrupted)
    result = nnhw_command("report", str(tmp_path))
    assert result.exit_code == 130
    assert result.output == "interrupted; what was finished before is kept, nothing is half-written\n"


@pytest.mark.parametrize("blocked", ["--out", "NNHW_CACHE"])
def test_cli_build_rejects_a_file_where_a_folder_has_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_net: str, blocked: str
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" if blocked == "--out" else tmp_path / "b"
    if blocked == "NNHW_CACHE":
        monkeypatch.setenv("NNHW_CACHE", str(tmp_path / "file"))
    result = nnhw_command("build", small_net, "--stop-at", "map", "--out", str(out))
    assert result.exit_code == 1
    said = "' is a file, but a folder is needed there" if blocked == "--out" else "', which is no folder that can"
    assert f"{tmp_path / 'file'}{said}" in result.output
    assert "Traceback" not in result.output


def test_cli_says_what_the_system_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nnhw.flow.pipeline.Build.load", full)
    result = nnhw_command("report", str(tmp_path))
    assert result.exit_code == 1
    assert result.output == (
        "Error: the system refused to read or write a file: No space left on device; see whether it is there, may "
        "be used, and the disk has room\n"
    )


def test_cli_build_names_the_resolved_board_and_prints_the_estimate(small_net: str, tmp_path: Path) -> None:
    result = nnhw_command("build", small_net, "--board", "ice40", "--stop-at", "map", "--out", str(tmp_path / "b"))
    assert result.exit_code == 0, result.output
    assert "board: icebreaker (1BitSquared iCEBreaker, up5k)" in result.output
    assert "Not built yet" in result.output
    again = nnhw_command("report", str(tmp_path / "b"))
    assert again.exit_code == 0
    assert "PE x SIMD" in again.output


def test_cli_report_json_follows_the_schema(small_net: str, tmp_path: Path) -> None:
    nnhw_command("build", small_net, "--stop-at", "map", "--out", str(tmp_path / "b"))
    result = nnhw_command("report", str(tmp_path / "b"), "--json")
    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(result.stdout), schema)


def test_cli_build_rejects_an_unknown_board(small_net: str) -> None:
    result = nnhw_command("build", small_net, "--board", "icebraker")
    assert result.exit_code == 1
    last = result.output.splitlines()[-1]
    assert last.startswith("Input: board 'icebraker' is not known; did you mean 'icebreaker' or 'icebreaker_bitsy'?")


@pytest.mark.parametrize("stage", ["capture", "collapse_chains", "head", "lower", "tail"])
def test_cli_ir_prints_a_graph_that_parses_back(small_net: str, stage: str) -> None:
    result = nnhw_command("ir", small_net, "--stage", stage)
    assert result.exit_code == 0
    assert result.stdout.startswith("(graph small")
    assert result.stdout.count("(") == result.stdout.count(")")


def test_cli_ir_prints_the_engines(small_net: str) -> None:
    result = nnhw_command("ir", small_net, "--stage", "map")
    assert json.loads(result.stdout)["accelerator"]["board"] == "icebreaker"


def test_cli_ir_shows_progress_beside_the_graph(small_net: str) -> None:
    result = nnhw_command("ir", small_net)
    assert result.stdout.startswith("(graph small")
    shown = [line.partition(" ... ")[0] for line in result.stderr.splitlines()]
    assert shown == ["load", "capture", "lower"]


@pytest.mark.parametrize(
    "arguments",
    [("ir", "--stage", "lowr"), ("build", "--stop-at", "mapp"), ("build", "--start-from", "map", "--stop-at", "lower")],
)
def test_cli_checks_stages_before_it_reads_the_model(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command, *options = arguments
    result = nnhw_command(command, str(tmp_path / "missing.py"), *options)
    assert result.exit_code == 1
    assert re.match(r"Input: (there is no (graph behind a )?stage|a build cannot start from 'map')", result.output)


def test_cli_help_lists_the_stages_and_passes_that_there_are() -> None:
    assert re.split(", | or ", cli.STAGES) == list(STAGE_NAMES)
    assert cli.PASSES.split(", ") == list(PIPELINE)
    shown = {command: " ".join(plain_help(command).split()) for command in ("build", "ir")}
    assert shown["build"].count(cli.STAGES) == 2
    assert cli.PASSES in shown["ir"]


def plain_help(command: str) -> str:
    """Return the help of a command without the frames of its tables."""
    output = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100"}).output
    return re.sub(r"[^\x20-\x7e\n]", "", output)


def test_cli_ir_rejects_an_unknown_stage(small_net: str) -> None:
    result = nnhw_command("ir", small_net, "--stage", "lowr")
    assert result.exit_code == 1
    assert result.output.startswith("Input: there is no graph behind a stage 'lowr'; there is one behind ")


def test_cli_check_accepts_a_good_model(small_net: str) -> None:
    result = nnhw_command("check", small_net)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{small_net}: no problems",
        "on the host, in front: flatten '0', quantize '1'",
        "on the device: linear '2', threshold '4', linear '5'",
        "on the host, behind: dequantize '5', mul '6'",
        "the engine, at 48 MHz if that is reached: 1,500,000 images/s, latency 1.44 us",
        "link uart at 12,000,000 baud: 119,205 images/s, limited by the link",
        "link spi at 6,000,000 bit/s: 74,503 images/s, limited by the link",
        "link ftdi at 30,000,000 bit/s: 372,516 images/s, limited by the link",
    ]
    shown = [line.partition(" ... ")[0] for line in result.stderr.splitlines()]
    assert shown == ["load", "capture", "lower", "map"]


FLOAT_NET = """
import torch
from torch import nn
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).eval()
example_input = torch.rand(4, 8)
"""


@pytest.fixture
def float_net(tmp_path: Path) -> str:
    path = tmp_path / "plain.py"
    path.write_text(FLOAT_NET, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("command", ["check", "build", "ir"])
def test_cli_says_in_one_line_that_a_model_is_not_quantized(
    float_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = nnhw_command(command, float_net)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == (
        "Input: this model has no quantizers: use --calibrate DATA.npy, or nnhw.quantize"
    )
    assert "problem" not in result.output


@pytest.mark.parametrize("bits", [(), ("--weight-bits", "4", "--act-bits", "5")])
def test_cli_check_and_ir_quantize_a_float_model(float_net: str, tmp_path: Path, bits: tuple[str, ...]) -> None:
    data = str(tmp_path / "data.npy")
    np.save(data, np.random.default_rng(1).random((20, 8)).astype(np.float32))
    result = nnhw_command("check", float_net, "--calibrate", data, *bits)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, f"{float_net}: no problems")
    assert "quantize ... " in result.stderr
    graph = nnhw_command("ir", float_net, "--stage", "capture", "--calibrate", data, *bits)
    assert ("int -7 7" in graph.stdout, "int 0 31" in graph.stdout) == (bool(bits), bool(bits))


def test_cli_check_rejects_bits_without_data(float_net: str) -> None:
    result = nnhw_command("check", float_net, "--weight-bits", "4")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "need --calibrate DATA.npy" in result.stderr


def test_cli_says_that_data_do_not_exist_before_it_loads_the_model(float_net: str, tmp_path: Path) -> None:
    result = nnhw_command("build", float_net, "--calibrate", str(tmp_path / "no.npy"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.strip() == f"Input: --calibrate: '{tmp_path / 'no.npy'}' does not exist; check the path"


def test_cli_heads_a_model_file_that_fails_as_input(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text("1 / 0\n", encoding="utf-8")
    result = nnhw_command("check", str(path))
    assert f"\nInput: {path} fails at fails.py:1: ZeroDivisionError: division by zero;" in result.stderr


def test_cli_check_lists_all_problems(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        "import torch\nfrom torch import nn\nfrom nnhw.nn import QuantLinear, Sign\n"
        "model = nn.Sequential(Sign(), QuantLinear(8, 4, bias=False), nn.GroupNorm(1, 4), Sign(), "
        "QuantLinear(4, 4, bias=False), nn.RReLU())\n"
        "example_input = torch.rand(2, 8)\n",
        encoding="utf-8",
    )
    result = nnhw_command("check", str(path))
    assert result.exit_code == 1
    assert "Not supported: 2 problems:\n" in result.stderr
    assert "group_norm" in result.output
    assert "rrelu" in result.output
    assert result.output.count("bad.py:4") == 2


EARLY: list[tuple[tuple[str, ...], str]] = [
    (("build", "none.py"), "Input: model file none.py does not exist"),
    (("check", "none.py"), "Input: model file none.py does not exist"),
    (("check", "data.npy"), "Input: a model is FILE.py, FILE.py:NAME, FILE.ir, FILE.onnx, FILE.tflite or FILE.pt2"),
    (("fit", "none.py"), "Input: model file none.py does not exist"),
    (("ir", "none.py"), "Input: model file none.py does not exist"),
    (("export", "onnx", "none.py"), "Input: model file none.py does not exist"),
    (("export", "c", "none.py"), "Input: model file none.py does not exist"),
    (("search", "none.py"), "Input: model file none.py does not exist"),
    (("build", "net.py", "--board", "none"), "Input: board 'none' is not known"),
    (("check", "net.py", "--board", "none"), "Input: board 'none' is not known"),
    (("fit", "net.py", "--board", "none"), "Input: board 'none' is not known"),
    (("search", "net.py", "--board", "none"), "Input: board 'none' is not known"),
    (("build", "net.py", "--clock", "500"), "Input: --clock 500 is not possible: the PLL makes at most 270 MHz"),
    (("fit", "net.py", "--clock", "500", "-b", "ice40"), "Input: --clock 500 is not possible: the PLL makes at"),
    (("search", "net.py", "--clock", "500"), "Input: --clock 500 is not possible: the PLL makes at most 270 MHz"),
    (("build", "net.py", "--clock", "-1"), "Input: --clock needs a number of MHz from 0.001 to 10000, given -1"),
    (("build", "net.py", "--link", "none"), "Input: --link is one of 'uart', 'spi', 'ftdi', 'usb', 'ulpi'; given"),
    (("build", "net.py", "--out", "net.py"), "Error: 'net.py' is a file, but a folder is needed there"),
    (("export", "c", "net.py", "--out", "net.py"), "Error: 'net.py' is a file, but a folder is needed"),
    (("search", "net.py", "--out", "net.py"), "Error: 'net.py' is a file, but a folder is needed there"),
    (("export", "onnx", "net.py", "--out", "none/a.onnx"), "Input: 'none/a.onnx' cannot be written: there is no"),
    (("ir", "net.py", "--out", "none/a.ir"), "Input: 'none/a.ir' cannot be written: there is no folder 'none'"),
    (("ir", "net.py", "--svg", "a.png"), "Input: 'a.png' must end in .svg"),
    (("check", "net.py", "--calibrate", "flat.npy"), "Input: --calibrate: 'flat.npy' needs numbers of shape"),
    (("check", "net.py", "--calibrate", "net.py"), "Input: --calibrate: 'net.py' cannot be read as .npy: "),
    (
        ("build", "net.py", "--calibrate", "data.npy", "--labels", "flat.npy"),
        "Input: labels 'flat.npy' need the shape [20], whole numbers, one per image, got float64 [3]",
    ),
    (("build", "net.py", "--array", "none"), "Error: build folder 'none' has no readable accelerator"),
    (("build", "net.py", "--from", "none"), "Error: 'none' is no build folder"),
    (("run", "none", "data.npy"), "Error: 'none' is no build folder"),
    (("sim", "none"), "Error: 'none' is no build folder"),
    (("program", "none"), "Error: 'none' is no build folder"),
    (("export", "core", "none"), "Error: 'none' is no build folder"),
    (("export", "driver", "none"), "Error: 'none' is no build folder"),
]
# An import of torch fails in this process, so whatever is found there is found without it.
RUN_EARLY = """
import json, sys
sys.modules["torch"] = None
from typer.testing import CliRunner
from nnhw.cli import app
done = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([(result.exit_code, result.stdout, result.stderr) for result in done]))
"""


@pytest.fixture(scope="module")
def found_early(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], list[Any]]:
    """Run all commands of `EARLY` in one process; return exit code, stdout and stderr of each."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "net.py").write_text("raise AssertionError('the model is loaded')\n", encoding="utf-8")
    np.save(folder / "data.npy", np.zeros((20, 8)))
    np.save(folder / "flat.npy", np.zeros(3))
    arguments = [arguments for arguments, _ in EARLY]
    command = [sys.executable, "-c", RUN_EARLY, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["data.npy", "flat.npy", "net.py"]
    return dict(zip(arguments, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize(("arguments", "said"), EARLY)
def test_cli_finds_what_is_cheap_to_find_before_it_imports_torch(
    found_early: dict[tuple[str, ...], list[Any]], arguments: tuple[str, ...], said: str
) -> None:
    code, output, errors = found_early[arguments]
    assert (code, output) == (1, "")
    assert errors.startswith(said), errors


@pytest.mark.parametrize("bits", ["0", "9"])
def test_cli_rejects_bits_that_nothing_can_have(bits: str) -> None:
    result = nnhw_command("check", "net.py", "--calibrate", "data.npy", "--weight-bits", bits)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: Invalid value for '--weight-bits': ")
    assert re.search(r"(1<=x<=8|than or equal to [18]); see 'root check --help'\n$", result.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "first"),
    [
        (("--nope",), 2, "Usage: No such option: --nope; see 'root --help'"),
        (("check",), 2, "Usage: Missing argument 'FILE[:NAME]'; see 'root check --help'"),
        (("export", "nope"), 2, "Usage: No such command 'nope'; see 'root export --help'"),
        (("report", "none"), 1, "Error: 'none' is no build folder"),
        (("check", "none.py"), 1, "Input: model file none.py does not exist"),
    ],
)
def test_cli_heads_every_error_and_has_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, first: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = nnhw_command(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(first)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (TimingError("5 MHz are missed"), "Error: 5 MHz are missed"),
        (ExactnessError("they differ"), "Error: they differ"),
        (MappingError("no engine"), "Not supported: no engine"),
        (DoesNotFitError("too large"), "Does not fit: too large"),
    ],
)
def test_cli_ends_with_1_whatever_was_refused_or_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: NnhwError, first: str
) -> None:
    def refused(path: Path) -> None:
        raise error

    monkeypatch.setattr("nnhw.flow.pipeline.Build.load", refused)
    result = nnhw_command("report", str(tmp_path))
    assert (result.exit_code, result.stderr) == (1, f"{first}\n")


@pytest.mark.parametrize("command", [(), ("export",)])
def test_cli_shows_its_help_without_arguments(command: tuple[str, ...]) -> None:
    result = nnhw_command(*command)
    assert result.exit_code == 2
    assert result.output.count("Usage: ") == 1
    assert "Usage: root" in result.output


def test_cli_help_lists_the_exit_codes() -> None:
    assert "Exit codes: 0 success; 1 refused or failed; 2 usage" in " ".join(nnhw_command("--help").output.split())


def test_cli_sets_up_its_process_unless_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    try:
        cli._use_less_time()
        assert gc.get_threshold() == cli.COLLECTED
    finally:
        gc.set_threshold(*before)
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    cli._use_less_time()
    gc.set_threshold(*before)
    assert os.environ["OMP_WAIT_POLICY"] == "active"
