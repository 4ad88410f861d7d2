"""Compiled benches go to a cache of the test session."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def kept_apart(compiled_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep compiled benches out of the user's cache."""
    monkeypatch.setenv("NNHW_CACHE", str(compiled_cache))
