"""The benchmark of links: which it measures, and that its table on `docs/links.md` is its result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.links import cases, show
from nnhw.boards import load_board

ROOT = Path(__file__).resolve().parents[2]
ROW = json.loads((ROOT / "benchmarks" / "results" / "links-icebreaker.json").read_text(encoding="utf-8"))


def test_cases_are_all_links_at_all_rates() -> None:
    assert [case.name for case in cases(load_board("icebreaker"))] == [
        "uart at 3,000,000 baud",
        "uart at 12,000,000 baud, also 3,000,000",
        "uart at 3,000,000 baud, also 12,000,000",
        "spi at 6,000,000 bit/s",
        "ftdi at 30,000,000 bit/s, also 15,000,000",
        "ftdi at 15,000,000 bit/s, also 30,000,000",
    ]
    found = [(case.name, case.clock_hz) for case in cases(load_board("ulx3s"))]
    assert found == [("uart at 3,000,000 baud", 100_000_000), ("usb at 12,000,000 bit/s", 48_000_000)]


def test_page_of_links_has_the_result() -> None:
    text = (ROOT / "docs" / "links.md").read_text(encoding="utf-8")
    assert f"the protocol takes\n{ROW['protocol_lc']} on each link" in text
    assert [link["link"] for link in ROW["links"]] == [case.name for case in cases(load_board("icebreaker"))]
    for link in ROW["links"]:
        for name, found in link["networks"].items():
            counts = [f"{found[key]:,}" for key in ("theory", "simulated", "frames", "faults", "wrong")]
            assert f"| {link['link']} | {link['lc']} | `{name}` | {' | '.join(counts)} |" in text
            assert found["wrong"] == 0
            assert found["faults"] > 0


def test_links_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROW)
    assert "the protocol takes 718 LC" in capsys.readouterr().out
