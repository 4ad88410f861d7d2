"""The benchmark of lanes: that it counts cells, and that people can read it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lanes
from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.hdl.matmul import MatmulEngine
from nnhw.ir.types import BIPOLAR, IntType
from sim.cases import INT8, matmul


@pytest.mark.parametrize(("family", "block", "count"), [("ice40", "SB_MAC16", 2), ("ecp5", "MULT18X18D", 4)])
def test_synthesize_counts_dsp_blocks(family: str, block: str, count: int, tmp_path: Path) -> None:
    config = matmul(4, 16, 4, 2, formats=(INT8, INT8), hop=4, drain=2, dsp_pe=2)
    assert lanes.synthesize(MatmulEngine(config), family, tmp_path)[block] == count


@pytest.mark.parametrize("family", lanes.FAMILIES)
def test_synthesize_counts_logic_cells(family: str, tmp_path: Path) -> None:
    cells = lanes.synthesize(lanes.Cell(LaneArithmetic(BIPOLAR, BIPOLAR)), family, tmp_path)
    assert 2 * lanes.SIMD < cells["lc"] < 5 * lanes.SIMD


def test_show_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "format": "W4A4",
        "family": "ice40",
        "kind": "product",
        "aim": 53,
        "cell": 33.06,
        "serial": 34.5,
        "array": 35.62,
    }
    lanes.show({"lanes": [row, row | {"aim": None, "packed": 36.5}]})
    assert capsys.readouterr().out.splitlines() == [
        "logic cells per product  family   kind        cell  serial   array  packed     aim",
        "W4A4                     ice40    product    33.06   34.50   35.62           53.00",
        "W4A4                     ice40    product    33.06   34.50   35.62   36.50",
    ]


def test_a_row_has_the_cells_of_its_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "PACKED", ("W1A1",))
    row = lanes.measure(("W1A1", "ice40"))
    assert (row["format"], row["family"], row["kind"], row["aim"]) == ("W1A1", "ice40", "xnor", 3.3)
    assert 2 < row["cell"] < row["array"] < row["packed"] < 2 * row["array"]
    assert lanes.serial((IntType(0, 1), "ice40")) > 1


def test_run_counts_a_serial_cell_once_for_each_bit_of_an_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "FORMATS", {name: lanes.FORMATS[name] for name in ("W8A1", "W1A2", "W1A4")})
    monkeypatch.setattr(lanes, "_all", _made_up)
    rows = lanes.run("icebreaker")["lanes"]
    assert [(row["format"], row["family"], row["serial"]) for row in rows] == [
        *(("W8A1", "ice40", None), ("W8A1", "ecp5", None)),
        *(("W1A2", "ice40", 3.0), ("W1A2", "ecp5", 3.0)),
        *(("W1A4", "ice40", 6.0), ("W1A4", "ecp5", 6.0)),
    ]


def _made_up(_pool: object, _progress: object, name: str, _measured: object, over: Sequence[Any]) -> list[Any]:
    """Stand for the syntheses: what they find takes minutes."""
    if name == "number formats":
        return [{"format": form, "family": family} for form, family in over]
    return [1.5 for _ in over]
