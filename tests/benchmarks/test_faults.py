"""The campaign under faults: it finds nothing, and it would find what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import faults
from nnhw import ir, protocol
from tests.driver.fakes import golden, make_accelerator, make_board, make_codes


@pytest.fixture
def case(tmp_path: Path) -> faults.Case:
    """Return toy boards whose image is a frame, and whose answer is one."""
    accelerator = make_accelerator(240, 5)
    accelerator.save(tmp_path)
    kinds = {"head": ((240,), ir.IntType(0, 255)), "tail": ((5,), ir.IntType(-(2**31), 2**31 - 1))}
    for name, (shape, kind) in kinds.items():
        graph = ir.GraphBuilder(name)
        codes = graph.input("codes", ir.TensorType(shape, kind))
        ir.save(graph.build([graph.add("same", ir.ops.Reshape(shape), (codes,))]), tmp_path / f"{name}.ir")
    codes = make_codes(faults.POOL, 240)
    other = make_accelerator(240, 5, "77" * 32)
    return faults.Case(
        name="toy",
        folder=tmp_path,
        images=codes,
        expected=golden(codes, 5),
        own=lambda: make_board(accelerator),
        other=lambda: make_board(other, wrong_by=1),
        most=600,
        image_bytes=240,
    )


def test_faults_give_no_wrong_row(case: faults.Case, capsys: pytest.CaptureFixture[str]) -> None:
    row = faults.as_row(faults.campaign([case], 3000))
    assert row["inferences"] >= 3000
    assert row["by_case"] == {"toy": row["inferences"]}
    assert row["wrong"] == 0
    assert set(row["faults"]) == {"quiet", "bytes harmed", "frames harmed", "board reset", "other model", faults.BACK}
    assert set(row["batches"]) == {"whole", "another bitstream"}
    assert min(row["harmed"], row["swapped"], row["resets"], row["images"] - row["inferences"]) > 0
    faults.show(row)
    assert capsys.readouterr().out.splitlines()[0] == f"{row['inferences']:,} inferences under faults, 0 wrong"


def test_faults_find_a_driver_that_does_not_look_at_the_session(
    case: faults.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_CRC_OF_SESSION", (0,) * 256)
    assert faults.campaign([case], 3000).wrong > 0
