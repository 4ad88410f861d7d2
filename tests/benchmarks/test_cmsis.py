"""CMSIS-NN's own test vectors: all files in the IR and the golden stages, one of each kind in RTL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import cmsis
from nnhw.errors import InputError
from nnhw.mapping.mapper import map_body
from tests.sim.test_benches import pytestmark as needs_simulator


def files() -> list[Path]:
    """Return the files, or none where the data is not there."""
    try:
        return cmsis.vector_files()
    except InputError:
        return []


FILES = files()
SMALL = ("conv_4", "depthwise_null_bias_1", "fully_connected")
needs_data = pytest.mark.skipif(not FILES, reason="NNHW_DATA does not name a folder with cmsis_nn_int8")


@needs_data
def test_all_files_are_there() -> None:
    assert len(FILES) == 23
    assert {cmsis.load_vector(path).kind for path in FILES} == {"conv", "depthwise", "linear"}


@needs_data
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vector_equals_interpreter_and_golden_stages(path: Path) -> None:
    vector = cmsis.load_vector(path)
    body = cmsis.vector_graph(vector)
    assert vector.outputs.size > 0
    assert cmsis.ir_mismatches(vector, body) == 0
    accelerator = map_body(body, "any", cmsis.BUDGET, target_interval=cmsis.INTERVALS[-1])
    assert cmsis.golden_mismatches(vector, accelerator) == 0
    assert cmsis.golden_mismatches(vector, cmsis.double_accelerator(body, cmsis.INTERVALS[-1], "ice40")) == 0


@needs_data
@needs_simulator
@pytest.mark.parametrize("name", SMALL)
def test_vector_equals_rtl(name: str) -> None:
    (path,) = (path for path in FILES if path.stem == name)
    row = cmsis.check_vector(path, "ice40")
    assert row["equal"], row
    assert [each["datapath"] == "multiplication with double rounding" for each in row["rtl"]] == [False, True]
    for rtl in row["rtl"]:
        assert rtl["frames"] >= 8
        assert rtl["predicted_cycles"] == rtl["simulated_cycles"]


@needs_data
def test_wrong_bias_is_seen() -> None:
    vector = cmsis.load_vector(FILES[0])
    biased = replace(vector, arrays={**vector.arrays, "biases_data": vector.arrays["biases_data"] + 300})
    body = cmsis.vector_graph(biased)
    assert cmsis.ir_mismatches(vector, body) > 0
    assert cmsis.golden_mismatches(vector, map_body(body, "any", cmsis.BUDGET, target_interval=20_000)) > 0


def test_missing_files_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHW_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        cmsis.vector_files()
    assert str(caught.value) == (
        f"the vectors of CMSIS-NN are needed in $NNHW_DATA/cmsis_nn_int8, given NNHW_DATA={tmp_path}; "
        "set NNHW_DATA to the folder of the data sets"
    )
