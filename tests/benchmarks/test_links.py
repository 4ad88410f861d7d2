"""The benchmark of links: which it measures, and what `docs/links.md` says of them."""

from __future__ import annotations

import pytest

from benchmarks.links import NETWORKS, cases, show
from nnhw.boards import load_board
from nnhw.links import LINKS

from .links_table import BOARDS, TABLE, links_of


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


def test_page_of_links_has_the_logic_of_the_protocol() -> None:
    text = TABLE.path.read_text(encoding="utf-8")
    protocols = " and ".join(str(links_of(board)["protocol_lc"]) for board in (BOARDS[0], BOARDS[2]))
    assert f"{protocols} on an iCE40 and an ECP5" in " ".join(text.split())


@pytest.mark.parametrize("board", BOARDS)
def test_no_link_gives_a_wrong_links_of(board: str) -> None:
    links = links_of(board)["links"]
    assert [link["link"] for link in links] == [case.name for case in cases(load_board(board))]
    for link in links:
        assert link["networks"].keys() == set(NETWORKS)
        for found in link["networks"].values():
            assert found["wrong"] == 0
            assert found["faults"] > 0


def test_the_boards_have_all_kinds_of_links() -> None:
    assert {link["kind"] for board in BOARDS for link in links_of(board)["links"]} == set(LINKS)


def test_links_are_readable(capsys: pytest.CaptureFixture[str]) -> None:
    show(links_of("icebreaker"))
    assert "the protocol takes 718 LC" in capsys.readouterr().out
