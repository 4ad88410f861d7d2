"""The example that takes noise out of waveforms: a float network of convolutions, transposed ones, and a branch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nnhw

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("denoise", EXAMPLES / "denoise.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_denoise_leaves_less_noise_and_loses_little_by_quantization(example: ModuleType) -> None:
    noisy, clean = (waves.numpy() for waves in example.make_waves(1000, seed=0))
    quantized = example.decibels(nnhw.reference(example.model)(noisy), clean)
    as_float = example.decibels(example.float_model(example.make_waves(1000, seed=0)[0]).detach().numpy(), clean)
    assert round(example.decibels(noisy, clean), 2) == 2.15  # what examples/README.md says
    assert round(as_float, 2) == 10.28
    assert abs(quantized - as_float) < 0.2


def test_denoise_runs_in_rtl_with_the_predicted_cycles(example: ModuleType, tmp_path: Path) -> None:
    """Its branch waits in a FIFO that holds no whole number of frames, so that intervals take turns."""
    build = nnhw.build(
        example.model, example.example_input, board="ulx3s_25f", out=tmp_path / "b", frames=4, stop_at="simulate"
    )
    exact, cycles = build.report["exactness"], build.report["cycles"]
    assert (exact["ir_rtl"], exact["rtl_samples"], exact["torch_float64_ir"]) == (0, 4, 0)
    assert cycles["interval"]["predicted"] == cycles["interval"]["simulated"]
    assert cycles["latency"]["predicted"] == cycles["latency"]["simulated"]
    noisy = example.make_waves(3, seed=2)[0].numpy()
    with nnhw.open(build, link="model") as device:
        np.testing.assert_array_equal(device(noisy.astype(np.float64)), nnhw.reference(example.model)(noisy))
