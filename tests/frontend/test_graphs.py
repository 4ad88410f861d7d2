"""Graphs of the IR as models: files, builds, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import nnhw
from nnhw.cli import app
from nnhw.errors import InputError, IrError
from nnhw.frontend import load_source
from nnhw.frontend.graphs import GraphModel
from nnhw.ir import BIPOLAR, Builder, IntType, dumps, load, run, save

ROOT = Path(__file__).resolve().parents[2]
BY_HAND = ROOT / "examples" / "hand_written.ir"


def nnhw_command(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_file_of_codes_takes_them_as_numbers() -> None:
    source = load_source(BY_HAND)
    captured = source.capture()
    assert source.name == captured.name == "hand_written"
    assert (source.example_input.min(), source.example_input.max()) == (0, 3)
    codes = np.random.default_rng(0).integers(0, 4, (30, 1, 4, 4))
    expected = run(load(BY_HAND), codes)[0]
    assert (run(captured, codes.astype(np.float64))[0] == expected).all()
    images = torch.from_numpy(codes.astype(np.float32))
    assert (nnhw.reference(source.model)(images).numpy() == expected).all()
    assert isinstance(source.model, GraphModel)
    assert (source.model(images).numpy() == expected).all()


@pytest.mark.parametrize("dtype", [BIPOLAR, IntType(-8, 7), IntType(5, 9)])
def test_example_of_codes_has_both_ends_of_their_range(dtype: IntType) -> None:
    builder = Builder("g")
    x = builder.input("x", (3, 2), dtype.low, dtype.high, bipolar=dtype.bipolar)
    model = GraphModel(builder.build(x.flatten().linear([[1] * 6])))
    example = model.example().numpy()
    assert (example.min(), example.max()) == (dtype.low, dtype.high)
    assert model.compute(example).shape == (2, 1)


def test_graph_is_built_and_its_parts_are_graphs_again(tmp_path: Path) -> None:
    made = nnhw.build(GraphModel(load(BY_HAND)), torch.zeros(1, 1, 4, 4), name="net", out=tmp_path / "b", stop_at="map")
    assert made.report["model"]["name"] == "net"
    again = load_source(made.path / "lower.ir").capture()
    codes = np.random.default_rng(0).integers(0, 4, (30, 1, 4, 4)).astype(np.float64)
    assert (run(again, codes)[0] == run(load_source(BY_HAND).capture(), codes)[0]).all()


def test_what_nnhw_ir_writes_is_read_back_and_is_a_model(tmp_path: Path) -> None:
    model = ROOT / "examples" / "mnist_mlp.py"
    whole, parted, printed = (tmp_path / name for name in ("whole.ir", "parted.ir", "printed.ir"))
    assert nnhw_command("ir", model, "--stage", "capture", "--out", whole, "--data").exit_code == 0
    assert nnhw_command("ir", model, "--stage", "capture", "--out", parted).exit_code == 0
    printed.write_text(CliRunner().invoke(app, ["ir", str(whole), "--stage", "capture", "--data"]).stdout, "utf-8")
    captured = load_source(model).capture()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parted.ir", "parted.npz", "printed.ir", "whole.ir"]
    for path in (whole, parted):
        assert load(path) == captured
    assert dumps(load(printed), data=True).partition("\n")[2] == dumps(captured, data=True).partition("\n")[2]
    result = nnhw_command("check", whole)
    assert result.exit_code == 0, result.output
    assert "on the host, behind: dequantize" in " ".join(result.output.split())


def test_pictures_of_models_and_builds_are_written(tmp_path: Path) -> None:
    svg = tmp_path / "net.svg"
    result = nnhw_command("ir", BY_HAND, "--stage", "map", "--svg", svg)
    assert result.exit_code == 0, result.output
    assert "hand_written_body on icebreaker: a frame in" in svg.read_text(encoding="utf-8")
    nnhw.build(GraphModel(load(BY_HAND)), torch.zeros(1, 1, 4, 4), name="net", out=tmp_path / "b", stop_at="map")
    result = nnhw_command("ir", tmp_path / "b", "--stage", "map", "--svg", svg)
    assert result.exit_code == 0, result.output
    assert "net_body on icebreaker: a frame in" in svg.read_text(encoding="utf-8")
    assert nnhw_command("ir", tmp_path / "b", "--stage", "capture").output.startswith("(graph net (version 1)\n")


def test_ir_rejects_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.npz").touch()
    np.save(tmp_path / "a.npy", np.zeros((2, 4), np.float32))
    for arguments, message in (
        (("--out", tmp_path / "a.txt"), f"'{tmp_path / 'a.txt'}' must end in .ir, as what is written is recognized by"),
        (("--svg", tmp_path / "a.png"), f"'{tmp_path / 'a.png'}' must end in .svg, as what is written is recognized "),
        (
            ("--out", tmp_path / "a.ir", "--stage", "map"),
            "--out writes graphs, and behind map there are engines; lea",
        ),
        (("--out", tmp_path / "a.ir", "--data"), f"'{tmp_path / 'a.npz'}' would be read with '{tmp_path / 'a.ir'}', "),
        (("--out", tmp_path / "no" / "a.ir"), f"'{tmp_path / 'no' / 'a.ir'}' cannot be written: there is no folder"),
        (
            ("--calibrate", tmp_path / "a.npy"),
            "'hand_written' is a graph, whose quantizers are in it; leave --calib",
        ),
    ):
        result = nnhw_command("ir", BY_HAND, *arguments)
        assert result.exit_code == 1
        assert message in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"a.npy", "a.npz"}
    result = nnhw_command("ir", tmp_path)
    assert "is no build folder" in result.output


def test_check_says_line_and_column_of_a_text_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "net.ir"
    path.write_text(
        BY_HAND.read_text(encoding="utf-8").replace("(conv2d :padding", "(con2d :padding"), encoding="utf-8"
    )
    result = nnhw_command("check", path)
    assert result.exit_code == 1
    assert f"{path}:13:11: unknown operator 'con2d'; did you mean conv2d? known are input," in result.output
    assert "\n      (edges (con2d :padding (1 1)) (pixels edges.weight))\n              ^\n" in result.output


def test_graph_needs_one_input_and_one_output() -> None:
    builder = Builder("g")
    x, y = (builder.input(name, (2,), low=0, high=1) for name in "xy")
    total = x.weighted_sum(y, factors=(1, 1))
    with pytest.raises(InputError) as caught:
        GraphModel(builder.build(total))
    assert str(caught.value) == (
        "graph 'g' needs one input and one output to be a model, got 2 inputs and 1 outputs; take the part between one "
        "of each"
    )
    other = Builder("g")
    a = other.input("a", (2,), low=0, high=1)
    with pytest.raises(InputError, match="got 1 inputs and 2 outputs"):
        GraphModel(other.build(a.linear([[1, 1]]), a.flatten()))


def test_numbers_may_be_in_the_text_and_in_the_file_beside_it(tmp_path: Path) -> None:
    path, arrays = save(load(BY_HAND), tmp_path / "net.ir")
    assert load(path) == load(BY_HAND)
    arrays.unlink()
    with pytest.raises((InputError, IrError), match=r"'edges\.weight' has no array; give its numbers in the text"):
        load_source(path)
