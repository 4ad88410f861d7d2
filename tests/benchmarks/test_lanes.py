"""The benchmark of lanes: that it counts cells, and that people can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import lanes
from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.hdl.matmul import MatmulEngine
from nnhw.ir.types import BIPOLAR
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


def test_serial_cell_is_counted_once_for_each_bit_of_an_activation(tmp_path: Path) -> None:
    assert lanes.serial(lanes.FORMATS["W8A1"], "ice40", tmp_path) is None
    two, four = (lanes.serial(lanes.FORMATS[name], "ice40", tmp_path) for name in ("W1A2", "W1A4"))
    assert two is not None
    assert four == pytest.approx(2 * two, abs=0.02)
