"""The benchmark of shared engines in a row: what it says of each, and a table that people can read."""

from __future__ import annotations

import pytest

from benchmarks import partitions


def test_engines_in_a_row_run_all_layers_beside_one_for_all() -> None:
    row = partitions.compare("ds_cnn_all2", "icebreaker")
    assert row["one"]["products"] > 0
    assert row["several"] is not None
    assert sum(part["layers"] for part in row["several"]) == 11
    assert sum(part["spram"] for part in row["several"]) <= 4
    assert row["ratio"] == max(part["cycles"] for part in row["several"]) / row["one"]["cycles"] < 1


def test_table_has_networks_that_fit_and_others(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"cycles": 1000, "products": 16}
    several = [{"layers": 2, "cycles": 900, "products": 8}, {"layers": 3, "cycles": 1300, "products": 8}]
    rows = [
        {"network": "n", "board": "b", "one": one, "several": several, "ratio": 1.3},
        {"network": "m", "board": "b", "one": one, "several": None, "ratio": None},
    ]
    partitions.show({"networks": rows})
    shown = capsys.readouterr().out
    assert "1.30" in shown
    assert "do not fit" in shown
