"""Compiled hardware of these tests goes to a cache of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def compiled_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set NNHW_CACHE for the session, so that Verilator's runtime is compiled once."""
    before = os.environ.get("NNHW_CACHE")
    os.environ["NNHW_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["NNHW_CACHE"]
    else:
        os.environ["NNHW_CACHE"] = before
