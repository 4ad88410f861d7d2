"""Requantization with double rounding against CMSIS-NN's own test vectors: every output of every file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from nnhw.engines.requantize import DoubleScaler
from nnhw.ir.types import IntType

DATA = os.environ.get("NNHW_DATA")
FILES = sorted(Path(DATA, "cmsis_nn_int8").glob("*.npz")) if DATA else []


class Vector:
    """One file: parameters without their prefix, and arrays as int64."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as stored:
            config = json.loads(str(stored["config_json"]))
            self.arrays = {key: stored[key].astype(np.int64) for key in stored.files if key != "config_json"}
        prefix = next(key for key in config if key.endswith("_OUT_CH")).removesuffix("OUT_CH")
        self.config = {key.removeprefix(prefix): int(value) for key, value in config.items()}
        self.kind = "linear" if "ACCUMULATION_DEPTH" in self.config else path.stem.split("_")[0]

    def get(self, name: str, default: int = 1) -> int:
        return self.config.get(name, default)

    def sums(self) -> np.ndarray:
        """Return the accumulators [pixels of all frames, outputs], without bias."""
        outputs, x = self.get("OUT_CH"), self.arrays["input_data"] + self.get("INPUT_OFFSET", 0)
        if self.kind == "linear":
            return x.reshape(-1, self.get("ACCUMULATION_DEPTH")) @ self.arrays["weights_data"].reshape(outputs, -1).T
        rows, columns = self.get("INPUT_H"), self.get("INPUT_W")
        frames = x.reshape(-1, rows, columns, self.get("IN_CH"))
        patches = self._patches(frames)
        kernel = (self.get("FILTER_Y"), self.get("FILTER_X"))
        if self.kind == "depthwise":
            spread = patches.repeat(outputs // self.get("IN_CH"), axis=-1)
            weights = self.arrays["weights_data"].reshape(*kernel, outputs)
            return np.einsum("nhwyxc,yxc->nhwc", spread, weights).reshape(-1, outputs)
        weights = self.arrays["weights_data"].reshape(outputs, *kernel, -1)
        groups = self.get("IN_CH") // weights.shape[-1]
        grouped = patches.reshape(*patches.shape[:-1], groups, -1)
        sums = np.einsum("nhwyxgc,goyxc->nhwgo", grouped, weights.reshape(groups, -1, *weights.shape[1:]))
        return sums.reshape(-1, outputs)

    def _patches(self, frames: np.ndarray) -> np.ndarray:
        """Return [frames, rows, columns, kernel rows, kernel columns, channels] of what each output pixel sees."""
        far = 64  # enough zeros behind the map for every file
        before = (self.get("PAD_Y", 0), self.get("PAD_X", 0))
        padded = np.pad(frames, ((0, 0), (before[0], far), (before[1], far), (0, 0)))
        places = [
            np.arange(self.get(f"OUTPUT_{size}"))[:, None] * self.get(f"STRIDE_{axis}")
            + np.arange(self.get(f"FILTER_{axis}")) * self.get(f"DILATION_{axis}")
            for axis, size in (("Y", "H"), ("X", "W"))
        ]
        return padded[:, places[0][:, None, :, None], places[1][None, :, None, :]]

    def requantizer(self, sums: np.ndarray) -> DoubleScaler:
        """Return the requantizer of the file's parameters."""
        outputs = self.get("OUT_CH")
        if "OUTPUT_MULTIPLIER" in self.config:
            multiplier = np.full(outputs, self.get("OUTPUT_MULTIPLIER"))
            exponent = np.full(outputs, self.get("OUTPUT_SHIFT"))
        else:
            multiplier, exponent = self.arrays["output_mult_data"], self.arrays["output_shift_data"]
        code = IntType(self.get("OUT_ACTIVATION_MIN"), self.get("OUT_ACTIVATION_MAX"))
        raw = IntType(int(sums.min()), int(sums.max()))
        return DoubleScaler.of(
            multiplier, exponent, self.arrays["biases_data"], self.get("OUTPUT_OFFSET", 0), code, raw
        )


@pytest.mark.skipif(not FILES, reason="NNHW_DATA does not name a folder with cmsis_nn_int8")
def test_all_files_are_there() -> None:
    assert len(FILES) == 23


@pytest.mark.skipif(not FILES, reason="NNHW_DATA does not name a folder with cmsis_nn_int8")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_double_scaler_equals_cmsis_nn(path: Path) -> None:
    vector = Vector(path)
    sums = vector.sums()
    codes = vector.requantizer(sums).golden(sums)
    expected = vector.arrays["output_ref_data"]
    assert codes.size == expected.size > 0
    assert (codes.ravel() == expected).all()
