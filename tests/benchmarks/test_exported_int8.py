"""Exported C beside ONNX Runtime: the network in ONNX is that of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import exported_int8
from benchmarks.onnx_twin import OnnxNetwork, channels_in_front, onnx_model
from nnhw.errors import InputError
from nnhw.flow.virtual.compiled import find_cc
from nnhw.frontend.tflite.model_file import FileOperator, FileTensor, ModelFile
from nnhw.frontend.tflite.parsing import read_model

FILE = Path(__file__).resolve().parents[2] / "examples" / "mnist_int8.tflite"


@pytest.mark.skipif(find_cc() is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')")
def test_measure_compares_both_imports_with_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported_int8, "TURNS", 1)
    row = exported_int8.measure("digits", FILE)
    assert row["frames"] == exported_int8.FRAMES
    for key in ("c", "c_of_onnx"):
        assert row[key]["differences"] == 0
        assert 0 < row[key]["us"] < 1e6
        assert sum(row[key]["functions"].values()) >= 3
    assert row["onnx_int8_us"] > 0
    assert row["onnx_float_us"] > 0
    # ONNX Runtime rounds in float32; wrong weights or scales would be far away.
    assert row["distance"] <= 2


def test_the_float_network_is_near_the_codes() -> None:
    model = read_model(FILE)
    given, last = model.tensors[model.input], exported_int8._last(model)
    # A stroke, as codes of noise leave the ranges that the file's codes have, and floats do not.
    codes = np.full((1, *given.shape[1:]), given.zero_point, np.int8)
    codes[:, 5:23, 12:15] = 127
    image = channels_in_front(codes)
    made = OnnxNetwork(onnx_model(model, True))(image).astype(np.int64) - last.zero_point
    reals = ((image.astype(np.int64) - given.zero_point) * given.scale).astype(np.float32)
    found = OnnxNetwork(onnx_model(model, False))(reals) / last.scale
    assert np.ptp(made) > 50
    inside = (made > last.distances.low) & (made < last.distances.high)
    assert np.abs(found - made)[inside].max() < 8


def test_onnx_model_rejects_an_operator_by_name() -> None:
    tensors = tuple(FileTensor(index, f"t{index}", (1, 4), "INT8") for index in range(2))
    file = ModelFile("odd.tflite", tensors, (FileOperator("TANH", (0,), (1,)),), 0, 1)
    with pytest.raises(InputError) as error:
        onnx_model(file, False)
    assert str(error.value) == "TANH 't1' of odd.tflite is not written as ONNX here; add it to benchmarks.onnx_twin"
