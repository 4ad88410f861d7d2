"""The campaign under faults: it finds nothing, and it would find what it is for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks import faults
from nnhw import ir, protocol
from nnhw.driver import device, sending, session
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
    (tmp_path / "lower.json").write_text('{"input": null}', encoding="utf-8")
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
    kinds = {faults.QUIET, faults.BYTES, faults.FRAMES, faults.BURSTS, faults.FORK}
    assert set(row["faults"]) == kinds | {faults.RESET, faults.OTHER, faults.BACK}
    assert {"whole", "another bitstream"} <= set(row["batches"])
    assert row["children"] == {"refused": row["faults"][faults.FORK]}
    assert min(row["harmed"], row["lost"], row["swapped"], row["resets"], row["images"] - row["inferences"]) > 0
    faults.show(row)
    assert capsys.readouterr().out.splitlines()[0] == f"{row['inferences']:,} inferences under faults, 0 wrong"


def test_faults_find_a_driver_that_does_not_look_at_the_session(
    case: faults.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "_CRC_OF_SESSION", (0,) * 256)
    assert faults.campaign([case], 3000).wrong > 0


def test_faults_find_a_window_that_numbers_do_not_tell_apart(
    case: faults.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was before there was a limit; with more bursts than a campaign of this size has."""
    monkeypatch.setattr(faults, "plan_swaps", lambda *_: None)
    monkeypatch.setattr(faults.FrameBursts, "_length", lambda self: 256)
    monkeypatch.setattr(sending, "WINDOW_FRAMES", 4000)
    monkeypatch.setattr(device, "WINDOW_FRAMES", 4000)
    monkeypatch.setattr(faults.FaultyLink, "window_bytes", 1 << 20)
    assert faults.campaign([dataclasses.replace(case, most=3000)], 10_000).wrong > 0


def test_faults_find_a_device_that_a_child_may_use(case: faults.Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.Session, "forked", False)
    assert faults.campaign([case], 3000).children["not refused"] > 0
