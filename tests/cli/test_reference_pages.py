"""The pages that are made of the code are what the code says now."""

from __future__ import annotations

import pytest

from tests.cli.reference_pages import DOCS, PAGES


@pytest.mark.parametrize("file", list(PAGES))
def test_page_is_what_the_code_says(file: str) -> None:
    made = PAGES[file]()
    assert (DOCS / file).read_text(encoding="utf-8") == made, "run 'python -m tests.cli.reference_pages'"
    rows = [line.split(" | ") for line in made.splitlines() if line.startswith("| `")]
    assert rows
    assert all(row[-1].strip(" |") for row in rows), "a key or an option without a meaning"
