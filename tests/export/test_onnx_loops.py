"""Recurrent networks as ONNX: loops are Scan, and ONNX Runtime gives the same integers for any number of steps."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.random_recurrent import random_recurrent
from nnhw import ir
from nnhw.cli import app
from nnhw.ir import Graph
from nnhw.passes import lower, split

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'nnhw[onnx]'")
pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'nnhw[onnx]'")

ROOT = Path(__file__).resolve().parents[2]
SEEDS, STEPS = range(1, 25), (1, 2, 9, 50)


def sequences(body: Graph, steps: int, seed: int) -> np.ndarray:
    """Return random codes of five sequences."""
    kind, shape = body.inputs[0].type.int_dtype, body.inputs[0].type.shape
    codes = np.random.default_rng(seed).integers(kind.low, kind.high + 1, (5, steps, *shape))
    return np.where(codes < 1, -1, 1) if kind.bipolar else codes


@functools.cache
def drawn(seed: int) -> Graph:
    """Return the integers of a drawn network."""
    return split(lower(random_recurrent(seed, reverses=True))).body


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_loops_give_the_same_integers(seed: int, optimized: bool) -> None:
    from nnhw.export.onnx import to_bytes, to_onnx
    from nnhw.export.onnx_runtime import run_file

    body = drawn(seed)
    content = to_bytes(to_onnx(body))
    for steps in STEPS:
        codes = sequences(body, steps, seed)
        assert np.array_equal(run_file(content, body, codes, optimized), ir.run(body, codes)[0])


def test_loops_of_the_drawn_networks_are_of_all_kinds() -> None:
    graphs = [drawn(seed) for seed in SEEDS]
    assert max(len(scan.states) for graph in graphs for _, scan in graph.loops) >= 3
    assert {len(graph.loops) for graph in graphs} == {1, 2}
    names = {node.op.name for graph in graphs for node in graph.nodes}
    assert {"last_step", "reverse_steps"} <= names


@pytest.mark.parametrize("name", ["spoken_digits", "motion_lstm"])
def test_examples_are_exported_and_compared(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    result = CliRunner().invoke(app, ["export", "onnx", str(ROOT / "examples" / f"{name}.py"), "--out", str(path)])
    assert result.exit_code == 0, result.output
    model = onnx.load(path)
    assert [node.op_type for node in model.graph.node].count("Scan") == 1
    first = model.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param for dim in first[:2]] == ["N", "steps"]
